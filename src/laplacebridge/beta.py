"""Beta distributions: the marginals of a Dirichlet (Eq. 10)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from laplacebridge import _scipy_special as special
from laplacebridge._checks import is_share, require_alike, require_tensor
from laplacebridge._values import not_finite
from laplacebridge.errors import InputError, ShapeError

# Both parameters beyond this, SciPy's incomplete beta loses digits (half of the
# interval at 1e17), while the expansion around a normal distribution is right to a
# billionth of a standard deviation.
_NEARLY_NORMAL = 1e9
# Deviations from the mean beyond which a normal distribution function is 0 or 1.
_FAR = 40.0
# With one parameter beyond this and the other below the one above a Beta is a Gamma to
# 1e-13, while SciPy's inverse cannot say quantiles between 2⁻⁵⁶ and 2⁻⁵⁵.
_NEARLY_GAMMA = 1e15
# Beyond this, concentrations no longer change the numbers that a float64 can show.
_LOG_LARGEST = 280 * np.log(10)
# Below this, log x is no longer taken from x, and F(x) is its leading term xᵃ/(a B(a,
# b)) to all digits.
_SMALLEST = 1e-290
_LOG_SMALLEST = np.log(_SMALLEST)

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Beta:
    """B Beta distributions over the probability of one class, or of a group of classes.

    Distribution function, quantiles and intervals come from SciPy and carry no
    gradient.

    Attributes:
        log_alpha: Logarithm of the class's own concentration, shape (B,).
        log_beta: Logarithm of the concentration of all other classes together, shape
            (B,).

    Example:
        >>> beta = Beta(torch.tensor([0.0]), torch.tensor([0.0]))  # uniform on [0, 1]
        >>> beta.mean, beta.quantile(0.05)
        (tensor([0.5000]), tensor([0.0500]))
    """

    log_alpha: Float[Tensor, " B"]
    log_beta: Float[Tensor, " B"]

    def __post_init__(self) -> None:
        call = "Beta(log_alpha, log_beta)"
        require_tensor(call, self.log_alpha, "B")
        require_tensor(call, self.log_beta, "B")
        require_alike(call, self.log_alpha, self.log_beta, ("log_alpha", "log_beta"))
        if len(self.log_alpha) != len(self.log_beta):
            raise ShapeError(
                f"`{call}` needs two vectors of the same length; got {tuple(self.log_alpha.shape)}"
                f" and {tuple(self.log_beta.shape)}. Give one number of each for each example."
            )

    @property
    def alpha(self) -> Float[Tensor, " B"]:
        """First parameter."""
        return self.log_alpha.exp()

    @property
    def beta(self) -> Float[Tensor, " B"]:
        """Second parameter."""
        return self.log_beta.exp()

    @property
    def mean(self) -> Float[Tensor, " B"]:
        """α/(α + β)."""
        return torch.sigmoid(self.log_alpha - self.log_beta)

    @property
    def variance(self) -> Float[Tensor, " B"]:
        """m(1 − m)/(α + β + 1)."""
        gap = self.log_alpha - self.log_beta
        log_total = torch.logaddexp(self.log_alpha, self.log_beta)
        return torch.sigmoid(gap) * torch.sigmoid(-gap) * torch.sigmoid(-log_total)

    def cdf(self, probability: float | Tensor) -> Float[Tensor, " B"]:
        """Probability that the class's probability is at most this.

        Args:
            probability: A number in [0, 1], or one for each example.
        """
        alpha, beta = self._parameters()
        point = _for_each("cdf(probability)", probability, len(alpha))
        with np.errstate(all="ignore"):
            exact = special.betainc(alpha, beta, point)
            expanded = special.ndtr(_normal_score(alpha, beta, point))
        return self._tensor(np.where(_nearly_normal(alpha, beta), expanded, exact))

    def quantile(self, level: float | Tensor) -> Float[Tensor, " B"]:
        """The probability that the class's probability falls below with this chance.

        Args:
            level: A number in [0, 1], or one for each example.
        """
        alpha, beta = self._parameters()
        chance = _for_each("quantile(level)", level, len(alpha))
        return self._tensor(_quantiles(alpha, beta, chance))

    def log_quantile(self, level: float | Tensor) -> Float[Tensor, " B"]:
        """Logarithm of the quantile, also where the quantile is too small for its type.

        A Beta with α = 1e-6 has its median near 1e-300000.

        Args:
            level: A number in [0, 1], or one for each example.
        """
        alpha, beta = self._parameters()
        chance = _for_each("log_quantile(level)", level, len(alpha))
        values = _quantiles(alpha, beta, chance)
        with np.errstate(all="ignore"):
            log_x = np.log(values)
            tiny = log_x < _LOG_SMALLEST
            if tiny.any():
                log_x = np.where(tiny, _log_leading(alpha, beta, chance), log_x)
        return self._tensor(log_x)

    def survival(self, log_probability: float | Tensor) -> Float[Tensor, " B"]:
        """Mass above a probability that is given by its logarithm.

        Accurate where it is far smaller than the rounding of ``1 - cdf``, and where the
        probability itself is too small for its type.

        Args:
            log_probability: A number up to 0, or one for each example.
        """
        alpha, beta, log_x = self._at("survival(log_probability)", log_probability)
        upper = _in_bulk(special.betaincc, -1, alpha, beta, log_x)
        return self._tensor(
            _with_leading_term(upper, alpha, beta, log_x, lambda log_cdf: -np.expm1(log_cdf))
        )

    def log_cdf(self, log_probability: float | Tensor) -> Float[Tensor, " B"]:
        """Logarithm of the mass below a probability that is given by its logarithm.

        Args:
            log_probability: A number up to 0, or one for each example.
        """
        alpha, beta, log_x = self._at("log_cdf(log_probability)", log_probability)
        with np.errstate(divide="ignore"):
            log_lower = np.log(_in_bulk(special.betainc, 1, alpha, beta, log_x))
        return self._tensor(
            _with_leading_term(log_lower, alpha, beta, log_x, lambda log_cdf: log_cdf)
        )

    def interval(self, level: float = 0.95) -> tuple[Float[Tensor, " B"], Float[Tensor, " B"]]:
        """Equal-tailed credible interval.

        Args:
            level: Mass inside.

        Returns:
            Lower and upper ends.

        Raises:
            InputError: If the level is not between 0 and 1.
        """
        if not is_share(level):
            raise InputError(
                f"`interval(level)` needs a mass between 0 and 1; got {level!r}. 0.95 is usual."
            )
        tail = (1 - level) / 2
        return self.quantile(tail), self.quantile(1 - tail)

    def problems(self) -> Iterator[tuple[str, Bool[Tensor, " B"]]]:
        """What could make these distributions invalid, each with the rows where it
        does; see `check`.
        """
        yield not_finite("log_alpha", self.log_alpha)
        yield not_finite("log_beta", self.log_beta)

    def _parameters(self) -> tuple[Array, Array]:
        """Parameters in float64, scaled down together where they leave its range."""
        log_alpha, log_beta = _array(self.log_alpha), _array(self.log_beta)
        excess = np.maximum(np.minimum(log_alpha, log_beta) - np.log(1e30), 0)
        shortfall = np.maximum(-np.log(1e30) - np.maximum(log_alpha, log_beta), 0)
        alpha, beta = (
            np.exp(np.clip(log - excess + shortfall, -_LOG_LARGEST, _LOG_LARGEST))
            for log in (log_alpha, log_beta)
        )
        return alpha, beta

    def _at(self, call: str, log_probability: float | Tensor) -> tuple[Array, Array, Array]:
        """Parameters, and the logarithms of where to look.

        Raises:
            InputError: If one is above 0.
        """
        alpha, beta = self._parameters()
        log_x = np.broadcast_to(_array(log_probability), alpha.shape)
        if not (log_x <= 0).all():
            raise InputError(
                f"`{call}` needs logarithms of probabilities, at most 0; got {log_x.max():.3g}. For"
                " a probability p give log p."
            )
        return alpha, beta, log_x

    def _tensor(self, values: Array) -> Tensor:
        return torch.as_tensor(values, dtype=self.log_alpha.dtype, device=self.log_alpha.device)


def _array(values: float | Tensor) -> Array:
    if isinstance(values, Tensor):
        return values.detach().cpu().double().numpy()
    return np.asarray(values, dtype=np.float64)


def _for_each(call: str, values: float | Tensor, length: int) -> Array:
    array = _array(values)
    if array.ndim and array.shape != (length,):
        raise ShapeError(
            f"`{call}` needs a number or one for each of {length} examples; got shape"
            f" {array.shape}. Give one for each of {length} examples, or call it once per number."
        )
    if not ((array >= 0) & (array <= 1)).all():
        raise InputError(
            f"`{call}` needs numbers from 0 to 1; got {array.min():.3g} to {array.max():.3g}."
        )
    return np.broadcast_to(array, (length,))


def _quantiles(alpha: Array, beta: Array, chance: Array) -> Array:
    nearly_normal = _nearly_normal(alpha, beta)
    with np.errstate(all="ignore"):
        values = _nearly_gamma(alpha, beta, chance, special.betaincinv(*_tame(alpha, beta), chance))
        if nearly_normal.any():
            values = np.where(nearly_normal, _expanded_quantile(alpha, beta, chance), values)
        tiny = values < _SMALLEST  # where SciPy gives 0 or the smallest number in no order
        if tiny.any():
            values = np.where(tiny, np.exp(_log_leading(alpha, beta, chance)), values)
    return values


def _in_bulk(exact: np.ufunc, side: int, alpha: Array, beta: Array, log_x: Array) -> Array:
    """A tail by SciPy, or by the expansion around a normal distribution: below for side
    1, above for side −1.
    """
    x, nearly_normal = np.exp(log_x), _nearly_normal(alpha, beta)
    with np.errstate(all="ignore"):
        tail = exact(*_tame(alpha, beta), x)
        if nearly_normal.any():
            tail = np.where(nearly_normal, special.ndtr(side * _normal_score(alpha, beta, x)), tail)
    return tail


def _with_leading_term(
    tail: Array, alpha: Array, beta: Array, log_x: Array, from_log_cdf: Callable[[Array], Array]
) -> Array:
    """Replaces a tail where x is tiny, by what follows from log F(x) = a log x − log(a
    B(a, b)).
    """
    tiny = log_x < _LOG_SMALLEST
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


def _log_leading(alpha: Array, beta: Array, chance: Array) -> Array:
    """log x from the leading term of F(x), for tiny x."""
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
    replaced = _nearly_normal(alpha, beta)
    return np.where(replaced, 1.0, alpha), np.where(replaced, 1.0, beta)


def _nearly_normal(alpha: Array, beta: Array) -> npt.NDArray[np.bool_]:
    return np.minimum(alpha, beta) > _NEARLY_NORMAL


def _normal_score(alpha: Array, beta: Array, point: Array) -> Array:
    """The standard normal number with the same distribution function, by the expansion
    around a normal distribution.
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
