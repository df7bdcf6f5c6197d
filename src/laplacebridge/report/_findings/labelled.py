"""What probabilities and labels say, wherever the probabilities come from: sets,
decisions, their cost, and classes and groups apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Bool, Float, Int
from torch import Tensor

from laplacebridge import scores
from laplacebridge.report._findings.classes import ClassRow, GroupRow, by_class, by_group
from laplacebridge.report._findings.decisions import Cost, Costs, Decisions, cheapest, decide
from laplacebridge.report._findings.halves import FoundSets, Halves


@dataclass(frozen=True, eq=False)
class Labelled:
    """What is found in labelled examples.

    Attributes:
        halves: Of the examples, each of which decides about the other.
        right: Whether the most probable class is the label.
        sets: Calibrated sets.
        decisions: What the classifier may do by itself.
        cost: Of answering and deferring.
        classes: A row for every class.
        groups: A row for every group; none if no groups were given.
    """

    halves: Halves
    right: Bool[Tensor, " N"]
    sets: FoundSets
    decisions: Decisions
    cost: Cost
    classes: tuple[ClassRow, ...]
    groups: tuple[GroupRow, ...]

    @classmethod
    def of(
        cls,
        probabilities: Float[Tensor, "N K"],
        labels: Int[Tensor, " N"],
        *,
        risk: float,
        coverage: float | None,
        costs: Costs,
        unusual: Bool[Tensor, " N"] | None,
        class_names: Sequence[str],
        groups: Sequence[str] | None,
        seed: int,
    ) -> "Labelled":
        """Finds it.

        Args:
            probabilities: Of each example.
            labels: Their classes.
            risk: Share of wrong answers to allow.
            coverage: How often sets are to hold the label; by default more often than
                single answers are right.
            costs: Of a wrong answer and of deferring.
            unusual: Which examples are deferred as unusual.
            class_names: One for each class.
            groups: A group for each example.
            seed: Of the halves.
        """
        halves = Halves.of(len(labels), seed)
        predicted = probabilities.argmax(-1)
        right = predicted == labels
        if coverage is None:
            coverage = halves.coverage_for(float(right.double().mean()))
        sets = halves.sets(probabilities, labels, coverage)
        decisions = decide(probabilities, labels, halves, sets, risk=risk, unusual=unusual)
        action = None if decisions.chosen is None else decisions.chosen.action
        return cls(
            halves=halves,
            right=right,
            sets=sets,
            decisions=decisions,
            cost=cheapest(scores.msp(probabilities).double(), right, halves, costs),
            classes=by_class(predicted, labels, sets, action, class_names),
            groups=(
                () if groups is None else by_group(groups, probabilities, labels, sets, action)
            ),
        )
