"""Scores for out-of-distribution (OOD) detection and deferring: a number for each
example, higher = more unusual.

From any prediction, or from a `Dirichlet` only (probabilities are refused). They rank;
what they rank by differs. All answer in at least float32.
"""

import math
from collections.abc import Callable as _Callable

import torch
from jaxtyping import Float
from torch import Tensor

from laplacebridge import _checks, _predictions
from laplacebridge._arrays import takes_arrays
from laplacebridge._predictions import AnyPrediction
from laplacebridge.dirichlet import Dirichlet

# From here on 1 − p has as many digits as p, and for the largest of many classes more
# than the sum of the others.
_ENOUGH_REST = 0.5
_NEEDS_EVIDENCE = (
    "Probabilities alone do not say how sure they are: give what a bridge returns, or use `msp` or"
    " `entropy_of_mean`."
)


# from any prediction


@takes_arrays
def msp(prediction: AnyPrediction) -> Float[Tensor, " B"]:
    """1 − max_k p_k: the chance that the most probable class is wrong ("maximum softmax
    probability").

    Added up from the other classes, so that it keeps its digits when the maximum rounds
    to 1.

    Args:
        prediction: Dirichlets, or probabilities of shape (B, K).

    Example:
        >>> msp(torch.tensor([[0.7, 0.2, 0.1], [0.4, 0.3, 0.3]]))
        tensor([0.3000, 0.6000])
    """
    return without_largest(_predictions.probabilities_of("msp(prediction)", prediction))


@takes_arrays
def entropy_of_mean(prediction: AnyPrediction) -> Float[Tensor, " B"]:
    """−Σ p_k log p_k: uncertainty about the label from whatever cause, from 0 to log K.

    Args:
        prediction: Dirichlets, or probabilities of shape (B, K).

    Example:
        >>> entropy_of_mean(torch.tensor([[1.0, 0.0], [0.5, 0.5]]))
        tensor([0.0000, 0.6931])
    """
    probabilities = _predictions.probabilities_of("entropy_of_mean(prediction)", prediction)
    top, rest = probabilities.argmax(-1, keepdim=True), without_largest(probabilities)
    largest = probabilities.gather(-1, top).squeeze(-1)
    # next to p = 1 the surprise −log p is about 1 − p, which p itself has rounded away
    surprise = torch.where(
        rest < _ENOUGH_REST, -torch.log1p(-rest.clamp_max(_ENOUGH_REST)), -largest.log()
    )
    others = torch.where(probabilities > 0, probabilities, 1.0).scatter(
        -1, top, 1.0
    )  # 1 log 1 adds nothing
    return largest * surprise - (others * others.log()).sum(-1)


# from a Dirichlet


@takes_arrays
def expected_entropy(prediction: AnyPrediction) -> Float[Tensor, " B"]:
    """E H(π): uncertainty about the label that would remain if the probabilities were
    known (aleatoric).

    Args:
        prediction: Dirichlets.

    Example:
        >>> expected_entropy(
        ...     Dirichlet.from_concentration(torch.tensor([[1.0, 1.0], [100.0, 100.0]]))
        ... )
        tensor([0.5000, 0.6907])
    """
    return _dirichlet("expected_entropy(prediction)", prediction).expected_entropy()


@takes_arrays
def mutual_information(prediction: AnyPrediction) -> Float[Tensor, " B"]:
    """H(E π) − E H(π): uncertainty about the probabilities themselves (epistemic), from
    0 to log K.

    Args:
        prediction: Dirichlets.

    Example:
        >>> mutual_information(
        ...     Dirichlet.from_concentration(torch.tensor([[1.0, 1.0], [100.0, 100.0]]))
        ... )
        tensor([0.1931, 0.0025])
    """
    return _dirichlet("mutual_information(prediction)", prediction).mutual_information()


@takes_arrays
def differential_entropy(prediction: AnyPrediction) -> Float[Tensor, " B"]:
    """Entropy of the Dirichlet's density: largest for the flat one, α = 1.

    It falls on both sides: also for α < 1, where the mass moves to the corners and
    nothing is known at all. Below the range of the type, for instance where 1/α of a
    class overflows, it is −∞.

    Args:
        prediction: Dirichlets.

    Example:
        >>> differential_entropy(
        ...     Dirichlet.from_concentration(torch.tensor([[2.0, 2.0], [100.0, 100.0]]))
        ... )
        tensor([-0.1251, -1.9259])
    """
    dirichlet = _dirichlet("differential_entropy(prediction)", prediction)
    log, largest = dirichlet.log_concentration, torch.finfo(dirichlet.dtype).max
    # 1/α, or K log α₀, has left the range so far that the terms of the entropy are
    # infinities of both signs
    below = (log.amin(-1) < -2 * math.log(largest)) | (
        log.amax(-1) > largest / (2 * dirichlet.num_classes)
    )
    return torch.where(
        below, -torch.inf, Dirichlet(torch.where(below.unsqueeze(-1), 0.0, log)).entropy()
    )


@takes_arrays
def negative_log_total(prediction: AnyPrediction) -> Float[Tensor, " B"]:
    """−log α₀: how little the Dirichlet has seen, whatever its mean.

    A trap as a score of unusual inputs: under a wide prior it turns round, and calls
    usual inputs unusual (`docs/detection.md`). Use `Prediction.ood_score`, or
    `mutual_information`.

    Orders as the negative total concentration −α₀ does, and is finite where that
    overflows.

    Args:
        prediction: Dirichlets.

    Example:
        >>> negative_log_total(
        ...     Dirichlet.from_concentration(torch.tensor([[1.0, 1.0], [100.0, 100.0]]))
        ... )
        tensor([-0.6931, -5.2983])
    """
    return -_dirichlet("negative_log_total(prediction)", prediction).log_total


@takes_arrays
def max_marginal_variance(prediction: AnyPrediction) -> Float[Tensor, " B"]:
    """max_k Var π_k, the largest variance of a class probability, from 0 to 1/4.

    Args:
        prediction: Dirichlets.

    Example:
        >>> max_marginal_variance(
        ...     Dirichlet.from_concentration(torch.tensor([[1.0, 1.0], [100.0, 100.0]]))
        ... )
        tensor([0.0833, 0.0012])
    """
    return _dirichlet("max_marginal_variance(prediction)", prediction).variance.amax(-1)


Score = _Callable[[AnyPrediction], Tensor]

# by name, for tables and the command line: from any prediction, from a Dirichlet only
SCORES: dict[str, Score] = {"msp": msp, "entropy_of_mean": entropy_of_mean}
DIRICHLET_SCORES: dict[str, Score] = {
    "expected_entropy": expected_entropy,
    "mutual_information": mutual_information,
    "differential_entropy": differential_entropy,
    "negative_log_total": negative_log_total,
    "max_marginal_variance": max_marginal_variance,
}


def without_largest(probabilities: Float[Tensor, "B K"]) -> Float[Tensor, " B"]:
    """The probability of all classes but the largest.

    Args:
        probabilities: Of all classes.
    """
    return probabilities.scatter(-1, probabilities.argmax(-1, keepdim=True), 0.0).sum(-1)


def _dirichlet(call: str, prediction: AnyPrediction) -> Dirichlet:
    """The Dirichlets in at least float32, known to be finite."""
    log = _predictions.dirichlet_of(call, prediction, _NEEDS_EVIDENCE).log_concentration
    _checks.require_finite(call, "concentrations", log, "Find its input: `lb.check(dirichlet)`.")
    return Dirichlet(log.float() if _checks.is_half(log.dtype) else log)
