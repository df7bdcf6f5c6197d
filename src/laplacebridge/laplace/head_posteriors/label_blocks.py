"""Several labels at once: a logistic regression for each, on the same features.

Labels whose losses add have no curvature in common: the Hessian is a block for each
label, exactly.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from laplacebridge.covariance import Diagonal
from laplacebridge.covariance.base import standard_normal
from laplacebridge.laplace.curvature import Curvature, counted
from laplacebridge.laplace.head_posteriors.base import HeadPosterior, eigenvectors_of


@dataclass(frozen=True, eq=False)
class LabelBlocks(Curvature):
    """The Hessian of K logistic regressions: Σ p_k(1 − p_k) φφᵀ for each label.

    Attributes:
        blocks: Shape (K, D, D).

    Example:
        >>> features, curvatures = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.25, 0.1]])
        >>> LabelBlocks.of_labels(features, curvatures).blocks[1]
        tensor([[0.1000, 0.2000],
                [0.2000, 0.4000]], dtype=torch.float64)
    """

    blocks: Float[Tensor, "K D D"]

    @classmethod
    def of_batch(
        cls, features: Tensor, probabilities: Tensor, weights: Tensor | None = None
    ) -> "LabelBlocks":
        """Blocks of probabilities that are each of a label, and need not add up to one."""
        exact = probabilities.double()
        spread = exact * (1 - exact)
        return cls.of_labels(
            features, spread if weights is None else spread * weights.unsqueeze(-1), weights
        )

    @classmethod
    def of_labels(
        cls, features: Tensor, curvatures: Tensor, weights: Tensor | None = None
    ) -> "LabelBlocks":
        """One product for each label."""
        count, _ = counted(features, weights)
        rows = features.double()
        blocks = [(rows * column.unsqueeze(-1)).T @ rows for column in curvatures.double().T]
        return cls(count, torch.stack(blocks))

    @staticmethod
    def num_numbers(num_features: int, num_classes: int) -> int:
        """K·D²."""
        return num_classes * num_features**2


class LabelBlocksPosterior(HeadPosterior):
    """Independent labels, each with all its weights correlated.

    Args:
        weight: The head's weights.
        bias: The head's bias or None.
        curvature: A `LabelBlocks`.
        prior_precision: τ > 0.

    Example:
        >>> curvature = LabelBlocks.of_labels(
        ...     torch.tensor([[1.0, 2.0]]), torch.tensor([[0.25, 0.1]])
        ... )
        >>> posterior = LabelBlocksPosterior(
        ...     torch.zeros(2, 2), None, curvature, prior_precision=1.0
        ... )
        >>> posterior(torch.tensor([[1.0, 0.0]])).covariance.to_dense()
        tensor([[[0.8889, 0.0000],
                 [0.0000, 0.9333]]])
    """

    values: Tensor
    vectors: Tensor

    def __init__(
        self, weight: Tensor, bias: Tensor | None, curvature: LabelBlocks, prior_precision: float
    ) -> None:
        super().__init__(weight, bias)
        values, vectors = eigenvectors_of(curvature.blocks)
        self.register_buffer("values", values)
        self.register_buffer("vectors", vectors.to(self.weight.dtype))
        self._set_prior(prior_precision)

    def eigenvalues(self) -> Float[Tensor, "..."]:
        """Of each label's block, shape (K, D)."""
        return self.values

    def covariance(self, features: Float[Tensor, "B D"]) -> Diagonal:
        """φᵀ(H_k + τ)⁻¹φ for each label."""
        turned = torch.einsum("bd,kde->bke", features, self.vectors)
        return Diagonal((turned.square() * self.variances).sum(-1))

    def gradient_and_curvature(
        self,
        features: Float[Tensor, "N D"],
        residuals: Float[Tensor, "N K"],
        probabilities: Float[Tensor, "N K"],
    ) -> tuple[Tensor, Tensor]:
        """Along the eigenvectors of each label."""
        gradient, curvature = torch.empty_like(self.values), torch.empty_like(self.values)
        spread = probabilities * (1 - probabilities)
        for label, vectors in enumerate(self.vectors.double()):
            turned = features @ vectors
            gradient[label] = residuals[:, label] @ turned
            curvature[label] = spread[:, label] @ turned.square()
        return gradient, curvature

    def sample_weights(
        self, num_samples: int, generator: Generator | None = None
    ) -> Float[Tensor, "S *groups K D"]:
        """Draws along the eigenvectors of each label."""
        deviations = self._variances().sqrt()
        noise = standard_normal(deviations, num_samples, *deviations.shape, generator=generator)
        along = torch.einsum("kde,ske->skd", self.vectors.double(), noise * deviations)
        return self.trained() + along
