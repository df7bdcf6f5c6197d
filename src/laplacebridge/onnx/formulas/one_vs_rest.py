"""One-vs-rest in graphs: `bridges/one_vs_rest.py` once more, formula by formula."""

import math
from typing import NamedTuple

from laplacebridge.bridges.one_vs_rest import _FAR_BELOW, _FREEZING
from laplacebridge.bridges.precision import SMALLEST_PROBABILITY
from laplacebridge.onnx.formulas.covariances import GraphCovariance
from laplacebridge.onnx.formulas.nodes import Value
from laplacebridge.onnx.formulas.special import log1p, logistic_normal_parts


class GraphLogOdds(NamedTuple):
    """Each class against all others: normal approximation of its log-odds."""

    mean: Value
    variance: Value
    is_top: Value  # the class with the largest mean logit


class _Weights(NamedTuple):
    others: Value  # exp(β(y − y₂)), zero for the largest class
    log_runner_up: Value
    beta: Value


class _Sums(NamedTuple):
    mass: Value
    tilt: Value
    noise: Value
    squared_noise: Value

    @classmethod
    def of(cls, others: Value, below: Value, variance: Value) -> "_Sums":
        noisy = others * variance
        return cls(others.sum(), (others * below).sum(), noisy.sum(), (noisy * others).sum())


class _Correlation(NamedTuple):
    with_others: Value
    with_top: Value
    others: Value


def log_odds(mean: Value, covariance: GraphCovariance) -> GraphLogOdds:
    """Mean and variance of every class's log-odds against the rest.

    Args:
        mean: Means of the logits, shape (B, K).
        covariance: Their covariance, from `modulo_shift`.
    """
    top = mean.argmax()
    is_top = mean.graph.constant(range_of(covariance.num_classes), "int64").equals(top)
    below = mean - mean.at(top)
    variance = covariance.diagonal()
    weights = _boltzmann(
        below, is_top, top, covariance.effective_variance(), covariance.num_classes
    )
    sums = _Sums.of(weights.others, below, variance)
    correlation = None
    if not covariance.independent:
        share = weights.others / sums.mass
        product = covariance.matvec(share)
        correlation = _Correlation(product, covariance.column(top), (share * product).sum())
    against = _against_rest(below, is_top, variance, variance.at(top), correlation, weights, sums)
    return GraphLogOdds(*against, is_top)


def range_of(number: int) -> list[int]:
    """0, 1, … of each class."""
    return list(range(number))


def _inverse_temperature(spread: Value, entropy: Value | float) -> Value:
    ratio = (spread / (entropy + 0.5 * SMALLEST_PROBABILITY)).at_most(1e9)
    return (ratio.square() + 1.0).sqrt().sqrt().reciprocal()


def _boltzmann(
    below: Value, is_top: Value, top: Value, effective: Value, num_classes: int
) -> _Weights:
    without_top = is_top.where(below.graph.constant(_FAR_BELOW), below)
    second = without_top.max()
    after_second = without_top - second

    def at(beta: Value) -> _Weights:
        return _Weights((after_second * beta).exp(), beta * second, beta)

    uniform = _inverse_temperature(effective.mean() * (1 - 1 / num_classes), math.log(num_classes))
    weights = at(uniform)
    runner_up = weights.log_runner_up.exp()
    sums = _Sums.of(weights.others, below, effective)
    mass = sums.mass * runner_up
    share = (mass + 1.0).reciprocal()
    quadratic = sums.squared_noise * runner_up * runner_up * share
    spread = share * (sums.noise * runner_up - quadratic + mass * share * effective.at(top))
    entropy = log1p(mass) - uniform * runner_up * sums.tilt * share
    return at((uniform * _inverse_temperature(spread, entropy)).sqrt())


def _frozen(spread: Value, entropy: Value, beta: Value) -> tuple[Value, Value]:
    frozen = (1.0 - beta) * _FREEZING
    half = beta * 0.5
    shift = spread * (half - half * frozen * (1 / 0.4) / (entropy + 3.0)).at_least(0.0)
    return shift, spread * (frozen * (1 / 1.2) / (entropy + 1.25))


def _against_rest(
    below: Value,
    is_top: Value,
    variance: Value,
    own: Value,
    correlation: _Correlation | None,
    weights: _Weights,
    sums: _Sums,
) -> tuple[Value, Value]:
    """Sums over the rest of every class. Weights in them are relative to the largest class;
    in the rest of that class itself to the runner-up, which may be far below it.
    """
    others, log_runner_up, beta = weights
    runner_up = log_runner_up.exp()
    weight = others * runner_up
    noisy = weight * variance
    mass = is_top.where(sums.mass, (sums.mass * runner_up + 1.0) - weight)
    share = mass.reciprocal()
    average = is_top.where(sums.noise, (sums.noise * runner_up + own) - noisy) * share
    if correlation is None:
        squared = sums.squared_noise * runner_up * runner_up + own
        quadratic = is_top.where(sums.squared_noise, squared - weight * noisy) * share * share
        own_variance = variance + quadratic
    else:
        complete = is_top.where(below.graph.constant(1.0), weight)
        product = correlation.with_top + correlation.with_others * (sums.mass * runner_up)
        cross = product - complete * variance
        total = (complete * product).sum()
        without = (total - weight * (cross * 2.0 + noisy)) * share * share
        quadratic = is_top.where(correlation.others, without)
        covariant = is_top.where(correlation.with_others, cross * share)
        own_variance = (variance - covariant * 2.0 + quadratic).at_least(0.0)
    log_mass = mass.log() + is_top.where(log_runner_up, 0.0)
    tilt = is_top.where(-sums.tilt, weight * below - sums.tilt * runner_up)
    entropy = (log_mass + tilt * share * beta).at_least(0.0)
    spread = (average - quadratic).at_least(0.0)
    shift, extra = _frozen(spread, entropy, beta)
    return below - log_mass / beta - shift, own_variance + extra


def one_vs_rest_probabilities(odds: GraphLogOdds) -> Value:
    """E σ(x_k) for every class, normalised.

    Args:
        odds: From `log_odds`.
    """
    toward = odds.is_top.where(-odds.mean.abs(), odds.mean.at_most(0.0))
    mixed, log_factor = logistic_normal_parts(toward, odds.variance)
    smaller = mixed * log_factor.exp()
    is_large = odds.is_top & (odds.mean > 0.0)
    return normalised(is_large.where(1.0 - smaller, smaller))


def normalised(expected: Value) -> Value:
    """Rows that sum to one, in which no class has lost all of its probability.

    Args:
        expected: Not negative, shape (B, K).
    """
    kept = expected + SMALLEST_PROBABILITY
    return kept / kept.sum()
