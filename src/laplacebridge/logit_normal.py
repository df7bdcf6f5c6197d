"""Logit-normal distributions: the marginals of a softmax of Gaussian logits, one for
every class.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from laplacebridge import _blocks
from laplacebridge._checks import require_alike, require_level, require_tensor
from laplacebridge._special import log_logistic_normal_mean_and_slope
from laplacebridge._values import not_finite
from laplacebridge.errors import InputError, ShapeError

_WINITZKI = 0.147


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
        # a probability too small for its type is the smallest that the type has
        smaller = torch.minimum(mean, complement).clamp_min(torch.finfo(mean.dtype).tiny)
        below = _in_blocks(smaller.log(), variance)
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
        normal = NormalDist().inv_cdf(level)
        return torch.sigmoid(self.location + normal * self.variance.sqrt())

    def interval(self, level: float = 0.95) -> tuple[Float[Tensor, "B K"], Float[Tensor, "B K"]]:
        """The central interval: lower and upper bounds.

        Args:
            level: The probability inside it.

        Raises:
            InputError: If it is not between 0 and 1.
        """
        require_level("interval(level)", level)
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


def _in_blocks(log_mean: Tensor, variance: Tensor) -> Tensor:
    """`_location`, for blocks of rows that fit the cache."""
    rows = max(1, _blocks.ELEMENTS_IN_CACHE // max(1, log_mean.shape[-1]))
    differentiating = torch.is_grad_enabled() and (log_mean.requires_grad or variance.requires_grad)
    if torch.compiler.is_compiling() or differentiating or len(log_mean) <= rows:
        return _location(log_mean, variance)
    return torch.cat(
        [_location(*part) for part in zip(torch.split(log_mean, rows), torch.split(variance, rows))]
    )


def _location(log_mean: Tensor, variance: Tensor) -> Tensor:
    """a ≤ 0 with log E σ(N(a, B)) = log m, for m ≤ ½; to a fortieth of a deviation
    everywhere, to a thousandth for most, and to 1e-4 in the probabilities of intervals,
    beside up to 2e-3 that come from E σ as `_special` has it.

    Without variance a is logit(m), with much of it Φ⁻¹(m)√B: a starts from the root of
    both squares, or from the tail's limit log m − B/2, which no location is below. Then
    a Newton step on the logarithm, which is nearly straight in the tail.
    """
    mean = log_mean.exp()
    log_rest = torch.log1p(-mean)
    log_odds = log_mean - log_rest
    # Φ⁻¹(m)² from log 4m(1 − m), within half a percent (Winitzki)
    product = log_mean + log_rest + math.log(4)
    half = torch.add(product.new_tensor(2 / math.pi / _WINITZKI), product, alpha=0.5)
    normal = 2 * (torch.sub(half.square(), product, alpha=1 / _WINITZKI).sqrt() - half)
    root = torch.addcmul(log_odds.square(), normal, variance).sqrt()
    location = torch.maximum(-root, log_mean - 0.5 * variance)
    # a type with more digits gets another step
    for _ in range(2 if location.dtype == torch.float64 else 1):
        found, slope = log_logistic_normal_mean_and_slope(location, variance)
        # where E σ is too small for the type, the start is what is known
        step = torch.where(found.isfinite(), (found - log_mean) / slope, 0.0)
        location = (location - step).clamp_max(0)
    return location
