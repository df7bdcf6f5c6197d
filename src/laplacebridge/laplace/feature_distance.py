"""How far features are from those of the training data: Mahalanobis distances to the
nearest class, from sums of the fit.

The within-class covariance S of features divided by their deviations is shrunk towards
a multiple of the identity, (1 − ρ) S + ρ tr(S)/D · I with ρ = D/(D + N), so that it can
be inverted however few examples there are.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

# Variance of a feature, relative to its mean square, that is rounding.
ROUNDING = 1e-9
SMALLEST_SHRINKAGE = 1e-5
# A distance below this share of the usual one says no more than that it is small.
SMALLEST_SHARE = 1e-3
# Features beyond this are divided before they are multiplied.
FAR = 1e10


class FeatureDistance(nn.Module):
    """Squared Mahalanobis distances to the nearest class mean.

    Args:
        center: A point among the data, shape (D,).
        whitening: W with W Wᵀ the inverse of the shrunk covariance, shape (D, D).
        means: Class means minus the center, whitened; shape (G, D).
        expected: Mean and deviation of log d² for data that are Gaussian within
            classes.

    Example:
        >>> from laplacebridge.laplace.feature_statistics import FeatureStatistics
        >>> features = torch.tensor([[0.0, 1.0], [0.0, -1.0], [9.0, 1.0], [9.0, -1.0]])
        >>> sums = FeatureStatistics.of_batch(
        ...     features, torch.zeros(4, 2), torch.tensor([0, 0, 1, 1])
        ... )
        >>> distance = FeatureDistance.of_sums(sums.class_counts, sums.class_sums, sums.squares)
        >>> near, far = distance(torch.tensor([[9.0, 1.0], [4.5, 0.0]]))
        >>> bool(near < far)
        True
    """

    center: Tensor
    whitening: Tensor
    means: Tensor
    expected: Tensor

    def __init__(self, center: Tensor, whitening: Tensor, means: Tensor, expected: Tensor) -> None:
        super().__init__()
        for name, tensor in (
            ("center", center),
            ("whitening", whitening),
            ("means", means),
            ("expected", expected),
        ):
            self.register_buffer(name, tensor)

    @classmethod
    def of_sums(
        cls,
        counts: Float[Tensor, " K"],
        sums: Float[Tensor, "K D"],
        squares: Float[Tensor, "D D"],
        dtype: torch.dtype = torch.float32,
    ) -> "FeatureDistance":
        """Distances from the sums of a fit.

        The mean of a class with a single example would be that example. Such classes
        share one mean; a lone one is left out.

        Args:
            counts: Examples of each class, in float64 like the others.
            sums: Sums of their features.
            squares: Σφφᵀ over all of them.
            dtype: Of the distances.
        """
        single = counts == 1
        num_single = int(single.sum())
        lone = sums[single] if num_single == 1 else sums[:0]
        squares = squares - lone.T @ lone
        own = counts > 1
        pooled = num_single > 1
        group_counts = torch.cat([counts[own], counts[single].sum().reshape(1)[:pooled]])
        group_sums = torch.cat([sums[own], sums[single].sum(0, keepdim=True)[:pooled]])
        if not len(group_counts):  # nothing that is not a single example
            group_counts, group_sums = counts.new_ones(1), torch.zeros_like(sums[:1])
        means = group_sums / group_counts.unsqueeze(-1)
        freedom = max(1.0, float(group_counts.sum()) - len(means))
        within = (squares - group_sums.T @ means) / freedom
        num_features = len(within)
        variances = within.diagonal()
        constant = variances <= ROUNDING * squares.diagonal() / freedom
        usual = float(variances[~constant].mean()) if not bool(constant.all()) else 1.0
        deviations = torch.where(constant, usual, variances).sqrt()
        correlation = within / deviations / deviations.unsqueeze(-1)
        correlation = torch.where(
            constant | constant.unsqueeze(-1), torch.zeros_like(correlation), correlation
        )
        shrinkage = max(num_features / (num_features + freedom), SMALLEST_SHRINKAGE)
        level = float(correlation.diagonal().mean()) or 1.0
        shrunk = (1 - shrinkage) * correlation
        shrunk.diagonal().add_(shrinkage * level)
        root = torch.linalg.cholesky(shrunk)
        identity = torch.eye(num_features, dtype=root.dtype, device=root.device)
        whitening = torch.linalg.solve_triangular(root, identity, upper=False).T
        whitening = whitening / deviations.unsqueeze(-1)
        center = means.mean(0)
        return cls(
            center.to(dtype),
            whitening.to(dtype),
            ((means - center) @ whitening).to(dtype),
            _of_log_square(whitening.T @ within @ whitening).to(dtype),
        )

    @property
    def num_features(self) -> int:
        """D."""
        return self.whitening.shape[0]

    def forward(self, features: Float[Tensor, "B D"]) -> Float[Tensor, " B"]:
        """log d² of each row; finite for all finite features.

        Args:
            features: As they were summed.
        """
        apart = features.to(self.whitening.dtype) - self.center
        # products and squares of what is far leave the range of float32 before it does
        far = (apart.abs().amax(-1, keepdim=True) / FAR).clamp_min(1.0)
        places = (apart / far) @ self.whitening
        scale = places.abs().amax(-1, keepdim=True).clamp_min(1.0)
        places, scale, means = places / scale, scale * far, self.means
        across = places @ means.T / scale
        squares = means.square().sum(-1) / scale / scale - 2 * across
        nearest = squares.amin(-1) + places.square().sum(-1)
        least = (SMALLEST_SHARE * len(self.whitening) / scale / scale).squeeze(-1)
        return torch.maximum(nearest, least).log() + 2 * scale.squeeze(-1).log()


def _of_log_square(covariance: Float[Tensor, "D D"]) -> Float[Tensor, " 2"]:
    """Mean and deviation of log ‖x‖² for x ~ N(0, C), whose square is nearly a gamma
    variable of the same two moments.
    """
    mean, variance = covariance.diagonal().sum(), 2 * covariance.square().sum()
    if not float(variance) > 0:
        return covariance.new_tensor([math.log(len(covariance)), 1.0])
    shape = mean.square() / variance
    return torch.stack(
        [
            shape.digamma() - (mean / variance).log(),
            torch.special.polygamma(1, shape).sqrt(),
        ]
    )
