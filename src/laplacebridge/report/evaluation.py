"""What a report says about a classifier, as values: computed once, then printed,
plotted and stored.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from laplacebridge import metrics
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.errors import InputError, LaplaceBridgeError, ShapeError
from laplacebridge.metrics import Interval
from laplacebridge.sets import ClassSets, overlap_sets

# Names of the methods that the verdict speaks of; bridges go by their names in
# `laplacebridge.bridges.BRIDGES`.
NETWORK, TEMPERATURE, DEFAULT = "MAP", "temperature", "race"
SAMPLE_SIZES = (10, 100, 1000)
# Samples that methods are compared with, and the probability that the sets of the table
# hold.
REFERENCE_SAMPLES = 10_000
SET_MASS = 0.95
# T of Algorithm 1, as in the paper
OVERLAP_THRESHOLD = 0.05
# Up to so many sizes of sets have a line each; more are put together.
_FEW_SIZES = 8


def brief(value: float) -> str:
    """A number of any size in about three digits.

    Example:
        >>> brief(0.01234), brief(1234.5), brief(1.23e12)
        ('0.0123', '1,234', '1.23e+12')
    """
    return f"{value:,.0f}" if 100 <= value < 1e6 else f"{value:.3g}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}\u202f%"  # a narrow space, at which no line breaks


@dataclass(frozen=True)
class Column:
    """A column of the table: what it is called and means, and how its numbers are
    compared and written.

    Attributes:
        name: Field of `Row`; key in JSON and CSV.
        heading: Above the numbers.
        meaning: What the number is, in a few words that follow a colon.
        better: Whether larger or smaller is better; empty if neither is.
        format: Writes a finite number for people.
    """

    name: str
    heading: str
    meaning: str
    better: Literal["larger", "smaller", ""]
    format: Callable[[float], str]

    def text(self, value: float | None) -> str:
        """A number as people read it; a dash where there is none.

        Example:
            >>> COLUMNS["accuracy"].text(0.9342), COLUMNS["microseconds"].text(1234.5), COLUMNS["auroc"].text(None)
            ('93.4\u202f%', '1,234', '—')
        """
        if value is None:
            return "—"
        if math.isnan(value):
            return "not a number"
        return ("∞" if value > 0 else "−∞") if math.isinf(value) else self.format(value)


_four, _three, _two = "{:.4f}".format, "{:.3f}".format, "{:.2f}".format
_COLUMNS = (
    Column("accuracy", "Accuracy", "share of right answers", "larger", _percent),
    Column("nll", "NLL", "negative log-likelihood of the labels, in nats", "smaller", _four),
    Column(
        "ece",
        "ECE",
        "expected calibration error: gap between confidence and accuracy, in 15 bins",
        "smaller",
        _four,
    ),
    Column(
        "brier",
        "Brier",
        "squared distance between probabilities and label, from 0 to 2",
        "smaller",
        _four,
    ),
    Column(
        "auroc",
        "OOD AUROC",
        "chance that 1 − largest probability is higher for an OOD input than for one in"
        " distribution",
        "larger",
        _three,
    ),
    Column(
        "set_size",
        "Set size",
        f"mean number of classes that hold {100 * SET_MASS:g} % of the probability",
        "",
        _two,
    ),
    Column("coverage", "Coverage", "share of these sets that hold the label", "", _percent),
    Column(
        "distance",
        "Distance",
        f"mean total variation from {REFERENCE_SAMPLES:,} samples",
        "smaller",
        _four,
    ),
    Column(
        "microseconds",
        "Time (µs)",
        "microseconds from features to prediction, per example",
        "smaller",
        brief,
    ),
)
COLUMNS = {column.name: column for column in _COLUMNS}


@dataclass(frozen=True, eq=False)
class Row:
    """How one method does: a number for each of `COLUMNS`.

    Attributes:
        method: Its name.
        auroc: With an interval; None without out-of-distribution inputs.
        losses: Negative log-likelihood of each example, to compare methods in pairs.

    Example:
        >>> row = Row("MAP", 0.9, 0.3, 0.02, 0.1, Interval(0.8, 0.7, 0.9, 0.95), 1.2, 0.95, 0.04, 5.0, torch.zeros(1))
        >>> row.accuracy, row.value("auroc")
        (0.9, 0.8)
    """

    method: str
    accuracy: float
    nll: float
    ece: float
    brier: float
    auroc: Interval | None
    set_size: float
    coverage: float
    distance: float
    microseconds: float
    losses: Float[Tensor, " N"] = field(repr=False)

    def value(self, column: str) -> float | None:
        """The number of a column, None where there is none."""
        found = getattr(self, column)
        return found.estimate if isinstance(found, Interval) else found


@dataclass(frozen=True, eq=False)
class Specimen:
    """One input worth looking at.

    Attributes:
        title: Why: "sure", "between two classes", "out-of-distribution".
        prediction: Its Dirichlet, one row.
        label: Its class, if it has one.
        image: The input, channels first or a plane, numbers of any scale; None if it is
            no image.

    Raises:
        ShapeError: If the image is none.
        InputError: If it is not finite.
    """

    title: str
    prediction: Dirichlet
    label: int | None
    image: Tensor | None

    def __post_init__(self) -> None:
        if self.image is None:
            return
        if self.image.dim() not in {2, 3} or self.image.numel() == 0:
            raise ShapeError(
                "`Specimen(image)` needs a plane or channels first, (H, W) or (C, H, W); got "
                f"{tuple(self.image.shape)}. Leave it out if the input is no image."
            )
        if not self.image.isfinite().all():
            raise InputError(
                "`Specimen(image)` needs finite numbers; got NaN or infinity. Leave the image out."
            )


@dataclass(frozen=True)
class PriorCurve:
    """How good every candidate of the prior precision was.

    Attributes:
        candidates: The precisions.
        scores: Smaller is better.
        chosen: The one in use.
        meaning: What the scores are.
    """

    candidates: tuple[float, ...]
    scores: tuple[float, ...]
    chosen: float
    meaning: str


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Everything that a report shows.

    Attributes:
        title: Report title.
        verdict: What was found, in plain words.
        rows: One for each method.
        prediction: The classifier's Dirichlets for the test examples.
        labels: Their classes.
        ood: Its Dirichlets for out-of-distribution inputs, if there are any.
        class_names: One for each class.
        specimens: Inputs worth looking at.
        prior: The candidates of the prior precision, if they are known.
        prior_method: How it was chosen, in a few words.
        intervals: What their width rests on, and what to know before relying on them.
        settings: Seed, versions, sizes: what someone needs to get the same numbers.

    Example:
        >>> from laplacebridge import fit, report
        >>> data = [(torch.eye(3).repeat(10, 1), torch.arange(30) % 3)]
        >>> classifier = fit(torch.nn.Linear(3, 3), data, prior_precision=1.0, progress=False)
        >>> evaluation = report.evaluate(classifier, data, progress=False)  # on other data in practice
        >>> [row.method for row in evaluation.rows][:2], evaluation.to_dict()["rows"][1]["method"]
        (['MAP', 'probit'], 'probit')
    """

    title: str
    verdict: str
    rows: tuple[Row, ...]
    prediction: Dirichlet
    labels: Int[Tensor, " N"]
    ood: Dirichlet | None
    class_names: tuple[str, ...]
    specimens: tuple[Specimen, ...]
    prior: PriorCurve | None
    prior_method: str
    intervals: tuple[str, ...]
    settings: Mapping[str, str]

    @cached_property
    def sets(self) -> ClassSets:
        """The overlap sets of the prediction (uncertainty-aware top-k)."""
        return overlap_sets(self.prediction, OVERLAP_THRESHOLD)

    def best(self, column: str) -> frozenset[str]:
        """The methods with the best value of a column, all of them if they share it."""
        values = {row.method: row.value(column) for row in self.rows}
        known = {
            method: value
            for method, value in values.items()
            if value is not None and math.isfinite(value)
        }
        better = COLUMNS[column].better
        if not known or not better:
            return frozenset()
        target = max(known.values()) if better == "larger" else min(known.values())
        return frozenset(method for method, value in known.items() if value == target)

    def to_dict(self) -> dict[str, Any]:
        """Every number of the report, ready for JSON: what the page shows and programs
        read.

        JSON has no word for infinity or NaN. Such numbers are None, and ``not_finite``
        lists what they were.
        """
        found = {
            "title": self.title,
            "verdict": self.verdict,
            "rows": [_row(row) for row in self.rows],
            "set_sizes": _set_sizes(self.sets, self.labels),
            "prior": None if self.prior is None else asdict(self.prior),
            "prior_method": self.prior_method,
            "intervals": list(self.intervals),
            "settings": dict(self.settings),
        }
        not_finite: list[str] = []
        plain: dict[str, Any] = _plain(found, "", not_finite)
        return {**plain, "not_finite": not_finite}

    def to_html(self) -> str:
        """The report as one page that loads nothing from elsewhere, with the numbers in
        it as JSON.

        Raises:
            LaplaceBridgeError: If a package is missing that draws plots.
        """
        try:
            from laplacebridge.report import (
                page,
            )  # only here: matplotlib takes a second, and numbers can do without
        except ModuleNotFoundError as error:
            raise LaplaceBridgeError(
                f"The page of a report needs {error.name}, which is not installed. Install it with "
                "`pip install 'laplacebridge[report]'`."
            ) from error
        return page.html(self)


def _row(row: Row) -> dict[str, Any]:
    values = {name: getattr(row, name) for name in COLUMNS}
    return {"method": row.method} | {
        name: asdict(value) if isinstance(value, Interval) else value
        for name, value in values.items()
    }


def _set_sizes(sets: ClassSets, labels: Int[Tensor, " N"]) -> dict[str, Any]:
    counts = torch.bincount(sets.size).tolist()
    sizes = [size for size, count in enumerate(counts) if count]
    every_size = sorted({end for size in sizes for end in (size - 1, size) if end >= 0})
    ends = every_size if len(sizes) <= _FEW_SIZES else metrics.covering.SIZE_GROUPS
    groups = metrics.coverage_by_size(sets, labels, groups=ends)
    columns = (
        groups.smallest.tolist(),
        groups.largest.tolist(),
        groups.count.tolist(),
        groups.coverage.tolist(),
    )
    return {
        "threshold": OVERLAP_THRESHOLD,
        "mean": metrics.mean_set_size(sets),
        "coverage": metrics.coverage(sets, labels),
        "counts": {str(size): counts[size] for size in sizes},
        "groups": [
            # the best class is always in, so that no set is empty
            {"smallest": max(smallest, 1), "largest": largest, "count": count, "coverage": share}
            for smallest, largest, count, share in zip(*columns)
        ],
    }


def _plain(value: Any, place: str, not_finite: list[str]) -> Any:  # noqa: ANN401 - whatever JSON holds
    """The same with None for every number that is not finite; their places are added to
    the list.
    """
    if isinstance(value, dict):
        return {
            key: _plain(part, f"{place}.{key}".lstrip("."), not_finite)
            for key, part in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_plain(part, f"{place}.{index}", not_finite) for index, part in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        not_finite.append(f"{place} is {value}")
        return None
    return value
