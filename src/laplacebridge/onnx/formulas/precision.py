"""How sure, in graphs: `bridges/precision.py` once more."""

from laplacebridge.bridges.precision import (
    SMALLEST_GAP,
    SMALLEST_OTHERS,
    SMALLEST_PROBABLE,
    START,
    START_SLOPE,
)
from laplacebridge.onnx.formulas.nodes import Value, joined
from laplacebridge.onnx.formulas.special import inverse_mills_ratio, one_minus_digamma_gap

# Both ends of the chord that finds log c; the start is within a twentieth, where the
# function is straight to 2e-5.
_ENDS = (-0.015, 0.015)


def jensen_gap(smaller: Value, larger: Value, log_smaller: Value, variance: Value) -> Value:
    """g = E KL(Bern(m) ‖ Bern(σ(x))); see `bridges.precision.jensen_gap`.

    Args:
        smaller: The smaller of m and 1 − m.
        larger: The other.
        log_smaller: Its logarithm.
        variance: Of the log-odds.
    """
    ratio = inverse_mills_ratio(log_smaller)
    kappa = ratio / larger
    return ratio * smaller * variance / ((variance + kappa * kappa).sqrt() + kappa)


def log_precision(
    probabilities: Value, others: Value, log_smaller: Value, variance: Value
) -> Value:
    """Logarithm of the total concentration, shape (B, 1).

    Args:
        probabilities: Means m, shape (B, K).
        others: 1 − m.
        log_smaller: Logarithm of the smaller of both.
        variance: Of the log-odds of each class.
    """
    gaps = jensen_gap(
        probabilities.at_most(others), probabilities.at_least(others), log_smaller, variance
    )
    probable, others = probabilities.at_least(SMALLEST_PROBABLE), others.at_least(SMALLEST_OTHERS)
    cubes = probable * probable * probable
    weights = cubes / cubes.sum()
    gap = (weights * gaps).sum().at_least(SMALLEST_GAP)
    return _fit(probable, others, weights, gap)


def _fit(means: Value, others: Value, weights: Value, gap: Value) -> Value:
    # every m, every 1 − m, and one, which is subtracted
    one = weights.sum()
    points, signed = joined([means, others, one], -1), joined([weights, weights, -one], -1)
    log_gap = gap.log()
    # c F(c) at the root starts from what it is for a single class
    product = (weights * means).sum() * (weights * others).sum()
    share = ((gap / product).log() * START_SLOPE + START).apply("Sigmoid")
    log_c = (share * 0.5 + 0.5).log() - log_gap
    ends = log_c + means.graph.constant([[[end]] for end in _ENDS])
    below = (signed * one_minus_digamma_gap(ends.exp() * points)).sum()
    low, high = ((1.0 - below).log() - ends - log_gap).parts(2, 0)
    step = (low + high) / (low - high) * _ENDS[1]
    return log_c + step.squeezed(0)
