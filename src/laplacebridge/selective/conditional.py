"""Rules whose bound on the risk holds in every group of examples, or for every class
that is answered, and not on average alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from laplacebridge._arrays import takes_arrays
from laplacebridge._checks import Labels, labels_of
from laplacebridge._groups import Group, Groups, groups_of, require_known
from laplacebridge._predictions import AnyPrediction
from laplacebridge._warnings import warn
from laplacebridge.errors import InputError
from laplacebridge.scores import Score
from laplacebridge.selective.calibrating import calibrate
from laplacebridge.selective.decisions import Decisions
from laplacebridge.selective.selective_rule import (
    SelectiveRule,
    by_class_of,
    decided,
)
from laplacebridge.selective.thresholds import NoThresholdError, require_risk
from laplacebridge.sets import ClassSets

_NAMED = 5  # of the groups that are never answered


@dataclass(frozen=True, eq=False)
class ConditionalRule:
    """A rule for each group: in every one of them at most a share `risk` of the answers
    is wrong. Made by `calibrate_by_group` and `calibrate_by_class`.

    Attributes:
        by_group: The rule of each group; None for those whose risk could not be
            bounded, which are never answered.
        risk: The target for the error rate among the answers of each group.
        confidence: With which all bounds hold together.
        by_class: Whether the group of an example is the class that would be answered.

    Example:
        >>> from laplacebridge.scores import msp
        >>> strict, loose = (
        ...     SelectiveRule(msp, limit, num_examples=10, num_answered=8) for limit in (0.1, 0.3)
        ... )
        >>> rule = ConditionalRule({"night": strict, "day": loose}, risk=0.05, confidence=0.95)
        >>> rule.answers(torch.tensor([[0.8, 0.2], [0.8, 0.2]]), ["night", "day"])
        tensor([False,  True])
    """

    by_group: Mapping[Group, SelectiveRule | None]
    risk: float
    confidence: float
    by_class: bool = False

    @takes_arrays
    def answers(
        self, prediction: AnyPrediction, groups: Groups | None = None
    ) -> Bool[Tensor, " B"]:
        """Whether each example is answered.

        Args:
            prediction: Of the same kind as the rule was calibrated on.
            groups: The group of each; not for a rule by class.

        Raises:
            InputError: If groups are missing, not wanted, or were not there at the
                calibration.
        """
        call = "ConditionalRule(prediction, groups)"
        by_class = by_class_of(call, prediction)
        if self.by_class != (groups is None):
            raise InputError(
                f"`{call}` needs "
                + (
                    "no groups: each example belongs to the class that would be answered."
                    if self.by_class
                    else f"the group of each example: {', '.join(map(repr, self.by_group))}."
                )
            )
        answered = torch.zeros(len(by_class), dtype=torch.bool, device=by_class.device)
        given = by_class.argmax(-1) if groups is None else groups
        for group, rows in groups_of(call, given, len(by_class)).items():
            if not self.by_class:
                require_known(call, group, self.by_group)
            rule = self.by_group.get(group)
            if rule is not None:
                answered[rows] = rule.answers(prediction[rows])
        return answered

    @takes_arrays
    def __call__(
        self,
        prediction: AnyPrediction,
        groups: Groups | None = None,
        *,
        sets: ClassSets | None = None,
        max_set_size: int | None = None,
        unusual: Tensor | None = None,
    ) -> Decisions:
        """Answers, names a set, or defers, with the reason, as `SelectiveRule` does.

        Args:
            prediction: Of the same kind as the rule was calibrated on.
            groups: The group of each; not for a rule by class.
            sets: A set of classes for each example.
            max_set_size: The largest set worth naming.
            unusual: Which inputs are too unusual to say anything about.
        """
        answered = self.answers(prediction, groups)
        return decided(prediction, answered, sets, max_set_size, unusual)


@takes_arrays
def calibrate_by_group(
    score: Score,
    prediction: AnyPrediction,
    labels: Labels,
    groups: Groups,
    *,
    risk: float,
    confidence: float = 0.95,
    num_thresholds: int = 20,
    unusual: Tensor | None = None,
) -> ConditionalRule:
    """Chooses for each group from which score on not to answer, so that the error rate
    among its answers is at most `risk` in every group.

    `calibrate` bounds the rate over all answers: one hospital, camera or language may
    have far more. Here each group has a threshold of its own, by its own examples. With
    probability `confidence` the bounds of all groups hold together: each has the
    confidence 1 − (1 − confidence)/groups. A group whose examples cannot promise the
    risk is never answered, and a warning says so.

    Args:
        score: As for `calibrate`.
        prediction: For the validation examples.
        labels: Their classes.
        groups: The group of each, which is known of new examples too: numbers or names.
        risk: The target for the error rate among the answers of every group.
        confidence: The probability, over validation sets, that it is met in all.
        num_thresholds: How many thresholds are tried for each group.
        unusual: Which inputs the rule will defer as unusual; they are left out.

    Example:
        >>> from laplacebridge.scores import msp
        >>> sure = torch.linspace(1, 0.5, 1000)
        >>> prediction, groups = torch.stack([sure, 1 - sure], -1), torch.arange(1000) % 2
        >>> labels = ((sure < 0.6) & (groups == 1)).long()  # only group 1 has errors
        >>> rule = calibrate_by_group(msp, prediction, labels, groups, risk=0.05)
        >>> rule.by_group[0].num_answered, rule.by_group[1].num_answered
        (500, 402)
    """
    call = "selective.calibrate_by_group(score, prediction, labels, groups)"
    by_class = by_class_of(call, prediction)
    rows_of = groups_of(call, groups, len(by_class))
    found = _by_group(
        score, prediction, labels, rows_of, risk, confidence, num_thresholds, unusual, call
    )
    return ConditionalRule(found, risk, confidence)


@takes_arrays
def calibrate_by_class(
    score: Score,
    prediction: AnyPrediction,
    labels: Labels,
    *,
    risk: float,
    confidence: float = 0.95,
    num_thresholds: int = 20,
    unusual: Tensor | None = None,
) -> ConditionalRule:
    """Chooses for each class from which score on not to answer with it, so that of the
    answers that name a class at most a share `risk` is wrong, for every class.

    A rule for all answers together may be wrong about every second answer that names a
    rare class. This one has a threshold for each, by the examples that would be
    answered with it. It says what an answer is worth; how many examples of a class are
    missed is another question, for sets (`laplacebridge.sets.calibrate_by_class`).

    Args:
        score: As for `calibrate`.
        prediction: For the validation examples.
        labels: Their classes.
        risk: The target for the error rate among the answers with every class.
        confidence: The probability, over validation sets, that it is met for all.
        num_thresholds: How many thresholds are tried for each class.
        unusual: Which inputs the rule will defer as unusual; they are left out.

    Example:
        >>> from laplacebridge.scores import msp
        >>> sure, first = torch.linspace(1, 0.5, 1000), torch.arange(1000) % 2 == 0
        >>> prediction = torch.stack(
        ...     [torch.where(first, sure, 1 - sure), torch.where(first, 1 - sure, sure)], -1
        ... )
        >>> labels = (~first & (sure > 0.6)).long()  # doubtful answers "1" are wrong
        >>> rule = calibrate_by_class(msp, prediction, labels, risk=0.05)
        >>> rule.by_group[0].num_answered, rule.by_group[1].num_answered
        (501, 402)
    """
    call = "selective.calibrate_by_class(score, prediction, labels)"
    answers = by_class_of(call, prediction).argmax(-1)
    rows_of = dict(sorted(groups_of(call, answers, len(answers)).items()))
    found = _by_group(
        score, prediction, labels, rows_of, risk, confidence, num_thresholds, unusual, call
    )
    return ConditionalRule(found, risk, confidence, by_class=True)


def _by_group(
    score: Score,
    prediction: AnyPrediction,
    labels: Labels,
    rows_of: Mapping[Group, Tensor],
    risk: float,
    confidence: float,
    num_thresholds: int,
    unusual: Tensor | None,
    call: str,
) -> dict[Group, SelectiveRule | None]:
    """A rule for each group, or None where there can be none."""
    require_risk(risk, confidence, num_thresholds)
    wanted = labels_of(call, labels, *by_class_of(call, prediction).shape)
    found: dict[Group, SelectiveRule | None] = {}
    why = ""
    for group, rows in rows_of.items():
        own = None if unusual is None else unusual[rows]
        if own is not None and own.all():
            found[group], why = None, f"all of {group!r} is unusual."
            continue
        try:
            found[group] = calibrate(
                score,
                prediction[rows],
                wanted[rows],
                risk=risk,
                confidence=1 - (1 - confidence) / len(rows_of),
                num_thresholds=num_thresholds,
                unusual=own,
            )
        except NoThresholdError as error:
            found[group], why = None, str(error)
    never = [group for group, rule in found.items() if rule is None]
    if never:
        named = ", ".join(map(repr, never[:_NAMED])) + (", …" if len(never) > _NAMED else "")
        warn(
            f"A risk of {risk:g} cannot be promised for {named} ({len(never)} of {len(found)}),"
            f" which will never be answered. The last of them: {why}"
        )
    return found
