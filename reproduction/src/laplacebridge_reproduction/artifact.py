"""What a table or figure of the paper is: something computed, kept as data with its
origin, and shown from that.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from matplotlib.figure import Figure

from laplacebridge._provenance import versions
from laplacebridge_reproduction.data import DataSet, find
from laplacebridge_reproduction.profiles import Profile
from laplacebridge_reproduction.table import Table

PROFILES = tuple(profile.value for profile in Profile)
DIGITS = 5

Result = dict[
    str, Any
]  # what `Artifact.compute` gives, ready for JSON; or a record of it, as `reproduced` gives it


@dataclass(frozen=True)
class Run:
    """How to compute: profile, seed and data folder.

    Attributes:
        profile: One of `PROFILES`.
        seed: Seed of everything random.
        progress: Show progress bars.
        data: The data folder; None is the one that LAPLACEBRIDGE_DATA names, or else a
            folder in the cache.
        used: SHA-256 of every data file that was read, by name.
    """

    profile: str
    seed: int = 0
    progress: bool = True
    data: str | os.PathLike[str] | None = None
    used: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.profile not in PROFILES:
            raise ValueError(
                f"`Run(profile)` needs one of {', '.join(PROFILES)}; got '{self.profile}'."
            )

    def find(self, name: str, split: str = "test") -> DataSet:
        """A data set of the paper, remembered as used.

        Args:
            name: As in `laplacebridge_reproduction.data.find`.
            split: ``train`` or ``test``.
        """
        found = find(name, split, self.data)
        self.used.update({f"{name}/{file}": digest for file, digest in found.sha256.items()})
        return found


@dataclass(frozen=True)
class Artifact:
    """A table or figure.

    Attributes:
        name: As on the command line, for instance ``figure5``.
        title: What it shows.
        compute: Numbers, ready for JSON.
        tables: Those numbers to be read, beside what the paper printed.
        finding: What agrees with the paper and what does not, in a sentence or two made
            of those numbers.
        figure: Those numbers drawn; None for a table.
    """

    name: str
    title: str
    compute: Callable[[Run], Result]
    tables: Callable[[Result], list[Table]]
    finding: Callable[[Result], str]
    figure: Callable[[Result], Figure] | None = None


def reproduced(artifact: Artifact, run: Run) -> Result:
    """Computes an artifact and says where its numbers come from."""
    start = time.perf_counter()
    result = _rounded(artifact.compute(run))
    return {
        "artifact": artifact.name,
        "title": artifact.title,
        "profile": run.profile,
        "seed": run.seed,
        "seconds": round(time.perf_counter() - start, 1),
        "versions": versions(),
        "data": dict(sorted(run.used.items())),
        "result": result,
    }


def _rounded(value: Any) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Floats with the digits that anybody looks at, which keeps files small."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def text_of(artifact: Artifact, record: Result, *, pictures: str = "") -> str:
    """A record as a section in Markdown.

    Args:
        artifact: The table or figure.
        record: What `reproduced` gave for it.
        pictures: Where its PNG file lies, as a prefix; beside the text if empty.
    """
    result = record["result"]
    picture = (
        [] if artifact.figure is None else [f"![{artifact.title}]({pictures}{artifact.name}.png)"]
    )
    origin = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    settings = (
        f"Profile `{record['profile']}`, seed {record['seed']}, {record['seconds']} s; {origin}.\n"
    )
    tables = [table.markdown() for table in artifact.tables(result)]
    heading = f"## {artifact.name}: {artifact.title}"
    return "\n\n".join([heading, artifact.finding(result), *picture, *tables, settings])


def latex_of(artifact: Artifact, record: Result) -> str:
    """The tables of a record for LaTeX; they need the package booktabs."""
    return (
        "\n\n".join(
            [f"% {artifact.title}", *(table.latex() for table in artifact.tables(record["result"]))]
        )
        + "\n"
    )


def csv_of(artifact: Artifact, record: Result) -> str:
    """The tables of a record as comma-separated values, with an empty line between
    them.
    """
    return "\n".join(table.csv() for table in artifact.tables(record["result"]))
