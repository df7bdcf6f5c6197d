"""Intervals of every class in graphs: `logit_normal.py` once more."""

import math
from statistics import NormalDist

from laplacebridge.logit_normal import _SMALLEST_SLOPE, _SMALLEST_STEP, _WINITZKI
from laplacebridge.onnx.formulas.nodes import Value
from laplacebridge.onnx.formulas.special import log1p, logistic_normal_parts

_SMALLEST_NORMAL = 2.0**-126
_LARGEST = 3e38


def interval(mean: Value, others: Value, variance: Value, level: float) -> tuple[Value, Value]:
    """Lower and upper bounds of the probability of every class.

    Args:
        mean: Class probabilities m.
        others: 1 − m.
        variance: Of the log-odds.
        level: Of the interval.
    """
    below = _location(mean.at_most(others).at_least(_SMALLEST_NORMAL).log(), variance)
    location = (mean < others).where(below, -below)
    reach = variance.sqrt() * NormalDist().inv_cdf((1 + level) / 2)
    return (location - reach).apply("Sigmoid"), (location + reach).apply("Sigmoid")


def _log_logistic_normal_mean(mean: Value, variance: Value) -> Value:
    mixed, log_factor = logistic_normal_parts(mean, variance)
    return mixed.log() + log_factor


def _location(log_mean: Value, variance: Value) -> Value:
    mean = log_mean.exp()
    log_rest = log1p(-mean)
    log_odds = log_mean - log_rest
    product = log_mean + log_rest + math.log(4)
    half = product * 0.5 + 2 / math.pi / _WINITZKI
    normal = ((half.square() - product * (1 / _WINITZKI)).sqrt() - half) * 2.0
    root = (log_odds.square() + normal * variance).sqrt()
    location = (-root).at_least(log_mean - variance * 0.5)
    slope = ((mean - 1.0) * log_odds / root).between(_SMALLEST_SLOPE, 1.0)
    at_limit = (location > -root) | root.equals(0.0)
    slope = at_limit.where(slope.graph.constant(1.0), slope)
    error = _log_logistic_normal_mean(location, variance) - log_mean
    moved = (location - error / slope).at_most(0.0)
    after = _log_logistic_normal_mean(moved, variance) - log_mean
    step = moved - location
    secant = ((after - error) / step).between(_SMALLEST_SLOPE, 2.0)
    slope = (step.abs() > _SMALLEST_STEP).where(secant, slope)
    # where E σ is too small for the type, the start is what is known
    last = (moved - after / slope).at_most(0.0)
    return (after.abs() < _LARGEST).where(last, location)
