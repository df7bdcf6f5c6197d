"""Algorithm 1 of the paper as it is printed, one class after the other, on quantiles
from SciPy.
"""

import numpy as np
from scipy import special

SMALLEST = 1e-290


def literal_overlap_set(concentration, threshold):
    """Algorithm 1. Quantiles are compared by their logarithms: with α = 1e-6 they are
    as small as 1e-1000000.
    """
    order = np.argsort(-concentration, kind="stable")
    ranked = concentration[order]
    members = [int(order[0])]
    lower = log_quantile(ranked[0], ranked[1:].sum(), threshold / 2)
    for place in range(1, len(ranked)):
        others = ranked[:place].sum() + ranked[place + 1 :].sum()
        if not log_upper_quantile(ranked[place], others, threshold / 2) > lower:
            break
        members.append(int(order[place]))
    return members


def log_quantile(alpha, beta, level):
    """log F⁻¹(level)."""
    return _logarithm(special.betaincinv(alpha, beta, level), alpha, beta, np.log(level))


def log_upper_quantile(alpha, beta, level):
    """log F⁻¹(1 − level)."""
    return _logarithm(special.betainccinv(alpha, beta, level), alpha, beta, np.log1p(-level))


def _logarithm(quantile, alpha, beta, log_level):
    if quantile >= SMALLEST:
        return np.log(quantile)
    return min(
        (log_level + np.log(alpha) + special.betaln(alpha, beta)) / alpha, np.log(SMALLEST)
    )  # F(x) = xᵃ/(a B)
