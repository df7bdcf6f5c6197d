"""Intervals of every class in graphs: `logit_normal.py` once more."""

import math
from statistics import NormalDist

from laplacebridge.bridges import (
    LARGEST_GROWN,
    RELATIVE_VARIANCE,
    SURE_LOG_ODDS,
    SURE_STEEPNESS,
)
from laplacebridge.logit_normal import _WINITZKI
from laplacebridge.onnx.formulas.nodes import Value
from laplacebridge.onnx.formulas.special import logistic_normal_mean

SMALLEST_NORMAL = 2.0**-126
LOG_SMALLEST_NORMAL = math.log(SMALLEST_NORMAL)


def grown(variance: Value, log_odds: Value) -> Value:
    """Variances for intervals whose width is another Gaussian's; see
    `bridges.predict_apart`.

    Args:
        variance: Of the log-odds.
        log_odds: Those of the mean.
    """
    larger = variance * (log_odds.square() * RELATIVE_VARIANCE + 1.0)
    # 4 (1 + exp(2.4 (4.6 − |l|)))
    exponent = math.log(LARGEST_GROWN) + SURE_STEEPNESS * SURE_LOG_ODDS
    largest = (log_odds.abs() * -SURE_STEEPNESS + exponent).exp() + LARGEST_GROWN
    return variance.at_least(larger.at_most(LARGEST_GROWN)).at_most(largest)


def interval(
    log_mean: Value, log_others: Value, variance: Value, level: float
) -> tuple[Value, Value]:
    """Lower and upper bounds of the probability of every class.

    Args:
        log_mean: log m of the class probabilities m.
        log_others: log(1 − m).
        variance: Of the log-odds.
        level: Of the interval.
    """
    log_odds = log_mean - log_others
    distance = _distance(log_mean, log_others, log_odds, variance)
    location = log_odds.apply("Sign") * distance
    reach = variance.sqrt() * NormalDist().inv_cdf((1 + level) / 2)
    return (location - reach).apply("Sigmoid"), (location + reach).apply("Sigmoid")


def _distance(log_mean: Value, log_others: Value, log_odds: Value, variance: Value) -> Value:
    """How far the location is from zero; see `logit_normal._location`."""
    log_smaller = log_mean.at_most(log_others)
    # twice the half of Winitzki's formula, and under its root the square of that with the
    # product of both probabilities written by it
    constant = 4 / math.pi / _WINITZKI
    twice = log_mean + log_others + (math.log(4) + constant)
    under = twice * (twice - 4 / _WINITZKI) + 4 / _WINITZKI * constant
    normal = (under.sqrt() - twice).at_least(0.0)
    root = (log_odds.square() + normal * variance).sqrt()
    distance = root.at_most(variance * 0.5 - log_smaller)
    expected = logistic_normal_mean(distance, variance)
    found, slope = expected.log_and_slope()
    step = (found - log_smaller) / slope
    # where E σ is too small for the type, the start is what is known
    return (distance + (expected.mixed > 0.0).where(step, 0.0)).at_least(0.0)
