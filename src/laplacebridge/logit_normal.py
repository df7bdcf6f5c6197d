"""Logit-normal distributions: the marginals of a softmax of Gaussian logits, one for
every class.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from laplacebridge._checks import not_finite, require_alike, require_tensor
from laplacebridge._special import log_logistic_normal_mean
from laplacebridge.errors import InputError, ShapeError

# Secant steps from the start below to a location that is right to a few thousandths of
# a deviation.
_STEPS = 4


@dataclass(frozen=True, eq=False)
class LogitNormal:
    """B × K probabilities whose log-odds are Gaussian: log(π/(1 − π)) ~ N(location,
    variance).

    For independent logits this is nearly what the probability of a class is distributed
    like, whatever its rank, where the Beta marginals of a Dirichlet hold for the most
    probable class alone.

    Attributes:
        location: Means of the log-odds, shape (B, K).
        variance: Their variances, of the same shape.

    Example:
        >>> marginal = LogitNormal(torch.tensor([[0.0, -2.0]]), torch.tensor([[1.0, 1.0]]))
        >>> marginal.quantile(0.5)
        tensor([[0.5000, 0.1192]])
        >>> [bound.round(decimals=3) for bound in marginal.interval(0.95)]
        [tensor([[0.1230, 0.0190]]), tensor([[0.8770, 0.4900]])]
    """

    location: Float[Tensor, "B K"]
    variance: Float[Tensor, "B K"]

    def __post_init__(self) -> None:
        call = "LogitNormal(location, variance)"
        location = require_tensor(call, self.location, "B K")
        variance = require_tensor(call, self.variance, "B K")
        if location.shape != variance.shape:
            raise ShapeError(
                f"`{call}` needs tensors of the same shape; got {tuple(location.shape)} and"
                f" {tuple(variance.shape)}."
            )
        require_alike(call, location, variance, ("location", "variance"))

    @classmethod
    def with_mean(
        cls,
        mean: Float[Tensor, "B K"],
        complement: Float[Tensor, "B K"],
        variance: Float[Tensor, "B K"],
    ) -> "LogitNormal":
        """Those with a given mean: location a such that E σ(x) = m for x ~ N(a, B).

        Args:
            mean: m.
            complement: 1 − m, with digits of its own where m is nearly one.
            variance: B.

        Example:
            >>> mean = torch.tensor([[0.9, 0.1]])
            >>> LogitNormal.with_mean(mean, 1 - mean, torch.ones(1, 2)).location
            tensor([[ 2.5642, -2.5642]])
        """
        is_small = mean < complement
        below = _location(torch.minimum(mean, complement).log(), variance)
        return cls(torch.where(is_small, below, -below), variance)

    def quantile(self, level: float) -> Float[Tensor, "B K"]:
        """Quantiles.

        Args:
            level: Between 0 and 1.

        Raises:
            InputError: If it is not.
        """
        if not 0 < level < 1:
            raise InputError(f"`quantile(level)` needs a level between 0 and 1; got {level}.")
        normal = torch.special.ndtri(torch.tensor(level, dtype=torch.float64)).item()
        return torch.sigmoid(self.location + normal * self.variance.sqrt())

    def interval(self, level: float = 0.95) -> tuple[Float[Tensor, "B K"], Float[Tensor, "B K"]]:
        """The central interval: lower and upper bounds.

        Args:
            level: The probability inside it.

        Raises:
            InputError: If it is not between 0 and 1.
        """
        if not 0 < level < 1:
            raise InputError(
                f"`interval(level)` needs a level between 0 and 1; got {level}. 0.95 is usual."
            )
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def survival(self, probability: float) -> Float[Tensor, "B K"]:
        """P(π > t).

        Args:
            probability: The threshold t.

        Raises:
            InputError: If it is not between 0 and 1.
        """
        if not 0 < probability < 1:
            raise InputError(f"A probability between 0 and 1 is needed; got {probability}.")
        distance = self.location - math.log(probability / (1 - probability))
        # without variance the probability is the location's, above or not
        certain = self.variance == 0
        standardised = distance / torch.where(certain, 1.0, self.variance).sqrt()
        return torch.where(
            certain, (distance > 0).to(distance.dtype), torch.special.ndtr(standardised)
        )

    def problems(self) -> "Iterator[tuple[str, Bool[Tensor, ' B']]]":
        """What could make these distributions invalid, each with the rows where it
        does; see `check`.
        """
        yield not_finite("location", self.location)
        yield not_finite("variance", self.variance)
        yield "a variance is negative", (self.variance < 0).any(-1)

    def __len__(self) -> int:
        return len(self.location)


def _location(log_mean: Tensor, variance: Tensor) -> Tensor:
    """a ≤ 0 with log E σ(N(a, B)) = log m, for m ≤ ½.

    Starts from the larger of MacKay's approximation and the tail's limit log m − B/2,
    which no location is below, and takes secant steps on the logarithm, whose slope is
    one in the tail.
    """
    spread = (1 + variance * (math.pi / 8)).sqrt()
    mean = log_mean.exp()
    location = torch.maximum(
        (log_mean - torch.log1p(-mean)) * spread, log_mean - 0.5 * variance
    ).clamp_max(0)
    slope = torch.where(location + variance < 0, 1.0, (1 - mean) / spread)
    error = log_logistic_normal_mean(location, variance) - log_mean
    for _ in range(_STEPS):
        moved = (location - error / slope).clamp_max(0)
        after = log_logistic_normal_mean(moved, variance) - log_mean
        step, usable = (
            moved - location,
            after.isfinite(),
        )  # beyond its range the last location stays
        secant = ((after - error) / torch.where(step == 0, 1.0, step)).clamp(0.02, 2.0)
        slope = torch.where((step.abs() > 1e-4) & usable, secant, slope)
        location, error = torch.where(usable, moved, location), torch.where(usable, after, error)
    return location
