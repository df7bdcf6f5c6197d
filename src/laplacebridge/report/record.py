"""The numbers of a report as plain data, and how people read them."""

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch

from laplacebridge import metrics
from laplacebridge.metrics import Interval
from laplacebridge.report.evaluation import COLUMNS, Evaluation, Row
from laplacebridge.sets import ClassSets, overlap_sets

# T of Algorithm 1, as in the paper
SET_THRESHOLD = 0.05
# Up to so many sizes of sets have a line each; more are put together.
_FEW_SIZES = 8


def brief(value: float) -> str:
    """A number of any size in about three digits.

    Args:
        value: The number.

    Example:
        >>> brief(0.01234), brief(1234.5), brief(1.23e12)
        ('0.0123', '1,234', '1.23e+12')
    """
    return f"{value:,.0f}" if 100 <= value < 1e6 else f"{value:.3g}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"  # a narrow space, at which no line breaks


_FORMATS: dict[str, Callable[[float], str]] = {
    "accuracy": _percent,
    "nll": "{:.4f}".format,
    "ece": "{:.4f}".format,
    "brier": "{:.4f}".format,
    "auroc": "{:.3f}".format,
    "set_size": "{:.2f}".format,
    "coverage": _percent,
    "distance": "{:.4f}".format,
    "microseconds": brief,
}


def number(column: str, value: float | None) -> str:
    """How a number of a column is written for people; a dash where there is none.

    Args:
        column: One of `COLUMNS`.
        value: The number.

    Example:
        >>> number("accuracy", 0.9342), number("microseconds", 1234.5), number("auroc", None)
        ('93.4\u202f%', '1,234', '—')
    """
    if value is None:
        return "—"
    if math.isnan(value):
        return "not a number"
    return ("∞" if value > 0 else "−∞") if math.isinf(value) else _FORMATS[column](value)


def record(evaluation: Evaluation) -> dict[str, Any]:
    """The numbers of a report, ready for JSON: what the page shows and programs read.

    JSON has no word for infinity or NaN. Such numbers are None, and ``not_finite`` lists what they were.

    Args:
        evaluation: What was found.
    """
    return record_with_sets(evaluation, overlap_sets(evaluation.prediction, SET_THRESHOLD))


def record_with_sets(evaluation: Evaluation, sets: ClassSets) -> dict[str, Any]:
    """`record`, if the overlap sets are there already.

    Args:
        evaluation: What was found.
        sets: The overlap sets of its prediction.
    """
    prior = evaluation.prior
    found = {
        "title": evaluation.title,
        "verdict": evaluation.verdict,
        "rows": [_row(row) for row in evaluation.rows],
        "set_sizes": _set_sizes(sets, evaluation),
        "prior": None if prior is None else asdict(prior),
        "prior_method": evaluation.prior_method,
        "settings": dict(evaluation.settings),
    }
    not_finite: list[str] = []
    plain: dict[str, Any] = _plain(found, "", not_finite)
    return {**plain, "not_finite": not_finite}


def _row(row: Row) -> dict[str, Any]:
    found = {column: getattr(row, column) for column in COLUMNS}
    return {"method": row.method} | {
        column: asdict(value) if isinstance(value, Interval) else value for column, value in found.items()
    }


def _set_sizes(sets: ClassSets, evaluation: Evaluation) -> dict[str, Any]:
    counts = torch.bincount(sets.size).tolist()
    sizes = [size for size, count in enumerate(counts) if count]
    every_size = sorted({end for size in sizes for end in (size - 1, size) if end >= 0})
    ends = every_size if len(sizes) <= _FEW_SIZES else metrics.covering.SIZE_GROUPS
    groups = metrics.coverage_by_size(sets, evaluation.labels, groups=ends)
    columns = (groups.smallest.tolist(), groups.largest.tolist(), groups.count.tolist(), groups.coverage.tolist())
    return {
        "threshold": SET_THRESHOLD,
        "mean": metrics.mean_set_size(sets),
        "coverage": metrics.coverage(sets, evaluation.labels),
        "counts": {str(size): counts[size] for size in sizes},
        "groups": [
            # the best class is always in, so that no set is empty
            {"smallest": max(smallest, 1), "largest": largest, "count": count, "coverage": share}
            for smallest, largest, count, share in zip(*columns)
        ],
    }


def _plain(value: Any, place: str, not_finite: list[str]) -> Any:  # noqa: ANN401 - whatever JSON holds
    """The same with None for every number that is not finite; their places are added to the list."""
    if isinstance(value, dict):
        return {key: _plain(part, f"{place}.{key}".lstrip("."), not_finite) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part, f"{place}.{index}", not_finite) for index, part in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        not_finite.append(f"{place} is {value}")
        return None
    return value
