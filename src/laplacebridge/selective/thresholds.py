"""The threshold of a score, chosen on validation data for a share of answers or for an error rate among them."""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool
from torch import Tensor

from laplacebridge import _scipy_special as special
from laplacebridge._checks import values_of
from laplacebridge.errors import ShapeError
from laplacebridge.selective.decisions import AnswerRule

# How many times as many examples may be advised: from as many as there are to a million times, in steps of a tenth.
_GROWTHS = [1.1**step for step in range(146)]

Scores = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


def for_coverage(scores: Tensor, *, coverage: float = 0.9) -> AnswerRule:
    """The strictest rule that answers a stated share of examples.

    The threshold is the ⌈(n + 1)·coverage⌉-th smallest of the n scores. A new example that is exchangeable with them
    is then answered with probability at least `coverage`, on average over validation sets; with it all examples
    of the same score are answered.

    Args:
        scores: Of validation examples, higher = more unusual, shape (B,).
        coverage: The share to answer.

    Raises:
        ValueError: If the share is not between 0 and 1, or there are too few examples for it.

    Example:
        >>> rule = for_coverage(torch.arange(99.0), coverage=0.9)
        >>> rule.threshold, round(rule.answered_share, 3)
        (89.0, 0.909)
    """
    call = "for_coverage(scores)"
    values = _ordered(values_of(call, scores))
    _require_share("for_coverage(coverage)", coverage, "0.9 is usual; to answer everything needs no rule")
    rank = math.ceil((len(values) + 1) * coverage - 1e-9)  # less the rounding of the product
    if rank > len(values):
        raise ValueError(
            f"`{call}` needs at least {math.ceil(coverage / (1 - coverage) - 1e-9)} examples to answer a share of "
            f"{coverage:g}; got {len(values)}. Give more, or ask for at most {len(values) / (len(values) + 1):.3g}."
        )
    threshold = float(values[rank - 1])
    return AnswerRule(threshold, len(values), int((values <= threshold).sum()))


def for_risk(
    scores: Tensor, correct: Tensor, *, risk: float = 0.05, confidence: float = 0.95, num_thresholds: int = 20
) -> AnswerRule:
    """The rule that answers most while the error rate among its answers stays below a target, with confidence.

    It tries thresholds that answer the m best validation examples, for `num_thresholds` values of m that are fixed
    beforehand: evenly from the fewest that could pass without an error to all. It takes the loosest threshold whose
    Clopper–Pearson bound on the error rate is at most `risk`.

    Taking the loosest of many that pass would favour lucky ones. So each bound has the confidence
    1 − (1 − confidence)/num_thresholds, and all of them hold together with `confidence`, whichever is taken (union
    bound). That assumes nothing about the score or where errors lie, only that examples are independent draws from
    what the rule will see. Testing from strict to loose until the first failure would need no such correction, but one
    confident error among the first few examples would end it.

    Examples of equal score are answered together or not at all.

    Args:
        scores: Of validation examples, higher = more unusual, shape (B,).
        correct: Whether the answer to each would be right, shape (B,).
        risk: The target for the error rate among answers.
        confidence: The probability, over validation sets, that the target is met.
        num_thresholds: How many thresholds are tried. Fewer are coarser, more make each bound wider.

    Raises:
        ValueError: If no threshold meets the target, with the best bound and the number of examples that would be
            needed; or if the target or the confidence is not between 0 and 1.

    Example:
        >>> scores = torch.linspace(0, 1, 1000)
        >>> correct = (scores < 0.8) | (torch.arange(1000) % 2 == 0)  # half of the last 200 are wrong
        >>> rule = for_risk(scores, correct, risk=0.02)
        >>> rule.num_answered, rule.num_wrong, round(rule.risk_bound, 4)
        (778, 0, 0.0077)
    """
    call = "for_risk(scores, correct)"
    values = values_of(call, scores)
    wrong = ~_correct_of(call, correct, len(values))[values.detach().cpu().argsort()]
    _require_share("for_risk(risk)", risk, "0.05 is one error in twenty answers")
    _require_share("for_risk(confidence)", confidence, "0.95 is usual")
    if num_thresholds < 1:
        raise ValueError(f"`for_risk(num_thresholds)` needs at least 1; got {num_thresholds}. 20 is usual.")
    ordered, errors = _ordered(values), np.concatenate([[0], np.cumsum(wrong.numpy())])
    chance = (1 - confidence) / num_thresholds  # of each bound to be too low
    fewest = math.ceil(math.log(chance) / math.log1p(-risk))
    if fewest > len(ordered):
        raise ValueError(
            f"`{call}` needs at least {fewest} examples to bound the error rate by {risk:g} with confidence "
            f"{confidence:g}, even if none is wrong; got {len(ordered)}. Give more, or allow a larger risk."
        )
    counts = np.linspace(len(ordered), fewest, num_thresholds).astype(int).tolist()
    tried = [_candidate(count, ordered, errors, 1 - chance) for count in counts]
    good = [candidate for candidate in tried if candidate.bound <= risk]
    if not good:
        raise ValueError(_why_not(tried, len(ordered), risk, confidence, 1 - chance))
    best = max(good, key=lambda candidate: candidate.num_answered)
    return AnswerRule(best.threshold, len(ordered), best.num_answered, best.num_wrong, best.bound, confidence)


def clopper_pearson_upper(num_wrong: int, num_examples: int, *, confidence: float = 0.95) -> float:
    """The largest error rate that is still compatible with so few errors: exact, one-sided (Clopper and Pearson 1934).

    The p with P(at most `num_wrong` errors among `num_examples` | p) = 1 − confidence; 1 if all are wrong.

    Args:
        num_wrong: How many are wrong.
        num_examples: Of how many.
        confidence: The probability that the bound is not below the true rate.

    Raises:
        ValueError: If there are more errors than examples, or the confidence is not between 0 and 1.

    Example:
        >>> round(clopper_pearson_upper(0, 59), 4)  # the "rule of three" says 3/59 = 0.0508
        0.0495
    """
    _require_share("clopper_pearson_upper(confidence)", confidence, "0.95 is usual")
    if not 0 <= num_wrong <= num_examples:
        raise ValueError(
            f"`clopper_pearson_upper(num_wrong, num_examples)` needs 0 ≤ num_wrong ≤ num_examples; got {num_wrong} and "
            f"{num_examples}. Count the errors first."
        )
    if num_wrong == num_examples:
        return 1.0
    return float(special.betaincinv(num_wrong + 1, num_examples - num_wrong, confidence))


class _Candidate(NamedTuple):
    """A threshold that might do, and what the validation examples say about it."""

    threshold: float
    num_answered: int
    num_wrong: int
    bound: float


def _candidate(count: int, ordered: Scores, errors: Counts, confidence: float) -> _Candidate:
    """Answers what scores below the example that comes after the best `count`.

    Given that score, the examples below it are independent draws from all that the rule answers, and their errors are
    binomial with the rate that is to be bounded; with ties too. That would not be so for examples up to a score that
    is one of theirs.
    """
    answered, threshold = count, math.inf
    if count < len(ordered):
        after = ordered[count]
        answered, threshold = int(np.searchsorted(ordered, after)), float(np.nextafter(after, -np.inf))
    num_wrong = int(errors[answered])
    return _Candidate(threshold, answered, num_wrong, clopper_pearson_upper(num_wrong, answered, confidence=confidence))


def _why_not(tried: list[_Candidate], num_examples: int, risk: float, confidence: float, each: float) -> str:
    """What is missing when no threshold meets the target."""
    best = min(tried, key=lambda candidate: candidate.bound)
    message = (
        f"`for_risk(scores, correct)` needs a threshold with an error rate of at most {risk:g} among its answers; the "
        f"best bound with confidence {confidence:g} is {best.bound:.3g}, with {best.num_wrong} of {best.num_answered} "
        "answers wrong. "
    )
    growth = min(_growth_needed(candidate, risk, each) for candidate in tried)
    if math.isinf(growth):
        return message + "More examples would not help: allow a larger risk, or improve the score or the model."
    return message + f"Give about {math.ceil(growth * num_examples)} examples like these {num_examples}, or more risk."


def _growth_needed(candidate: _Candidate, risk: float, confidence: float) -> float:
    """How many times as many examples, with the same share of errors, bring the bound down to the target."""
    num_wrong, num_right = candidate.num_wrong, candidate.num_answered - candidate.num_wrong
    if num_wrong < risk * candidate.num_answered:
        for growth in _GROWTHS:
            if special.betaincinv(growth * num_wrong + 1, growth * num_right, confidence) <= risk:
                return growth
    return math.inf


def _ordered(values: Tensor) -> Scores:
    ordered: Scores = np.sort(values.detach().cpu().double().numpy())
    return ordered


def _correct_of(call: str, correct: Tensor, num_rows: int) -> Bool[Tensor, " B"]:
    """Whether each answer is right, checked.

    Raises:
        ShapeError: If there is not one truth value for each example.
    """
    if correct.dtype != torch.bool or correct.shape != (num_rows,):
        raise ShapeError(
            f"`{call}` needs one truth value for each of {num_rows} scores; got {correct.dtype} of shape "
            f"{tuple(correct.shape)}. Compare answers with labels: `probabilities.argmax(-1) == labels`."
        )
    return correct.cpu()


def _require_share(call: str, share: float, advice: str) -> None:
    if not 0 < share < 1:
        raise ValueError(f"`{call}` needs a number between 0 and 1; got {share}. {advice}.")
