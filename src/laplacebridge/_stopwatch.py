"""The stopwatch of reports, benchmarks and `laplacebridge bench`."""

import time
from collections.abc import Callable
from typing import NamedTuple


class Elapsed(NamedTuple):
    """Seconds that a call took: of the processor, which other users of a machine
    disturb least, and of the clock.
    """

    processor: float
    wall: float


def once(call: Callable[[], object]) -> Elapsed:
    """Times one call.

    Args:
        call: What to time.

    Example:
        >>> once(lambda: time.sleep(0.01)).wall >= 0.01
        True
    """
    wall, processor = time.perf_counter(), time.process_time()
    call()
    return Elapsed(time.process_time() - processor, time.perf_counter() - wall)


def seconds_per_call(
    call: Callable[[], object], *, repetitions: int = 3, at_least: float = 0.02
) -> float:
    """Seconds that a call takes by the clock: the least of some repetitions, after one
    call to warm up.

    Args:
        call: What to time.
        repetitions: How often to time it.
        at_least: Seconds that a repetition lasts at least: a short call is repeated
            until then.

    Example:
        >>> 0.01 <= seconds_per_call(lambda: time.sleep(0.01)) < 1
        True
    """
    num_calls = max(1, int(at_least / max(once(call).wall, 1e-9)))

    def repeated() -> None:
        for _ in range(num_calls):
            call()

    return min(once(repeated).wall for _ in range(repetitions)) / num_calls
