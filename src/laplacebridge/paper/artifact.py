"""What a table or figure of the paper is: something computed, kept as data with its origin, and shown from that."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from laplacebridge.provenance import versions

PROFILES = ("smoke", "small", "paper")  # seconds on generated data; minutes on real data; the original settings

DIGITS = 5

Result = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """How to compute.

    Attributes:
        profile: One of `PROFILES`.
        seed: Of everything random.
        progress: Show progress bars.
    """

    profile: str
    seed: int = 0
    progress: bool = True

    def __post_init__(self) -> None:
        if self.profile not in PROFILES:
            raise ValueError(f"`Run(profile)` needs one of {', '.join(PROFILES)}; got '{self.profile}'.")


@dataclass(frozen=True)
class Artifact:
    """A table or figure.

    Attributes:
        name: As on the command line, for instance ``figure5``.
        title: What it shows.
        compute: Numbers, ready for JSON.
        markdown: Those numbers as a table, beside what the paper printed.
        finding: What agrees with the paper and what does not, in a sentence or two made of those numbers.
        figure: Those numbers drawn; None for a table.
    """

    name: str
    title: str
    compute: Callable[[Run], Result]
    markdown: Callable[[Result], str]
    finding: Callable[[Result], str]
    figure: Callable[[Result], Figure] | None = None


def reproduced(artifact: Artifact, run: Run) -> Result:
    """Computes an artifact and says where its numbers come from.

    Args:
        artifact: The table or figure.
        run: How.
    """
    start = time.perf_counter()
    result = _rounded(artifact.compute(run))
    return {
        "artifact": artifact.name,
        "title": artifact.title,
        "profile": run.profile,
        "seed": run.seed,
        "seconds": round(time.perf_counter() - start, 1),
        "versions": versions(),
        "result": result,
    }


def _rounded(value: Any) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Floats with the digits that anybody looks at, which keeps files small."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def text_of(artifact: Artifact, record: Result) -> str:
    """A record as a section in Markdown; its figure lies beside it as a PNG file.

    Args:
        artifact: What it is a record of.
        record: What `reproduced` gave.
    """
    result = record["result"]
    picture = [] if artifact.figure is None else [f"![{artifact.title}]({artifact.name}.png)"]
    origin = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    settings = f"Profile `{record['profile']}`, seed {record['seed']}, {record['seconds']} s; {origin}.\n"
    parts = [f"## {artifact.name}: {artifact.title}", artifact.finding(result), artifact.markdown(result), settings]
    return "\n\n".join([*parts[:2], *picture, *parts[2:]])


def markdown_table(headings: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown: the first column to the left, numbers to the right.

    Args:
        headings: Of the columns.
        rows: The cells.

    Example:
        >>> print(markdown_table(["method", "KL"], [["LB", "0.09"]]))
        | method | KL |
        |---|---:|
        | LB | 0.09 |
    """
    rule = "|".join(["---"] + ["---:"] * (len(headings) - 1))
    lines = [f"| {' | '.join(headings)} |", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines)
