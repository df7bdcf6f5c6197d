"""Calibration of a selective rule on validation data."""

from torch import Tensor

from laplacebridge._arrays import takes_arrays
from laplacebridge._checks import Labels, labels_of
from laplacebridge._predictions import AnyPrediction
from laplacebridge.errors import InputError, InputTypeError
from laplacebridge.scores import Score
from laplacebridge.selective.selective_rule import (
    SelectiveRule,
    by_class_of,
    scores_of,
    unusual_rows,
)
from laplacebridge.selective.thresholds import Wrong, threshold_for_risk, threshold_for_share


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
        >>> import torch
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
        usual = (~unusual_rows(call, unusual, len(prediction))).nonzero().squeeze(-1).cpu()
        if labels is not None:
            labels = labels_of(call, labels, *by_class_of(call, prediction).shape)[usual]
        prediction = prediction[usual]
    scores = scores_of(call, score, prediction).detach().cpu().double().numpy()
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


def _wrong(call: str, prediction: AnyPrediction, labels: Labels) -> Wrong:
    """Whether the answer to each example would be wrong."""
    by_class = by_class_of(call, prediction)
    right = labels_of(call, labels, *by_class.shape).to(by_class.device)
    wrong: Wrong = (by_class.argmax(-1) != right).cpu().numpy()
    return wrong
