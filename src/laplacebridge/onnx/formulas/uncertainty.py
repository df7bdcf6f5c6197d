"""How much is not known, and why, in graphs: entropies of `dirichlet.py` once more."""

from laplacebridge.dirichlet import _LOG_CORNER
from laplacebridge.onnx.formulas.nodes import Value
from laplacebridge.onnx.formulas.special import digamma_next_minus_log, log1p, within_range


def log_sum_exp(log: Value) -> Value:
    """log Σ exp, shape (B, 1).

    Args:
        log: Shape (B, K).
    """
    largest = log.max()
    return (log - largest).exp().sum().log() + largest


def entropy_of_mean(mean: Value, others: Value, log_mean: Value) -> Value:
    """H(E π), shape (B, 1).

    Args:
        mean: Class probabilities m.
        others: 1 − m.
        log_mean: log m.
    """
    top = mean.max()
    surprise = mean.equals(top).where(log1p(-others.min()), log_mean)
    return -(mean * surprise).sum()


def mutual_information(log: Value) -> Value:
    """H(E π) − E H(π), shape (B, 1); see `Dirichlet.mutual_information`.

    Args:
        log: log α.
    """
    top = log.max()
    log = (top < _LOG_CORNER).where(log - top + _LOG_CORNER, log)
    total = log_sum_exp(log)
    gaps = (log - total).exp() * _next_digamma(log)
    return (gaps.sum() - _next_digamma(total)).at_least(0.0)


def _next_digamma(log_x: Value) -> Value:
    """η(x) from log x, also where x leaves the range of float32."""
    eta = digamma_next_minus_log(within_range(log_x))
    return eta + (log_x.at_least(-80.0) - log_x)
