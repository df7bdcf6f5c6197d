"""How much is not known, and why, in graphs: entropies of `dirichlet.py` once more."""

from laplacebridge.dirichlet import _LOG_CORNER
from laplacebridge.onnx.formulas.nodes import Value, joined
from laplacebridge.onnx.formulas.special import log1p, one_minus_digamma_gap, within_range


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


def mutual_information(log: Value, num_classes: int) -> Value:
    """H(E π) − E H(π), shape (B, 1); see `Dirichlet.mutual_information`.

    Σ m_k η(α_k) − η(α₀) with η(x) = ψ(x + 1) − log x, and α₀ m_k = α_k.

    Args:
        log: log α.
        num_classes: K.
    """
    top = log.max()
    log = (top < _LOG_CORNER).where(log - top + _LOG_CORNER, log)
    # of every α and of their sum at once
    both = within_range(joined([log, log_sum_exp(log)], -1))
    signs = [-1.0 if place == num_classes else 1.0 for place in range(num_classes + 1)]
    gaps = (one_minus_digamma_gap(both) * log.graph.constant(signs)).sum()
    return (gaps / both.slice(num_classes, num_classes + 1, -1)).at_least(0.0)
