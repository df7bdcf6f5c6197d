"""What is left of a covariance when one contrast of the logits is known."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from laplacebridge._checks import require_alike, require_tensor, rows_of
from laplacebridge.covariance.base import Covariance, standard_deviation
from laplacebridge.errors import ShapeError


@dataclass(frozen=True, eq=False)
class Residual(Covariance):
    """Σ − aaᵀ with a = Σℓ/√(ℓᵀΣℓ): the covariance of the logits given the value of a
    contrast ℓᵀz.

    Attributes:
        base: The covariance Σ before it was known.
        contrast: Coefficients ℓ, shape (B, K). Their mean is taken off: softmax sees
            contrasts only.

    Example:
        >>> from laplacebridge import Diagonal
        >>> known = torch.tensor([[1.0, -1.0]])  # given the difference of two logits, they move together
        >>> Residual(Diagonal(torch.ones(1, 2)), known).to_dense()
        tensor([[[0.5000, 0.5000],
                 [0.5000, 0.5000]]])
    """

    base: Covariance
    contrast: Float[Tensor, "B K"]

    def __post_init__(self) -> None:
        call = "Residual(base, contrast)"
        require_tensor(call, self.contrast, "B K")
        if tuple(self.contrast.shape) != self.base.shape:
            raise ShapeError(
                f"`{call}` needs one coefficient per logit, shape {self.base.shape}; got "
                f"{tuple(self.contrast.shape)}. Give one row of coefficients per example."
            )
        require_alike(call, self.contrast, self.base._anchor(), ("contrast", "base"))
        object.__setattr__(self, "contrast", self.contrast - self.contrast.mean(-1, keepdim=True))

    @property
    def shape(self) -> tuple[int, int]:
        """(B, K)."""
        return self.base.shape

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient may be asked for any tensor inside, those of Σ included."""
        return self.base.requires_grad or super().requires_grad

    def direction(self) -> Float[Tensor, "B K"]:
        """a: how the logits move with the contrast, per standard deviation of it; zero
        if it does not vary.
        """
        product = self.base.matvec(self.contrast)
        deviation = standard_deviation((self.contrast * product).sum(-1, keepdim=True))
        return torch.where(deviation > 0, product / torch.where(deviation > 0, deviation, 1.0), 0.0)

    def diagonal(self) -> Float[Tensor, "B K"]:
        """Variances minus what the contrast explains."""
        return (self.base.diagonal() - self.direction().square()).clamp_min(0)  # less is rounding

    def matvec(self, vector: Float[Tensor, "B K"]) -> Float[Tensor, "B K"]:
        """Σp − a(aᵀp)."""
        direction = self.direction()
        return self.base.matvec(vector) - direction * (direction * vector).sum(-1, keepdim=True)

    def sample(
        self, num_samples: int, generator: Generator | None = None
    ) -> Float[Tensor, "S B K"]:
        """Draws from Σ and takes out what the contrast explains of each draw."""
        draws = self.base.sample(num_samples, generator)
        deviation = standard_deviation(
            (self.contrast * self.base.matvec(self.contrast)).sum(-1, keepdim=True)
        )
        score = (draws * self.contrast).sum(-1, keepdim=True) / torch.where(
            deviation > 0, deviation, 1.0
        )
        return draws - score * self.direction()

    def centered(self) -> "Residual":
        """Centres Σ; centring does not change a contrast."""
        return Residual(self.base.centered(), self.contrast)

    def scaled(self, factor: Float[Tensor, " B"]) -> "Residual":
        """Scales Σ."""
        return Residual(self.base.scaled(factor), self.contrast)

    def to_dense(self) -> Float[Tensor, "B K K"]:
        """The matrices."""
        direction = self.direction()
        return self.base.to_dense() - direction.unsqueeze(-1) * direction.unsqueeze(-2)

    def to(self, target: torch.dtype | torch.device | str) -> "Residual":
        """Moves both parts."""
        return Residual(self.base.to(target), self.contrast.to(target))

    def problems(self) -> Iterator[tuple[str, Bool[Tensor, " B"]]]:
        """Those of Σ, and of the contrast."""
        yield from self.base.problems()
        yield from super().problems()

    def __getitem__(self, rows: int | slice | Tensor | Sequence[int]) -> "Residual":
        """The covariances of some rows."""
        return Residual(self.base[rows], self.contrast[rows_of(rows, len(self))])
