"""Sets with a guarantee and without a calibration set: cross-conformal, from the folds
of a cross-validation (CV+).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from laplacebridge._arrays import takes_arrays
from laplacebridge._checks import Labels, require_coverage
from laplacebridge._predictions import AnyPrediction, probabilities_of
from laplacebridge._ranks import fewest_for
from laplacebridge.errors import InputError, ShapeError
from laplacebridge.sets.class_sets import ClassSets
from laplacebridge.sets.every_class import (
    ROUNDING,
    sets_of_mask,
    strictness,
    strictness_of_classes,
)
from laplacebridge.sets.rules import SetRule
from laplacebridge.sets.taking_rules import rule_first


@dataclass(frozen=True, eq=False)
class CrossCalibratedSets:
    """A rule, calibrated by cross-validation: every example was held out once, from a
    model trained on the others.

    A class is in the set of a new example unless more than a share `coverage` of the
    n held-out labels entered their sets more strictly, each compared with what the
    model of its own fold says about the new example.

    If examples are exchangeable, sets hold the label with probability at least
    `promised_coverage`, which is about 2·coverage − 1: that is what can be proved (CV+;
    Barber, Candès, Ramdas and Tibshirani 2021, Romano, Sesia and Candès 2020). What is
    seen is about `coverage`, unless models differ much from fold to fold.

    Attributes:
        rule: The rule.
        strictness: Of the labels of each fold, ascending: how far the rule had to be
            loosened for them.
        coverage: What was asked for.
        never_empty: Whether empty sets are given their most probable class.

    Example:
        >>> from laplacebridge.sets import LeastAmbiguous
        >>> folds = [torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([[0.7, 0.3], [0.4, 0.6]])]
        >>> calibrated = cross_calibrate(LeastAmbiguous(), folds, [[0, 1], [0, 1]], coverage=0.7)
        >>> new = torch.tensor([[0.95, 0.05], [0.65, 0.35]])  # what each of the two models says
        >>> calibrated([new, new]).to_lists(), calibrated.num_examples
        ([[0], [0]], 4)
    """

    rule: SetRule
    strictness: tuple[Tensor, ...]
    coverage: float
    never_empty: bool = False

    @property
    def num_examples(self) -> int:
        """How many held-out labels there are, n."""
        return sum(len(fold) for fold in self.strictness)

    @property
    def promised_coverage(self) -> float:
        """The coverage that can be proved: 2·coverage − 1, less what folds of this
        size cost.
        """
        folds, size = len(self.strictness), self.num_examples / len(self.strictness)
        cost = min(2 * (1 - 1 / folds) / (size + 1), (1 - folds / self.num_examples) / (folds + 1))
        return max(0.0, 2 * self.coverage - 1 - cost)

    @takes_arrays
    def __call__(self, predictions: Sequence[AnyPrediction]) -> ClassSets:
        """The sets of new examples.

        Args:
            predictions: What the model of each fold says about them, in the order of
                the calibration.

        Raises:
            ShapeError: If there is not one prediction for each fold.
        """
        _require_folds("CrossCalibratedSets(predictions)", predictions, len(self.strictness))
        stricter: Tensor | None = None
        total: Tensor | None = None
        for known, prediction in zip(self.strictness, predictions):
            own = strictness_of_classes(self.rule, prediction)
            slack = ROUNDING * own.abs()
            count = torch.searchsorted(known.to(own.device), (own - slack).contiguous())
            mean = probabilities_of("CrossCalibratedSets(predictions)", prediction)
            stricter = count if stricter is None else stricter + count
            total = mean if total is None else total + mean
        assert stricter is not None and total is not None  # noqa: S101, PT018  (there are folds)
        allowed = self.coverage * (self.num_examples + 1)
        return sets_of_mask(stricter < allowed - 1e-9, total, never_empty=self.never_empty)

    def __repr__(self) -> str:
        return (
            f"CrossCalibratedSets({type(self.rule).__name__}, coverage {self.coverage:g}, at least"
            f" {self.promised_coverage:.3f} for certain, from {self.num_examples} examples in"
            f" {len(self.strictness)} folds)"
        )


@rule_first
@takes_arrays
def cross_calibrate(
    rule: SetRule,
    predictions: Sequence[AnyPrediction],
    labels: Sequence[Labels],
    *,
    coverage: float = 0.9,
    never_empty: bool = False,
) -> CrossCalibratedSets:
    """Calibrates a rule without a calibration set, by the held-out labels of a
    cross-validation.

    For those with too few examples to set some aside: each fold's model is trained on
    the other folds, and predicts its own. Nothing else may have been chosen on an
    example that a model is held to be without.

    Args:
        rule: As for `calibrate`.
        predictions: For each fold, what its model says about the examples held out
            from it.
        labels: For each fold, their classes.
        coverage: The share of sets to hold their label; see `CrossCalibratedSets` for
            what can be proved.
        never_empty: Give empty sets their most probable class.

    Raises:
        InputError: If the coverage is not between 0 and 1, or there are too few
            examples for it.
        ShapeError: If there are not two folds, or folds without labels.

    Example:
        >>> from laplacebridge.sets import LeastAmbiguous
        >>> folds = [torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.tensor([[0.7, 0.3], [0.4, 0.6]])]
        >>> cross_calibrate(LeastAmbiguous(), folds, [[0, 1], [0, 1]], coverage=0.7)
        CrossCalibratedSets(LeastAmbiguous, coverage 0.7, at least 0.233 for certain, from 4 examples in 2 folds)
    """
    require_coverage("cross_calibrate", coverage)
    _require_folds("cross_calibrate(labels)", labels, len(predictions))
    if len(predictions) < 2:
        raise ShapeError(
            "`cross_calibrate(predictions)` needs at least two folds; got"
            f" {len(predictions)}. With one set of held-out examples use `calibrate`."
        )
    found = tuple(
        strictness(rule, prediction, wanted).sort().values
        for prediction, wanted in zip(predictions, labels)
    )
    calibrated = CrossCalibratedSets(rule, found, coverage, never_empty)
    fewest = fewest_for(coverage)
    if calibrated.num_examples < fewest:
        raise InputError(
            f"`cross_calibrate` needs at least {fewest} examples for a coverage of {coverage:g};"
            f" got {calibrated.num_examples}. Give more, or ask for less."
        )
    return calibrated


def _require_folds(call: str, given: object, number: int) -> None:
    if isinstance(given, Tensor) or not isinstance(given, Sequence) or len(given) != number:
        got = f"{len(given)} entries" if isinstance(given, Sequence) else type(given).__name__
        raise ShapeError(
            f"`{call}` needs a list with one entry for each of {number} folds; got {got}."
        )
