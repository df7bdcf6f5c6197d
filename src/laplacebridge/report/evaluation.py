"""What a report says about a classifier, as values: computed once, then printed, plotted and stored."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from jaxtyping import Float, Int
from torch import Tensor

from laplacebridge.dirichlet import Dirichlet
from laplacebridge.metrics import Interval

# what a row of the table shows, with whether smaller, larger or neither is better
COLUMNS: dict[str, str] = {
    "accuracy": "larger",
    "nll": "smaller",
    "ece": "smaller",
    "brier": "smaller",
    "auroc": "larger",
    "set_size": "",
    "coverage": "",
    "distance": "smaller",
    "microseconds": "smaller",
}


@dataclass(frozen=True, eq=False)
class Row:
    """How one method does.

    Attributes:
        method: Its name.
        accuracy: Share of right answers.
        nll: Mean negative log-likelihood.
        ece: Expected calibration error in 15 bins.
        brier: Brier score, summed over classes.
        auroc: How well 1 − maximum probability tells strange inputs, with an interval; None without any.
        set_size: Mean size of the smallest set that holds 95 % of the probability.
        coverage: Share of those sets that hold the label.
        distance: Mean total variation from 10 000 samples, over some of the examples.
        microseconds: Time from features to prediction, for one example.
        losses: Negative log-likelihood of each example, to compare methods in pairs.
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
        """One number of `COLUMNS`, None where there is none.

        Args:
            column: Its name.
        """
        found = getattr(self, column)
        return found.estimate if isinstance(found, Interval) else found


@dataclass(frozen=True, eq=False)
class Specimen:
    """One input worth looking at.

    Attributes:
        title: Why: "sure", "between two classes", "unknown".
        prediction: Its Dirichlet, one row.
        label: Its class, if it has one.
        image: The input, channels first or a plane, numbers of any scale; None if it is no image.
    """

    title: str
    prediction: Dirichlet
    label: int | None
    image: Tensor | None


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
        title: Of what.
        verdict: What was found, in plain words.
        rows: One for each method.
        prediction: The classifier's Dirichlets for the test examples.
        labels: Their classes.
        outside: Its Dirichlets for strange inputs, if there are any.
        class_names: One for each class.
        specimens: Inputs worth looking at.
        prior: The candidates of the prior precision, if they are known.
        prior_method: How it was chosen, in a few words.
        settings: Seed, versions, sizes: what someone needs to get the same numbers.
    """

    title: str
    verdict: str
    rows: tuple[Row, ...]
    prediction: Dirichlet
    labels: Int[Tensor, " N"]
    outside: Dirichlet | None
    class_names: tuple[str, ...]
    specimens: tuple[Specimen, ...]
    prior: PriorCurve | None
    prior_method: str
    settings: Mapping[str, str]

    def best(self, column: str) -> frozenset[str]:
        """The methods with the best value of a column, all of them if they share it.

        Args:
            column: Its name.
        """
        values = {row.method: row.value(column) for row in self.rows}
        known = {method: value for method, value in values.items() if value is not None and math.isfinite(value)}
        if not known or not COLUMNS[column]:
            return frozenset()
        target = max(known.values()) if COLUMNS[column] == "larger" else min(known.values())
        return frozenset(method for method, value in known.items() if value == target)
