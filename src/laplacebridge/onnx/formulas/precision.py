"""How sure, in graphs: `bridges/precision.py` once more."""

from laplacebridge.bridges.precision import (
    NUM_VISITED,
    SMALLEST_GAP,
    SMALLEST_OTHERS,
    SMALLEST_PROBABILITY,
    SMALLEST_PROBABLE,
    SMALLEST_SHARE,
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
    if probabilities.graph.num_classes is not None:
        return _log_precision_of_many(probabilities, others, variance)
    gaps = jensen_gap(
        probabilities.at_most(others), probabilities.at_least(others), log_smaller, variance
    )
    probable, others = probabilities.at_least(SMALLEST_PROBABLE), others.at_least(SMALLEST_OTHERS)
    cubes = probable * probable * probable
    weights = cubes / cubes.sum()
    gap = (weights * gaps).sum().at_least(SMALLEST_GAP)
    return _fit(probable, others, weights, gap)


def _log_precision_of_many(probabilities: Value, others: Value, variance: Value) -> Value:
    """See `bridges.precision`."""
    number = probabilities.graph.constant([NUM_VISITED], "int64")
    names = probabilities.graph.call(
        "TopK", probabilities, number, gives=2, axis=-1, largest=1, sorted=0
    )
    largest, places = probabilities.like(names[0]), probabilities.like(names[1], "int64")
    last = largest.min().at_least(SMALLEST_PROBABLE)
    share = (probabilities * last.reciprocal()).at_least(SMALLEST_SHARE)
    share = share.with_at(places, largest * 0.0)
    cubes = share * share * share
    fourths = cubes * share
    weight, first = cubes.sum(), fourths.sum()
    middle = first / weight
    square = (fourths * share).sum() / weight - middle * middle
    spread = square.at_least(middle * middle * SMALLEST_SHARE).sqrt()
    common = (fourths * variance).sum() / first
    two = joined([(middle - spread).at_least(middle * 0.1), middle + spread], -1) * last
    half = weight * last * last * last * 0.5
    means = joined([largest, two], -1)
    others = joined([others.at(places), 1.0 - two], -1)
    variance = joined([variance.at(places), common, common], -1)
    smaller = means.at_most(others)
    log_smaller = smaller.at_least(SMALLEST_PROBABILITY).log()
    gaps = jensen_gap(smaller, means.at_least(others), log_smaller, variance)
    visited = largest.at_least(SMALLEST_PROBABLE)
    weights = joined([visited * visited * visited, half, half], -1)
    weights = weights / weights.sum()
    gap = (weights * gaps).sum().at_least(SMALLEST_GAP)
    return _fit(means.at_least(SMALLEST_PROBABLE), others.at_least(SMALLEST_OTHERS), weights, gap)


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
