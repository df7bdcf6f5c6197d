"""The bridges of the paper, and the delta bridge, in graphs: `bridges/paper.py` and
`delta_bridge` once more.
"""

import math

from laplacebridge.bridges.paper import LOG_SMALLEST, SMALLEST_VARIANCE
from laplacebridge.covariance.base import ROUNDING_ERRORS
from laplacebridge.onnx.formulas.covariances import GraphCovariance, Independent
from laplacebridge.onnx.formulas.gaussians import GraphGaussian
from laplacebridge.onnx.formulas.nodes import Value
from laplacebridge.onnx.formulas.special import sum_of_others

_ROUNDING = ROUNDING_ERRORS * 2.0**-23  # of float32


def laplace_bridge_raw(gaussian: GraphGaussian) -> Value:
    """log α by Eq. 7 alone.

    Args:
        gaussian: The Gaussian over logits.
    """
    return _log_concentration(gaussian.mean, gaussian.covariance.diagonal(), _classes(gaussian))


def laplace_bridge(gaussian: GraphGaussian) -> Value:
    """log α after conditioning on zero sum (Eq. 11).

    Args:
        gaussian: The Gaussian over logits.
    """
    return _log_concentration(*_condition(gaussian), _classes(gaussian))


def laplace_bridge_norm(gaussian: GraphGaussian) -> Value:
    """log α after conditioning and the variance correction (Eqs. 12–14).

    Args:
        gaussian: The Gaussian over logits.
    """
    classes = _classes(gaussian)
    mean, variance = _condition(gaussian)
    scale = variance.sum() * (1 / math.sqrt(classes / 2) / classes)
    scale = (scale > 0.0).where(scale, 1.0)
    return _log_concentration(mean / scale.sqrt(), variance / scale, classes)


def delta_bridge(gaussian: GraphGaussian) -> Value:
    """log α of softmax(μ) with the precision of the delta method.

    Args:
        gaussian: The Gaussian over logits.
    """
    mean, covariance = gaussian.mean, gaussian.covariance.modulo_shift()
    top = mean.argmax()
    is_top = mean.graph.constant(list(range(covariance.num_classes)), "int64").equals(top)
    variance = covariance.diagonal()
    from_top = variance + variance.at(top)
    if not covariance.independent:
        from_top = (from_top - covariance.column(top) * 2.0).at_least(0.0)
    others = is_top.where(mean.graph.constant(0.0), mean.apply("Softmax", axis=-1))
    leaving = is_top.where(-others.sum(), others)
    quadratic = (leaving * covariance.matvec(leaving)).sum()
    spread = ((others * from_top).sum() - quadratic).at_least(SMALLEST_VARIANCE)
    log_mean = mean.apply("LogSoftmax", axis=-1)
    return log_mean + (math.log(covariance.num_classes - 1) - spread.log())


def _classes(gaussian: GraphGaussian) -> int:
    return gaussian.covariance.num_classes


def _condition(gaussian: GraphGaussian) -> tuple[Value, Value]:
    follows, variance = _given_zero_sum(gaussian.covariance)
    return gaussian.mean - follows * gaussian.mean.sum(), variance


def _given_zero_sum(covariance: GraphCovariance) -> tuple[Value, Value]:
    """How logits follow their sum, and their variances given that it is zero; see
    `Covariance.given_zero_sum`.
    """
    classes = covariance.num_classes
    if isinstance(covariance, Independent):
        total = covariance.variance.sum()
        certain = (total > 0.0).where(total * 0.0, 1.0)
        share = covariance.variance / (total + certain)
        return share + certain * (1 / classes), share * sum_of_others(covariance.variance)
    sums = covariance.row_sums()
    total, trace = sums.sum(), covariance.diagonal().sum()
    varies = total > trace * (_ROUNDING * classes)
    follows = varies.where((sums - sums.mean()) / total, 0.0)
    centered = covariance.centered().diagonal()
    remaining = centered - follows.square() * total
    noise = (centered + follows.abs() * sums.abs().max()) * _ROUNDING
    return follows + 1 / classes, (remaining > noise).where(remaining, 0.0)


def _log_concentration(mean: Value, variance: Value, classes: int) -> Value:
    below = mean.min() - mean
    inverse = below.at_least(LOG_SMALLEST).exp()
    uncertain = (variance.max() > 0.0).cast("float32") * (1 - 2 / classes)
    numerator = inverse * uncertain + inverse.sum() * (1 / classes**2)
    return (numerator / variance.at_least(SMALLEST_VARIANCE)).log() - below
