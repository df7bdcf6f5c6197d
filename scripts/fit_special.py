"""Makes the fitted constants of `special.py`, `bridges/precision.py` and
`onnx/formulas/special.py`: prints them to paste.

    python scripts/fit_special.py

The first are minimax fits by Lawson's iteration: least squares, reweighted by the errors
until the largest are equal. Those of exported graphs interpolate at Chebyshev nodes.
"""

from collections.abc import Callable

import numpy as np
from numpy.polynomial import Polynomial, chebyshev
from scipy import optimize, special

SERIES_DEGREE = 7
NUMERATOR_DEGREE, DENOMINATOR_DEGREE = 5, 4
NEXT_DIGAMMA_DEGREE = 7
ERFC_DEGREE, ERFC_SCALE = 8, 0.4
# chances from 1e-30 to 1/2, as √(−2 log p)
RADII = np.sqrt(-2 * np.log(0.5)), np.sqrt(-2 * np.log(1e-30))
_SCALE = 6.0  # brings the radii near one


def ratios(coefficients: np.ndarray) -> np.ndarray:
    """Each coefficient divided by the one before it."""
    return coefficients[1:] / coefficients[:-1]


def fit_series() -> tuple[float, np.ndarray]:
    """x δ(x + 1) as a polynomial in z = 1/(1 + x), from 0 to 1: its constant, and
    ratios of its coefficients.
    """
    t = np.cos((np.arange(400) + 0.5) * np.pi / 400)
    z = (t + 1) / 2
    wanted = (1 - z) / z * _log_minus_digamma(1 / z)
    matrix, weights = chebyshev.chebvander(t, SERIES_DEGREE), np.ones_like(t)
    for _ in range(200):
        root = np.sqrt(weights)
        fitted = np.linalg.lstsq(matrix * root[:, None], wanted * root, rcond=None)[0]
        weights = weights * np.abs(matrix @ fitted - wanted)
        weights = np.maximum(weights / weights.sum(), 1e-14)
    coefficients = Polynomial(chebyshev.cheb2poly(fitted))(Polynomial([-1, 2])).coef
    return float(coefficients[0]), ratios(coefficients)


def _log_minus_digamma(y: np.ndarray) -> np.ndarray:
    """log y − ψ(y) for y ≥ 1: for large y by its asymptotic series, where the
    difference cancels.
    """
    terms = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132)
    series = 0.5 / y + sum(term * y ** (-2.0 * (order + 1)) for order, term in enumerate(terms))
    return np.where(y > 30, series, np.log(y) - special.digamma(y))


def fit_mills() -> tuple[np.ndarray, np.ndarray]:
    """φ(q)/p at the quantile q of p as a rational function of √(−2 log p): numerator
    and denominator.
    """
    radius = np.linspace(*RADII, 700)
    quantile = np.array(
        [optimize.brentq(lambda q, r=r: special.log_ndtr(q) + r * r / 2, -15, 1) for r in radius]
    )
    wanted = np.exp(radius**2 / 2 - quantile**2 / 2) / np.sqrt(2 * np.pi)
    x = radius / _SCALE
    powers = x[:, None] ** np.arange(NUMERATOR_DEGREE + 1)
    lower = x[:, None] ** np.arange(1, DENOMINATOR_DEGREE + 1)
    matrix = np.hstack([powers, -wanted[:, None] * lower])
    weights, denominator, best = (
        np.ones_like(x),
        np.ones_like(x),
        (np.inf, np.zeros(matrix.shape[1])),
    )
    for _ in range(600):
        scale = np.sqrt(weights) / wanted / denominator
        sizes = np.linalg.norm(matrix * scale[:, None], axis=0)
        solution = (
            np.linalg.lstsq(matrix * scale[:, None] / sizes, wanted * scale, rcond=1e-16)[0] / sizes
        )
        denominator = 1 + lower @ solution[NUMERATOR_DEGREE + 1 :]
        error = np.abs(powers @ solution[: NUMERATOR_DEGREE + 1] / denominator / wanted - 1)
        best = min(best, (error.max(), solution), key=lambda pair: pair[0])
        weights = weights * (error + 1e-2 * error.max())
        weights /= weights.sum()
    numerator = best[1][: NUMERATOR_DEGREE + 1] / _SCALE ** np.arange(NUMERATOR_DEGREE + 1)
    rest = best[1][NUMERATOR_DEGREE + 1 :] / _SCALE ** np.arange(1, DENOMINATOR_DEGREE + 1)
    return numerator, np.append(1.0, rest)


def mills(radius: np.ndarray, numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """The fitted function."""
    return np.polynomial.polynomial.polyval(radius, numerator) / np.polynomial.polynomial.polyval(
        radius, denominator
    )


def fit_next_digamma() -> np.ndarray:
    """(1 + x) δ(1 + x) as a polynomial in z = 1/(1 + x), from 0 to 1: its coefficients."""
    return _at_chebyshev_nodes(
        lambda z: _log_minus_digamma(1 / z) / z, 0.0, 1.0, NEXT_DIGAMMA_DEGREE
    )


def fit_erfc() -> np.ndarray:
    """log(erfc(x) eˣ²/t) as a polynomial in t = 1/(1 + 0.4 x), for x from 0 to 12: its
    coefficients.
    """

    def wanted(t: np.ndarray) -> np.ndarray:
        return np.log(special.erfcx((1 / t - 1) / ERFC_SCALE)) - np.log(t)

    return _at_chebyshev_nodes(wanted, 1 / (1 + 12 * ERFC_SCALE), 1.0, ERFC_DEGREE)


def fit_start() -> np.ndarray:
    """c F(c) of one class as ½ + ½ σ(a + b log(F(c)/(m(1 − m)))): a and b, for chances m
    from 1e-6 to ½ and c from 1e-2 to 1e8.
    """
    chance, c = np.meshgrid(0.5 * np.logspace(-5.7, 0, 60), np.logspace(-2, 8, 120))

    def part(share: np.ndarray | float) -> np.ndarray:  # share · c · δ(share · c)
        x = share * c
        return x * (_log_minus_digamma(x + 1) - np.log1p(1 / x)) + 1

    level = part(chance) + part(1 - chance) - part(1.0)
    odds = np.log(level / c / (chance * (1 - chance)))

    def errors(numbers: np.ndarray) -> np.ndarray:
        found = 0.5 + 0.5 * special.expit(numbers[0] + numbers[1] * odds)
        return np.ravel(np.log(found / level))

    solved: np.ndarray = optimize.least_squares(errors, [-1.0, 1.0]).x
    return solved


def _at_chebyshev_nodes(
    function: Callable[[np.ndarray], np.ndarray], low: float, high: float, degree: int
) -> np.ndarray:
    """Least squares at many Chebyshev nodes, as powers."""
    nodes = np.cos((np.arange(400) + 0.5) * np.pi / 400)
    places = low + (high - low) * (nodes + 1) / 2
    fitted = chebyshev.chebfit(nodes, function(places), degree)
    turned = Polynomial([-(high + low) / (high - low), 2 / (high - low)])
    coefficients: np.ndarray = Polynomial(chebyshev.cheb2poly(fitted))(turned).coef
    return coefficients


if __name__ == "__main__":
    series_constant, series = fit_series()
    print("_SERIES_CONSTANT =", f"{series_constant:.10g}")
    print("_SERIES =", tuple(float(f"{ratio:.10g}") for ratio in series))
    upper, lower_coefficients = fit_mills()
    print("_MILLS_CONSTANT =", f"{upper[0]:.12g}")
    print("_MILLS_NUMERATOR =", tuple(float(f"{ratio:.12g}") for ratio in ratios(upper)))
    print(
        "_MILLS_DENOMINATOR =",
        tuple(float(f"{ratio:.12g}") for ratio in ratios(lower_coefficients)),
    )
    print("_NEXT_DIGAMMA =", tuple(float(f"{value:.10g}") for value in fit_next_digamma()))
    print("_ERFC =", tuple(float(f"{value:.10g}") for value in fit_erfc()))
    print("START, START_SLOPE =", tuple(float(f"{value:.4g}") for value in fit_start()))
