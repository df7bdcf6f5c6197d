"""A few factors that many logits share, and noise of their own."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from laplacebridge._checks import require_alike, require_tensor
from laplacebridge.covariance.base import (
    Covariance,
    largest_variance,
    standard_deviation,
    standard_normal,
)
from laplacebridge.covariance.dense import Dense
from laplacebridge.errors import ShapeError


@dataclass(frozen=True, eq=False)
class LowRankPlusDiagonal(Covariance):
    """F_b F_bᵀ + diag(v_b): what correlated logits are to the race, inside it.

    Attributes:
        factor: Factors F, shape (B, K, R).
        variance: Non-negative variances v of the noise that each logit has of its own,
            shape (B, K).

    Example:
        >>> factor, own = torch.tensor([[[1.0], [-1.0]]]), torch.tensor([[1.0, 2.0]])
        >>> LowRankPlusDiagonal(factor, own).to_dense()
        tensor([[[ 2., -1.],
                 [-1.,  3.]]])
    """

    factor: Float[Tensor, "B K R"]
    variance: Float[Tensor, "B K"]

    def __post_init__(self) -> None:
        call = "LowRankPlusDiagonal(factor, variance)"
        require_tensor(call, self.factor, "B K R")
        require_tensor(call, self.variance, "B K", classes=1)
        if self.factor.shape[:2] != self.variance.shape:
            raise ShapeError(
                f"`{call}` needs a factor (B, K, R) and variances of the same (B, K); got"
                f" {tuple(self.factor.shape)} and {tuple(self.variance.shape)}. Each row of the"
                " variances is one example."
            )
        require_alike(call, self.factor, self.variance, ("factor", "variance"))

    @property
    def shape(self) -> tuple[int, int]:
        """(B, K)."""
        return self.variance.shape[0], self.variance.shape[1]

    def diagonal(self) -> Float[Tensor, "B K"]:
        """Sums of squares along the factor's rows, and the variances."""
        return self.factor.square().sum(-1) + self.variance

    def centered_diagonal(self) -> Float[Tensor, "B K"]:
        """That of the centred factor, and of centred independent noise."""
        shared = (self.factor - self.factor.mean(1, keepdim=True)).square().sum(-1)
        num_classes, mean = self.shape[1], self.variance.mean(-1, keepdim=True)
        return shared + self.variance * (1 - 2 / num_classes) + mean / num_classes

    def matvec(self, vector: Float[Tensor, "B K"]) -> Float[Tensor, "B K"]:
        """F(Fᵀp) + v · p."""
        inner = torch.einsum("bkr,bk->br", self.factor, vector)
        return torch.einsum("bkr,br->bk", self.factor, inner) + self.variance * vector

    def sample(
        self, num_samples: int, generator: Generator | None = None
    ) -> Float[Tensor, "S B K"]:
        """F times independent noise, and noise of their own."""
        batch, _, rank = self.factor.shape
        noise = standard_normal(self.factor, batch, rank, num_samples, generator=generator)
        own = standard_normal(self.factor, num_samples, *self.shape, generator=generator)
        shared = (self.factor @ noise).permute(2, 0, 1)
        return shared + own * standard_deviation(self.variance)

    def centered(self) -> Dense:
        """The centred matrices: for tests and small K."""
        return Dense(self.to_dense()).centered()

    def modulo_shift(self) -> "LowRankPlusDiagonal":
        """As it is: bridges ask for contrasts, which a shift does not change."""
        return self

    def scaled(self, factor: Float[Tensor, " B"]) -> "LowRankPlusDiagonal":
        """Scales both parts."""
        return replace(
            self,
            factor=self.factor * standard_deviation(factor)[:, None, None],
            variance=self.variance * factor.unsqueeze(-1),
        )

    def bounded(self) -> "LowRankPlusDiagonal":
        """With both parts bounded."""
        largest = largest_variance(self.factor.dtype)
        return replace(
            self,
            factor=self.factor.clamp(-(largest**0.5), largest**0.5),
            variance=self.variance.clamp_max(largest),
        )

    def to_dense(self) -> Float[Tensor, "B K K"]:
        """The matrices."""
        return self.factor @ self.factor.mT + torch.diag_embed(self.variance)

    def problems(self) -> Iterator[tuple[str, Bool[Tensor, " B"]]]:
        """As for every covariance, but it is the stored variances that must not be
        negative.
        """
        yield from super().problems()
        yield "a variance is negative", (self.variance < 0).any(-1)
