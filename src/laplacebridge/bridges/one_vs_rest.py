"""The one-vs-rest bridge: every class against the log-sum-exp of all others, as a
logistic normal each.

π_k = σ(x_k) with x_k = z_k − log Σ_{l≠k} exp(z_l), and each x_k is close to normal. Its
mean a_k and variance B_k follow from leave-one-out moments of the others at an inverse
temperature β ≤ 1, which accounts for the few largest logits taking over as variances
grow. Three exponential passes for all classes together; see docs/bridges.md.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from laplacebridge._blocks import by_rows
from laplacebridge._special import logistic_normal_mean
from laplacebridge.bridges.bridge import carries
from laplacebridge.bridges.precision import SMALLEST_PROBABILITY, log_precision
from laplacebridge.covariance import Covariance
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.gaussian import LogitGaussian
from laplacebridge.prediction import Prediction, prediction_of

# Corrections for the maximum of finitely many normals: from the exact mean and variance
# for n = 2 … 1000.
_FREEZING = 1.5
_FAR_BELOW = -1e30  # a logit that weighs nothing; finite, so that it has a gradient of zero


class LogOdds(NamedTuple):
    """Each class against all others: normal approximation of its log-odds."""

    mean: Float[Tensor, "B K"]
    variance: Float[Tensor, "B K"]
    # the class with the largest mean logit, the only one whose odds may be above one
    top: Int[Tensor, "B 1"]

    def of_rows(self, rows: Tensor | slice) -> "LogOdds":
        """Those of some rows.

        Args:
            rows: Which.
        """
        return LogOdds(self.mean[rows], self.variance[rows], self.top[rows])


def inverse_temperature(spread: Tensor, entropy: Tensor | float) -> Tensor:
    """(1 + (Q/H)²)^(−1/4): one for small variances, falling when Q exceeds the entropy
    H of the weights.
    """
    ratio = (spread / (entropy + 0.5 * SMALLEST_PROBABILITY)).clamp_max(1e9)
    return (1 + ratio.square()).sqrt().rsqrt()


class _Weights(NamedTuple):
    """Boltzmann weights exp(β y), the largest class apart: it would swamp the sums of
    all others.
    """

    others: Float[Tensor, "B K"]  # exp(β(y − y₂)), zero for the largest class; y₂ is the runner-up
    log_runner_up: Float[Tensor, "B 1"]  # β y₂ ≤ 0, relative to the largest class
    beta: Float[Tensor, "B 1"]
    below: Float[Tensor, "B K"]  # y = μ − max μ ≤ 0
    top: Int[Tensor, "B 1"]  # the largest class


class _Sums(NamedTuple):
    """Sums over all classes but the largest, weights relative to the runner-up."""

    mass: Float[Tensor, "B 1"]
    tilt: Float[Tensor, "B 1"]
    noise: Float[Tensor, "B 1"]
    squared_noise: Float[Tensor, "B 1"]

    @classmethod
    def of(cls, others: Tensor, below: Tensor, variance: Tensor) -> "_Sums":
        noisy = others * variance
        return cls(
            others.sum(-1, keepdim=True),
            (others * below).sum(-1, keepdim=True),
            noisy.sum(-1, keepdim=True),
            (noisy * others).sum(-1, keepdim=True),
        )


class _Correlation(NamedTuple):
    """Covariances of the logits with the average of all but the largest, and with the
    largest itself.
    """

    with_others: Float[Tensor, "B K"]
    with_top: Float[Tensor, "B K"]
    others: Float[Tensor, "B 1"]  # the variance of that average

    @classmethod
    def of(cls, covariance: Covariance, weights: _Weights, sums: _Sums) -> "_Correlation":
        share = weights.others / sums.mass
        product = covariance.matvec(share)
        with_top = covariance.column(weights.top)
        return cls(product, with_top, (share * product).sum(-1, keepdim=True))


def tempered_probabilities(
    mean: Float[Tensor, "B K"], effective: Float[Tensor, "B K"]
) -> Float[Tensor, "B K"]:
    """softmax(βμ) at the inverse temperature β that these effective variances call for."""
    weights = _boltzmann(mean, effective)
    relative = (weights.others * weights.log_runner_up.exp()).scatter(-1, weights.top, 1.0)
    return relative / relative.sum(-1, keepdim=True)


def log_odds(mean: Float[Tensor, "B K"], covariance: Covariance) -> LogOdds:
    """Mean and variance of every class's log-odds against the rest.

    Args:
        mean: Means of the logits.
        covariance: Their covariance, from `Covariance.modulo_shift`; asked for its
            diagonal, one column and one product.
    """
    weights = _boltzmann(mean, covariance.effective_variance())
    return _weighted_log_odds(
        weights, covariance.diagonal(), None if covariance.independent else covariance
    )


def log_odds_with_and_without(
    mean: Float[Tensor, "B K"], covariance: Covariance, effective: Float[Tensor, "B K"]
) -> tuple[LogOdds, LogOdds]:
    """`log_odds` of correlated logits, and of the independent ones with their effective
    variances. Both weigh the classes alike.

    Args:
        mean: Means of the logits.
        covariance: Their covariance, from `Covariance.modulo_shift`.
        effective: Its effective variances.
    """
    weights = _boltzmann(mean, effective)
    return (
        _weighted_log_odds(weights, covariance.diagonal(), covariance),
        _weighted_log_odds(weights, effective, None),
    )


def log_odds_and_ratio(
    mean: Float[Tensor, "B K"], covariance: Covariance, effective: Float[Tensor, "B K"]
) -> tuple[LogOdds, Float[Tensor, "B K"]]:
    """`log_odds` of correlated logits, and what correlation multiplies one-vs-rest means
    by: their ratio to those of the independent logits with the effective variances.

    Args:
        mean: Means of the logits.
        covariance: Their covariance, from `Covariance.modulo_shift`.
        effective: Its effective variances.
    """
    weights = _boltzmann(mean, effective)
    odds = _weighted_log_odds(weights, covariance.diagonal(), covariance)
    without = _weighted_log_odds(weights, effective, None)
    # as one batch: of few rows it is the calls of torch that take the time
    both = one_vs_rest_probabilities(
        LogOdds(
            torch.cat([odds.mean, without.mean]),
            torch.cat([odds.variance, without.variance]),
            torch.cat([odds.top, without.top]),
        )
    )
    num_rows = mean.shape[0]
    return odds, both[:num_rows] / both[num_rows:]


def _weighted_log_odds(
    weights: _Weights, variance: Float[Tensor, "B K"], covariance: Covariance | None
) -> LogOdds:
    """Log-odds of logits with these variances; without a covariance they are
    independent.
    """
    top = weights.top
    sums = _Sums.of(weights.others, weights.below, variance)
    correlation = None if covariance is None else _Correlation.of(covariance, weights, sums)
    rest, rest_variance = _others_against_rest(variance, correlation, weights, sums)
    top_mean, top_variance = _top_against_rest(variance, correlation, weights, sums)
    return LogOdds(
        rest.scatter_(-1, top, top_mean), rest_variance.scatter_(-1, top, top_variance), top
    )


def _boltzmann(mean: Tensor, effective: Tensor) -> _Weights:
    """Weights at the inverse temperature, found by one step from the uniform ones."""
    num_classes = mean.shape[-1]
    largest, top = mean.max(-1, keepdim=True)
    below = mean - largest
    without_top = below.scatter(-1, top, _FAR_BELOW)
    second = without_top.detach().amax(-1, keepdim=True)
    after_second = without_top - second
    uniform = inverse_temperature(
        effective.mean(-1, keepdim=True) * (1 - 1 / num_classes), math.log(num_classes)
    )
    runner_up = (uniform * second).exp()
    sums = _Sums.of((after_second * uniform).exp(), below, effective)
    mass = sums.mass * runner_up
    share = 1 / (1 + mass)
    quadratic = sums.squared_noise * runner_up * runner_up * share
    spread = share * (sums.noise * runner_up - quadratic + mass * share * effective.gather(-1, top))
    entropy = torch.log1p(mass) - uniform * runner_up * sums.tilt * share
    beta = (uniform * inverse_temperature(spread, entropy)).sqrt()
    return _Weights((after_second * beta).exp(), beta * second, beta, below, top)


def _frozen(spread: Tensor, entropy: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """What the others' noise does to their log-sum-exp: half its mean shift per β, and
    its own variance.

    ½ β Q max(0, 1 − f/(1.2 + 0.4 H)) and f Q/(1.5 + 1.2 H) with f = 1.5(1 − β), divided
    through by the factors of H.
    """
    frozen = _FREEZING * (1 - beta)
    shift = spread * (0.5 * beta - (0.5 * beta * frozen / 0.4) / (entropy + 3.0)).clamp_min(0)
    return shift, spread * ((frozen / 1.2) / (entropy + 1.25))


def _top_against_rest(
    variance: Tensor, correlation: _Correlation | None, weights: _Weights, sums: _Sums
) -> tuple[Tensor, Tensor]:
    _, log_runner_up, beta, _, top = weights
    own = variance.gather(-1, top)
    if correlation is None:
        quadratic, covariant = sums.squared_noise / sums.mass.square(), torch.zeros_like(own)
    else:
        quadratic, covariant = correlation.others, correlation.with_others.gather(-1, top)
    log_mass = sums.mass.log() + log_runner_up
    entropy = (log_mass - beta * (sums.tilt / sums.mass)).clamp_min(0)
    spread = (sums.noise / sums.mass - quadratic).clamp_min(0)
    shift, extra = _frozen(spread, entropy, beta)
    return -log_mass / beta - shift, (own - 2 * covariant + quadratic).clamp_min(0) + extra


def _others_against_rest(
    variance: Tensor, correlation: _Correlation | None, weights: _Weights, sums: _Sums
) -> tuple[Tensor, Tensor]:
    others, log_runner_up, beta, below, top = weights
    runner_up, own = log_runner_up.exp(), variance.gather(-1, top)
    weight = (
        others * runner_up
    )  # relative to the largest class, whose weight is one and who is in every rest
    noisy = weight * variance
    mass = (1 + sums.mass * runner_up) - weight
    share = mass.reciprocal()
    average = ((sums.noise * runner_up + own) - noisy) * share
    if correlation is None:
        quadratic = torch.addcmul(
            sums.squared_noise * runner_up * runner_up + own, weight, noisy, value=-1
        )
        quadratic = quadratic * share * share
        own_variance = variance + quadratic
    else:
        complete = weight.scatter(-1, top, 1.0)
        product = torch.addcmul(
            correlation.with_top, correlation.with_others, sums.mass * runner_up
        )
        cross = product - complete * variance  # with the rest of the classes
        total = (complete * product).sum(-1, keepdim=True)
        quadratic = (total - weight * (2 * cross + noisy)) * share * share
        own_variance = (variance - 2 * cross * share + quadratic).clamp_min(0)
    log_mass = mass.log()
    tilt = torch.addcmul(-sums.tilt * runner_up, weight, below)
    entropy = torch.addcmul(log_mass, tilt, share * beta).clamp_min(0)
    spread = (average - quadratic).clamp_min(0)
    shift, extra = _frozen(spread, entropy, beta)
    return (below - log_mass / beta) - shift, own_variance + extra


def one_vs_rest_probabilities(odds: LogOdds) -> Float[Tensor, "B K"]:
    """E σ(x_k) for every class, normalised. Classes other than the largest have
    negative log-odds.
    """
    top_mean = odds.mean.gather(-1, odds.top)
    negative = odds.mean.clamp_max(0).scatter(-1, odds.top, -top_mean.abs())
    expected = logistic_normal_mean(negative, odds.variance)
    smaller = expected.gather(-1, odds.top)
    top_probability = torch.where(top_mean > 0, 1 - smaller, smaller)
    expected = expected.scatter(-1, odds.top, top_probability) + SMALLEST_PROBABILITY
    return expected / expected.sum(-1, keepdim=True)


def one_vs_rest_mean(gaussian: LogitGaussian) -> Float[Tensor, "B K"]:
    """E softmax(z) by one-vs-rest: the mean of `one_vs_rest_bridge` without its
    precision, at half of its cost.

    Args:
        gaussian: The Gaussian over logits.

    Example:
        >>> from laplacebridge import Diagonal
        >>> one_vs_rest_mean(
        ...     LogitGaussian(torch.tensor([[2.0, 0.0, -1.0]]), Diagonal(torch.ones(1, 3)))
        ... )
        tensor([[0.7595, 0.1695, 0.0710]])
    """

    def mean(rows: LogitGaussian) -> Tensor:
        return one_vs_rest_probabilities(log_odds(rows.mean, rows.covariance.modulo_shift()))

    return by_rows(mean, gaussian).to(gaussian.dtype)


def one_vs_rest_prediction(
    gaussian: LogitGaussian, *, num_largest: int | None = None
) -> Prediction:
    """The Dirichlets of `one_vs_rest_bridge` with the variances of all log-odds, which
    it computes on its way.

    Args:
        gaussian: The Gaussian over logits.
        num_largest: See `one_vs_rest_bridge`.
    """

    def answer(rows: LogitGaussian) -> tuple[Tensor, ...]:
        odds = log_odds(rows.mean, rows.covariance.modulo_shift())
        probabilities = one_vs_rest_probabilities(odds)
        precision = log_precision(probabilities, odds.variance, num_largest=num_largest)
        return probabilities.log() + precision, odds.variance

    log_concentration, variance = by_rows(answer, gaussian)
    return prediction_of(log_concentration, variance, gaussian.mean.dtype)


@carries(mean=one_vs_rest_mean, prediction=one_vs_rest_prediction)
def one_vs_rest_bridge(gaussian: LogitGaussian, *, num_largest: int | None = None) -> Dirichlet:
    r"""Gaussian → Dirichlet through one-vs-rest logistic normals: the fast bridge.

    .. math:: \alpha_k = c\, m_k, \quad m_k \propto \mathrm E\,\sigma(x_k), \quad x_k \sim N(a_k, B_k)

    The mean is exact to first order in Σ, for any correlation, and for K = 2 up to
    1e-4; it does not change when a constant, or noise common to all logits, is added.
    The precision c makes the Beta marginals of the probable classes fit
    (`log_precision`). Where Σ leaves softmax no uncertainty the answer is softmax(μ)
    with the largest precision, about 5e9.

    Note:
        Measured against sampling, the mean is at the error of 1000 samples for ordinary
        posteriors. It is not where one class has 40 times the variance of the others,
        where variances exceed 2 at K = 1000, and where a few directions are shared by
        many logits: there use `race_bridge`, or sample.

    Args:
        gaussian: The Gaussian over logits.
        num_largest: Fit the precision to so many of the largest classes only; see
            `log_precision`.

    Example:
        >>> from laplacebridge import Diagonal
        >>> gaussian = LogitGaussian(torch.tensor([[2.0, 0.0, -1.0]]), Diagonal(torch.ones(1, 3)))
        >>> one_vs_rest_bridge(gaussian).mean
        tensor([[0.7595, 0.1695, 0.0710]])
    """
    return one_vs_rest_prediction(gaussian, num_largest=num_largest).dirichlet
