"""Times that other load on the machine hardly changes.

Processor time is counted, not time on the wall, except with several threads, where the
wall is what a user waits for. Everything to be compared is called in turn, repetition
by repetition, so that a slow minute slows all of it; what counts is the median, with
the interval that holds the true median with 95 %.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
from scipy import stats
from tqdm import tqdm

from laplacebridge_reproduction.artifact import Result

LEVEL = 0.95


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Lets torch use so many threads meanwhile."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def compared(
    calls: Mapping[str, Callable[[], object]],
    *,
    repetitions: int,
    shortest: float = 0.0,
    clock: Callable[[], float] = time.process_time,
    title: str = "",
    progress: bool = False,
) -> dict[str, list[float]]:
    """Seconds of each call, in every repetition.

    Args:
        calls: What to time, by name.
        repetitions: How often, after one call of each that does not count.
        shortest: A call is repeated until it takes as many seconds, and its mean
            counts.
        clock: Processor time by default; `time.perf_counter` is the wall's.
        title: Of the progress bar.
        progress: Show it.
    """
    often = {}
    for name, call in calls.items():
        call()
        start = clock()
        call()
        often[name] = max(1, round(shortest / max(clock() - start, 1e-7)))
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in tqdm(range(repetitions), desc=title, disable=not progress, leave=False):
        for name, call in calls.items():
            start = clock()
            for _ in range(often[name]):
                call()
            found[name].append((clock() - start) / often[name])
    return found


def median(values: list[float]) -> Result:
    """The median, and its interval by the order of the values, which assumes nothing of
    their law.

    Example:
        >>> median([3.0, 1.0, 2.0])
        {'median': 2.0, 'low': 1.0, 'high': 3.0}
    """
    ordered = np.sort(values)
    rank = int(stats.binom.ppf((1 - LEVEL) / 2, len(ordered), 0.5))
    below = max(rank - 1, 0)
    return {
        "median": float(np.median(ordered)),
        "low": float(ordered[below]),
        "high": float(ordered[len(ordered) - 1 - below]),
    }


def readable(seconds: float) -> str:
    """A time for people.

    Example:
        >>> readable(4.23e-5), readable(0.0123), readable(75.0), readable(4e5)
        ('42 µs', '12 ms', '75 s', '111 h')
    """
    for unit, size in (("h", 3600.0), ("s", 1.0), ("ms", 1e-3)):
        if seconds >= (2 * size if unit == "h" else size):
            return f"{_two_digits(seconds / size)} {unit}"
    return f"{_two_digits(seconds / 1e-6)} µs"


def _two_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}"
