"""A matrix or a factor of its own for every example."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from laplacebridge._checks import require_tensor
from laplacebridge._special import sum_of_others
from laplacebridge.covariance.base import (
    ROUNDING_ERRORS,
    Covariance,
    GivenZeroSum,
    kept_positive,
    largest_variance,
    standard_deviation,
    standard_normal,
)
from laplacebridge.errors import InputError, ShapeError


@dataclass(frozen=True, eq=False)
class LowRank(Covariance):
    """F_b F_bᵀ with a factor of its own for every example: what R members of an
    ensemble give.

    Attributes:
        factor: Factors F, shape (B, K, R); R may be smaller or larger than K.

    Example:
        >>> LowRank(torch.tensor([[[1.0], [-1.0]]])).to_dense()
        tensor([[[ 1., -1.],
                 [-1.,  1.]]])
    """

    factor: Float[Tensor, "B K R"]

    def __post_init__(self) -> None:
        call = "LowRank(factor)"
        hint = (
            "One factor of shape (K, R) per example; for a basis shared by all use `SharedBasis`."
        )
        require_tensor(call, self.factor, "B K R", hint=hint, classes=1)

    @property
    def shape(self) -> tuple[int, int]:
        """(B, K)."""
        return self.factor.shape[0], self.factor.shape[1]

    @property
    def rank(self) -> int:
        """R, the columns of the factor."""
        return self.factor.shape[2]

    def diagonal(self) -> Float[Tensor, "B K"]:
        """Sums of squares along the factor's rows."""
        return self.factor.square().sum(-1)

    def matvec(self, vector: Float[Tensor, "B K"]) -> Float[Tensor, "B K"]:
        """F(Fᵀp)."""
        inner = torch.einsum("bkr,bk->br", self.factor, vector)
        return torch.einsum("bkr,br->bk", self.factor, inner)

    def matmat(self, vectors: Float[Tensor, "B K N"]) -> Float[Tensor, "B K N"]:
        """F(FᵀX), vector by vector in memory."""
        return ((vectors.mT @ self.factor) @ self.factor.mT).mT

    def columns(self, classes: Int[Tensor, "B N"]) -> Float[Tensor, "B K N"]:
        """F times some rows of F."""
        chosen = classes.unsqueeze(-1).expand(-1, -1, self.rank)
        return self.factor @ self.factor.gather(1, chosen).mT

    def sample(
        self, num_samples: int, generator: Generator | None = None
    ) -> Float[Tensor, "S B K"]:
        """F times independent noise."""
        batch, _, rank = self.factor.shape
        noise = standard_normal(self.factor, batch, rank, num_samples, generator=generator)
        return (self.factor @ noise).permute(2, 0, 1)

    def centered(self) -> "LowRank":
        """Centres the factor."""
        return LowRank(self.factor - self.factor.mean(1, keepdim=True))

    def scaled(self, factor: Float[Tensor, " B"]) -> "LowRank":
        """Scales the factor by the square root."""
        return replace(self, factor=self.factor * standard_deviation(factor)[:, None, None])

    def bounded(self) -> "LowRank":
        """With a bounded factor."""
        largest = largest_variance(self.factor.dtype) ** 0.5
        return replace(self, factor=self.factor.clamp(-largest, largest))

    def to_dense(self) -> Float[Tensor, "B K K"]:
        """The matrices."""
        return self.factor @ self.factor.mT


@dataclass(frozen=True, eq=False)
class Dense(Covariance):
    """One full K x K matrix per example: full posteriors with few classes.

    Attributes:
        covariance: Symmetric positive semi-definite matrices, shape (B, K, K).

    Example:
        >>> Dense(torch.tensor([[[2.0, 1.0], [1.0, 2.0]]])).centered().diagonal()
        tensor([[0.5000, 0.5000]])
    """

    covariance: Float[Tensor, "B K K"]
    _known: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        call = "Dense(covariance)"
        hint = "One matrix per example; for variances alone use `Diagonal(variance)`."
        shape = require_tensor(call, self.covariance, "B K K", hint=hint, classes=1).shape
        if shape[1] != shape[2]:
            raise ShapeError(
                f"`{call}` needs square matrices, shape (B, K, K); got {tuple(shape)}. {hint}"
            )

    @property
    def shape(self) -> tuple[int, int]:
        """(B, K)."""
        return self.covariance.shape[0], self.covariance.shape[1]

    def diagonal(self) -> Float[Tensor, "B K"]:
        """Diagonals of the matrices."""
        return self.covariance.diagonal(dim1=-2, dim2=-1)

    def matvec(self, vector: Float[Tensor, "B K"]) -> Float[Tensor, "B K"]:
        """Batched product."""
        return (self.covariance @ vector.unsqueeze(-1)).squeeze(-1)

    def matmat(self, vectors: Float[Tensor, "B K N"]) -> Float[Tensor, "B K N"]:
        """Batched product with the matrices, which are symmetric, vector by vector in
        memory.
        """
        return (vectors.mT @ self.covariance).mT

    def column(self, classes: Int[Tensor, "B 1"]) -> Float[Tensor, "B K"]:
        """A column of each matrix."""
        chosen = classes.unsqueeze(1).expand(-1, self.shape[1], 1)
        return self.covariance.gather(-1, chosen).squeeze(-1)

    def columns(self, classes: Int[Tensor, "B N"]) -> Float[Tensor, "B K N"]:
        """Some columns of each matrix, read as rows, which lie together."""
        chosen = classes.unsqueeze(-1).expand(-1, -1, self.shape[1])
        return self.covariance.gather(1, chosen).mT

    def row_sums(self) -> Float[Tensor, "B K"]:
        """Sums of rows, computed once unless they must carry a gradient: bridges ask for
        them several times, and each time reads the whole matrix.
        """
        if self.requires_grad or torch.compiler.is_compiling():
            return self.covariance.sum(-1)
        if "row_sums" not in self._known:
            with torch.inference_mode(False), torch.no_grad():  # so that it serves under any
                self._known["row_sums"] = self.covariance.sum(-1)
        return self._known["row_sums"]

    def sample(
        self, num_samples: int, generator: Generator | None = None
    ) -> Float[Tensor, "S B K"]:
        """Factorises, then draws; see `factored`."""
        return self.factored().sample(num_samples, generator)

    def factored(self) -> LowRank:
        """Cholesky factors; for singular matrices, which have none, the symmetric
        square root.

        Raises:
            InputError: If a matrix has an eigenvalue below zero by more than rounding.
        """
        factor, failed = torch.linalg.cholesky_ex(self.covariance)
        singular = failed != 0
        if not singular.any():
            return LowRank(factor)
        values, vectors = torch.linalg.eigh(self.covariance[singular])
        lowest, highest = values[..., 0], values[..., -1]
        if (lowest < -self._eigenvalue_rounding() * highest.clamp_min(0)).any():
            raise InputError(
                "`Dense(covariance)` needs positive semi-definite matrices to draw samples; got an"
                f" eigenvalue of {lowest.min().item():.3g}. `laplacebridge.check` names the row."
            )
        root = vectors * standard_deviation(values).unsqueeze(-2)
        return LowRank(factor.index_put((singular,), root))

    def _eigenvalue_rounding(self) -> float:
        """How far below zero, relative to the largest, rounding may push an eigenvalue."""
        return ROUNDING_ERRORS * torch.finfo(self.dtype).eps * self.shape[1]

    def centered(self) -> "Dense":
        """Subtracts the means of rows and columns."""
        rows = self.covariance - self.covariance.mean(-1, keepdim=True)
        return Dense(rows - rows.mean(-2, keepdim=True))

    def centered_diagonal(self) -> Float[Tensor, "B K"]:
        """Σ_kk − 2(Σ1)_k/K + 1ᵀΣ1/K²: no matrix is formed."""
        num_classes, sums = self.shape[1], self.row_sums()
        total = sums.mean(-1, keepdim=True) / num_classes
        return self.diagonal() - 2 / num_classes * sums + total

    def modulo_shift(self) -> "Dense":
        """The matrices as given: what bridges ask of them are contrasts of logits, which
        a shift does not change. Centring would cost another matrix, and small variances
        beside large ones.
        """
        return self

    def effective_variance(self) -> Float[Tensor, "B K"]:
        """Solved from the entries off the diagonal, Σ_kl ≈ u_k + u_l: D = Σ_kk − 2u_k.

        The same as for every covariance, with all digits of small variances beside large
        ones. Of two logits both get half of the variance of their difference.
        """
        num_classes, variance = self.shape[1], self.diagonal()
        centered = self.centered_diagonal().clamp_min(0)  # less is rounding
        if num_classes == 2:
            return 2 * centered
        off = self.row_sums() - variance
        mean = off.sum(-1, keepdim=True) / (2 * (num_classes - 1))
        return kept_positive(variance - 2 / (num_classes - 2) * (off - mean), centered)

    def given_zero_sum(self) -> GivenZeroSum:
        """As for every covariance; what is left of a variance is (Σ_kk q_k − o_k²)/1ᵀΣ1,
        with o_k the covariance with all others together and q_k their variance, right
        also when one class has nearly all of it.
        """
        follows, _ = super().given_zero_sum()
        variance, sums = self.diagonal(), self.row_sums()
        total, off = sums.sum(-1, keepdim=True), sums - variance
        others = sum_of_others(variance) + (off.sum(-1, keepdim=True) - 2 * off)
        explained = (variance * others, off.square())
        remaining = explained[0] - explained[1]
        noise = ROUNDING_ERRORS * torch.finfo(self.dtype).eps * (explained[0].abs() + explained[1])
        varies = total > ROUNDING_ERRORS * torch.finfo(self.dtype).eps * self.shape[1] * (
            variance.sum(-1, keepdim=True)
        )
        left = torch.where(remaining > noise, remaining / torch.where(varies, total, 1.0), 0.0)
        return GivenZeroSum(follows, torch.where(varies, left, self.centered_diagonal()))

    def scaled(self, factor: Float[Tensor, " B"]) -> "Dense":
        """Each matrix times a number."""
        return replace(self, covariance=self.covariance * factor[:, None, None])

    def bounded(self) -> "Dense":
        """With bounded entries."""
        largest = largest_variance(self.covariance.dtype)
        return replace(self, covariance=self.covariance.clamp(-largest, largest))

    def plus_identity(self, variance: Float[Tensor, "*#B"]) -> "Dense":
        """Σ + cI: independent noise of the same variance on every logit.

        Args:
            variance: c ≥ 0, of all rows or of each.
        """
        identity = torch.eye(
            self.covariance.shape[-1], dtype=self.covariance.dtype, device=variance.device
        )
        return replace(self, covariance=self.covariance + variance[..., None, None] * identity)

    def plus_square(self, along: Float[Tensor, "B K"]) -> "Dense":
        """Σ + aaᵀ.

        Args:
            along: a.
        """
        return replace(self, covariance=self.covariance + along.unsqueeze(-1) * along.unsqueeze(-2))

    def to_dense(self) -> Float[Tensor, "B K K"]:
        """The matrices as given."""
        return self.covariance

    def problems(self) -> Iterator[tuple[str, Bool[Tensor, " B"]]]:
        """As for every covariance, and asymmetry and negative eigenvalues."""
        yield from super().problems()
        finite = self.covariance.isfinite().all(-1).all(-1)
        matrix = torch.where(finite[:, None, None], self.covariance, 0.0)
        tolerance = self._eigenvalue_rounding() * matrix.abs().amax((-2, -1))
        yield "the matrix is not symmetric", (matrix - matrix.mT).abs().amax((-2, -1)) > tolerance
        yield "an eigenvalue is negative", torch.linalg.eigvalsh(matrix)[:, 0] < -tolerance
