"""How sure, in graphs: `bridges/precision.py` once more."""

import math
from collections.abc import Callable

from laplacebridge._special import (
    _MILLS_CONSTANT,
    _MILLS_DENOMINATOR,
    _MILLS_NUMERATOR,
)
from laplacebridge.bridges.precision import (
    SMALLEST_GAP,
    SMALLEST_OTHERS,
    SMALLEST_PROBABILITY,
    SMALLEST_PROBABLE,
)
from laplacebridge.onnx.formulas.nodes import Value, joined
from laplacebridge.onnx.formulas.special import digamma_next_minus_log, polynomial


def jensen_gap(smaller: Value, variance: Value) -> Value:
    """g = E KL(Bern(m) ‖ Bern(σ(x))); see `bridges.precision.jensen_gap`.

    Args:
        smaller: The smaller of m and 1 − m.
        variance: Of the log-odds.
    """
    chance = smaller.between(SMALLEST_PROBABILITY, 0.5)
    radius = (chance.log() * -2.0).sqrt()
    ratio = polynomial(radius, _powers(_MILLS_NUMERATOR, _MILLS_CONSTANT)) / polynomial(
        radius, _powers(_MILLS_DENOMINATOR)
    )
    kappa = ratio / (1.0 - chance)
    return ratio * chance * variance / ((variance + kappa * kappa).sqrt() + kappa)


def log_precision(probabilities: Value, others: Value, variance: Value) -> Value:
    """Logarithm of the total concentration, shape (B, 1).

    Args:
        probabilities: Means m, shape (B, K).
        others: 1 − m.
        variance: Of the log-odds of each class.
    """
    gaps = jensen_gap(probabilities.at_most(others), variance)
    probable, others = probabilities.at_least(SMALLEST_PROBABLE), others.at_least(SMALLEST_OTHERS)
    cubes = probable * probable * probable
    weights = cubes / cubes.sum()
    gap = (weights * gaps).sum().at_least(SMALLEST_GAP)
    return _fit(probable, others, weights, gap.log())


def _powers(ratios: tuple[float, ...], first: float = 1.0) -> list[float]:
    """Coefficients of a polynomial, from each divided by the one before."""
    coefficients = [first]
    for ratio in ratios:
        coefficients.append(coefficients[-1] * ratio)
    return coefficients


def _fit(means: Value, others: Value, weights: Value, log_gap: Value) -> Value:
    both = joined([means, others], -1)
    twice = joined([weights, weights], -1)

    def single_class(c: Value) -> Value:
        below = _below_one(c * single) * below_signs
        return below.sum()

    def every_class(c: Value) -> Value:
        return (twice * _below_one(c * both)).sum() - _below_one(c)

    first, second = ((weights * part).sum() for part in (means, others))
    single = joined([first, second, first + second], -1)
    below_signs = means.graph.constant([1.0, 1.0, -1.0])
    one = first + second
    log_c, slope = _secants(single_class, log_gap, math.log(0.7) - log_gap, -one, 3)
    return _secants(every_class, log_gap, log_c, slope, 2)[0]


def _secants(
    below_one: Callable[[Value], Value],
    log_gap: Value,
    log_c: Value,
    slope: Value,
    evaluations: int,
) -> tuple[Value, Value]:
    step = previous = log_c
    for evaluation in range(evaluations):
        excess = (1.0 - below_one(log_c.exp())).log() - log_c - log_gap
        if evaluation > 0:
            secant = ((excess - previous) / step).between(-1.3, -0.5)
            slope = (step.abs() > 1e-4).where(secant, slope)
        step, previous = (-excess / slope).between(-2.0, 2.0), excess
        log_c = log_c + step
    return log_c, slope


def _below_one(x: Value) -> Value:
    """1 − x δ(x) = x η(x), from 0 to 1/2."""
    return x * digamma_next_minus_log(x)
