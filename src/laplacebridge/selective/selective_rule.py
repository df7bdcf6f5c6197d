"""Answer where a score is low enough: a rule that knows its score."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from laplacebridge._arrays import takes_arrays
from laplacebridge._checks import require_tensor, values_of
from laplacebridge._predictions import AnyPrediction, probabilities_of
from laplacebridge.errors import InputError, ShapeError
from laplacebridge.scores import Score
from laplacebridge.selective.decisions import Action, Decisions
from laplacebridge.sets import ClassSets


@dataclass(frozen=True)
class SelectiveRule:
    """Answers examples whose score is at most a threshold; made by `calibrate`.

    Attributes:
        score: The score, a function of predictions; higher = more unusual.
        threshold: The largest score that is answered.
        num_examples: How many validation examples it was calibrated on.
        num_answered: How many of them it answers.
        num_wrong: How many of its answers are wrong, if there were labels.
        risk_bound: What the error rate among answers is at most, with this confidence,
            if a risk was asked for.
        confidence: The confidence of the bound.

    Example:
        >>> from laplacebridge.scores import msp
        >>> rule = SelectiveRule(msp, threshold=0.3, num_examples=10, num_answered=8)
        >>> rule.answers(torch.tensor([[0.9, 0.1], [0.5, 0.5]])), rule.answered_share
        (tensor([ True, False]), 0.8)
    """

    score: Score
    threshold: float
    num_examples: int
    num_answered: int
    num_wrong: int | None = None
    risk_bound: float | None = None
    confidence: float | None = None

    @property
    def answered_share(self) -> float:
        """Share of the validation examples that is answered."""
        return self.num_answered / self.num_examples

    @takes_arrays
    def answers(self, prediction: AnyPrediction) -> Bool[Tensor, " B"]:
        """Whether each example is answered.

        Args:
            prediction: Of the same kind as the rule was calibrated on.
        """
        # in float64, because torch would round the threshold to the type of the scores
        return (
            scores_of("SelectiveRule.answers(prediction)", self.score, prediction).double()
            <= self.threshold
        )

    @takes_arrays
    def __call__(
        self,
        prediction: AnyPrediction,
        *,
        sets: ClassSets | None = None,
        max_set_size: int | None = None,
        unusual: Tensor | None = None,
    ) -> Decisions:
        """Answers, names a set, or defers, with the reason.

        An example that is not answered gets its set, if that is small enough and not
        empty. The bound on the risk is about answers only; what sets promise is up to
        them.

        Args:
            prediction: Of the same kind as the rule was calibrated on.
            sets: A set of classes for each example.
            max_set_size: The largest set worth naming, from 2; by default all but those
                of all K classes, which say nothing. A set of one class is not named: it
                would be the answer that the rule refuses.
            unusual: Which inputs are too unusual to say anything about, such as
                ``prediction.ood_quantile > 0.99``, shape (B,). They are deferred,
                whatever their label seems to be; give them to `calibrate` too.

        Raises:
            ShapeError: If predictions, scores and sets are not of the same examples and
                classes.
            InputError: If the largest set is to have fewer than two classes, or there
                are no sets.

        Example:
            >>> from laplacebridge.scores import msp
            >>> rule = SelectiveRule(msp, threshold=0.2, num_examples=100, num_answered=80)
            >>> probabilities = torch.tensor([[0.9, 0.1, 0.0], [0.5, 0.4, 0.1], [0.4, 0.3, 0.3]])
            >>> sets = ClassSets.from_lists([[0], [0, 1], [0, 1, 2]], num_classes=3)
            >>> for decision in rule(probabilities, sets=sets):
            ...     print(decision.action, decision.classes)
            answer [0]
            set [0, 1]
            defer []
            >>> for decision in rule(probabilities, unusual=torch.tensor([True, False, True])):
            ...     print(decision.action, decision.reason)
            defer unusual
            defer ambiguous
            defer both
        """
        return decided(prediction, self.answers(prediction), sets, max_set_size, unusual)

    def __repr__(self) -> str:
        score = getattr(self.score, "__name__", repr(self.score))
        text = f"answers {self.answered_share:.1%} of {self.num_examples} examples"
        if self.risk_bound is not None and self.confidence is not None:
            text += (
                f", at most {self.risk_bound:.2%} of answers wrong with {self.confidence:.0%}"
                " confidence"
            )
        return f"SelectiveRule({score} ≤ {self.threshold:.4g}: {text})"


def decided(
    prediction: AnyPrediction,
    answered: Bool[Tensor, " B"],
    sets: ClassSets | None,
    max_set_size: int | None,
    unusual: Tensor | None,
) -> Decisions:
    """What is done with each example, once it is known which may be answered.

    Args:
        prediction: Of all examples.
        answered: Which may be answered.
        sets: As for `SelectiveRule`.
        max_set_size: The same.
        unusual: The same.
    """
    by_class = by_class_of("SelectiveRule(prediction)", prediction)
    action = torch.where(answered, Action.ANSWER, Action.DEFER)
    if sets is not None or max_set_size is not None:
        named = _worth_naming(sets, max_set_size, *by_class.shape).to(answered.device)
        action = torch.where(~answered & named, Action.SET, action)
    if unusual is not None:
        unusual = unusual_rows("SelectiveRule(unusual)", unusual, len(by_class)).to(action.device)
        action = torch.where(unusual, Action.DEFER, action)
    return Decisions(action, by_class.argmax(-1), sets, unusual, ~answered)


def scores_of(call: str, score: Score, prediction: AnyPrediction) -> Float[Tensor, " B"]:
    """One score for each prediction, checked.

    Raises:
        ShapeError: If there are fewer or more.
    """
    scores = values_of(call, score(prediction))
    if len(scores) != len(prediction):
        raise ShapeError(
            f"`{call}` needs one score for each of {len(prediction)} predictions; got"
            f" {len(scores)}. Compute the score from these predictions."
        )
    return scores


def unusual_rows(call: str, unusual: Tensor, num_rows: int) -> Bool[Tensor, " B"]:
    """Which examples are unusual.

    Raises:
        ShapeError: If that is not a truth value for each.
    """
    if unusual.dtype != torch.bool or unusual.numel() != num_rows:
        raise ShapeError(
            f"`{call}` needs true or false for each of {num_rows} predictions, such as"
            f" `prediction.ood_quantile > 0.99`; got {unusual.dtype} {tuple(unusual.shape)}."
        )
    return unusual.flatten()  # of tokens, in the order of their rows


def by_class_of(call: str, prediction: AnyPrediction) -> Float[Tensor, "B K"]:
    """What the answer is the largest of: probabilities, or what else a score takes,
    such as logits.

    Args:
        call: The call being checked.
        prediction: What was given.
    """
    if not isinstance(prediction, Tensor):
        return probabilities_of(call, prediction)
    require_tensor(call, prediction, "B K", classes=1)
    values_of(call, prediction.amax(-1))  # which is NaN if any of its row is
    return prediction


def _worth_naming(
    sets: ClassSets | None, max_set_size: int | None, num_rows: int, num_classes: int
) -> Tensor:
    """Which sets are small enough, and have more than one class.

    Raises:
        ShapeError: If the sets are of other examples or classes.
        InputError: If there are none, or none could be small enough.
    """
    call = "SelectiveRule(sets, max_set_size)"
    if sets is None or (max_set_size is not None and max_set_size < 2):
        raise InputError(
            f"`{call}` needs sets and a largest size of at least 2; got"
            f" {'no sets' if sets is None else max_set_size}. Without sets leave both out: examples"
            " are then answered or deferred."
        )
    if len(sets) != num_rows or sets.num_classes != num_classes:
        raise ShapeError(
            f"`{call}` needs a set for each of {num_rows} predictions of {num_classes} classes; got"
            f" {len(sets)} sets of {sets.num_classes} classes. Make the sets from these"
            " predictions."
        )
    largest = num_classes - 1 if max_set_size is None else max_set_size
    return (sets.size >= 2) & (
        sets.size <= largest
    )  # one class would be the answer that the rule has refused
