"""Beta distributions: the marginals of a Dirichlet (Eq. 10)."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from scipy import special
from torch import Tensor

from laplacebridge.checks import require_alike, require_tensor
from laplacebridge.errors import ShapeError

# Both parameters beyond this, SciPy's incomplete beta loses digits (half of the interval at 1e17), while the
# expansion around a normal distribution is right to a billionth of a standard deviation.
_NEARLY_NORMAL = 1e9
# Deviations from the mean beyond which a normal distribution function is 0 or 1.
_FAR = 40.0
# With one parameter beyond this and the other below the one above a Beta is a Gamma to 1e-13, while SciPy's inverse
# cannot say quantiles between 2⁻⁵⁶ and 2⁻⁵⁵.
_NEARLY_GAMMA = 1e15
# Beyond this, concentrations no longer change the numbers that a float64 can show.
_LOG_LARGEST = 280 * np.log(10)

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Beta:
    """B Beta distributions over the probability of one class, or of a group of classes.

    Distribution function, quantiles and intervals come from SciPy and carry no gradient.

    Attributes:
        log_alpha: Logarithm of the class's own concentration, shape (B,).
        log_beta: Logarithm of the concentration of all other classes together, shape (B,).

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
                f"`{call}` needs two vectors of the same length; got {tuple(self.log_alpha.shape)} and "
                f"{tuple(self.log_beta.shape)}. Give one number of each for each example."
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
            deviation, skewness = _deviation(alpha, beta), _skewness(alpha, beta)
            # bounded, because far out the square would win and turn the sign
            z = np.clip((point - alpha / (alpha + beta)) / deviation, -_FAR, _FAR)
            expanded = special.ndtr(z - (z * z - 1) * skewness / 6)
        return self._tensor(np.where(_nearly_normal(alpha, beta), expanded, exact))

    def quantile(self, level: float | Tensor) -> Float[Tensor, " B"]:
        """The probability that the class's probability falls below with this chance.

        Args:
            level: A number in [0, 1], or one for each example.
        """
        alpha, beta = self._parameters()
        chance = _for_each("quantile(level)", level, len(alpha))
        with np.errstate(all="ignore"):
            exact = _nearly_gamma(alpha, beta, chance, special.betaincinv(alpha, beta, chance))
            deviation, skewness = _deviation(alpha, beta), _skewness(alpha, beta)
            z = special.ndtri(chance)
            shifted = z + (z * z - 1) * skewness / 6 - (2 * z**3 - 5 * z) * skewness**2 / 36
            expanded = np.clip(alpha / (alpha + beta) + deviation * shifted, 0.0, 1.0)
            expanded = np.where((chance == 0) | (chance == 1), chance, expanded)  # where the normal is infinite
        return self._tensor(np.where(_nearly_normal(alpha, beta), expanded, exact))

    def interval(self, level: float = 0.95) -> tuple[Float[Tensor, " B"], Float[Tensor, " B"]]:
        """Equal-tailed credible interval.

        Args:
            level: Mass inside.

        Returns:
            Lower and upper ends.

        Raises:
            ValueError: If the level is not between 0 and 1.
        """
        if not 0 < level < 1:
            raise ValueError(f"`interval(level)` needs a mass between 0 and 1; got {level}. 0.95 is usual.")
        tail = (1 - level) / 2
        return self.quantile(tail), self.quantile(1 - tail)

    def _parameters(self) -> tuple[Array, Array]:
        """Parameters in float64, scaled down together where they leave its range."""
        log_alpha, log_beta = _array(self.log_alpha), _array(self.log_beta)
        excess = np.maximum(np.minimum(log_alpha, log_beta) - np.log(1e30), 0)
        shortfall = np.maximum(-np.log(1e30) - np.maximum(log_alpha, log_beta), 0)
        alpha, beta = (
            np.exp(np.clip(log - excess + shortfall, -_LOG_LARGEST, _LOG_LARGEST)) for log in (log_alpha, log_beta)
        )
        return alpha, beta

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
            f"`{call}` needs a number or one for each of {length} examples; got shape {array.shape}. Give one for each "
            f"of {length} examples, or call it once per number."
        )
    if not ((array >= 0) & (array <= 1)).all():
        raise ValueError(f"`{call}` needs numbers from 0 to 1; got {array.min():.3g} to {array.max():.3g}.")
    return np.broadcast_to(array, (length,))


def _nearly_gamma(alpha: Array, beta: Array, chance: Array, otherwise: Array) -> Array:
    """−log(1 − x) is Gamma(α)/(β + (α − 1)/2) for a far larger β (Wise)."""
    limit = -np.expm1(-special.gammaincinv(alpha, chance) / (beta + (alpha - 1) / 2))
    return np.where((beta > _NEARLY_GAMMA) & (alpha < _NEARLY_NORMAL), limit, otherwise)


def _nearly_normal(alpha: Array, beta: Array) -> npt.NDArray[np.bool_]:
    return np.minimum(alpha, beta) > _NEARLY_NORMAL


def _deviation(alpha: Array, beta: Array) -> Array:
    total = alpha + beta
    return np.sqrt((alpha / total) * (beta / total) / (total + 1))


def _skewness(alpha: Array, beta: Array) -> Array:
    total = alpha + beta
    return 2 * (beta - alpha) / (total + 2) * np.sqrt(total + 1) / (np.sqrt(alpha) * np.sqrt(beta))
