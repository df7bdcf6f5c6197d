"""Times that are compared."""

import numpy as np
import pytest
import torch

from laplacebridge_reproduction.stopwatch import compared, median, readable, threads


class Clock:
    """A clock that moves when something is called."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def takes(self, seconds):
        def call():
            self.now += seconds

        return call


def test_what_is_compared_is_called_in_turn_after_it_was_called_once():
    clock, order = Clock(), []

    def noted(name, call):
        return lambda: (order.append(name), call())

    calls = {"slow": noted("slow", clock.takes(2.0)), "fast": noted("fast", clock.takes(0.5))}
    found = compared(calls, repetitions=3, clock=clock)
    assert found == {"slow": [2.0] * 3, "fast": [0.5] * 3}
    assert order[-6:] == ["slow", "fast"] * 3
    assert len(order) > 6


def test_short_calls_are_repeated_and_their_mean_counts():
    clock = Clock()
    found = compared({"short": clock.takes(0.001)}, repetitions=2, shortest=0.1, clock=clock)
    assert found["short"] == pytest.approx([0.001] * 2)
    assert clock.now > 0.2


def test_the_interval_holds_the_median_as_often_as_it_says():
    generator = np.random.default_rng(0)
    inside = 0
    for _ in range(2000):
        found = median(generator.exponential(size=31).tolist())
        inside += found["low"] <= np.log(2) <= found["high"]
        assert found["low"] <= found["median"] <= found["high"]
    assert 0.94 < inside / 2000 < 0.99


def test_times_are_readable():
    assert [readable(value) for value in (3.0, 123.4, 0.0456, 7.8e-6, 2.5e-4)] == [
        "3 s",
        "123 s",
        "46 ms",
        "7.8 µs",
        "250 µs",
    ]


def test_threads_are_as_before_afterwards():
    before = torch.get_num_threads()
    with pytest.raises(RuntimeError), threads(before + 1):
        raise RuntimeError
    assert torch.get_num_threads() == before
