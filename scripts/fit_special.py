"""Makes the fitted constants of `special.py`, `bridges/precision.py` and
`onnx/formulas/special.py`: prints them to paste.

    python scripts/fit_special.py

Minimax fits by Lawson's iteration: least squares, reweighted by the errors until the
largest are equal.
"""

import numpy as np
from numpy.polynomial import Polynomial, chebyshev
from scipy import optimize, special

SERIES_DEGREE = 7
MILLS_DEGREES = 5, 4  # of numerator and denominator
# Those of graphs are as good as float32 needs.
GRAPH_MILLS_DEGREES = 3, 2
NEXT_DIGAMMA_DEGREE = 4
NORMAL_TAIL_DEGREE, NORMAL_TAIL_SCALE, NORMAL_TAIL_END = 6, 0.3, 13.0
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
    fitted = _minimax(chebyshev.chebvander(t, SERIES_DEGREE), wanted, np.ones_like(t))
    coefficients = Polynomial(chebyshev.cheb2poly(fitted))(Polynomial([-1, 2])).coef
    return float(coefficients[0]), ratios(coefficients)


def _log_minus_digamma(y: np.ndarray) -> np.ndarray:
    """log y − ψ(y) for y ≥ 1: for large y by its asymptotic series, where the
    difference cancels.
    """
    terms = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132)
    series = 0.5 / y + sum(term * y ** (-2.0 * (order + 1)) for order, term in enumerate(terms))
    return np.where(y > 30, series, np.log(y) - special.digamma(y))


def _minimax(matrix: np.ndarray, wanted: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Coefficients of columns whose largest error, times `units`, is the smallest."""
    weights = np.ones_like(wanted)
    for _ in range(400):
        root = np.sqrt(weights) * units
        fitted: np.ndarray = np.linalg.lstsq(matrix * root[:, None], wanted * root, rcond=None)[0]
        weights = weights * np.abs((matrix @ fitted - wanted) * units)
        weights = np.maximum(weights / weights.sum(), 1e-14)
    return fitted


def fit_mills(
    numerator_degree: int = MILLS_DEGREES[0], denominator_degree: int = MILLS_DEGREES[1]
) -> tuple[np.ndarray, np.ndarray]:
    """φ(q)/p at the quantile q of p as a rational function of √(−2 log p): numerator
    and denominator.

    Args:
        numerator_degree: Of the numerator.
        denominator_degree: Of the denominator.
    """
    radius = np.linspace(*RADII, 700)
    quantile = np.array(
        [optimize.brentq(lambda q, r=r: special.log_ndtr(q) + r * r / 2, -15, 1) for r in radius]
    )
    wanted = np.exp(radius**2 / 2 - quantile**2 / 2) / np.sqrt(2 * np.pi)
    x = radius / _SCALE
    powers = x[:, None] ** np.arange(numerator_degree + 1)
    lower = x[:, None] ** np.arange(1, denominator_degree + 1)
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
        denominator = 1 + lower @ solution[numerator_degree + 1 :]
        error = np.abs(powers @ solution[: numerator_degree + 1] / denominator / wanted - 1)
        best = min(best, (error.max(), solution), key=lambda pair: pair[0])
        weights = weights * (error + 1e-2 * error.max())
        weights /= weights.sum()
    numerator = best[1][: numerator_degree + 1] / _SCALE ** np.arange(numerator_degree + 1)
    rest = best[1][numerator_degree + 1 :] / _SCALE ** np.arange(1, denominator_degree + 1)
    return numerator, np.append(1.0, rest)


def mills(radius: np.ndarray, numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """The fitted function."""
    return np.polynomial.polynomial.polyval(radius, numerator) / np.polynomial.polynomial.polyval(
        radius, denominator
    )


def fit_next_digamma() -> np.ndarray:
    """(1 + x) δ(1 + x) as a polynomial in z = 1/(1 + x), from 0 to 1: its coefficients.
    It is multiplied by x/(1 + x).
    """
    z = (np.cos((np.arange(400) + 0.5) * np.pi / 400) + 1) / 2
    powers = z[:, None] ** np.arange(NEXT_DIGAMMA_DEGREE + 1)
    return _minimax(powers, _log_minus_digamma(1 / z) / z, 1 - z + 1e-3)


def fit_normal_tail() -> np.ndarray:
    """Φ(−r) exp(r²/2) as a polynomial without a constant in t = 1/(1 + 0.3 r), for r
    from 0 to 13: its coefficients. Absolute errors of Φ count 33 times as much as
    relative ones.
    """
    t = np.linspace(1 / (1 + NORMAL_TAIL_SCALE * NORMAL_TAIL_END), 1, 800)
    distance = (1 / t - 1) / NORMAL_TAIL_SCALE
    wanted = special.erfcx(distance / np.sqrt(2)) / 2
    powers = t[:, None] ** np.arange(1, NORMAL_TAIL_DEGREE + 1)
    absolute = special.ndtr(-distance) / wanted
    return _minimax(powers, wanted, np.maximum(absolute / 3e-7, 1 / wanted / 1e-5))


def fit_start() -> np.ndarray:
    """c F(c) of one class as ½ + ½ σ(a + b log(F(c)/(m(1 − m)))): a and b, for chances
    m from 1e-6 to ½ and c from 1e-2 to 1e8.
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
    for name, coefficients in (
        ("_NEXT_DIGAMMA", fit_next_digamma()),
        ("_NORMAL_TAIL", fit_normal_tail()),
        *zip(("_MILLS_NUMERATOR", "_MILLS_DENOMINATOR"), fit_mills(*GRAPH_MILLS_DEGREES)),
    ):
        print("graphs:", name, "=", tuple(float(f"{value:.10g}") for value in coefficients))
    print("START, START_SLOPE =", tuple(float(f"{value:.4g}") for value in fit_start()))
