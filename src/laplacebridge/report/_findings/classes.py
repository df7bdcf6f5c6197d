"""What was found for each class, and for each group of examples."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from laplacebridge import metrics
from laplacebridge.errors import ShapeError
from laplacebridge.metrics import Interval
from laplacebridge.report._findings.halves import FoundSets, share
from laplacebridge.selective import Action


@dataclass(frozen=True)
class ClassRow:
    """What was found for the examples of one class.

    Attributes:
        name: Of the class.
        count: How many test examples have it as their label.
        accuracy: Share of them that is answered right.
        answered: Share that the rule at the stated risk answers; None without a rule.
        coverage: Share whose set holds the label.
        set_size: Mean size of their sets.
        confused_with: The class that they are most often taken for, if any.
        confused: How often.
    """

    name: str
    count: int
    accuracy: float
    answered: float | None
    coverage: float
    set_size: float
    confused_with: str | None
    confused: int


@dataclass(frozen=True)
class GroupRow:
    """What was found for a group of examples.

    Attributes:
        name: Of the group.
        count: How many there are.
        accuracy: Share of right answers.
        ece: Calibration error.
        coverage: Share of sets that hold the label.
        answered: Share that the rule at the stated risk answers; None without a rule.
        wrong: Share of these answers that is wrong; None if there are none.
    """

    name: str
    count: int
    accuracy: Interval
    ece: float
    coverage: Interval
    answered: float | None
    wrong: Interval | None


def by_class(
    predicted: Int[Tensor, " N"],
    labels: Int[Tensor, " N"],
    found_sets: FoundSets,
    action: Int[Tensor, " N"] | None,
    names: Sequence[str],
) -> tuple[ClassRow, ...]:
    """A row for every class that has test examples."""
    number = len(names)
    counts = torch.bincount(labels, minlength=number)

    def sums(values: Tensor) -> list[float]:
        return torch.bincount(labels, values.double(), minlength=number).tolist()

    right, held = sums(predicted == labels), sums(found_sets.held)
    sizes = sums(found_sets.sizes)
    answered = None if action is None else sums(action == Action.ANSWER)
    pairs = (labels * number + predicted)[predicted != labels]
    confused, confusions = torch.unique(pairs, return_counts=True)
    most: dict[int, tuple[int, int]] = {}
    for pair, times in sorted(zip(confused.tolist(), confusions.tolist()), key=lambda it: it[1]):
        most[pair // number] = (pair % number, times)
    rows = []
    for index in counts.nonzero().flatten().tolist():
        count = int(counts[index])
        taken_for, times = most.get(index, (None, 0))
        rows.append(
            ClassRow(
                name=names[index],
                count=count,
                accuracy=right[index] / count,
                answered=None if answered is None else answered[index] / count,
                coverage=held[index] / count,
                set_size=sizes[index] / count,
                confused_with=None if taken_for is None else names[taken_for],
                confused=times,
            )
        )
    return tuple(rows)


def by_group(
    groups: Sequence[str],
    probabilities: Float[Tensor, "N K"],
    labels: Int[Tensor, " N"],
    found_sets: FoundSets,
    action: Int[Tensor, " N"] | None,
) -> tuple[GroupRow, ...]:
    """A row for every group, in the order of their names.

    Raises:
        ShapeError: If there is not one group for each example.
    """
    if len(groups) != len(labels):
        raise ShapeError(
            f"A report needs a group for each of {len(labels)} test examples; got {len(groups)}."
            " Leave out those of examples without a label."
        )
    right = metrics.correct(probabilities, labels)
    rows = []
    for name in sorted(set(groups)):
        chosen = torch.tensor([group == name for group in groups])
        count = int(chosen.sum())
        answers = None if action is None else chosen & (action == Action.ANSWER)
        accuracy, coverage = (
            share(int((chosen & each).sum()), count) for each in (right, found_sets.held)
        )
        assert accuracy is not None  # noqa: S101  (no group is empty)
        assert coverage is not None  # noqa: S101
        rows.append(
            GroupRow(
                name=name,
                count=count,
                accuracy=accuracy,
                ece=metrics.ece(probabilities[chosen], labels[chosen]),
                coverage=coverage,
                answered=None if answers is None else int(answers.sum()) / count,
                wrong=None
                if answers is None
                else share(int((answers & ~right).sum()), int(answers.sum())),
            )
        )
    return tuple(rows)
