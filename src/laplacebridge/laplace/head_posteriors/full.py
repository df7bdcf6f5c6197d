"""All weights correlated."""

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from laplacebridge.covariance import Dense
from laplacebridge.covariance.base import standard_normal
from laplacebridge.laplace.curvature import Full
from laplacebridge.laplace.head_posteriors.base import HeadPosterior, eigenvectors_of


class FullPosterior(HeadPosterior):
    """All weights correlated; the covariance of the logits is `Dense`.

    Args:
        weight: The head's weights.
        bias: The head's bias or None.
        curvature: A `Full`.
        prior_precision: τ > 0.

    Example:
        >>> curvature = Full.of_batch(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5, 0.5]]))
        >>> posterior = FullPosterior(torch.zeros(2, 2), None, curvature, prior_precision=1.0)
        >>> posterior(torch.tensor([[1.0, 0.0]])).covariance.to_dense()
        tensor([[[0.9286, 0.0714],
                 [0.0714, 0.9286]]])
    """

    values: Tensor
    vectors: Tensor

    def __init__(
        self, weight: Tensor, bias: Tensor | None, curvature: Full, prior_precision: float
    ) -> None:
        super().__init__(weight, bias)
        values, vectors = eigenvectors_of(curvature.matrix)
        self.register_buffer("values", values)
        self.register_buffer(
            "vectors", vectors.view(len(weight), -1, len(values)).to(self.weight.dtype)
        )  # (K, D, P)
        self._set_prior(prior_precision)

    def eigenvalues(self) -> Float[Tensor, "..."]:
        """The eigenvalues, shape (P,)."""
        return self.values

    def covariance(self, features: Float[Tensor, "B D"]) -> Dense:
        """J (H + τI)⁻¹ Jᵀ with J = φᵀ ⊗ I, through the eigenvectors."""
        factor = torch.einsum("bd,kdp->bkp", features, self.vectors)
        return Dense((factor * self.variances) @ factor.mT)

    def gradient_and_curvature(
        self,
        features: Float[Tensor, "N D"],
        residuals: Float[Tensor, "N K"],
        probabilities: Float[Tensor, "N K"],
    ) -> tuple[Tensor, Tensor]:
        """Along the eigenvectors, example by example."""
        vectors = self.vectors.double()
        gradient, curvature = (
            vectors.new_zeros(len(self.values)),
            vectors.new_zeros(len(self.values)),
        )
        for feature, residual, probability in zip(features, residuals, probabilities):
            along = torch.einsum("d,kdp->kp", feature, vectors)  # what each logit changes by
            gradient += residual @ along
            curvature += probability @ along.square() - (probability @ along).square()
        return gradient, curvature

    def sample_weights(
        self, num_samples: int, generator: Generator | None = None
    ) -> Float[Tensor, "S *groups K D"]:
        """Draws along the eigenvectors."""
        deviations = self._variances().sqrt()
        noise = standard_normal(deviations, num_samples, len(deviations), generator=generator)
        return self.trained() + torch.einsum(
            "kdp,sp->skd", self.vectors.double(), noise * deviations
        )
