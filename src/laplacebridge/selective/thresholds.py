"""The threshold of a score, for a share of answers or for an error rate among them,
from the scores of examples.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from laplacebridge import _scipy_special as special
from laplacebridge._ranks import fewest_for, rank_for
from laplacebridge.errors import InputError

# How many times as many examples may be advised: from as many as there are to a million
# times, in steps of a tenth.
_GROWTHS = [1.1**step for step in range(146)]

# What there is where nothing can be promised.
WITHOUT_A_PROMISE = (
    "Which cases to look at first, without a promise: `lb.review(prediction, n=10)`."
)

Scores = npt.NDArray[np.float64]
Wrong = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]


class NoThresholdError(InputError):
    """No threshold meets the target with these examples."""


def threshold_for_share(scores: Scores, share: float) -> float:
    """The strictest threshold that answers a stated share: the ⌈(n + 1)·share⌉-th
    smallest score.

    Args:
        scores: One for each example.
        share: The share to answer.

    Raises:
        InputError: If the share is not between 0 and 1, or there are too few examples
            for it.
    """
    _require_share(
        "selective.calibrate(answer_share)",
        share,
        "0.9 is usual; to answer everything needs no rule",
    )
    rank = rank_for(share, len(scores))
    if rank > len(scores):
        raise InputError(
            f"`selective.calibrate(answer_share)` needs at least {fewest_for(share)} examples to"
            f" answer a share of {share:g}; got {len(scores)}. Give more, or ask for at most"
            f" {len(scores) / (len(scores) + 1):.3g}."
        )
    return float(np.sort(scores)[rank - 1])


def threshold_for_risk(
    scores: Scores, wrong: Wrong, risk: float, confidence: float, num_thresholds: int
) -> tuple[float, float]:
    """The loosest of some thresholds, fixed beforehand, that meet the risk; and its
    bound on the error rate.

    Args:
        scores: One for each example.
        wrong: Whether the answer to each would be wrong.
        risk: The target for the error rate among answers.
        confidence: The probability that all bounds hold.
        num_thresholds: How many thresholds are tried.

    Raises:
        NoThresholdError: If none meets the target, with the best bound and the number
            of examples that would be needed.
    """
    require_risk(risk, confidence, num_thresholds)
    chance = (1 - confidence) / num_thresholds  # of each bound to be too low
    fewest = math.ceil(math.log(chance) / math.log1p(-risk))
    if fewest > len(scores):
        raise NoThresholdError(
            f"`selective.calibrate(risk)` needs at least {fewest} examples to bound the error rate"
            f" by {risk:g} with confidence {confidence:g}, even if none is wrong; got"
            f" {len(scores)}. Give more, or allow a larger risk. {WITHOUT_A_PROMISE}"
        )
    order = np.argsort(scores)
    ordered, errors = scores[order], np.concatenate([[0], np.cumsum(wrong[order])])
    counts = np.linspace(len(ordered), fewest, num_thresholds).astype(int).tolist()
    tried = [_candidate(count, ordered, errors, 1 - chance) for count in counts]
    good = [candidate for candidate in tried if candidate.bound <= risk]
    if not good:
        raise NoThresholdError(_why_not(tried, len(ordered), risk, confidence, 1 - chance))
    loosest = max(good, key=lambda candidate: candidate.num_answered)
    return loosest.threshold, loosest.bound


def require_risk(risk: float, confidence: float, num_thresholds: int) -> None:
    """Refuses what makes no sense.

    Args:
        risk: The target for the error rate among answers.
        confidence: The probability that all bounds hold.
        num_thresholds: How many thresholds are tried.

    Raises:
        InputError: If shares are not between 0 and 1, or no threshold is to be tried.
    """
    _require_share("selective.calibrate(risk)", risk, "0.05 is one error in twenty answers")
    _require_share("selective.calibrate(confidence)", confidence, "0.95 is usual")
    if num_thresholds < 1:
        raise InputError(
            f"`selective.calibrate(num_thresholds)` needs at least 1; got {num_thresholds}. 20 is"
            " usual."
        )


def clopper_pearson_upper(num_wrong: int, num_examples: int, *, confidence: float = 0.95) -> float:
    """The largest error rate that is still compatible with so few errors: exact,
    one-sided (Clopper and Pearson 1934).

    The p with P(at most `num_wrong` errors among `num_examples` | p) = 1 − confidence;
    1 if all are wrong.

    Args:
        num_wrong: How many are wrong.
        num_examples: Of how many.
        confidence: The probability that the bound is not below the true rate.

    Raises:
        InputError: If there are more errors than examples, or the confidence is not
            between 0 and 1.

    Example:
        >>> round(clopper_pearson_upper(0, 59), 4)  # the "rule of three" says 3/59 = 0.0508
        0.0495
    """
    _require_share("clopper_pearson_upper(confidence)", confidence, "0.95 is usual")
    if not 0 <= num_wrong <= num_examples:
        raise InputError(
            "`clopper_pearson_upper(num_wrong, num_examples)` needs 0 ≤ num_wrong ≤ num_examples;"
            f" got {num_wrong} and {num_examples}. Count the errors first."
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

    Given that score, the examples below it are independent draws from all that the rule
    answers, and their errors are binomial with the rate that is to be bounded; with
    ties too. That would not be so for examples up to a score that is one of theirs.
    """
    answered, threshold = count, math.inf
    if count < len(ordered):
        after = ordered[count]
        answered, threshold = (
            int(np.searchsorted(ordered, after)),
            float(np.nextafter(after, -np.inf)),
        )
    num_wrong = int(errors[answered])
    return _Candidate(
        threshold,
        answered,
        num_wrong,
        clopper_pearson_upper(num_wrong, answered, confidence=confidence),
    )


def _why_not(
    tried: list[_Candidate], num_examples: int, risk: float, confidence: float, each: float
) -> str:
    """What is missing when no threshold meets the target."""
    best = min(tried, key=lambda candidate: candidate.bound)
    message = (
        f"`selective.calibrate(risk)` needs a threshold with an error rate of at most {risk:g}"
        f" among its answers; the best bound with confidence {confidence:g} is {best.bound:.3g},"
        f" with {best.num_wrong} of {best.num_answered} answers wrong. "
    )
    growth = min(_growth_needed(candidate, risk, each) for candidate in tried)
    if math.isinf(growth):
        return (
            message
            + "More examples would not help: allow a larger risk, or improve the score or the"
            f" model. {WITHOUT_A_PROMISE}"
        )
    return (
        message
        + f"Give about {math.ceil(growth * num_examples)} examples like these {num_examples}, or"
        f" more risk. {WITHOUT_A_PROMISE}"
    )


def _growth_needed(candidate: _Candidate, risk: float, confidence: float) -> float:
    """How many times as many examples, with the same share of errors, bring the bound
    down to the target.
    """
    num_wrong, num_right = candidate.num_wrong, candidate.num_answered - candidate.num_wrong
    if num_wrong < risk * candidate.num_answered:
        for growth in _GROWTHS:
            if special.betaincinv(growth * num_wrong + 1, growth * num_right, confidence) <= risk:
                return growth
    return math.inf


def _require_share(call: str, share: float, advice: str) -> None:
    if not 0 < share < 1:
        raise InputError(f"`{call}` needs a number between 0 and 1; got {share}. {advice}.")
