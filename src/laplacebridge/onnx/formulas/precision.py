"""How sure, in graphs: `bridges/precision.py` once more."""

from laplacebridge._special import (
    _MILLS_CONSTANT,
    _MILLS_DENOMINATOR,
    _MILLS_NUMERATOR,
)
from laplacebridge.bridges.precision import (
    SLOPES,
    SMALLEST_GAP,
    SMALLEST_OTHERS,
    SMALLEST_PROBABILITY,
    SMALLEST_PROBABLE,
    SMALLEST_STEP,
    START,
    START_SLOPE,
)
from laplacebridge.onnx.formulas.nodes import Value, joined
from laplacebridge.onnx.formulas.special import one_minus_digamma_gap, polynomial


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
    return _fit(probable, others, weights, gap)


def _powers(ratios: tuple[float, ...], first: float = 1.0) -> list[float]:
    """Coefficients of a polynomial, from each divided by the one before."""
    coefficients = [first]
    for ratio in ratios:
        coefficients.append(coefficients[-1] * ratio)
    return coefficients


def _fit(means: Value, others: Value, weights: Value, gap: Value) -> Value:
    # every m, every 1 − m, and one, which is subtracted
    one = weights.sum()
    points, signed = joined([means, others, one], -1), joined([weights, weights, -one], -1)

    def excess(log_c: Value) -> Value:
        below = (signed * one_minus_digamma_gap(log_c.exp() * points)).sum()
        return (1.0 - below).log() - log_c - log_gap

    log_gap = gap.log()
    # c F(c) at the root, which starts from what it is for a single class
    product = (weights * means).sum() * (weights * others).sum()
    share = ((gap / product).log() * START_SLOPE + START).apply("Sigmoid")
    level = share * 0.5 + 0.5
    slope = (share * (1.0 - share) * (0.5 * START_SLOPE) / level - 1.0).reciprocal()
    log_c = level.log() - log_gap
    first = excess(log_c)
    step = -(first / slope)
    second = excess(log_c + step)
    secant = ((second - first) / step).between(*SLOPES)
    slope = (step.abs() > SMALLEST_STEP).where(secant, slope)
    return log_c + step - second / slope
