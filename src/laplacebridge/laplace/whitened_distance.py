"""Distances of classifiers whose files were written before features and their polar
form shared a metric: a whitening matrix for each.

Nothing makes them any more; such files answer as they did.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from laplacebridge.laplace.feature_distance import FAR, SMALLEST_SHARE

# Features shorter than this have no direction: a network whose last layer is silent.
SMALLEST_NORM = 1e-6
FIELDS = ("center", "whitening", "means", "expected")


class WhitenedDistances(nn.Module):
    """As `FeatureDistances`.

    Args:
        distance: Of features.
        polar_distance: Of their polar form.
    """

    def __init__(self, distance: "WhitenedDistance", polar_distance: "WhitenedDistance") -> None:
        super().__init__()
        self.distance = distance
        self.polar_distance = polar_distance

    @classmethod
    def from_buffers(cls, buffers: dict[str, Tensor]) -> "WhitenedDistances":
        """From the tensors of a file.

        Args:
            buffers: By name.
        """
        return cls(
            *(
                WhitenedDistance(*(buffers[f"{part}.{field}"] for field in FIELDS))
                for part in ("distance", "polar_distance")
            )
        )

    def forward(self, features: Float[Tensor, "B D"]) -> Float[Tensor, "B 2"]:
        """log d² of the polar form of each row, and of the row.

        Args:
            features: As they were summed.
        """
        polar = polar_form(features.to(self.distance.center.dtype))
        return torch.stack([self.polar_distance(polar), self.distance(features)], -1)


class WhitenedDistance(nn.Module):
    """Squared Mahalanobis distances to the nearest class mean.

    Args:
        center: A point among the data, shape (D,).
        whitening: W with W Wᵀ the inverse of the shrunk covariance, shape (D, D).
        means: Class means minus the center, whitened; shape (G, D).
        expected: Mean and deviation of log d² for data that are Gaussian within
            classes.
    """

    center: Tensor
    whitening: Tensor
    means: Tensor
    expected: Tensor

    def __init__(self, center: Tensor, whitening: Tensor, means: Tensor, expected: Tensor) -> None:
        super().__init__()
        for name, tensor in zip(FIELDS, (center, whitening, means, expected), strict=True):
            self.register_buffer(name, tensor)

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


def polar_form(features: Float[Tensor, "B D"]) -> Float[Tensor, "B E"]:
    """(φ/‖φ‖, log ‖φ‖): direction and length apart.

    Args:
        features: Features φ.

    Example:
        >>> polar_form(torch.tensor([[3.0, 4.0]]))
        tensor([[0.6000, 0.8000, 1.6094]])
    """
    # squares of features leave the range of float32 before the features do
    largest = features.abs().amax(-1, keepdim=True).clamp_min(SMALLEST_NORM)
    scaled = features / largest
    length = scaled.square().sum(-1, keepdim=True).sqrt().clamp_min(SMALLEST_NORM)
    return torch.cat([scaled / length, largest.log() + length.log()], -1)
