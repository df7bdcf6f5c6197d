"""Posterior: a Gaussian over the weights of the head, and through it over the logits of any features (Eq. 8).

One module per curvature. Each decomposes its curvature once, in float64, when it is built; a prior precision is then
only added to eigenvalues. What predictions need is kept as buffers in the type of the head.
"""

import copy
import math
from abc import abstractmethod

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from laplacebridge.checks import is_half, require_tensor
from laplacebridge.covariance import Covariance, Dense, Diagonal, SharedBasis
from laplacebridge.covariance.base import standard_normal
from laplacebridge.errors import ShapeError
from laplacebridge.gaussian import LogitGaussian
from laplacebridge.laplace.curvature import Diag, DiagKron, Full, Kron

# Eigenvalues of a sum of squares may come out below zero by so many roundings of the largest.
_ROUNDING_ERRORS = 100


class Posterior(nn.Module):
    """N(θ, (H + τI)⁻¹) over the weights θ of a linear head, H the curvature and τ the prior precision.

    A subclass registers what its curvature decomposes into, then calls `_set_prior`.

    Args:
        weight: The head's trained weights, shape (K, D).
        bias: The head's trained bias, shape (K,), or None.
    """

    weight: Tensor
    bias: Tensor | None
    prior_precision: Tensor
    variances: Tensor  # along the eigenvectors, in the type of the head

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        dtype = torch.float32 if is_half(weight.dtype) else weight.dtype
        self.register_buffer("weight", weight.detach().to(dtype, copy=True))
        self.register_buffer("bias", None if bias is None else bias.detach().to(dtype, copy=True))
        self.register_buffer("prior_precision", torch.ones((), dtype=torch.float64, device=weight.device))
        self.register_buffer("variances", None, persistent=False)

    @abstractmethod
    def eigenvalues(self) -> Float[Tensor, "..."]:
        """Eigenvalues of the curvature H in float64, one for every weight, in any shape."""

    @abstractmethod
    def covariance(self, features: Float[Tensor, "B D"]) -> Covariance:
        """Covariance of the logits at features that have the constant one for the bias."""

    @abstractmethod
    def sample_weights(self, num_samples: int, generator: Generator | None = None) -> Float[Tensor, "S K D"]:
        """Draws weights, the bias as last column if the head has one."""

    def forward(self, features: Float[Tensor, "B D"]) -> LogitGaussian:
        """The Gaussian over logits at some features.

        Args:
            features: Features φ as the network computes them, shape (B, D).

        Raises:
            ShapeError: If they are not of this head.
        """
        require_tensor("posterior(features)", features, "B D")
        if features.shape[1] != self.num_features:
            raise ShapeError(
                f"`posterior(features)` needs {self.num_features} features per example; got {tuple(features.shape)}. "
                "Give the input of the head that was fitted."
            )
        features = features.to(self.weight.dtype)
        mean = nn.functional.linear(features, self.weight, self.bias)
        return LogitGaussian(mean, self.covariance(features if self.bias is None else with_constant(features)))

    def with_prior(self, prior_precision: float) -> "Posterior":
        """The same curvature under another prior; nothing is fitted or decomposed again.

        Args:
            prior_precision: The new τ > 0.
        """
        other = copy.copy(self)
        other._buffers = dict(self._buffers)  # the large ones stay shared
        other._set_prior(prior_precision)
        return other

    @classmethod
    def from_buffers(cls, buffers: dict[str, Tensor]) -> "Posterior":
        """A posterior from its state, as `state_dict` gives it, without the curvature it was made of.

        Args:
            buffers: Tensors by name.
        """
        other = cls.__new__(cls)
        Posterior.__init__(other, buffers["weight"], buffers.get("bias"))
        for name, buffer in buffers.items():
            if name not in {"weight", "bias", "prior_precision"}:
                other.register_buffer(name, buffer)
        other._set_prior(float(buffers["prior_precision"]))
        return other

    @property
    def num_classes(self) -> int:
        """K."""
        return self.weight.shape[0]

    @property
    def num_features(self) -> int:
        """D, without the constant one for the bias."""
        return self.weight.shape[1]

    def log_evidence(self, log_likelihood: float) -> float:
        """Laplace's approximation of the log marginal likelihood.

        log p(y | θ) − ½ τ|θ|² − ½ [log det(H + τI) − log det(τI)], whose last term is what the data made certain.

        Args:
            log_likelihood: Sum of log p(y | x) over the examples of the curvature.
        """
        determinant = torch.log1p(self.eigenvalues() / self.prior_precision).sum()
        penalty = self.prior_precision * self._trained().square().sum()
        return float(log_likelihood - 0.5 * (penalty + determinant))

    def _set_prior(self, prior_precision: float) -> None:
        if not prior_precision > 0 or not math.isfinite(prior_precision):
            raise ValueError(
                f"A posterior needs a positive prior precision; got {prior_precision}. Without one the variance along "
                "directions that no example reached is infinite. 1.0 is a start."
            )
        self.prior_precision = torch.full_like(self.prior_precision, prior_precision)
        self.variances = self._variances().to(self.weight.dtype)

    def _variances(self) -> Tensor:
        """Posterior variances along the eigenvectors, in float64."""
        return 1 / (self.eigenvalues() + self.prior_precision)

    def _trained(self) -> Tensor:
        weight = self.weight.double()
        return weight if self.bias is None else torch.cat([weight, self.bias.double().unsqueeze(-1)], -1)


def with_constant(features: Float[Tensor, "B D"]) -> Float[Tensor, "B E"]:
    """Appends the constant one, whose weight is the bias."""
    return torch.cat([features, features.new_ones(len(features), 1)], -1)


def _eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, not negative, and vectors of a sum of outer products.

    Raises:
        ValueError: If it is not one.
    """
    values, vectors = torch.linalg.eigh(matrix)
    if values[0] < -_ROUNDING_ERRORS * torch.finfo(values.dtype).eps * values[-1].abs():
        raise ValueError(
            f"A curvature is a sum of squares, but this one has the eigenvalue {values[0].item():.3g}. Was it read "
            "from a damaged file?"
        )
    return values.clamp_min(0), vectors


class DiagPosterior(Posterior):
    """Independent weights, and so independent logits.

    Args:
        weight: The head's weights.
        bias: The head's bias or None.
        curvature: A `Diag`.
        prior_precision: τ > 0.
    """

    curvature: Tensor

    def __init__(self, weight: Tensor, bias: Tensor | None, curvature: Diag, prior_precision: float) -> None:
        super().__init__(weight, bias)
        self.register_buffer("curvature", curvature.diagonal)
        self._set_prior(prior_precision)

    def eigenvalues(self) -> Float[Tensor, "..."]:
        """The diagonal, shape (K, D)."""
        return self.curvature

    def covariance(self, features: Float[Tensor, "B D"]) -> Diagonal:
        """φ² / (H + τ)."""
        return Diagonal(features.square() @ self.variances.T)

    def sample_weights(self, num_samples: int, generator: Generator | None = None) -> Float[Tensor, "S K D"]:
        """Independent draws."""
        deviations = self._variances().sqrt()
        noise = standard_normal(deviations, num_samples, *deviations.shape, generator=generator)
        return self._trained() + noise * deviations


class KronPosterior(Posterior):
    """Kronecker-factored weights; the covariance of the logits is a `SharedBasis`. The prior is added exactly.

    Args:
        weight: The head's weights.
        bias: The head's bias or None.
        curvature: A `Kron`.
        prior_precision: τ > 0.
    """

    feature_values: Tensor
    feature_basis: Tensor
    class_values: Tensor
    class_basis: Tensor

    def __init__(self, weight: Tensor, bias: Tensor | None, curvature: Kron, prior_precision: float) -> None:
        super().__init__(weight, bias)
        root = curvature.num_examples.clamp_min(1).sqrt()  # each factor carries half of the division by N
        for name, factor in (("feature", curvature.feature_factor), ("class", curvature.class_factor)):
            values, vectors = _eigh(factor / root)
            self.register_buffer(f"{name}_values", values)
            self.register_buffer(f"{name}_basis", vectors.to(self.weight.dtype))
        self._set_prior(prior_precision)

    def eigenvalues(self) -> Float[Tensor, "..."]:
        """Products of the factors' eigenvalues, shape (D, K)."""
        return self.feature_values.unsqueeze(-1) * self.class_values

    def covariance(self, features: Float[Tensor, "B D"]) -> SharedBasis:
        """(φ Q_A)² / (λ_A λ_B + τ) on the basis Q_B."""
        return SharedBasis((features @ self.feature_basis).square() @ self.variances, self.class_basis)

    def sample_weights(self, num_samples: int, generator: Generator | None = None) -> Float[Tensor, "S K D"]:
        """Draws in the eigenbasis, turned back."""
        deviations = self._variances().T.sqrt()  # (K, D)
        noise = standard_normal(deviations, num_samples, *deviations.shape, generator=generator)
        return self._trained() + self.class_basis.double() @ (noise * deviations) @ self.feature_basis.double().T


class MatrixNormalPosterior(KronPosterior):
    """The paper's Kronecker posterior: the prior damps the factors, and the weights are matrix-normal.

    Σ = (φᵀVφ) U with V = (A/√N + √τ I)⁻¹ and U = (G/√N + √τ I)⁻¹. Adds cross terms to the exact H + τI.
    """

    def _variances(self) -> Tensor:
        root = self.prior_precision.sqrt()
        return 1 / ((self.feature_values + root).unsqueeze(-1) * (self.class_values + root))


class DiagKronPosterior(Posterior):
    """Independent classes, each with the same dense feature factor scaled by its own curvature.

    Args:
        weight: The head's weights.
        bias: The head's bias or None.
        curvature: A `DiagKron`.
        prior_precision: τ > 0.
    """

    feature_values: Tensor
    feature_basis: Tensor
    class_values: Tensor

    def __init__(self, weight: Tensor, bias: Tensor | None, curvature: DiagKron, prior_precision: float) -> None:
        super().__init__(weight, bias)
        values, vectors = _eigh(curvature.feature_factor / curvature.num_examples.clamp_min(1))
        self.register_buffer("feature_values", values)
        self.register_buffer("feature_basis", vectors.to(self.weight.dtype))
        self.register_buffer("class_values", curvature.class_factor)
        self._set_prior(prior_precision)

    def eigenvalues(self) -> Float[Tensor, "..."]:
        """Products, shape (D, K)."""
        return self.feature_values.unsqueeze(-1) * self.class_values

    def covariance(self, features: Float[Tensor, "B D"]) -> Diagonal:
        """(φ Q_A)² / (λ_A g + τ): one product of (B, D) by (D, K), the cost of the logits themselves."""
        return Diagonal((features @ self.feature_basis).square() @ self.variances)

    def sample_weights(self, num_samples: int, generator: Generator | None = None) -> Float[Tensor, "S K D"]:
        """Draws in the eigenbasis of the features, turned back."""
        deviations = self._variances().T.sqrt()  # (K, D)
        noise = standard_normal(deviations, num_samples, *deviations.shape, generator=generator)
        return self._trained() + (noise * deviations) @ self.feature_basis.double().T


class FullPosterior(Posterior):
    """All weights correlated; the covariance of the logits is `Dense`.

    Args:
        weight: The head's weights.
        bias: The head's bias or None.
        curvature: A `Full`.
        prior_precision: τ > 0.
    """

    values: Tensor
    vectors: Tensor

    def __init__(self, weight: Tensor, bias: Tensor | None, curvature: Full, prior_precision: float) -> None:
        super().__init__(weight, bias)
        values, vectors = _eigh(curvature.matrix)
        self.register_buffer("values", values)
        self.register_buffer("vectors", vectors.view(len(weight), -1, len(values)).to(self.weight.dtype))  # (K, D, P)
        self._set_prior(prior_precision)

    def eigenvalues(self) -> Float[Tensor, "..."]:
        """The eigenvalues, shape (P,)."""
        return self.values

    def covariance(self, features: Float[Tensor, "B D"]) -> Dense:
        """J (H + τI)⁻¹ Jᵀ with J = φᵀ ⊗ I, through the eigenvectors."""
        factor = torch.einsum("bd,kdp->bkp", features, self.vectors)
        return Dense((factor * self.variances) @ factor.mT)

    def sample_weights(self, num_samples: int, generator: Generator | None = None) -> Float[Tensor, "S K D"]:
        """Draws along the eigenvectors."""
        deviations = self._variances().sqrt()
        noise = standard_normal(deviations, num_samples, len(deviations), generator=generator)
        return self._trained() + torch.einsum("kdp,sp->skd", self.vectors.double(), noise * deviations)
