"""Answer where a score is low enough: a rule that knows its score, and its calibration
on validation data.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from laplacebridge._arrays import takes_arrays
from laplacebridge._checks import Labels, labels_of, require_tensor, values_of
from laplacebridge._predictions import AnyPrediction, probabilities_of
from laplacebridge.errors import InputError, InputTypeError, ShapeError
from laplacebridge.scores import Score
from laplacebridge.selective.decisions import Action, Decisions
from laplacebridge.selective.thresholds import Wrong, threshold_for_risk, threshold_for_share
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
            _scores("SelectiveRule.answers(prediction)", self.score, prediction).double()
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


@takes_arrays
def calibrate(
    score: Score,
    prediction: AnyPrediction,
    labels: Labels | None = None,
    *,
    risk: float | None = None,
    answer_share: float | None = None,
    confidence: float = 0.95,
    num_thresholds: int = 20,
    unusual: Tensor | None = None,
) -> SelectiveRule:
    """Chooses from which score on not to answer: for an error rate among answers, or
    for a share of answers.

    **With a risk**, the rule answers most while the error rate among its answers stays
    below `risk`, with confidence. It tries thresholds that answer the m best validation
    examples, for `num_thresholds` values of m that are fixed beforehand: evenly from
    the fewest that could pass without an error to all. It takes the loosest threshold
    whose Clopper–Pearson bound on the error rate is at most `risk`.

    Taking the loosest of many that pass would favour lucky ones. So each bound has the
    confidence 1 − (1 − confidence)/num_thresholds, and all of them hold together with
    `confidence`, whichever is taken (union bound). That assumes nothing about the score
    or where errors lie, only that examples are independent draws from what the rule
    will see. Testing from strict to loose until the first failure would need no such
    correction, but one confident error among the first few examples would end it.

    **With an answer share**, the threshold is the ⌈(n + 1)·answer_share⌉-th smallest of
    the n scores. A new example that is exchangeable with them is then answered with
    probability at least `answer_share`, on average over validation sets. That needs no
    labels, and promises nothing about errors.

    Examples of equal score are answered together or not at all. They must not have been
    used to train, fit or choose anything.

    Args:
        score: A function such as `lb.scores.msp`, or your own: a number for each
            example, higher = more unusual.
        prediction: For the validation examples, what the score takes: Dirichlets or
            probabilities, or logits for a score of logits. The answer is the class with
            the largest probability or logit.
        labels: Their classes; a share needs none.
        risk: The target for the error rate among answers. Give this or a share.
        answer_share: The share to answer.
        confidence: The probability, over validation sets, that the target for the risk
            is met.
        num_thresholds: How many thresholds are tried for a risk. Fewer are coarser,
            more make each bound wider.
        unusual: Which validation inputs the rule will defer as unusual; see
            `SelectiveRule`. They are left out, so that what is promised holds among the
            others.

    Raises:
        InputTypeError: If the score is no function.
        ShapeError: If the score does not give one number for each example.
        InputError: If no threshold meets the risk, with the best bound and the number
            of examples that would be needed; there are too few examples for the share;
            not exactly one of them is given, or not between 0 and 1; or a risk is asked
            for without labels.

    Example:
        >>> from laplacebridge.scores import msp
        >>> right = torch.linspace(1, 0.5, 1000)  # the probability of class 0
        >>> labels = (
        ...     (right < 0.6) & (torch.arange(1000) % 2 == 0)
        ... ).long()  # of the last 200 half are wrong
        >>> rule = calibrate(msp, torch.stack([right, 1 - right], -1), labels, risk=0.02)
        >>> rule.num_answered, rule.num_wrong, round(rule.risk_bound, 4)
        (778, 0, 0.0077)
        >>> calibrate(msp, torch.stack([right, 1 - right], -1), answer_share=0.9)
        SelectiveRule(msp ≤ 0.4505: answers 90.1% of 1000 examples)
    """
    call = "selective.calibrate(score, prediction, labels)"
    if not callable(score):
        raise InputTypeError(
            f"`{call}` needs a function of predictions first, such as `lb.scores.msp`; got"
            f" {type(score).__name__}."
        )
    if unusual is not None:
        usual = (~_mask(call, unusual, len(prediction))).nonzero().squeeze(-1).cpu()
        if labels is not None:
            labels = labels_of(call, labels, *by_class_of(call, prediction).shape)[usual]
        prediction = prediction[usual]
    scores = _scores(call, score, prediction).detach().cpu().double().numpy()
    wrong = None if labels is None else _wrong(call, prediction, labels)
    bound = None
    if risk is not None and answer_share is None:
        if wrong is None:
            raise InputError(
                f"`{call}` needs labels to bound the error rate by {risk:g}; got none. Give them,"
                " or a share to answer instead, which needs none: `answer_share=0.9`."
            )
        threshold, bound = threshold_for_risk(scores, wrong, risk, confidence, num_thresholds)
    elif answer_share is not None and risk is None:
        threshold = threshold_for_share(scores, answer_share)
    else:
        raise InputError(
            "`selective.calibrate(risk, answer_share)` needs one of the two; got"
            f" {'none' if risk is None else 'both'}. `risk=0.05` allows one error in twenty"
            " answers; `answer_share=0.9` answers nine in ten."
        )
    answered = scores <= threshold
    return SelectiveRule(
        score,
        threshold,
        num_examples=len(scores),
        num_answered=int(answered.sum()),
        num_wrong=None if wrong is None else int(wrong[answered].sum()),
        risk_bound=bound,
        confidence=None if bound is None else confidence,
    )


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
        unusual = _mask("SelectiveRule(unusual)", unusual, len(by_class)).to(action.device)
        action = torch.where(unusual, Action.DEFER, action)
    return Decisions(action, by_class.argmax(-1), sets, unusual, ~answered)


def _scores(call: str, score: Score, prediction: AnyPrediction) -> Float[Tensor, " B"]:
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


def _mask(call: str, unusual: Tensor, num_rows: int) -> Bool[Tensor, " B"]:
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


def _wrong(call: str, prediction: AnyPrediction, labels: Labels) -> Wrong:
    """Whether the answer to each example would be wrong."""
    by_class = by_class_of(call, prediction)
    right = labels_of(call, labels, *by_class.shape).to(by_class.device)
    wrong: Wrong = (by_class.argmax(-1) != right).cpu().numpy()
    return wrong


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
