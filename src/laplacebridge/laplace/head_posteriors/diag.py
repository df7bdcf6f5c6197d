"""Independent weights."""

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from laplacebridge.covariance import Diagonal
from laplacebridge.covariance.base import standard_normal
from laplacebridge.laplace.curvature import Diag
from laplacebridge.laplace.head_posteriors.base import HeadPosterior


class DiagPosterior(HeadPosterior):
    """Independent weights, and so independent logits.

    Args:
        weight: The head's weights.
        bias: The head's bias or None.
        curvature: A `Diag`.
        prior_precision: τ > 0.

    Example:
        >>> curvature = Diag.of_batch(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5, 0.5]]))
        >>> posterior = DiagPosterior(torch.zeros(2, 2), None, curvature, prior_precision=1.0)
        >>> posterior(torch.tensor([[1.0, 0.0]])).covariance.to_dense()
        tensor([[[0.8000, 0.0000],
                 [0.0000, 0.8000]]])
    """

    curvature: Tensor

    def __init__(
        self, weight: Tensor, bias: Tensor | None, curvature: Diag, prior_precision: float
    ) -> None:
        super().__init__(weight, bias)
        self.register_buffer("curvature", curvature.diagonal)
        self._set_prior(prior_precision)

    def eigenvalues(self) -> Float[Tensor, "..."]:
        """The diagonal, shape (K, D)."""
        return self.curvature

    def _variances(self, dtype: torch.dtype = torch.float64) -> Tensor:
        # A sum of what is not negative is right in float32 too; in float64 it would
        # take twice the memory of the head.
        return self.curvature.to(dtype, copy=True).add_(self.prior_precision).reciprocal_()

    def covariance(self, features: Float[Tensor, "B D"]) -> Diagonal:
        """φ² / (H + τ)."""
        return Diagonal(features.square() @ self.variances.T)

    def in_eigenbasis(self, activations: Tensor, gradients: Tensor) -> tuple[Tensor, Tensor]:
        """As they are: weights themselves are independent."""
        return activations, gradients

    def variances_of_weights(self) -> Float[Tensor, "*groups K D"]:
        """Of each weight."""
        return self.variances

    def gradient_and_curvature(
        self,
        features: Float[Tensor, "N D"],
        residuals: Float[Tensor, "N K"],
        probabilities: Float[Tensor, "N K"],
    ) -> tuple[Tensor, Tensor]:
        """Along the weights themselves."""
        return residuals.T @ features, (probabilities * (1 - probabilities)).T @ features.square()

    def sample_weights(
        self, num_samples: int, generator: Generator | None = None
    ) -> Float[Tensor, "S *groups K D"]:
        """Independent draws."""
        deviations = self._variances().sqrt()
        noise = standard_normal(deviations, num_samples, *deviations.shape, generator=generator)
        return self.trained() + noise * deviations
