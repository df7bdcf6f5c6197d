"""One-vs-rest of many independent logits in graphs: `bridges/leading_odds.py` once more."""

from collections.abc import Sequence
from typing import NamedTuple

from laplacebridge.bridges import leading_odds as eager
from laplacebridge.bridges.log_odds import FAR_BELOW, FREEZING
from laplacebridge.onnx.formulas.covariances import GraphCovariance, Independent
from laplacebridge.onnx.formulas.leading import where_enough
from laplacebridge.onnx.formulas.nodes import Value, joined
from laplacebridge.onnx.formulas.one_vs_rest import (
    Classes,
    GraphLogOdds,
    Rest,
    Sums,
    against_rest,
    expected_sigmoid,
    inverse_temperature,
    log_odds,
    normalised,
    one_vs_rest_probabilities,
    tempered,
)


class LeadingOdds(NamedTuple):
    """See `bridges.leading_odds.LeadingOdds`."""

    places: Value
    odds: GraphLogOdds
    rest: Rest
    share: Value
    shift: Value
    extra: Value
    mean_slopes: tuple[Value, Value]
    variance_slopes: tuple[Value, Value]
    left_out: Value  # (B, 1)

    @property
    def is_enough(self) -> Value:
        """Which rows need no more, (B, 1)."""
        return self.left_out < eager.LARGEST_SHARE

    def variance(self) -> Value:
        """Variances of the log-odds of every class."""
        constant, slope = self.variance_slopes
        own = self.rest.variance
        grown = own + self.extra + self.share * (own * slope + constant)
        return grown.at_least(0.0).with_at(self.places, self.odds.variance)

    def probabilities(self) -> tuple[Value, Value]:
        """E σ(x_k) for every class, normalised, and for which rows that is enough."""
        own = self.rest.variance
        constant, slope = (
            first + second * 0.5 for first, second in zip(self.mean_slopes, self.variance_slopes)
        )
        exponent = own * 0.5 + self.rest.below + (self.shift + self.extra * 0.5)
        exponent = exponent + self.share * (own * slope + constant)
        first = exponent.at_least(eager.SMALLEST_EXPONENT).exp()
        log_growth = own.at_most(eager.LARGEST_EXPONENT) + self.extra
        growth = log_growth.exp()
        second = first * growth
        third = second * growth
        log_error = exponent * 4.0 + log_growth * 6.0
        error = log_error.at_least(eager.SMALLEST_EXPONENT).exp().sum()
        grown = third + 1.0
        of_rest = first * ((grown - second) / grown)
        expected = of_rest.with_at(self.places, expected_sigmoid(self.odds))
        is_small = (error < eager.LARGEST_ERROR) & (self.extra < eager.LARGEST_EXPONENT)
        return normalised(expected), self.is_enough & is_small

    def halves(self) -> "list[LeadingOdds]":
        """Of two batches, one after the other."""
        return [self._half(which) for which in (0, 1)]

    def _half(self, which: int) -> "LeadingOdds":
        def half(value: Value) -> Value:
            return value.parts(2, 0)[which]

        return LeadingOdds(
            half(self.places),
            GraphLogOdds(*map(half, self.odds)),
            Rest(*map(half, self.rest)),
            half(self.share),
            half(self.shift),
            half(self.extra),
            (half(self.mean_slopes[0]), half(self.mean_slopes[1])),
            (half(self.variance_slopes[0]), half(self.variance_slopes[1])),
            half(self.left_out),
        )


def leading_odds(mean: Value, variances: Sequence[Value], num_classes: int) -> LeadingOdds:
    """Log-odds of independent logits by their leading classes.

    Args:
        mean: Means of the logits, shape (B, K).
        variances: Their variances, of one or more batches with the same means; the answers
            come one batch after another.
        num_classes: K, more than lead.
    """
    graph = mean.graph
    below = mean - mean.max()
    number = graph.constant([eager.num_leading(num_classes)], "int64")
    names = graph.call("TopK", below, number, gives=2, axis=-1, largest=1, sorted=0)
    places = mean.like(names[1], "int64")
    led_below = below.at(places)
    others = below.with_at(places, led_below * 0.0 + FAR_BELOW)
    places, led_below, others, variance = (
        values[0] if len(values) == 1 else joined(values, 0)
        for values in (
            *([value] * len(variances) for value in (places, led_below, others)),
            variances,
        )
    )
    led = variance.at(places)
    rest = Rest(others, variance)
    classes = Classes.of(led_below, rest)
    beta = inverse_temperature(classes, led, num_classes, rest)

    of_rest, log_of_rest = tempered(rest.below, classes, beta)
    of_others, log_of_others = tempered(classes.others, classes, beta)
    rest_sums = Sums.of(of_rest, of_rest * log_of_rest, variance)
    sums = Sums.of(of_others, of_others * log_of_others, led).plus(rest_sums)
    odds = against_rest(classes, Independent(led, num_classes), beta, rest_sums)

    own = led.at(classes.top)
    mass = sums.mass + 1.0
    share = mass.reciprocal()
    average = (sums.noise + own) * share
    quadratic = (sums.squared_noise + own) * share * share
    log_mass = mass.log()
    entropy = log_mass - sums.tilt * share
    spread = (average - quadratic).at_least(0.0)
    frozen = (1.0 - beta) * FREEZING
    falling = beta * frozen * (0.5 / 0.4) / (entropy + 3.0)
    shifting = (beta * 0.5 - falling).at_least(0.0)
    widening = frozen * (1 / 1.2) / (entropy + 1.25)
    tilt = rest_sums.tilt / rest_sums.mass.at_least(1e-30)
    of_entropy = spread * (tilt - 1.0 + entropy - log_mass)
    of_spread = average - quadratic * 2.0
    shifted = (shifting > 0.0).where(of_entropy * falling / (entropy + 3.0), 0.0)
    widened = of_spread * widening - of_entropy * widening / (entropy + 1.25)
    weight = of_rest * share
    left_out = weight.max().square() * rest_sums.mass * share
    return LeadingOdds(
        places,
        odds,
        rest,
        weight,
        -(log_mass / beta) - spread * shifting,
        quadratic + spread * widening,
        (beta.reciprocal() - of_spread * shifting - shifted, shifting),
        (quadratic * 2.0 + widened, -widening),
        left_out,
    )


def variances(odds: LeadingOdds, mean: Value, covariance: GraphCovariance) -> Value:
    """Variances of the log-odds of every class, in full for rows that need it.

    Args:
        odds: From `leading_odds`.
        mean: Means of the logits, shape (B, K).
        covariance: Their covariance.
    """

    def in_full(rows: Value) -> Value:
        return _in_full(mean, covariance, rows).variance

    return where_enough(odds.is_enough, odds.variance(), in_full)


def probabilities(odds: LeadingOdds, mean: Value, covariance: GraphCovariance) -> Value:
    """E σ(x_k) for every class, normalised, in full for rows that need it.

    Args:
        odds: From `leading_odds`.
        mean: Means of the logits, shape (B, K).
        covariance: Their covariance.
    """

    def in_full(rows: Value) -> Value:
        return one_vs_rest_probabilities(_in_full(mean, covariance, rows))

    led, is_enough = odds.probabilities()
    return where_enough(is_enough, led, in_full)


def _in_full(mean: Value, covariance: GraphCovariance, rows: Value) -> GraphLogOdds:
    variance = covariance.diagonal().rows_at(rows)
    return log_odds(mean.rows_at(rows), Independent(variance, covariance.num_classes))
