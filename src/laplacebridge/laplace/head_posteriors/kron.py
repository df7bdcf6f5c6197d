"""Kronecker-factored weights."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from laplacebridge.bridges.precision import MANY_CLASSES
from laplacebridge.covariance import SharedBasis
from laplacebridge.covariance.base import standard_normal
from laplacebridge.laplace.curvature import Kron
from laplacebridge.laplace.head_posteriors.base import HeadPosterior, eigenvectors_of


class KronPosterior(HeadPosterior):
    """Kronecker-factored weights; the covariance of the logits is a `SharedBasis`. The
    prior is added exactly.

    Args:
        weight: The head's weights.
        bias: The head's bias or None.
        curvature: A `Kron`.
        prior_precision: τ > 0.

    Example:
        >>> curvature = Kron.of_batch(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5, 0.5]]))
        >>> posterior = KronPosterior(torch.zeros(2, 2), None, curvature, prior_precision=1.0)
        >>> posterior(torch.tensor([[1.0, 0.0]])).covariance.to_dense()
        tensor([[[0.9286, 0.0714],
                 [0.0714, 0.9286]]])
    """

    feature_values: Tensor
    feature_basis: Tensor
    class_values: Tensor
    class_basis: Tensor
    _covariance: SharedBasis | None = None  # without examples

    def __init__(
        self, weight: Tensor, bias: Tensor | None, curvature: Kron, prior_precision: float
    ) -> None:
        super().__init__(weight, bias)
        # each factor carries half of the division by N
        root = curvature.number.sqrt()
        for name, factor in (
            ("feature", curvature.feature_factor),
            ("class", curvature.class_factor),
        ):
            values, vectors = eigenvectors_of(factor / root)
            self.register_buffer(f"{name}_values", values)
            self.register_buffer(f"{name}_basis", vectors.to(self.weight.dtype))
        self._set_prior(prior_precision)

    def eigenvalues(self) -> Float[Tensor, "..."]:
        """Products of the factors' eigenvalues, shape (D, K)."""
        return self.feature_values.unsqueeze(-1) * self.class_values.unsqueeze(-2)

    def covariance(self, features: Float[Tensor, "B D"]) -> SharedBasis:
        """(φ Q_A)² / (λ_A λ_B + τ) on the basis Q_B."""
        weights = (features @ self.feature_basis).square() @ self.variances
        if self._covariance is None or self._covariance.basis is not self.class_basis:
            none = self.class_basis.new_empty(0, self.class_basis.shape[1])
            self._covariance = SharedBasis(none, self.class_basis)
        # so that what follows from the basis is computed once
        return self._covariance.with_weights(weights)

    def _plus_identity(self, covariance: SharedBasis, variance: Tensor) -> SharedBasis:
        """The basis is orthonormal and complete, so that the identity has weight one in
        every direction.
        """
        return covariance.with_weights(covariance.weights + variance.unsqueeze(-1))

    def _plus_square(self, covariance: SharedBasis, along: Float[Tensor, "B K"]) -> SharedBasis:
        """The diagonal of aaᵀ in this basis; aaᵀ itself beside it where products with
        the basis are dear.
        """
        if self.num_classes >= MANY_CLASSES:
            return covariance.plus_square(along)
        return covariance.with_weights(covariance.weights + (along @ self.class_basis).square())

    def _load_from_state_dict(self, *arguments: Any, **keywords: Any) -> None:  # noqa: ANN401
        self._covariance = None  # another basis may be copied into the place of this one
        super()._load_from_state_dict(*arguments, **keywords)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_covariance": None}  # type: ignore[no-untyped-call]

    def in_eigenbasis(self, activations: Tensor, gradients: Tensor) -> tuple[Tensor, Tensor]:
        """What a layer takes in and what the logits change by with what it gives out,
        turned into the eigenvectors.

        Args:
            activations: Shape (B, G, R, D), for G groups and R positions.
            gradients: Shape (B, G, S, K, R), for S logits.
        """
        # not as broadcast products, for which torch copies the basis once per example
        return (
            torch.einsum("bgrd,gde->bgre", activations, self.feature_basis),
            torch.einsum("bgskr,gkl->bgslr", gradients, self.class_basis),
        )

    def variances_of_weights(self) -> Float[Tensor, "*groups K D"]:
        """Of each weight, seen along the eigenvectors."""
        return self.variances.mT

    def gradient_and_curvature(
        self,
        features: Float[Tensor, "N D"],
        residuals: Float[Tensor, "N K"],
        probabilities: Float[Tensor, "N K"],
    ) -> tuple[Tensor, Tensor]:
        """Along products of the eigenvectors of both factors."""
        turned, basis = features @ self.feature_basis.double(), self.class_basis.double()
        spread = probabilities @ basis.square() - (probabilities @ basis).square()
        return turned.T @ (residuals @ basis), turned.square().T @ spread

    def sample_weights(
        self, num_samples: int, generator: Generator | None = None
    ) -> Float[Tensor, "S *groups K D"]:
        """Draws in the eigenbasis, turned back."""
        deviations = self._variances().mT.sqrt()  # (K, D)
        noise = standard_normal(deviations, num_samples, *deviations.shape, generator=generator)
        return (
            self.trained()
            + self.class_basis.double() @ (noise * deviations) @ self.feature_basis.double().mT
        )


class MatrixNormalPosterior(KronPosterior):
    """The paper's Kronecker posterior: the prior damps the factors, and the weights are
    matrix-normal.

    Σ = (φᵀVφ) U with V = (A/√N + √τ I)⁻¹ and U = (G/√N + √τ I)⁻¹. Adds cross terms to
    the exact H + τI.

    Example:
        >>> curvature = Kron.of_batch(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5, 0.5]]))
        >>> posterior = MatrixNormalPosterior(
        ...     torch.zeros(2, 2), None, curvature, prior_precision=1.0
        ... )
        >>> posterior(torch.tensor([[1.0, 0.0]])).covariance.to_dense()
        tensor([[[0.6944, 0.1389],
                 [0.1389, 0.6944]]])
    """

    def _variances(self, dtype: torch.dtype = torch.float64) -> Tensor:
        root = self.prior_precision.sqrt()
        precisions = (self.feature_values + root).unsqueeze(-1) * (
            self.class_values + root
        ).unsqueeze(-2)
        return precisions.reciprocal_().to(dtype)
