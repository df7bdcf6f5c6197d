"""Special functions of graphs: `_special.py` once more, of operators that ONNX has."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from laplacebridge._special import _MIXTURE
from laplacebridge.onnx.formulas.nodes import Value

# Made by scripts/fit_special.py.
_NEXT_DIGAMMA = (0.49999973, 0.08333962311, 4.646424343e-05, -0.009124369863, 0.002967644288)
_NORMAL_TAIL = (
    0.1201599848,
    0.1127523527,
    0.1484510992,
    -0.02546811703,
    0.2240091359,
    -0.07990473717,
)
_NORMAL_TAIL_SCALE = 0.3
_MILLS_NUMERATOR = (-0.005881528208, 0.09030644116, 1.167306967, 0.3858741346)
_MILLS_DENOMINATOR = (1.0, 1.196873773, 0.3853483542)
_LOG_RANGE = 80.0
_SMALLEST_RECIPROCAL = 1e-6


def polynomial(x: Value, coefficients: Sequence[Any]) -> Value:
    """c₀ + c₁x + c₂x² + … of some coefficients.

    Args:
        x: Where.
        coefficients: The lowest first; numbers, or arrays of them.
    """
    value = x * coefficients[-1] + coefficients[-2]
    for coefficient in reversed(coefficients[:-2]):
        value = value * x + coefficient
    return value


def minus_log1m(x: Value) -> Value:
    """−log(1 − x) that keeps its digits next to x = 0.

    Args:
        x: Below one.
    """
    return (x / (2.0 - x)).apply("Atanh") * 2.0


def log1p(x: Value) -> Value:
    """log(1 + x) that keeps its digits next to x = 0.

    Args:
        x: Not negative.
    """
    return (x / (x + 2.0)).apply("Atanh") * 2.0


def erfc(x: Value) -> Value:
    """1 − erf x, with the digits of its tail: 1 − Erf has none from 4 on in float32.

    Args:
        x: Any number.
    """
    distance = x.abs() * math.sqrt(2)
    gauss = (distance.square() * -0.5).exp()
    t = (distance * _NORMAL_TAIL_SCALE + 1.0).reciprocal()
    tail = t * polynomial(t, [2 * coefficient for coefficient in _NORMAL_TAIL]) * gauss
    return (x < 0.0).where(2.0 - tail, tail)


class LogisticNormalMean(NamedTuple):
    """E σ(x) as a number of ordinary size and the logarithm of its factor."""

    mixed: Value
    log_factor: Value
    middle: Value  # of the mean and what it is tilted to
    gauss: Value  # exp(−r²/2) at both distances r
    deviations: Value  # what distances are divided by

    def log_and_slope(self) -> tuple[Value, Value]:
        """log E σ, and its slope in the mean; see
        `_special.log_logistic_normal_mean_and_slope`.
        """
        shares = [share * (2 * math.pi) ** -0.5 for share, _ in _MIXTURE]
        density = (self.gauss / self.deviations).mixed(shares)
        slope = density / self.mixed
        return self.mixed.log() + self.log_factor, (self.middle < 0.0).where(1.0 - slope, slope)


def _of_mixture(numbers: Sequence[float] | np.ndarray) -> np.ndarray:
    return np.array(numbers)[:, None, None]


def logistic_normal_mean(below: Value, variance: Value) -> LogisticNormalMean:
    """E σ(x) for x ~ N(−below, variance), as `_special.logistic_normal_mean`.

    The normal distribution functions have all digits of their tail, which 1 − Erf has
    not; what the mixture misses at no variance is a small number and needs none.

    Args:
        below: Not negative, shape (B, K).
        variance: Of the same shape.
    """
    shares, scales = zip(*_MIXTURE)
    middle = variance * 0.5 - below
    # not by the middle, in which a large variance leaves nothing of the mean
    lower = (variance - below).at_most(below)
    size = lower.abs()
    deviations = (variance + _of_mixture(scales)).sqrt()
    distance = size / deviations
    gauss = (distance.square() * -0.5).exp()
    t = (distance * _NORMAL_TAIL_SCALE + 1.0).reciprocal()
    coefficients = [_of_mixture(shares) * coefficient for coefficient in _NORMAL_TAIL]
    tail = (t * polynomial(t, coefficients) * gauss).mixed([1.0] * len(shares))
    at_none = (size * _of_mixture(np.sqrt(0.5 / np.array(scales)))).apply("Erf")
    missing = at_none.mixed(shares) - (size * 0.5).apply("Tanh")
    smaller = tail + missing * 0.5 / (variance + 1.0).square()
    mixed = (lower < 0.0).where(1.0 - smaller, smaller)
    return LogisticNormalMean(mixed, middle.at_most(0.0), middle, gauss, deviations)


def inverse_mills_ratio(log_chance: Value) -> Value:
    """φ(q)/p at the normal quantile q of a chance p up to ½; see
    `_special.inverse_mills_ratio`.

    Args:
        log_chance: log p.
    """
    radius = (log_chance * -2.0).sqrt()
    return polynomial(radius, _MILLS_NUMERATOR) / polynomial(radius, _MILLS_DENOMINATOR)


def sum_of_others(values: Value) -> Value:
    """Σ_{l≠k} x_l of non-negative x, with all its digits also where one entry has nearly
    everything.

    Args:
        values: Shape (B, K).
    """
    largest, total = values.max(), values.sum()
    below = largest - values
    smaller = (below > 0.0).where(values, 0.0).sum()
    return below + (total > largest * 1.5).where(total - largest, smaller)


def one_minus(probabilities: Value) -> Value:
    """1 − p of rows that sum to one, with all its digits as `sum_of_others`.

    Args:
        probabilities: Shape (B, K).
    """
    largest = probabilities.max()
    below = largest - probabilities
    smaller = (below > 0.0).where(probabilities, 0.0).sum()
    return below + (largest < 2 / 3).where(1.0 - largest, smaller)


def one_minus_digamma_gap(x: Value) -> Value:
    """x(ψ(x + 1) − log x) = 1 − x δ(x), from 0 to ½: x log(1 + 1/x) − x δ(x + 1).

    Args:
        x: Positive, and its reciprocal within the range of its type.
    """
    inverse = (x + 1.0).reciprocal()
    # log(1 + y)/y of the y that 1 + y stands for once it is rounded keeps its digits; with
    # less than this much nothing would be left of y
    one_more = x.reciprocal().at_least(_SMALLEST_RECIPROCAL) + 1.0
    ratio = one_more.log() / (one_more - 1.0)
    return ratio - x * inverse * polynomial(inverse, _NEXT_DIGAMMA)


def within_range(log_x: Value) -> Value:
    """x from log x, held where its reciprocal is a float32 too.

    Args:
        log_x: Any number.
    """
    return log_x.between(-_LOG_RANGE, _LOG_RANGE).exp()
