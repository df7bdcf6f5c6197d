"""The one-vs-rest bridge: every class against the log-sum-exp of all others, as a logistic normal each.

π_k = σ(x_k) with x_k = z_k − log Σ_{l≠k} exp(z_l), and each x_k is close to normal. Its mean a_k and variance B_k
follow from leave-one-out moments of the others at an inverse temperature β ≤ 1, which accounts for the few largest
logits taking over as variances grow. Three exponential passes for all classes together; see docs/bridges.md.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from laplacebridge.bridges.precision import SMALLEST_PROBABILITY, log_precision
from laplacebridge.covariance import Covariance
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.gaussian import LogitGaussian
from laplacebridge.rows import by_rows
from laplacebridge.special import logistic_normal_mean

# Corrections for the maximum of finitely many normals: from the exact mean and variance for n = 2 … 1000.
_FREEZING = 1.5


class LogOdds(NamedTuple):
    """Each class against all others: normal approximation of its log-odds."""

    mean: Float[Tensor, "B K"]
    variance: Float[Tensor, "B K"]
    top: Int[Tensor, "B 1"]  # the class with the largest mean logit, the only one whose odds may be above one


def inverse_temperature(spread: Tensor, entropy: Tensor | float) -> Tensor:
    """(1 + (Q/H)²)^(−1/4): one for small variances, falling when Q exceeds the entropy H of the weights."""
    ratio = (spread / (entropy + 0.5 * SMALLEST_PROBABILITY)).clamp_max(1e9)
    return (1 + ratio.square()).sqrt().rsqrt()


class _Weights(NamedTuple):
    """Boltzmann weights exp(β y), the largest class apart: it would swamp the sums of all others."""

    others: Float[Tensor, "B K"]  # exp(β(y − y₂)), zero for the largest class; y₂ is the runner-up
    log_runner_up: Float[Tensor, "B 1"]  # β y₂ ≤ 0, relative to the largest class
    beta: Float[Tensor, "B 1"]


def tempered_probabilities(mean: Float[Tensor, "B K"], effective: Float[Tensor, "B K"]) -> Float[Tensor, "B K"]:
    """softmax(βμ) at the inverse temperature β that these effective variances call for."""
    top = mean.argmax(-1, keepdim=True)
    weights = _boltzmann(mean - mean.gather(-1, top), top, effective)
    relative = (weights.others * weights.log_runner_up.exp()).scatter(-1, top, 1.0)
    return relative / relative.sum(-1, keepdim=True)


def log_odds(mean: Float[Tensor, "B K"], covariance: Covariance) -> LogOdds:
    """Mean and variance of every class's log-odds against the rest.

    Args:
        mean: Means of the logits.
        covariance: Their covariance, from `Covariance.modulo_shift`; asked for its diagonal and two products.
    """
    largest, top = mean.max(-1, keepdim=True)
    below = mean - largest  # y ≤ 0
    weights = _boltzmann(below, top, covariance.effective_variance())
    variance = covariance.diagonal()
    rest, rest_variance = _others_against_rest(below, top, variance, covariance, weights)
    top_mean, top_variance = _top_against_rest(below, top, variance, covariance, weights)
    return LogOdds(rest.scatter(-1, top, top_mean), rest_variance.scatter(-1, top, top_variance), top)


def _boltzmann(below: Tensor, top: Tensor, effective: Tensor) -> _Weights:
    """Weights at the inverse temperature, found by one step from the uniform ones."""
    num_classes = below.shape[-1]
    second = below.detach().scatter(-1, top, -math.inf).amax(-1, keepdim=True)
    after_second = (below - second).clamp_max(0)
    top_variance = effective.gather(-1, top)

    def at(beta: Tensor) -> _Weights:
        return _Weights((after_second * beta).exp().scatter(-1, top, 0.0), beta * second, beta)

    uniform = inverse_temperature(effective.mean(-1, keepdim=True) * (1 - 1 / num_classes), math.log(num_classes))
    others, log_runner_up, beta = at(uniform)
    runner_up = log_runner_up.exp()
    noisy = others * effective
    mass, first, second_moment = (
        part.sum(-1, keepdim=True) * runner_up for part in (others, noisy, noisy * others * runner_up)
    )
    share = 1 / (1 + mass)
    spread = share * (first - second_moment * share + mass * share * top_variance)
    entropy = torch.log1p(mass) - beta * runner_up * (others * below).sum(-1, keepdim=True) * share
    return at((uniform * inverse_temperature(spread, entropy)).sqrt())


def _frozen(spread: Tensor, entropy: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """What the others' noise does to their log-sum-exp: half its mean shift per β, and its own variance."""
    frozen = _FREEZING * (1 - beta)
    shift = spread * (1 - frozen / (entropy * 0.4 + 1.2)).clamp_min(0) * (0.5 * beta)
    return shift, spread * frozen / (entropy * 1.2 + 1.5)


def _top_against_rest(
    below: Tensor, top: Tensor, variance: Tensor, covariance: Covariance, weights: _Weights
) -> tuple[Tensor, Tensor]:
    others, log_runner_up, beta = weights
    mass = others.sum(-1, keepdim=True)
    share = others / mass
    average = (share * variance).sum(-1, keepdim=True)
    own = variance.gather(-1, top)
    if covariance.independent:
        quadratic, covariant = (share * share * variance).sum(-1, keepdim=True), torch.zeros_like(own)
    else:
        product = covariance.matvec(share)
        quadratic, covariant = (share * product).sum(-1, keepdim=True), product.gather(-1, top)
    log_mass = mass.log() + log_runner_up
    entropy = (log_mass - beta * (share * below).sum(-1, keepdim=True)).clamp_min(0)
    spread = (average - quadratic).clamp_min(0)
    shift, extra = _frozen(spread, entropy, beta)
    return -log_mass / beta - shift, (own - 2 * covariant + quadratic).clamp_min(0) + extra


def _others_against_rest(
    below: Tensor, top: Tensor, variance: Tensor, covariance: Covariance, weights: _Weights
) -> tuple[Tensor, Tensor]:
    others, log_runner_up, beta = weights
    own = variance.gather(-1, top)
    weight = others * log_runner_up.exp()  # relative to the largest class, whose weight is one and who is in every rest
    noisy = weight * variance
    mass = (1 + weight.sum(-1, keepdim=True)) - weight
    share = mass.reciprocal()
    average = ((noisy.sum(-1, keepdim=True) + own) - noisy) * share
    tilt = weight * below
    if covariance.independent:
        quadratic = torch.addcmul((noisy * weight).sum(-1, keepdim=True) + own, weight, noisy, value=-1)
        quadratic = quadratic * share * share
        own_variance = variance + quadratic
    else:
        complete = weight.scatter(-1, top, 1.0)
        product = covariance.matvec(complete)
        cross = product - complete * variance  # with the rest of the classes
        total = (complete * product).sum(-1, keepdim=True)
        quadratic = (total - weight * (2 * cross + noisy)) * share * share
        own_variance = (variance - 2 * cross * share + quadratic).clamp_min(0)
    log_mass = mass.log()
    entropy = torch.addcmul(log_mass, (tilt - tilt.sum(-1, keepdim=True)) * beta, share).clamp_min(0)
    spread = (average - quadratic).clamp_min(0)
    shift, extra = _frozen(spread, entropy, beta)
    return (below - log_mass / beta) - shift, own_variance + extra


def one_vs_rest_probabilities(odds: LogOdds) -> Float[Tensor, "B K"]:
    """E σ(x_k) for every class, normalised. Classes other than the largest have negative log-odds."""
    top_mean, top_variance = odds.mean.gather(-1, odds.top), odds.variance.gather(-1, odds.top)
    smaller = logistic_normal_mean(-top_mean.abs(), top_variance)
    top_probability = torch.where(top_mean > 0, 1 - smaller, smaller)
    expected = logistic_normal_mean(odds.mean.clamp_max(0), odds.variance).scatter(-1, odds.top, top_probability)
    expected = expected + SMALLEST_PROBABILITY
    return expected / expected.sum(-1, keepdim=True)


def one_vs_rest_mean(gaussian: LogitGaussian) -> Float[Tensor, "B K"]:
    """E softmax(z) by one-vs-rest: the mean of `one_vs_rest_bridge` without its precision, at a third of its cost.

    Args:
        gaussian: The Gaussian over logits.

    Example:
        >>> from laplacebridge import Diagonal
        >>> one_vs_rest_mean(LogitGaussian(torch.tensor([[2.0, 0.0, -1.0]]), Diagonal(torch.ones(1, 3))))
        tensor([[0.7595, 0.1695, 0.0710]])
    """

    def mean(rows: LogitGaussian) -> Tensor:
        return one_vs_rest_probabilities(log_odds(rows.mean, rows.covariance.modulo_shift()))

    return by_rows(mean, gaussian).to(gaussian.dtype)


def one_vs_rest_bridge(gaussian: LogitGaussian, *, num_largest: int | None = None) -> Dirichlet:
    r"""Gaussian → Dirichlet through one-vs-rest logistic normals: the fast bridge.

    .. math:: \alpha_k = c\, m_k, \quad m_k \propto \mathrm E\,\sigma(x_k), \quad x_k \sim N(a_k, B_k)

    The mean is exact to first order in Σ, for any correlation, and for K = 2 up to 1e-4; it does not change when a
    constant, or noise common to all logits, is added. The precision c makes the Beta marginals of the probable classes
    fit (`log_precision`). Where Σ leaves softmax no uncertainty the answer is softmax(μ) with the largest precision,
    about 5e9.

    Note:
        Measured against sampling, the mean is at the error of 1000 samples for ordinary posteriors. It is not where one
        class has 40 times the variance of the others, where variances exceed 2 at K = 1000, and where a few directions
        are shared by many logits: there use `race_bridge`, or sample.

    Args:
        gaussian: The Gaussian over logits.
        num_largest: Fit the precision to so many of the largest classes only; see `log_precision`.

    Example:
        >>> from laplacebridge import Diagonal
        >>> gaussian = LogitGaussian(torch.tensor([[2.0, 0.0, -1.0]]), Diagonal(torch.ones(1, 3)))
        >>> one_vs_rest_bridge(gaussian).mean
        tensor([[0.7595, 0.1695, 0.0710]])
    """

    def log_concentration(rows: LogitGaussian) -> Tensor:
        odds = log_odds(rows.mean, rows.covariance.modulo_shift())
        probabilities = one_vs_rest_probabilities(odds)
        return probabilities.log() + log_precision(probabilities, odds.variance, num_largest=num_largest)

    return Dirichlet(by_rows(log_concentration, gaussian)).to(gaussian.dtype)
