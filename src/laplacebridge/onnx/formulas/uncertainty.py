"""How much is not known, and why, in graphs: entropies of `dirichlet.py` once more."""

from laplacebridge.dirichlet import _LOG_CORNER
from laplacebridge.onnx.formulas.nodes import Value, joined
from laplacebridge.onnx.formulas.special import minus_log1m, one_minus_digamma_gap, within_range


def entropy_of_mean(mean: Value, others: Value, log_mean: Value) -> Value:
    """H(E π), shape (B, 1).

    Args:
        mean: Class probabilities m.
        others: 1 − m.
        log_mean: log m.
    """
    # near one the logarithm of the largest has no digits; 1 − m has
    top = mean.max()
    missing = minus_log1m(others.min()) + top.log()
    return missing * top - (mean * log_mean).sum()


def mutual_information(log_mean: Value, log_total: Value, num_classes: int) -> Value:
    """H(E π) − E H(π), shape (B, 1); see `Dirichlet.mutual_information`.

    Σ m_k η(α_k) − η(α₀) with η(x) = ψ(x + 1) − log x, and α₀ m_k = α_k.

    Args:
        log_mean: log m.
        log_total: log α₀, shape (B, 1).
        num_classes: K.
    """
    log_total = log_total.at_least(_LOG_CORNER)
    # of every α and of their sum at once
    both = within_range(joined([log_mean + log_total, log_total], -1))
    signs = [-1.0 if place == num_classes else 1.0 for place in range(num_classes + 1)]
    gaps = one_minus_digamma_gap(both) @ log_mean.graph.constant([[sign] for sign in signs])
    return (gaps / log_total.exp()).at_least(0.0)
