"""Every class against the log-sum-exp of all others, as a logistic normal each: what
the one-vs-rest bridge consists of, and the widths of the others.

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

from laplacebridge._special import logistic_normal_mean
from laplacebridge.bridges.precision import SMALLEST_PROBABILITY
from laplacebridge.covariance import Covariance

# Corrections for the maximum of finitely many normals: from the exact mean and variance
# for n = 2 … 1000.
FREEZING = 1.5
FAR_BELOW = -1e30  # a logit that weighs nothing; finite, so that it has a gradient of zero


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


class Weights(NamedTuple):
    """Boltzmann weights exp(β y), the largest class apart: it would swamp the sums of
    all others.
    """

    others: Float[Tensor, "B K"]  # exp(β(y − y₂)), zero for the largest class; y₂ is the runner-up
    log_runner_up: Float[Tensor, "B 1"]  # β y₂ ≤ 0, relative to the largest class
    beta: Float[Tensor, "B 1"]
    below: Float[Tensor, "B K"]  # y = μ − max μ ≤ 0
    top: Int[Tensor, "B 1"]  # the largest class
    second: Float[Tensor, "B 1"]  # y₂


class Sums(NamedTuple):
    """Sums over all classes but the largest, weights relative to the runner-up."""

    mass: Float[Tensor, "B 1"]
    tilt: Float[Tensor, "B 1"]
    noise: Float[Tensor, "B 1"]
    squared_noise: Float[Tensor, "B 1"]

    @classmethod
    def of(cls, others: Tensor, below: Tensor, variance: Tensor) -> "Sums":
        """With these weights."""
        noisy = others * variance
        return cls(
            others.sum(-1, keepdim=True),
            (others * below).sum(-1, keepdim=True),
            noisy.sum(-1, keepdim=True),
            (noisy * others).sum(-1, keepdim=True),
        )

    def plus(self, more: "Sums") -> "Sums":
        """Of more classes."""
        return Sums(*(some + other for some, other in zip(self, more)))


class Rest(NamedTuple):
    """Classes of independent logits that do not lead, of which sums are enough."""

    below: Float[Tensor, "B K"]  # relative to the largest; far below where a class leads
    variance: Float[Tensor, "B K"]  # of all classes

    def weights(self, beta: Tensor, second: Tensor) -> Float[Tensor, "B K"]:
        """Boltzmann weights relative to the runner-up, zero where a class leads."""
        return ((self.below - second) * beta).exp()

    def sums(self, weights: Float[Tensor, "B K"]) -> Sums:
        """With these weights."""
        return Sums.of(weights, self.below, self.variance)


class _Correlation(NamedTuple):
    """Covariances of the logits with the average of all but the largest, and with the
    largest itself.
    """

    with_others: Float[Tensor, "B K"]
    with_top: Float[Tensor, "B K"]
    others: Float[Tensor, "B 1"]  # the variance of that average

    @classmethod
    def of(cls, covariance: Covariance, weights: Weights, sums: Sums) -> "_Correlation":
        share = weights.others / sums.mass
        product = covariance.matvec(share)
        with_top = covariance.column(weights.top)
        return cls(product, with_top, (share * product).sum(-1, keepdim=True))


def tempered_probabilities(
    mean: Float[Tensor, "B K"], effective: Float[Tensor, "B K"]
) -> Float[Tensor, "B K"]:
    """softmax(βμ) at the inverse temperature β that these effective variances call for."""
    weights = boltzmann(mean, effective)
    relative = (weights.others * weights.log_runner_up.exp()).scatter(-1, weights.top, 1.0)
    return relative / relative.sum(-1, keepdim=True)


def log_odds(mean: Float[Tensor, "B K"], covariance: Covariance) -> LogOdds:
    """Mean and variance of every class's log-odds against the rest.

    Args:
        mean: Means of the logits.
        covariance: Their covariance, from `Covariance.modulo_shift`; asked for its
            diagonal, one column and one product.
    """
    weights = boltzmann(mean, covariance.effective_variance())
    return weighted_log_odds(
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
    weights = boltzmann(mean, effective)
    return (
        weighted_log_odds(weights, covariance.diagonal(), covariance),
        weighted_log_odds(weights, effective),
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
    weights = boltzmann(mean, effective)
    odds = weighted_log_odds(weights, covariance.diagonal(), covariance)
    without = weighted_log_odds(weights, effective)
    # as one batch: of few rows it is the calls of torch that take the time
    both = expected_sigmoid(
        LogOdds(
            torch.cat([odds.mean, without.mean]),
            torch.cat([odds.variance, without.variance]),
            torch.cat([odds.top, without.top]),
        )
    )
    both = both + SMALLEST_PROBABILITY
    both = both / both.sum(-1, keepdim=True)
    num_rows = mean.shape[0]
    return odds, both[:num_rows] / both[num_rows:]


def weighted_log_odds(
    weights: Weights,
    variance: Float[Tensor, "B K"],
    covariance: Covariance | None = None,
    sums: Sums | None = None,
) -> LogOdds:
    """Log-odds of logits with these weights.

    Args:
        weights: Of the classes whose log-odds are asked for.
        variance: Of their logits.
        covariance: Of the same; without, they are independent.
        sums: Over all classes but the largest, if there are more than these.
    """
    top, sums = weights.top, sums or Sums.of(weights.others, weights.below, variance)
    correlation = None if covariance is None else _Correlation.of(covariance, weights, sums)
    rest, rest_variance = _others_against_rest(variance, correlation, weights, sums)
    top_mean, top_variance = _top_against_rest(variance, correlation, weights, sums)
    return LogOdds(
        rest.scatter_(-1, top, top_mean), rest_variance.scatter_(-1, top, top_variance), top
    )


def boltzmann(mean: Tensor, effective: Tensor, rest: "Rest | None" = None) -> Weights:
    """Weights at the inverse temperature, found by one step from the uniform ones.

    Args:
        mean: Means of the logits, or of those that lead.
        effective: Their variances.
        rest: All others, if these lead.
    """
    largest, top = mean.max(-1, keepdim=True)
    below = mean - largest
    without_top = below.scatter(-1, top, FAR_BELOW)
    second = without_top.detach().amax(-1, keepdim=True)
    if rest is not None:
        second = torch.maximum(second, rest.below.detach().amax(-1, keepdim=True))
    after_second = without_top - second
    every = effective if rest is None else rest.variance
    num_classes = every.shape[-1]
    uniform = inverse_temperature(
        every.mean(-1, keepdim=True) * (1 - 1 / num_classes), math.log(num_classes)
    )
    sums = Sums.of((after_second * uniform).exp(), below, effective)
    if rest is not None:
        sums = sums.plus(rest.sums(rest.weights(uniform, second)))
    runner_up = (uniform * second).exp()
    mass = sums.mass * runner_up
    share = 1 / (1 + mass)
    quadratic = sums.squared_noise * runner_up * runner_up * share
    spread = share * (sums.noise * runner_up - quadratic + mass * share * effective.gather(-1, top))
    entropy = torch.log1p(mass) - uniform * runner_up * sums.tilt * share
    beta = (uniform * inverse_temperature(spread, entropy)).sqrt()
    return Weights((after_second * beta).exp(), beta * second, beta, below, top, second)


def _frozen(spread: Tensor, entropy: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """What the others' noise does to their log-sum-exp: half its mean shift per β, and
    its own variance.

    ½ β Q max(0, 1 − f/(1.2 + 0.4 H)) and f Q/(1.5 + 1.2 H) with f = 1.5(1 − β), divided
    through by the factors of H.
    """
    frozen = FREEZING * (1 - beta)
    shift = spread * (0.5 * beta - (0.5 * beta * frozen / 0.4) / (entropy + 3.0)).clamp_min(0)
    return shift, spread * ((frozen / 1.2) / (entropy + 1.25))


def _top_against_rest(
    variance: Tensor, correlation: _Correlation | None, weights: Weights, sums: Sums
) -> tuple[Tensor, Tensor]:
    _, log_runner_up, beta, _, top, _ = weights
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
    variance: Tensor, correlation: _Correlation | None, weights: Weights, sums: Sums
) -> tuple[Tensor, Tensor]:
    others, log_runner_up, beta, below, top, _ = weights
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


def expected_sigmoid(odds: LogOdds) -> Float[Tensor, "B K"]:
    """E σ(x_k) for every class. Classes other than the largest have negative log-odds."""
    top_mean = odds.mean.gather(-1, odds.top)
    negative = odds.mean.clamp_max(0).scatter(-1, odds.top, -top_mean.abs())
    expected = logistic_normal_mean(negative, odds.variance)
    smaller = expected.gather(-1, odds.top)
    return expected.scatter(-1, odds.top, torch.where(top_mean > 0, 1 - smaller, smaller))


def one_vs_rest_probabilities(odds: LogOdds) -> Float[Tensor, "B K"]:
    """E σ(x_k) for every class, normalised."""
    expected = expected_sigmoid(odds) + SMALLEST_PROBABILITY
    return expected / expected.sum(-1, keepdim=True)
