"""The stopwatch: what it counts, and how often it runs what it times. Its clock stands
still unless a call moves it.
"""

from types import SimpleNamespace

import pytest

from laplacebridge import _stopwatch
from laplacebridge._stopwatch import once, seconds_per_call


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(wall=100.0, processor=5.0)
    fake = SimpleNamespace(perf_counter=lambda: now.wall, process_time=lambda: now.processor)
    monkeypatch.setattr(_stopwatch, "time", fake)
    return now


@pytest.fixture
def work(clock):
    """A call that takes the next of some times by the clock; the last one again and
    again.
    """

    def working(*seconds):
        def call():
            call.count += 1
            clock.wall += seconds[min(call.count, len(seconds)) - 1]

        call.count = 0
        return call

    return working


def test_waiting_takes_time_of_the_clock_but_not_of_the_processor(work):
    assert once(work(0.5)) == (0.0, 0.5)


def test_a_slow_call_is_run_once_for_each_repetition_and_once_to_warm_up(work):
    call = work(3.0)
    assert seconds_per_call(call, repetitions=4) == 3.0
    assert call.count == 5


def test_a_short_call_is_repeated_until_it_can_be_timed(work):
    call = work(0.125)
    assert seconds_per_call(call, repetitions=2, at_least=1.0) == 0.125
    assert call.count == 1 + 2 * 8


def test_the_shortest_repetition_counts_and_warming_up_does_not(work):
    assert seconds_per_call(work(1.0, 4.0, 2.0, 3.0), repetitions=3) == 2.0
