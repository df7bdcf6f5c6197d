"""Beta distributions: the marginals of a Dirichlet (Eq. 10)."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from laplacebridge import _beta_tails
from laplacebridge import _scipy_special as special
from laplacebridge._checks import is_share, require_alike, require_tensor
from laplacebridge._values import not_finite
from laplacebridge.errors import InputError, ShapeError

# Beyond this, concentrations no longer change the numbers that a float64 can show.
_LOG_LARGEST = 280 * np.log(10)
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
            expanded = special.ndtr(_beta_tails.normal_score(alpha, beta, point))
        return self._tensor(np.where(_beta_tails.nearly_normal(alpha, beta), expanded, exact))

    def quantile(self, level: float | Tensor) -> Float[Tensor, " B"]:
        """The probability that the class's probability falls below with this chance.

        Args:
            level: A number in [0, 1], or one for each example.
        """
        alpha, beta = self._parameters()
        chance = _for_each("quantile(level)", level, len(alpha))
        return self._tensor(_beta_tails.quantiles(alpha, beta, chance))

    def log_quantile(self, level: float | Tensor) -> Float[Tensor, " B"]:
        """Logarithm of the quantile, also where the quantile is too small for its type.

        A Beta with α = 1e-6 has its median near 1e-300000.

        Args:
            level: A number in [0, 1], or one for each example.
        """
        alpha, beta = self._parameters()
        chance = _for_each("log_quantile(level)", level, len(alpha))
        values = _beta_tails.quantiles(alpha, beta, chance)
        with np.errstate(all="ignore"):
            log_x = np.log(values)
            tiny = log_x < _beta_tails.LOG_SMALLEST
            if tiny.any():
                log_x = np.where(tiny, _beta_tails.log_leading(alpha, beta, chance), log_x)
        return self._tensor(log_x)

    def survival(self, log_probability: float | Tensor) -> Float[Tensor, " B"]:
        """Mass above a probability that is given by its logarithm.

        Accurate where it is far smaller than the rounding of ``1 - cdf``, and where the
        probability itself is too small for its type.

        Args:
            log_probability: A number up to 0, or one for each example.
        """
        alpha, beta, log_x = self._at("survival(log_probability)", log_probability)
        upper = _beta_tails.tail_in_bulk(special.betaincc, -1, alpha, beta, log_x)
        return self._tensor(
            _beta_tails.with_leading_term(
                upper, alpha, beta, log_x, lambda log_cdf: -np.expm1(log_cdf)
            )
        )

    def log_cdf(self, log_probability: float | Tensor) -> Float[Tensor, " B"]:
        """Logarithm of the mass below a probability that is given by its logarithm.

        Args:
            log_probability: A number up to 0, or one for each example.
        """
        alpha, beta, log_x = self._at("log_cdf(log_probability)", log_probability)
        with np.errstate(divide="ignore"):
            log_lower = np.log(_beta_tails.tail_in_bulk(special.betainc, 1, alpha, beta, log_x))
        return self._tensor(
            _beta_tails.with_leading_term(log_lower, alpha, beta, log_x, lambda log_cdf: log_cdf)
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
