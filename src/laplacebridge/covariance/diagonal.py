"""Independent logits, as they are and centred."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from laplacebridge._checks import require_tensor
from laplacebridge._special import sum_of_others
from laplacebridge.covariance.base import (
    Covariance,
    GivenZeroSum,
    largest_variance,
    standard_deviation,
    standard_normal,
)


@dataclass(frozen=True, eq=False)
class _PerClass(Covariance):
    """A structure stored as one variance per class."""

    variance: Float[Tensor, "B K"]

    def __post_init__(self) -> None:
        call = f"{type(self).__name__}(variance)"
        hint = ""
        if isinstance(self.variance, Tensor) and self.variance.dim() == 3:
            hint = "That looks like full covariances: use `Dense(covariance)`."
        require_tensor(call, self.variance, "B K", hint=hint, classes=1)

    @property
    def shape(self) -> tuple[int, int]:
        """(B, K)."""
        return self.variance.shape[0], self.variance.shape[1]

    def modulo_shift(self) -> "Diagonal":
        """Independent logits, whether centred or not: softmax sees no difference."""
        return Diagonal(self.variance)

    def effective_variance(self) -> Float[Tensor, "B K"]:
        """The variances themselves; of two, softmax sees their sum alone, and both get
        half of it.
        """
        if self.shape[1] == 2:
            return self.variance.mean(-1, keepdim=True).expand_as(self.variance)
        return self.variance

    def scaled(self, factor: Float[Tensor, " B"]) -> "Covariance":
        """Each matrix times a number."""
        return replace(self, variance=self.variance * factor.unsqueeze(-1))

    def bounded(self) -> "Covariance":
        """With bounded variances."""
        return replace(
            self, variance=self.variance.clamp_max(largest_variance(self.variance.dtype))
        )

    def problems(self) -> Iterator[tuple[str, Bool[Tensor, " B"]]]:
        """As for every covariance, but it is the stored variances that must not be
        negative.
        """
        yield from super().problems()
        yield "a variance is negative", (self.variance < 0).any(-1)

    def _independent(self, num_samples: int, generator: Generator | None) -> Tensor:
        noise = standard_normal(self.variance, num_samples, *self.shape, generator=generator)
        return noise * standard_deviation(self.variance)


@dataclass(frozen=True, eq=False)
class Diagonal(_PerClass):
    """Independent logits: diag(v).

    Attributes:
        variance: Non-negative variances v, shape (B, K).

    Example:
        >>> Diagonal(torch.tensor([[1.0, 4.0]])).row_sums()
        tensor([[1., 4.]])
    """

    independent: ClassVar[bool] = True

    def plus_identity(self, variance: Float[Tensor, "*#B"]) -> "Diagonal":
        """Σ + cI: independent noise of the same variance on every logit.

        Args:
            variance: c ≥ 0, of all rows or of each.
        """
        return replace(self, variance=self.variance + variance.unsqueeze(-1))

    def plus_square(self, along: Float[Tensor, "B K"]) -> "Diagonal":
        """The diagonal of Σ + aaᵀ.

        Args:
            along: a.
        """
        return replace(self, variance=self.variance + along.square())

    def diagonal(self) -> Float[Tensor, "B K"]:
        """The variances as given."""
        return self.variance

    def matvec(self, vector: Float[Tensor, "B K"]) -> Float[Tensor, "B K"]:
        """Product, element by element."""
        return self.variance * vector

    def row_sums(self) -> Float[Tensor, "B K"]:
        """The variances: each row of a diagonal matrix has one entry."""
        return self.variance

    def given_zero_sum(self) -> GivenZeroSum:
        """v/Σv and v_k (Σ_{l≠k} v_l)/Σv, right also when one class has nearly all the
        variance.
        """
        total = self.variance.sum(-1, keepdim=True)
        certain = (total <= 0).to(total.dtype)
        share = self.variance / (total + certain)
        follows = share + certain / self.shape[1]  # alike where nothing varies
        return GivenZeroSum(follows, share * sum_of_others(self.variance))

    def sample(
        self, num_samples: int, generator: Generator | None = None
    ) -> Float[Tensor, "S B K"]:
        """Independent draws."""
        return self._independent(num_samples, generator)

    def centered(self) -> "CenteredDiagonal":
        """C diag(v) C."""
        return CenteredDiagonal(self.variance)

    def to_dense(self) -> Float[Tensor, "B K K"]:
        """Diagonal matrices."""
        return torch.diag_embed(self.variance)


@dataclass(frozen=True, eq=False)
class CenteredDiagonal(_PerClass):
    """Independent logits from which their mean was subtracted: C diag(v) C, C = I −
    11ᵀ/K.

    With v = 1/α it is the Laplace approximation of a Dirichlet in the softmax basis
    (Eq. 6).

    Attributes:
        variance: Non-negative variances v before centring, shape (B, K).

    Example:
        >>> CenteredDiagonal(torch.tensor([[1.0, 3.0]])).diagonal()
        tensor([[1., 1.]])
    """

    def diagonal(self) -> Float[Tensor, "B K"]:
        """v(1 − 2/K) + mean(v)/K: a sum of non-negative terms."""
        num_classes = self.shape[1]
        mean = self.variance.mean(-1, keepdim=True)
        return self.variance * (1 - 2 / num_classes) + mean / num_classes

    def matvec(self, vector: Float[Tensor, "B K"]) -> Float[Tensor, "B K"]:
        """C(v · Cp)."""
        product = self.variance * (vector - vector.mean(-1, keepdim=True))
        return product - product.mean(-1, keepdim=True)

    def row_sums(self) -> Float[Tensor, "B K"]:
        """Zero, by construction."""
        return torch.zeros_like(self.variance)

    def sample(
        self, num_samples: int, generator: Generator | None = None
    ) -> Float[Tensor, "S B K"]:
        """Independent draws minus their mean over classes."""
        draws = self._independent(num_samples, generator)
        return draws - draws.mean(-1, keepdim=True)

    def centered(self) -> "CenteredDiagonal":
        """Itself: centring twice changes nothing."""
        return self

    def to_dense(self) -> Float[Tensor, "B K K"]:
        """The matrices."""
        rows = torch.diag_embed(self.variance) - self.variance.unsqueeze(-1) / self.shape[1]
        return rows - rows.mean(-2, keepdim=True)
