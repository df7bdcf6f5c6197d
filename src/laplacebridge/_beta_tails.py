"""Distribution function and quantiles of Betas as arrays: by SciPy where that has
digits, by expansions and leading terms elsewhere.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from laplacebridge import _scipy_special as special

# Both parameters beyond this, SciPy's incomplete beta loses digits (half of the
# interval at 1e17), while the expansion around a normal distribution is right to a
# billionth of a standard deviation.
_NEARLY_NORMAL = 1e9
# Deviations from the mean beyond which a normal distribution function is 0 or 1.
_FAR = 40.0
# With one parameter beyond this and the other below the one above a Beta is a Gamma to
# 1e-13, while SciPy's inverse cannot say quantiles between 2⁻⁵⁶ and 2⁻⁵⁵.
_NEARLY_GAMMA = 1e15
# Below this, log x is no longer taken from x, and F(x) is its leading term xᵃ/(a B(a,
# b)) to all digits.
_SMALLEST = 1e-290
LOG_SMALLEST = np.log(_SMALLEST)

Array = npt.NDArray[np.float64]


def quantiles(alpha: Array, beta: Array, chance: Array) -> Array:
    """Where these chances are reached.

    Args:
        alpha: The one parameter.
        beta: The other.
        chance: The chances.
    """
    bulk = nearly_normal(alpha, beta)
    with np.errstate(all="ignore"):
        values = _nearly_gamma(alpha, beta, chance, special.betaincinv(*_tame(alpha, beta), chance))
        if bulk.any():
            values = np.where(bulk, _expanded_quantile(alpha, beta, chance), values)
        tiny = values < _SMALLEST  # where SciPy gives 0 or the smallest number in no order
        if tiny.any():
            values = np.where(tiny, np.exp(log_leading(alpha, beta, chance)), values)
    return values


def tail_in_bulk(exact: np.ufunc, side: int, alpha: Array, beta: Array, log_x: Array) -> Array:
    """A tail by SciPy, or by the expansion around a normal distribution: below for side
    1, above for side −1.

    Args:
        exact: SciPy's function of the tail.
        side: Which tail it is.
        alpha: The one parameter.
        beta: The other.
        log_x: Logarithms of where to look.
    """
    x, bulk = np.exp(log_x), nearly_normal(alpha, beta)
    with np.errstate(all="ignore"):
        tail = exact(*_tame(alpha, beta), x)
        if bulk.any():
            tail = np.where(bulk, special.ndtr(side * normal_score(alpha, beta, x)), tail)
    return tail


def with_leading_term(
    tail: Array, alpha: Array, beta: Array, log_x: Array, from_log_cdf: Callable[[Array], Array]
) -> Array:
    """Replaces a tail where x is tiny, by what follows from log F(x) = a log x − log(a
    B(a, b)).

    Args:
        tail: What may be replaced.
        alpha: The one parameter.
        beta: The other.
        log_x: Logarithms of where to look.
        from_log_cdf: From log F(x) to what is in its place.
    """
    tiny = log_x < LOG_SMALLEST
    if not tiny.any():
        return tail
    with np.errstate(all="ignore"):
        log_cdf = np.minimum(alpha * log_x - np.log(alpha) - special.betaln(alpha, beta), 0.0)
    return np.where(tiny, from_log_cdf(log_cdf), tail)


def _nearly_gamma(alpha: Array, beta: Array, chance: Array, otherwise: Array) -> Array:
    """−log(1 − x) is Gamma(α)/(β + (α − 1)/2) for a far larger β, and so is −log x for
    a far larger α (Wise).
    """
    near_zero = (beta > _NEARLY_GAMMA) & (alpha <= _NEARLY_NORMAL)
    near_one = (alpha > _NEARLY_GAMMA) & (beta <= _NEARLY_NORMAL)
    if near_zero.any():
        limit = -np.expm1(-special.gammaincinv(alpha, chance) / (beta + (alpha - 1) / 2))
        otherwise = np.where(near_zero, limit, otherwise)
    if near_one.any():
        limit = np.exp(-special.gammainccinv(beta, chance) / (alpha + (beta - 1) / 2))
        otherwise = np.where(near_one, limit, otherwise)
    return otherwise


def log_leading(alpha: Array, beta: Array, chance: Array) -> Array:
    """log x from the leading term of F(x), for tiny x.

    Args:
        alpha: The one parameter.
        beta: The other.
        chance: The chances.
    """
    return np.minimum((np.log(chance) + np.log(alpha) + special.betaln(alpha, beta)) / alpha, 0.0)


def _expanded_quantile(alpha: Array, beta: Array, chance: Array) -> Array:
    """Quantiles by the expansion around a normal distribution (Cornish and Fisher)."""
    skewness, z = _skewness(alpha, beta), special.ndtri(chance)
    shifted = z + (z * z - 1) * skewness / 6 - (2 * z**3 - 5 * z) * skewness**2 / 36
    expanded = np.clip(alpha / (alpha + beta) + _deviation(alpha, beta) * shifted, 0.0, 1.0)
    return np.where((chance == 0) | (chance == 1), chance, expanded)  # where the normal is infinite


def _tame(alpha: Array, beta: Array) -> tuple[Array, Array]:
    """Parameters with ones where an expansion replaces the exact answer, for which
    SciPy would search long.
    """
    replaced = nearly_normal(alpha, beta)
    return np.where(replaced, 1.0, alpha), np.where(replaced, 1.0, beta)


def nearly_normal(alpha: Array, beta: Array) -> npt.NDArray[np.bool_]:
    """Where the expansion around a normal distribution is taken.

    Args:
        alpha: The one parameter.
        beta: The other.
    """
    return np.minimum(alpha, beta) > _NEARLY_NORMAL


def normal_score(alpha: Array, beta: Array, point: Array) -> Array:
    """The standard normal number with the same distribution function, by the expansion
    around a normal distribution.

    Args:
        alpha: The one parameter.
        beta: The other.
        point: Where to look.
    """
    # bounded, because far out the square would win and turn the sign
    z = np.clip((point - alpha / (alpha + beta)) / _deviation(alpha, beta), -_FAR, _FAR)
    return z - (z * z - 1) * _skewness(alpha, beta) / 6


def _deviation(alpha: Array, beta: Array) -> Array:
    total = alpha + beta
    return np.sqrt((alpha / total) * (beta / total) / (total + 1))


def _skewness(alpha: Array, beta: Array) -> Array:
    total = alpha + beta
    return 2 * (beta - alpha) / (total + 2) * np.sqrt(total + 1) / (np.sqrt(alpha) * np.sqrt(beta))
