"""For how long requests gather: rounds of the loop, the patience for clients that were
just answered, and the clock.
"""

import pytest

from laplacebridge.serve.gathering import Gather, patience_after


def rounds(gather, arrivals, step):
    """How many rounds of the loop a gather lasts, given what has arrived after each."""
    for index, arrived in enumerate(arrivals):
        if not gather.goes_on(arrived, now=step * index):
            return index
    return len(arrivals)


def test_a_lone_request_waits_for_a_few_quiet_rounds():
    assert rounds(Gather(until=9.0), [1] * 10, step=1e-5) == 3
    assert rounds(Gather(until=9.0), [1, 2, 3, 4, 4, 4, 4, 4], step=1e-5) == 6


def test_clients_that_were_answered_are_waited_for_until_they_ask_or_are_given_up():
    """Ten of sixteen ask at once: the rest is missed, for no longer than the patience."""
    answered = {"until": 9.0, "expected": 16, "patience": 0.001}
    back = [10] * 40 + [16] * 10
    assert rounds(Gather(**answered), back, step=1e-5) == 43
    gone = [10] * 1000
    assert rounds(Gather(**answered), gone, step=1e-5) == pytest.approx(100, abs=1)


def test_what_never_ceases_ends_by_the_clock():
    assert rounds(Gather(until=0.05), range(10**5), step=1e-5) == pytest.approx(5000, abs=1)


def test_patience_is_little_beside_what_a_batch_takes_and_never_long():
    assert patience_after(0.02) == pytest.approx(0.001)
    assert patience_after(100.0) == 0.005
