"""Independent classes over a common feature factor."""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from laplacebridge import _blocks
from laplacebridge.covariance import Diagonal
from laplacebridge.covariance.base import standard_normal
from laplacebridge.laplace.curvature import DiagKron
from laplacebridge.laplace.head_posteriors.base import HeadPosterior, eigenvectors_of


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
        values, vectors = eigenvectors_of(curvature.feature_factor / curvature.number)
        self.register_buffer("feature_values", values)
        self.register_buffer("feature_basis", vectors.to(self.weight.dtype))
        self.register_buffer("class_values", curvature.class_factor)
        self._set_prior(prior_precision)

    def eigenvalues(self) -> Float[Tensor, "..."]:
        """Products, shape (D, K)."""
        return self.feature_values.unsqueeze(-1) * self.class_values

    def _variances(self, dtype: torch.dtype = torch.float64) -> Tensor:
        found = self.feature_values.new_empty(
            len(self.feature_values), len(self.class_values), dtype=dtype
        )
        for some in self._classes():
            precision = self.feature_values.unsqueeze(-1) * self.class_values[some]
            found[:, some] = precision.add_(self.prior_precision).reciprocal_().to(dtype)
        return found

    def _log_determinant(self, precision: Tensor | float) -> Tensor:
        ratios = self.feature_values.unsqueeze(-1) / precision
        parts = [torch.log1p(ratios * self.class_values[some]).sum() for some in self._classes()]
        return torch.stack(parts).sum()

    def _squared_norm(self) -> Tensor:
        parts = [self.weight[some].double().square().sum() for some in self._classes()]
        if self.bias is not None:
            parts.append(self.bias.double().square().sum())
        return torch.stack(parts).sum()

    def _classes(self) -> Iterator[slice]:
        """Some classes at a time: a table for all of a vocabulary in float64 would take
        more than everything else.
        """
        size = max(1, _blocks.ELEMENTS_AT_ONCE // len(self.feature_values))
        for start in range(0, len(self.class_values), size):
            yield slice(start, start + size)

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
