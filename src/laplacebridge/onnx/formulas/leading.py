"""The race of many classes in graphs, and the mean of the race bridge:
`bridges/leading.py` and `bridges/correlated_race.py` once more.
"""

from collections.abc import Callable
from typing import NamedTuple

from laplacebridge.bridges import leading
from laplacebridge.bridges.precision import MANY_CLASSES
from laplacebridge.onnx.formulas.covariances import GraphCovariance, Independent
from laplacebridge.onnx.formulas.nodes import Value
from laplacebridge.onnx.formulas.one_vs_rest import (
    GraphLogOdds,
    log_odds,
    normalised,
    one_vs_rest_probabilities,
)
from laplacebridge.onnx.formulas.race import (
    Runners,
    largest_variance,
    level_weights,
    race_probabilities,
    start_and_end,
    times_between,
)


class _Tail(NamedTuple):
    """The classes that do not lead, in units of their sum; see `bridges.leading`."""

    first: Value
    ratio: Value
    growth: Value
    log_unit: Value  # (B,), as the sums
    second: Value
    third: Value

    @classmethod
    def of(cls, mean: Value, variance: Value, places: Value) -> "_Tail":
        below = places.cast("float32") * 0.0 + leading.FAR_BELOW
        exponent = (variance * 0.5 + mean).with_at(places, below)
        largest = exponent.max()
        first = (exponent - largest).exp()
        total = first.sum()
        log_unit = (largest + total.log()).squeezed(-1)
        first = first * total.reciprocal()
        growth = variance.at_most(leading.LARGEST_EXPONENT).exp() - 1.0
        ratio = first * growth
        second = first * ratio
        growth = ratio * (growth + 3.0)
        third = (second * growth).sum(keepdims=False)
        return cls(first, ratio, growth, log_unit, second.sum(keepdims=False), third)

    def hazard(self, times: Value) -> tuple[Value, Value]:
        unit = (self.log_unit - times).exp().at_most(leading.LARGEST_HAZARD)
        factor = 1.0 - unit * (self.second * 0.5 - unit * (self.third * (1 / 6)))
        return unit, factor.between(leading.SMALLEST_FACTOR, 1.0)

    def expected(self, units: Value, weights: Value) -> tuple[Value, Value]:
        weighted = weights * units
        squared = weighted * units
        once, twice, thrice = (
            value.sum(0, keepdims=False).unsqueezed(-1)
            for value in (weighted, squared * 0.5, squared * units * (1 / 6))
        )
        correction = self.ratio * (self.growth * thrice - twice)
        return self.first * (correction + once), self.third.unsqueezed(-1) * thrice


def expected_softmax(mean: Value, variance: Value, num_classes: int) -> Value:
    """E softmax(z) for independent logits: from a thousand classes on by the leading ones,
    and in full only if that is not enough for a row.

    Args:
        mean: Means of the logits, shape (B, K).
        variance: Their variances.
        num_classes: K.
    """
    if num_classes < MANY_CLASSES:
        return race_probabilities(mean, variance, num_classes)
    led, is_enough = _leading_race(mean, variance, num_classes)

    def in_full(rows: Value) -> Value:
        return race_probabilities(mean.rows_at(rows), variance.rows_at(rows), num_classes)

    return where_enough(is_enough, led, in_full)


def where_enough(is_enough: Value, led: Value, in_full: Callable[[Value], Value]) -> Value:
    """Answers by the leading classes where these are enough, in full elsewhere.

    Args:
        is_enough: For which rows they are, (B, 1).
        led: By the leading classes, of all rows.
        in_full: Writes those of some rows, by their numbers (N, 1).
    """
    all_are = is_enough.cast("float32").min(0).reshaped(1) > 0.5

    def others_in_full() -> Value:
        rows = (~is_enough).squeezed(-1).apply("NonZero", dtype="int64").transposed(1, 0)
        return led.apply("ScatterND", rows, in_full(rows))

    return led.graph.choose(all_are, lambda: led, others_in_full)


def _leading_race(mean: Value, variance: Value, num_classes: int) -> tuple[Value, Value]:
    """See `bridges.leading.leading_race`; for which rows it is enough as (B, 1)."""
    mean = mean - mean.max()
    number = mean.graph.constant([leading.num_leading(num_classes)], "int64")
    names = mean.graph.call(
        "TopK",
        variance * leading.LEADING_BY + mean,
        number,
        gives=2,
        axis=-1,
        largest=1,
        sorted=0,
    )
    places = mean.like(names[1], "int64")
    tail = _Tail.of(mean, variance, places)
    mean, variance = mean.at(places), variance.at(places)
    variance = variance.at_most(largest_variance(mean, variance))
    runners = Runners.of(mean, variance)

    def levels_at(times: Value) -> Value:
        led = runners.hazards(times).sum(-1, keepdims=False)
        unit, factor = tail.hazard(times)
        return -(led + unit * factor).log()

    start, end = start_and_end(mean, variance, num_classes)
    times = times_between(start, end, levels_at)
    hazards = runners.hazards(times)
    units, factors = tail.hazard(times)
    weights = level_weights(-(hazards.sum(-1, keepdims=False) + units * factors).log())
    expected, last = tail.expected(units, weights)
    led = (hazards * weights.unsqueezed(-1)).sum(0, keepdims=False)
    expected = expected.with_at(places, led)
    total = expected.sum()
    earliest, left = (value.slice(0, 1, 0).transposed(1, 0) for value in (units, factors))
    is_enough = (
        (last < total * leading.LARGEST_ERROR)
        & (earliest < leading.LARGEST_HAZARD)
        & (left > leading.SMALLEST_LEFT)
        & (variance.max() < leading.LARGEST_VARIANCE)
    )
    return normalised(expected / total), is_enough


def race_mean(mean: Value, covariance: GraphCovariance, odds: GraphLogOdds | None) -> Value:
    """The race on independent logits, times what one-vs-rest says correlation changes.

    Args:
        mean: Means of the logits.
        covariance: Their covariance, from `modulo_shift`.
        odds: Of the same, from `log_odds`; independent logits need none.
    """
    effective = covariance.effective_variance()
    classes = covariance.num_classes
    probabilities = expected_softmax(mean, effective, classes)
    if odds is None:
        return probabilities
    correlated = one_vs_rest_probabilities(odds)
    independent = one_vs_rest_probabilities(log_odds(mean, Independent(effective, classes)))
    product = probabilities * (correlated / independent)
    return normalised(product / product.sum())
