"""What a report says about a classifier, as values: computed once, then printed,
plotted and stored.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from laplacebridge._arrays import to_tensors
from laplacebridge._extras import needs_extra
from laplacebridge._files import atomic_write
from laplacebridge.metrics import Interval
from laplacebridge.prediction import Prediction
from laplacebridge.report._findings.advice import Advice
from laplacebridge.report._findings.classes import ClassRow, GroupRow
from laplacebridge.report._findings.decisions import Cost, Decisions
from laplacebridge.report._findings.decisions import plain as plain_decisions
from laplacebridge.report._findings.gallery import Specimen
from laplacebridge.report._findings.halves import FoundSets, share
from laplacebridge.report._findings.headline import Figure
from laplacebridge.report._findings.intervals import IntervalCheck
from laplacebridge.report._findings.unusual import Alarm, ScoreRow, plain_scores
from laplacebridge.report.table import COLUMNS, Row, method_named

# Of the record: a key that changes its meaning or is taken away makes a new number.
SCHEMA_VERSION = 1


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
        headline: What the classifier can do by itself, in plain words.
        figures: The figures of the first screen.
        advice: What to use, and how.
        rows: One for each method.
        own: The row that is the classifier's own answer.
        prediction: The classifier's answers for the test examples; or probabilities, if
            these are all that was given, as an array if they were one.
        labels: Their classes, in kind.
        decisions: What may be answered at which risk.
        cost: What answering and deferring cost.
        sets: Calibrated sets.
        intervals: Intervals against labels; None for probabilities alone.
        uncertainty: Mean parts of the uncertainty, by group of inputs.
        scores: Scores of unusual inputs; empty if there were none.
        alarms: False and true alarms at several rates.
        alarm: The one that decisions use; None if there is none.
        ood: The classifier's answers for unusual inputs, by kind.
        class_names: One for each class.
        classes: What was found for each class.
        groups: What was found for each group; empty without groups.
        specimens: Inputs worth looking at.
        prior: The candidates of the prior precision, if they are known.
        prior_method: How it was chosen, in a few words.
        basis: What the width of intervals rests on, and what to know before relying on
            them.
        card: Intended use, limits and whatever else the owner states.
        identity: Who, what and when: hashes, versions, sizes, seed.

    Example:
        >>> import torch
        >>> from laplacebridge import fit, report
        >>> data = [(torch.eye(3).repeat(10, 1), torch.arange(30) % 3)]
        >>> classifier = fit(torch.nn.Linear(3, 3), data, prior_precision=1.0, progress=False)
        >>> # on other data in practice
        >>> evaluation = report.evaluate(classifier, data, progress=False)
        >>> [row.method for row in evaluation.rows][:2], evaluation.to_dict()["rows"][1]["method"]
        (['MAP', 'probit'], 'probit')
    """

    title: str
    headline: str
    figures: tuple[Figure, ...]
    advice: Advice
    rows: tuple[Row, ...]
    own: str
    prediction: Prediction | Float[Tensor, "N K"]
    labels: Int[Tensor, " N"]
    decisions: Decisions
    cost: Cost
    sets: FoundSets
    intervals: IntervalCheck | None
    uncertainty: Mapping[str, Mapping[str, float | int]]
    scores: tuple[ScoreRow, ...]
    alarms: tuple[Alarm, ...]
    alarm: Alarm | None
    ood: Mapping[str, Prediction]
    class_names: tuple[str, ...]
    classes: tuple[ClassRow, ...]
    groups: tuple[GroupRow, ...]
    specimens: tuple[Specimen, ...]
    prior: PriorCurve | None
    prior_method: str
    basis: tuple[str, ...]
    card: Mapping[str, str]
    identity: Mapping[str, str]

    @property
    def verdict(self) -> str:
        """The headline and the recommendation, one sentence to a line."""
        return "\n".join([self.headline, *self.advice.sentences, self.advice.beside])

    @property
    def own_row(self) -> Row:
        """The row of the classifier's own answer."""
        return next(row for row in self.rows if row.method == self.own)

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
        """The record: every number of the report, ready for JSON, as
        `report/schema.json` describes it.

        JSON has no word for infinity or NaN. Such numbers are None, and ``not_finite``
        lists what they were.
        """
        sets: FoundSets = to_tensors(self.sets)
        rule = sets.rules[0]
        found = {
            "schema": SCHEMA_VERSION,
            "title": self.title,
            "headline": self.headline,
            "figures": self.figures,
            "advice": self.advice,
            "own": self.own,
            "rows": [_row(row) for row in self.rows],
            "methods": {row.method: method_named(row.method)._asdict() for row in self.rows},
            "decisions": plain_decisions(self.decisions),
            "cost": self.cost,
            "sets": {
                "coverage": sets.coverage,
                "promised": min(each.coverage_interval()[0] for each in sets.rules),
                "rule": type(rule.rule).__name__,
                "found": share(int(sets.held.sum()), len(sets.held)),
                "mean_size": float(sets.sizes.double().mean()),
                "sizes": _set_sizes(sets),
            },
            "intervals": (
                None
                if self.intervals is None
                else {
                    **asdict(self.intervals),
                    "agreeing": self.intervals.num_agreeing,
                    "basis": list(self.basis),
                }
            ),
            "uncertainty": self.uncertainty,
            "scores": plain_scores(self.scores),
            "alarms": self.alarms,
            "alarm": self.alarm,
            "classes": self.classes,
            "groups": self.groups,
            "prior": self.prior,
            "prior_method": self.prior_method,
            "card": dict(self.card),
            "identity": dict(self.identity),
        }
        not_finite: list[str] = []
        plain: dict[str, Any] = json_ready(found, "", not_finite)
        return {**plain, "not_finite": not_finite}

    def to_html(self) -> str:
        """The report as one page that loads nothing from elsewhere, with the numbers in
        it as JSON.

        Raises:
            LaplaceBridgeError: If a package is missing that draws plots.
        """
        with needs_extra("report", "The page of a report"):
            # only here: matplotlib takes a second, and numbers can do without
            from laplacebridge.report import page
        return page.html(self)

    def save(self, path: str | Path) -> Path:
        """Writes the page, whole or not at all.

        Args:
            path: Where to; a file that is there is replaced. One that ends in ``.pdf``
                is printed by a Chromium, where there is one; one that ends in ``.json``
                is the record.
        """
        kind = Path(path).suffix.lower()
        text = json.dumps(self.to_dict(), indent=1) + "\n" if kind == ".json" else self.to_html()
        if kind == ".pdf":
            from laplacebridge.report.pdf import write_pdf

            write_pdf(text, path)
            return Path(path)
        with atomic_write(Path(path)) as temporary:
            temporary.write_text(text, encoding="utf-8")
        return Path(path)

    def unmet(self, requirements: Sequence[str]) -> list[str]:
        """Which of some requirements the classifier does not meet, each with what was
        found.

        Args:
            requirements: Such as ``"ece<0.03"``; see `laplacebridge.report.gates`.

        Raises:
            InputError: If one cannot be read, or names nothing that was measured.
        """
        from laplacebridge.report import gates

        return gates.unmet(self.to_dict(), requirements)

    def _repr_html_(self) -> str:
        """The first screen, in notebooks."""
        return _first_screen(self)


def _first_screen(evaluation: Evaluation) -> str:
    """The first screen for notebooks: plain elements, no script, and no need of
    matplotlib.
    """
    figures = "".join(
        "<td style='text-align: left; vertical-align: top'>"
        f"<small>{escape(figure.title)}</small><br /><strong>{escape(figure.text)}</strong>"
        f"<br /><small>{escape(figure.light)}; {escape(figure.detail)}</small></td>"
        for figure in evaluation.figures
    )
    advice = "".join(f"<p>{escape(sentence)}</p>" for sentence in evaluation.advice.sentences)
    return (
        f"<div><h3>{escape(evaluation.title)}</h3><p><strong>{escape(evaluation.headline)}"
        f"</strong></p><table><tr>{figures}</tr></table>{advice}"
        f"<pre>{escape(evaluation.advice.code)}</pre></div>"
    )


def _row(row: Row) -> dict[str, Any]:
    return {"method": row.method} | {name: getattr(row, name) for name in COLUMNS}


def _set_sizes(found: FoundSets) -> list[dict[str, Any]]:
    """How many sets have each size, and how many of these hold the label."""
    sizes, counts = torch.unique(found.sizes, return_counts=True)
    return [
        {"size": size, "count": count, "held": int(found.held[found.sizes == size].sum())}
        for size, count in zip(sizes.tolist(), counts.tolist())
    ]


def json_ready(value: Any, place: str, not_finite: list[str]) -> Any:  # noqa: ANN401 - whatever JSON holds
    """The same with None for every number that is not finite; their places are added to
    the list.
    """
    if isinstance(value, Interval) or (
        hasattr(value, "__dataclass_fields__") and not isinstance(value, type)
    ):
        value = {name: getattr(value, name) for name in value.__dataclass_fields__}
    if isinstance(value, Mapping):
        return {
            str(key): json_ready(part, f"{place}.{key}".lstrip("."), not_finite)
            for key, part in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [
            json_ready(part, f"{place}.{index}", not_finite) for index, part in enumerate(value)
        ]
    if isinstance(value, float) and not math.isfinite(value):
        not_finite.append(f"{place} is {value}")
        return None
    return value
