"""Special functions of graphs: `_special.py` once more, of operators that ONNX has."""

import math
from collections.abc import Sequence

from laplacebridge._special import _MIXTURE
from laplacebridge.onnx.formulas.nodes import Value

# Made by scripts/fit_special.py.
_NEXT_DIGAMMA = (
    0.500000011,
    0.08333200891,
    2.513172132e-05,
    -0.008497345995,
    0.0003785434236,
    0.004261933188,
    -0.002998067897,
    0.0007134624797,
)
_ERFC = (
    -1.488754942,
    1.002454762,
    0.3943232625,
    0.321830446,
    -0.4939392856,
    1.072165912,
    -1.549549603,
    0.9551974859,
    -0.2137281466,
)
_ERFC_SCALE = 0.4
_LOG_RANGE = 80.0
_SMALLEST_RECIPROCAL = 1e-6


def polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """c₀ + c₁x + c₂x² + … of some coefficients.

    Args:
        x: Where.
        coefficients: The lowest first.
    """
    value = x * coefficients[-1] + coefficients[-2]
    for coefficient in reversed(coefficients[:-2]):
        value = value * x + coefficient
    return value


def log1p(x: Value) -> Value:
    """log(1 + x) that keeps its digits next to x = 0 (Kahan).

    Args:
        x: Above −1.
    """
    one_more = x + 1.0
    rounded = one_more - 1.0
    return rounded.equals(0.0).where(x, one_more.log() * (x / rounded))


def erfc(x: Value) -> Value:
    """1 − erf x, with all digits of its tail: 1 − Erf has none from 4 on in float32.

    Args:
        x: Any number.
    """
    size = x.abs()
    t = (size * _ERFC_SCALE + 1.0).reciprocal()
    tail = t * (polynomial(t, _ERFC) - size * size).exp()
    return (x < 0.0).where(2.0 - tail, tail)


def logistic_normal_parts(mean: Value, variance: Value) -> tuple[Value, Value]:
    """E σ(x) for x ~ N(mean, variance) with mean ≤ 0: a number of ordinary size, and the
    logarithm of its factor.

    Args:
        mean: Not positive, shape (B, K).
        variance: Of the same shape.
    """
    moved = (-(mean + variance)).at_least(mean)
    log_factor = (variance * 0.5 + mean).at_most(0.0)
    # both normal distribution functions, each at this variance and at none: four at once
    shares, scales = zip(*_MIXTURE)
    graph = mean.graph
    with_variance = graph.constant([[[[1.0]], [[1.0]]], [[[0.0]], [[0.0]]]])
    spread = (variance * with_variance + graph.constant([[[[scale]] for scale in scales]])).sqrt()
    weights = graph.constant([[[[0.5 * share]] for share in shares]])
    pair = (erfc(moved * -math.sqrt(0.5) / spread) * weights).sum(1, keepdims=False)
    mixed, at_none = (pair.apply("Gather", graph.constant(row, "int64"), axis=0) for row in (0, 1))
    missing = moved.apply("Sigmoid") - at_none
    return mixed + missing / (variance + 1.0).square(), log_factor


def sum_of_others(values: Value) -> Value:
    """Σ_{l≠k} x_l of non-negative x, with all its digits also where one entry has nearly
    everything.

    Args:
        values: Shape (B, K).
    """
    largest, total = values.max(), values.sum()
    below = largest - values
    smaller = (values * below.apply("Sign")).sum()
    return below + (total > largest * 1.5).where(total - largest, smaller)


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
