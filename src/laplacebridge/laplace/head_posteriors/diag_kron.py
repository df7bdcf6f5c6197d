"""Independent classes over a common feature factor.

A class enters its variances by one number g alone, its curvature: that of features φ is
Σ_d φ_d²/(λ_d g + τ), the same smooth function of g for every class. So the table of D ×
K variances need not be kept for vocabularies: the function is computed at some hundred
values of g, and interpolated at those of the classes.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from laplacebridge import _blocks
from laplacebridge.covariance import Diagonal
from laplacebridge.covariance.base import standard_normal
from laplacebridge.laplace.curvature import DiagKron
from laplacebridge.laplace.head_posteriors.base import HeadPosterior, eigenvectors_of
from laplacebridge.laplace.posterior import Posterior

# Numbers in the table of variances above which it is not kept: 64 MB in float32.
LARGEST_TABLE = 2**24
# Values of log g at which variances are computed then; cubic interpolation between them
# errs by some 1e-5 of the variance (tests/laplace/test_large_vocabulary.py).
NODES = 256
# Below this share of the prior precision a curvature changes no variance.
NEGLIGIBLE = 1e-9


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
    # where the table is not kept: variances at the nodes, shape (D, nodes), and of each
    # class the first of its four nodes and their weights
    at_nodes: Tensor
    first_nodes: Tensor
    node_weights: Tensor

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
        squares = (features @ self.feature_basis).square()
        if self.keeps_table:
            return Diagonal(squares @ self.variances)
        values = squares @ self.at_nodes
        found = values.index_select(1, self.first_nodes) * self.node_weights[0]
        for place in range(1, len(self.node_weights)):
            nodes = values.index_select(1, self.first_nodes + place)
            found.addcmul_(nodes, self.node_weights[place])
        return Diagonal(found)

    @property
    def keeps_table(self) -> bool:
        """Whether the variances of all weights are kept, or computed as they are
        needed.
        """
        return len(self.feature_values) * len(self.class_values) <= LARGEST_TABLE

    def all_variances(self, dtype: torch.dtype = torch.float64) -> Tensor:
        """Posterior variances along the eigenvectors, whether they are kept or not.

        Args:
            dtype: Their type.
        """
        return super().all_variances(dtype) if self.keeps_table else self._variances(dtype)

    def _set_prior(self, prior_precision: float) -> None:
        if self.keeps_table:
            super()._set_prior(prior_precision)
            return
        Posterior._set_prior(self, prior_precision)
        largest, prior = float(self.feature_values.max()), float(self.prior_precision)
        lowest = NEGLIGIBLE * prior / max(largest, torch.finfo(torch.float64).tiny)
        curvatures = self.class_values.clamp_min(lowest).log()
        start, end = float(curvatures.min()), float(curvatures.max())
        step = max(end - start, 1.0) / (NODES - 3)
        # one node before the first class and one after the last, for cubics there
        nodes = (start + step * (torch.arange(NODES, device=curvatures.device) - 1.0)).exp()
        at_nodes = 1 / (self.feature_values.unsqueeze(-1) * nodes + prior)
        place = (curvatures - start) / step + 1
        first = (place.floor() - 1).clamp(0, NODES - 4)
        t = place - first - 1
        weights = torch.stack(
            [
                -t * (t - 1) * (t - 2) / 6,
                (t + 1) * (t - 1) * (t - 2) / 2,
                -(t + 1) * t * (t - 2) / 2,
                (t + 1) * t * (t - 1) / 6,
            ]
        )
        dtype = self.weight.dtype
        for name, tensor in (
            ("at_nodes", at_nodes.to(dtype)),
            ("first_nodes", first.long()),
            ("node_weights", weights.to(dtype)),
        ):
            self.register_buffer(name, tensor, persistent=False)

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
