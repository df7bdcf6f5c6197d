"""Sets with a guarantee: split-conformal calibration of any rule."""

from dataclasses import dataclass

import torch

from laplacebridge import _scipy_special as special
from laplacebridge._arrays import takes_arrays
from laplacebridge._checks import Labels, require_coverage, require_rows
from laplacebridge._predictions import AnyPrediction
from laplacebridge._ranks import fewest_for, rank_for
from laplacebridge.errors import InputError
from laplacebridge.sets.class_sets import ClassSets
from laplacebridge.sets.rules import SetRule, TopK
from laplacebridge.sets.taking_rules import rule_first

# A calibrated threshold is loosened by this share, more than the rounding by which the
# entry of a label and its membership can disagree. It can only add coverage.
_SLACK = 1e-9


@dataclass(frozen=True)
class CalibratedSets:
    """A rule with the threshold that was calibrated for it.

    Whatever the model and the data, if calibration examples and new ones are
    exchangeable, the set of a new example holds its label with probability at least
    `coverage`. That is on average over calibration sets; for this one it is at least
    the lower end of `coverage_interval()`, with the chance stated there.

    Attributes:
        rule: The rule.
        threshold: Its threshold.
        coverage: What was asked for.
        num_examples: Size n of the calibration set.
        rank: Which of the n entries, ordered from strict to loose, gave the threshold.
        never_empty: Whether empty sets are given their most probable class. That can
            only add labels: coverage is still at least what was asked, but no longer
            close to it from above, so that `expected_coverage` and the upper end of
            `coverage_interval` do not hold.

    Example:
        >>> from laplacebridge.sets import LeastAmbiguous
        >>> calibrated = CalibratedSets(
        ...     LeastAmbiguous(), threshold=0.25, coverage=0.9, num_examples=99, rank=90
        ... )
        >>> calibrated(torch.tensor([[0.2, 0.5, 0.3]])).to_lists(), calibrated.expected_coverage
        ([[1, 2]], 0.9)
    """

    rule: SetRule
    threshold: float
    coverage: float
    num_examples: int
    rank: int
    never_empty: bool = False

    @takes_arrays
    def __call__(self, prediction: AnyPrediction) -> ClassSets:
        """The sets of new examples.

        Args:
            prediction: Of the same kind as the rule was calibrated on.
        """
        found = self.rule(prediction, self.threshold)
        return filled(found, prediction) if self.never_empty else found

    @property
    def expected_coverage(self) -> float:
        """Mean coverage over calibration sets of this size, if no two entries are
        equal: rank/(n + 1).
        """
        return self.rank / (self.num_examples + 1)

    def coverage_interval(self, level: float = 0.95) -> tuple[float, float]:
        """Where the coverage lies for this calibration set: quantiles of Beta(rank, n +
        1 − rank).

        Exact when no two entries are equal. With equal ones the coverage can only be
        higher, so that only the lower end is promised: with chance (1 + level)/2, as on
        the other side it can leave the interval too.

        Args:
            level: Chance that the interval holds it.

        Raises:
            InputError: If the level is not between 0 and 1.
        """
        if not 0 < level < 1:
            raise InputError(
                f"`coverage_interval(level)` needs a chance between 0 and 1; got {level}. 0.95 is"
                " usual."
            )
        above = self.num_examples + 1 - self.rank
        tails = ((1 - level) / 2, (1 + level) / 2)
        low, high = (float(special.betaincinv(self.rank, above, tail)) for tail in tails)
        return low, high

    def __repr__(self) -> str:
        low, _ = self.coverage_interval()
        return (
            f"CalibratedSets({type(self.rule).__name__}, threshold {self.threshold:.4g}, coverage"
            f" {self.coverage:g}: at least {low:.3f} with 97.5 % chance, from {self.num_examples}"
            " examples)"
        )


@rule_first
@takes_arrays
def calibrate(
    rule: SetRule,
    prediction: AnyPrediction,
    labels: Labels,
    *,
    coverage: float = 0.9,
    never_empty: bool = False,
) -> CalibratedSets:
    """Chooses a rule's threshold so that sets hold the label with a stated probability
    (split-conformal).

    The threshold is the ⌈(n + 1)·coverage⌉-th of the n entries: the thresholds at which
    the calibration labels just enter their sets, from strict to loose. The examples
    must not have been used to train, fit or choose anything.

    A rule that always keeps the best class covers at least as much as the model is
    accurate, even if less is asked.

    Args:
        rule: `LeastAmbiguous()`, whose sets are the smallest; `APS()`, `RAPS(...)`,
            `Overlap()`, `Mass()`, `TopK()`, or your own.
        prediction: For the calibration examples.
        labels: Their classes.
        coverage: The probability asked for.
        never_empty: Give empty sets their most probable class; see `CalibratedSets`.

    Raises:
        InputError: If the coverage is not between 0 and 1, or there are too few
            examples for it.

    Example:
        >>> from laplacebridge.sets import LeastAmbiguous
        >>> probabilities = torch.tensor([[0.9, 0.1], [0.3, 0.7], [0.6, 0.4], [0.2, 0.8]])
        >>> calibrated = calibrate(LeastAmbiguous(), probabilities, [0, 1, 1, 1], coverage=0.6)
        >>> calibrated.rank, round(calibrated.threshold, 6)
        (3, 0.7)
    """
    require_coverage("calibrate", coverage)
    require_rows("calibrate(prediction)", len(prediction))
    entries = rule.entry(prediction, labels).detach().double()
    num_examples = len(entries)
    rank = rank_for(coverage, num_examples)
    if rank > num_examples:
        raise InputError(
            f"`calibrate` needs at least {fewest_for(coverage)} examples for a coverage of"
            f" {coverage:g}; got {num_examples}. Give more, or ask for at most"
            f" {num_examples / (num_examples + 1):.3g}."
        )
    ordered = torch.sort(entries, descending=not rule.grows_with_threshold).values
    strictest = float(ordered[rank - 1])
    loosened = strictest * (1 + _SLACK) if rule.grows_with_threshold else strictest * (1 - _SLACK)
    return CalibratedSets(rule, loosened, coverage, num_examples, rank, never_empty)


def filled(sets: ClassSets, prediction: AnyPrediction) -> ClassSets:
    """The same sets, of which those that are empty hold the most probable class.

    Args:
        sets: Of the predictions.
        prediction: What they were chosen from.

    Example:
        >>> empty = ClassSets.from_lists([[], [0]], num_classes=2)
        >>> filled(empty, torch.tensor([[0.4, 0.6], [0.9, 0.1]])).to_lists()
        [[1], [0]]
    """
    empty = sets.size == 0
    best = TopK()(prediction, 1).classes.to(sets.classes.device)
    size = sets.size.clamp_min(1)
    classes = sets.classes.new_empty(int(size.sum()))
    is_new = empty.repeat_interleave(size)
    classes[is_new], classes[~is_new] = best[empty], sets.classes
    return ClassSets(classes, size, sets.num_classes)
