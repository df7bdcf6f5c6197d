"""One posterior per curvature.

Each decomposes its curvature once, in float64, when it is built; a prior precision is
then only added to eigenvalues. What predictions need is kept as buffers in the type of
the head.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from laplacebridge.covariance import Dense, Diagonal, SharedBasis
from laplacebridge.covariance.base import standard_normal
from laplacebridge.errors import InputError
from laplacebridge.laplace.curvature import Curvature, Diag, DiagKron, Full, Kron
from laplacebridge.laplace.posterior import HeadPosterior

# Eigenvalues of a sum of squares may come out below zero by so many roundings of the
# largest.
_ROUNDING_ERRORS = 100


def _eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, not negative, and vectors of a sum of outer products.

    Raises:
        InputError: If it is not one.
    """
    values, vectors = torch.linalg.eigh(matrix)
    lowest, highest = values[..., 0], values[..., -1]
    if (lowest < -_ROUNDING_ERRORS * torch.finfo(values.dtype).eps * highest.abs()).any():
        raise InputError(
            "A curvature is a sum of squares, but this one has the eigenvalue"
            f" {lowest.min().item():.3g}. Was it read from a damaged file?"
        )
    # laid out as in a file: products round by the layout of their factors
    return values.clamp_min(0), vectors.contiguous()


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
        root = curvature.num_examples.clamp_min(
            1
        ).sqrt()  # each factor carries half of the division by N
        for name, factor in (
            ("feature", curvature.feature_factor),
            ("class", curvature.class_factor),
        ):
            values, vectors = _eigh(factor / root)
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
        return replace(
            self._covariance, weights=weights
        )  # so that what follows from the basis is computed once

    def _plus_identity(self, covariance: SharedBasis, variance: Tensor) -> SharedBasis:
        """The basis is orthonormal and complete, so that the identity has weight one in
        every direction.
        """
        return replace(covariance, weights=covariance.weights + variance.unsqueeze(-1))

    def _plus_square(self, covariance: SharedBasis, along: Float[Tensor, "B K"]) -> SharedBasis:
        """The diagonal of aaᵀ in this basis."""
        return replace(covariance, weights=covariance.weights + (along @ self.class_basis).square())

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
        >>> posterior = MatrixNormalPosterior(torch.zeros(2, 2), None, curvature, prior_precision=1.0)
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


class DiagKronPosterior(HeadPosterior):
    """Independent classes, each with the same dense feature factor scaled by its own
    curvature.

    Args:
        weight: The head's weights.
        bias: The head's bias or None.
        curvature: A `DiagKron`.
        prior_precision: τ > 0.

    Example:
        >>> curvature = DiagKron.of_batch(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5, 0.5]]))
        >>> posterior = DiagKronPosterior(torch.zeros(2, 2), None, curvature, prior_precision=1.0)
        >>> posterior(torch.tensor([[1.0, 0.0]])).covariance.to_dense()
        tensor([[[0.8889, 0.0000],
                 [0.0000, 0.8889]]])
    """

    feature_values: Tensor
    feature_basis: Tensor
    class_values: Tensor

    def __init__(
        self, weight: Tensor, bias: Tensor | None, curvature: DiagKron, prior_precision: float
    ) -> None:
        super().__init__(weight, bias)
        values, vectors = _eigh(curvature.feature_factor / curvature.num_examples.clamp_min(1))
        self.register_buffer("feature_values", values)
        self.register_buffer("feature_basis", vectors.to(self.weight.dtype))
        self.register_buffer("class_values", curvature.class_factor)
        self._set_prior(prior_precision)

    def eigenvalues(self) -> Float[Tensor, "..."]:
        """Products, shape (D, K)."""
        return self.feature_values.unsqueeze(-1) * self.class_values

    def _variances(self, dtype: torch.dtype = torch.float64) -> Tensor:
        return (
            self.eigenvalues().add_(self.prior_precision).reciprocal_().to(dtype)
        )  # in place, for 100 000 classes

    def covariance(self, features: Float[Tensor, "B D"]) -> Diagonal:
        """(φ Q_A)² / (λ_A g + τ): one product of (B, D) by (D, K), the cost of the
        logits themselves.
        """
        return Diagonal((features @ self.feature_basis).square() @ self.variances)

    def gradient_and_curvature(
        self,
        features: Float[Tensor, "N D"],
        residuals: Float[Tensor, "N K"],
        probabilities: Float[Tensor, "N K"],
    ) -> tuple[Tensor, Tensor]:
        """Along the eigenvectors of the features, class by class."""
        turned = features @ self.feature_basis.double()
        return turned.T @ residuals, turned.square().T @ (probabilities * (1 - probabilities))

    def sample_weights(
        self, num_samples: int, generator: Generator | None = None
    ) -> Float[Tensor, "S *groups K D"]:
        """Draws in the eigenbasis of the features, turned back."""
        deviations = self._variances().T.sqrt()  # (K, D)
        noise = standard_normal(deviations, num_samples, *deviations.shape, generator=generator)
        return self.trained() + (noise * deviations) @ self.feature_basis.double().T


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
        values, vectors = _eigh(curvature.matrix)
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


# the usual posterior of each curvature
POSTERIORS: dict[type[Curvature], Callable[..., HeadPosterior]] = {
    Diag: DiagPosterior,
    Kron: KronPosterior,
    DiagKron: DiagKronPosterior,
    Full: FullPosterior,
}
