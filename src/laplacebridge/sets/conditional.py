"""Sets whose guarantee holds in every class, or in every group, and not on average
alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from laplacebridge._arrays import takes_arrays
from laplacebridge._checks import Labels, labels_of, require_coverage
from laplacebridge._groups import Group, Groups, groups_of, require_known
from laplacebridge._predictions import AnyPrediction, probabilities_of
from laplacebridge._ranks import fewest_for, rank_for
from laplacebridge._warnings import warn
from laplacebridge.sets.class_sets import ClassSets
from laplacebridge.sets.conformal import CalibratedSets, calibrate
from laplacebridge.sets.every_class import ROUNDING, sets_of_mask, strictness, strictness_of_classes
from laplacebridge.sets.rules import SetRule
from laplacebridge.sets.taking_rules import rule_first

_NAMED = 5  # of the classes or groups with too few examples


@dataclass(frozen=True, eq=False)
class ClassConditionalSets:
    """A rule with a threshold for each class: of the examples *of every class*, a share
    `coverage` has its label in the set, if they are exchangeable with those of the
    calibration.

    Attributes:
        rule: The rule.
        loosest: How far the rule is loosened for each class, shape (K,); infinite for
            those with too few examples, which are in every set.
        coverage: What was asked for.
        num_examples: How many calibration examples each class had, shape (K,).
        never_empty: Whether empty sets are given their most probable class.

    Example:
        >>> from laplacebridge.sets import LeastAmbiguous
        >>> sure, unsure = torch.tensor([[0.9, 0.1]]), torch.tensor([[0.6, 0.4]])
        >>> prediction, labels = torch.cat([sure, sure, unsure, unsure]), [0, 0, 1, 1]
        >>> calibrated = calibrate_by_class(LeastAmbiguous(), prediction, labels, coverage=0.6)
        >>> calibrated(torch.tensor([[0.6, 0.4], [0.95, 0.05]])).to_lists()
        [[1], [0]]
    """

    rule: SetRule
    loosest: Float[Tensor, " K"]
    coverage: float
    num_examples: tuple[int, ...]
    never_empty: bool = False

    @takes_arrays
    def __call__(self, prediction: AnyPrediction) -> ClassSets:
        """The sets of new examples.

        Args:
            prediction: Of the same kind as the rule was calibrated on.
        """
        own = strictness_of_classes(self.rule, prediction)
        loosest = self.loosest.to(own.device)
        inside = own <= loosest + ROUNDING * loosest.abs()
        probabilities = probabilities_of("ClassConditionalSets(prediction)", prediction)
        return sets_of_mask(inside, probabilities, never_empty=self.never_empty)


@rule_first
@takes_arrays
def calibrate_by_class(
    rule: SetRule,
    prediction: AnyPrediction,
    labels: Labels,
    *,
    coverage: float = 0.9,
    never_empty: bool = False,
) -> ClassConditionalSets:
    """Chooses a threshold for each class, so that sets hold the label with a stated
    probability in every class (Mondrian conformal).

    `calibrate` promises coverage on average: a rare class may have far less. Here each
    class is calibrated by its own examples. A class with fewer than `coverage/(1 −
    coverage)` of them cannot be promised anything but to be in every set, and is.

    Args:
        rule: As for `calibrate`.
        prediction: For the calibration examples.
        labels: Their classes.
        coverage: The probability asked for, in every class.
        never_empty: Give empty sets their most probable class.

    Raises:
        InputError: If the coverage is not between 0 and 1.

    Example:
        >>> from laplacebridge.sets import LeastAmbiguous
        >>> prediction = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.7, 0.3]])
        >>> calibrate_by_class(
        ...     LeastAmbiguous(), prediction, [0, 0, 1, 1], coverage=0.6
        ... ).num_examples
        (2, 2)
    """
    require_coverage("calibrate_by_class", coverage)
    num_rows, num_classes = probabilities_of("calibrate_by_class(prediction)", prediction).shape
    wanted = labels_of("calibrate_by_class(labels)", labels, num_rows, num_classes)
    found = strictness(rule, prediction, wanted).cpu()
    loosest = torch.full((num_classes,), math.inf, dtype=torch.float64)
    counts = torch.bincount(wanted.cpu(), minlength=num_classes)
    for label in range(num_classes):
        own = found[wanted.cpu() == label].sort().values
        rank = rank_for(coverage, len(own))
        if rank <= len(own):
            loosest[label] = own[rank - 1]
    _warn_of_few(
        "class",
        [label for label in range(num_classes) if loosest[label].isinf()],
        coverage,
        "is in every set",
    )
    return ClassConditionalSets(rule, loosest, coverage, tuple(counts.tolist()), never_empty)


@dataclass(frozen=True, eq=False)
class GroupConditionalSets:
    """A rule calibrated for each group by its own examples: in every group sets hold
    the label with probability at least `coverage`.

    Attributes:
        by_group: The calibrated rule of each group; None for those with too few
            examples, whose sets hold all classes.
        coverage: What was asked for.

    Example:
        >>> from laplacebridge.sets import LeastAmbiguous
        >>> prediction = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.6, 0.4]])
        >>> groups = ["day", "day", "night", "night"]
        >>> calibrated = calibrate_by_group(
        ...     LeastAmbiguous(), prediction, [0, 0, 1, 1], groups, coverage=0.6
        ... )
        >>> calibrated(prediction[[0, 0]], ["day", "night"]).to_lists()
        [[0], [0]]
    """

    by_group: Mapping[Group, CalibratedSets | None]
    coverage: float

    @takes_arrays
    def __call__(self, prediction: AnyPrediction, groups: Groups) -> ClassSets:
        """The sets of new examples.

        Args:
            prediction: Of the same kind as the rule was calibrated on.
            groups: The group of each.

        Raises:
            InputError: If a group was not there at the calibration.
        """
        call = "GroupConditionalSets(prediction, groups)"
        probabilities = probabilities_of(call, prediction)
        inside = torch.ones_like(probabilities, dtype=torch.bool)
        for group, rows in groups_of(call, groups, len(probabilities)).items():
            require_known(call, group, self.by_group)
            calibrated = self.by_group[group]
            if calibrated is not None:
                inside[rows] = calibrated(prediction[rows]).mask()
        return sets_of_mask(inside, probabilities, never_empty=False)


@rule_first
@takes_arrays
def calibrate_by_group(
    rule: SetRule,
    prediction: AnyPrediction,
    labels: Labels,
    groups: Groups,
    *,
    coverage: float = 0.9,
    never_empty: bool = False,
) -> GroupConditionalSets:
    """Chooses a threshold for each group of examples, so that the coverage holds in
    every group.

    Groups are known beforehand, also of new examples: a hospital, a camera, a language.
    Each is calibrated by its own examples; with too few, its sets hold all classes.

    Args:
        rule: As for `calibrate`.
        prediction: For the calibration examples.
        labels: Their classes.
        groups: The group of each: numbers or names.
        coverage: The probability asked for, in every group.
        never_empty: Give empty sets their most probable class.

    Example:
        >>> from laplacebridge.sets import LeastAmbiguous
        >>> prediction = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.6, 0.4]])
        >>> calibrated = calibrate_by_group(
        ...     LeastAmbiguous(),
        ...     prediction,
        ...     [0, 0, 1, 1],
        ...     ["day", "day", "night", "night"],
        ...     coverage=0.6,
        ... )
        >>> round(calibrated.by_group["night"].threshold, 6)
        0.4
        >>> calibrated(torch.tensor([[0.7, 0.3], [0.7, 0.3]]), ["day", "night"]).size
        tensor([0, 1])
    """
    require_coverage("calibrate_by_group", coverage)
    num_rows, num_classes = probabilities_of("calibrate_by_group(prediction)", prediction).shape
    wanted = labels_of("calibrate_by_group(labels)", labels, num_rows, num_classes)
    fewest = fewest_for(coverage)
    by_group: dict[Group, CalibratedSets | None] = {}
    for group, rows in groups_of("calibrate_by_group(groups)", groups, num_rows).items():
        by_group[group] = (
            None
            if len(rows) < fewest
            else calibrate(
                rule, prediction[rows], wanted[rows], coverage=coverage, never_empty=never_empty
            )
        )
    few = [group for group, calibrated in by_group.items() if calibrated is None]
    _warn_of_few("group", few, coverage, "has sets of all classes")
    return GroupConditionalSets(by_group, coverage)


def _warn_of_few(kind: str, few: Sequence[Group], coverage: float, result: str) -> None:
    """Says which classes or groups have too few examples to be promised anything."""
    if few:
        named = ", ".join(map(str, few[:_NAMED])) + (", …" if len(few) > _NAMED else "")
        warn(
            f"A coverage of {coverage:g} in every {kind} takes at least {fewest_for(coverage)}"
            f" examples of each; {kind} {named} has fewer, and {result}. Give more, or ask for"
            " less."
        )
