"""How benchmarks time and weigh: repetitions after a warm-up, processor and wall time,
memory in a fresh process.
"""

import argparse
import ctypes
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from machine import description

from laplacebridge._stopwatch import Elapsed, once

Call = Callable[[], object]
Row = dict[str, Any]


@dataclass(frozen=True)
class Timing:
    """Seconds of repeated calls: processor time, which other users of a machine disturb
    least, and wall time.
    """

    processor: tuple[float, ...]
    wall: tuple[float, ...]

    @property
    def best(self) -> float:
        """The smallest processor time: what ratios are made of."""
        return min(self.processor)

    def row(self, per: float = 1.0, unit: str = "s", scale: float = 1.0) -> dict[str, float]:
        """Minimum and median of both, for the results.

        Args:
            per: Divide by so many examples.
            unit: Name of the unit.
            scale: Units in a second.
        """
        values = {"processor": self.processor, "wall": self.wall}
        return {
            f"{name} {word}, {unit}": digits(function(times) * scale / per)
            for name, times in values.items()
            for word, function in (("min", min), ("median", statistics.median))
        }


def timed(
    calls: Mapping[str, Call], *, budget: float, least: int = 3, most: int = 1000
) -> dict[str, Timing]:
    """Times of calls that are to be compared: one of each to warm up, then all in turn,
    so that noise meets all alike.

    Args:
        calls: By name.
        budget: Stop after so many seconds for each call, but not before the least
            number of rounds.
        least: Rounds at least.
        most: Rounds at most.
    """
    for call in calls.values():
        call()
    taken: dict[str, list[Elapsed]] = {name: [] for name in calls}
    start = time.perf_counter()
    for done in range(most):
        if done >= least and time.perf_counter() - start > budget * len(calls):
            break
        for name, call in calls.items():
            taken[name].append(once(call))
    return {name: Timing(*zip(*times)) for name, times in taken.items()}


def digits(value: float, places: int = 4) -> float:
    """A number with so many significant digits: more would pretend that they can be
    measured again.
    """
    return float(f"{value:.{places}g}")


def _largest_ever() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def peak_above(call: Callable[[], object]) -> int:
    """The most memory that a call has above what the process holds before it.

    The peak that a process reports only grows, and on Linux it starts with the peak of
    the process that started it. So what was freed is given back first, and the peak is
    set anew. Elsewhere only growth of the old peak is seen.

    Args:
        call: What to run.
    """
    if not sys.platform.startswith("linux"):
        before = _largest_ever()
        call()
        return _largest_ever() - before
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = _bytes_of_process("VmRSS")
    call()
    return _bytes_of_process("VmHWM") - before


def _bytes_of_process(field: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field))


def whole_peak() -> int:
    """The most memory that this process has had, without what the process that started
    it had.
    """
    return _bytes_of_process("VmHWM") if sys.platform.startswith("linux") else _largest_ever()


def in_fresh_process(
    script: str, *arguments: object, timeout: float | None = None
) -> dict[str, Any]:
    """Runs a script, which prints JSON in its last line, so that its peak memory is its
    own.

    Args:
        script: The file.
        arguments: For it.
        timeout: Seconds after which it is stopped.

    Returns:
        What it printed; or ``{"failed": why}``.
    """
    command = [sys.executable, script, *map(str, arguments)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)  # noqa: S603
    except subprocess.TimeoutExpired:
        return {"failed": f"stopped after {timeout:.0f} s"}
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"ended with {done.returncode}"]
        return {"failed": last[0]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def target(
    what: str, measured: float, most: float | None = None, least: float | None = None
) -> dict[str, object]:
    """One line of the table of targets: what was wanted, what was measured, whether
    that holds.

    Args:
        what: In words.
        measured: The figure.
        most: It should not be above this.
        least: It should not be below this.
    """
    met = (most is None or measured <= most) and (least is None or measured >= least)
    wanted = f"≤ {most:.3g}" if most is not None else f"≥ {least:.4g}"
    return {"what": what, "target": wanted, "measured": digits(measured, 3), "met": met}


def chosen(rows: Sequence[Row], **wanted: object) -> list[Row]:
    """Rows with some values."""
    return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]


def run(about: str, script: str, measured: Callable[[bool], dict[str, Any]]) -> None:
    """The command line of a benchmark: measures, prints all rows, and stores them
    unless it was quick.

    Args:
        about: What it does.
        script: Its file.
        measured: From whether to be quick to the results; lists are of rows.
    """
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes, nothing stored unless --output is given"
    )
    parser.add_argument("--output", type=Path, help="where to store the results instead")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with torch.no_grad():
        results = measured(arguments.quick)
    for rows in results.values():
        for row in rows if isinstance(rows, list) else []:
            print(", ".join(f"{name} {value}" for name, value in row.items()))
    path = Path(script)
    usual = path.parent / "results" / f"{path.stem.removeprefix('bench_')}.json"
    output = arguments.output or (None if arguments.quick else usual)
    if output:
        store(output, f"python benchmarks/{path.name}", results)


def store(path: Path, command: str, document: Mapping[str, object]) -> None:
    """Writes results with the command and the machine that made them.

    Args:
        path: Where to.
        command: What anyone can run to make them again.
        document: The results.
    """
    contents = {"command": command, "machine": description(), **document}
    path.write_text(json.dumps(contents, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"stored in {path}")
