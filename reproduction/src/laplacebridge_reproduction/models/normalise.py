"""The first step of every network for colour images: the statistics of its training set
are taken out.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn


@dataclass(frozen=True)
class Statistics:
    """Mean and standard deviation of the three colours, on a scale from 0 to 1."""

    mean: tuple[float, float, float]
    deviation: tuple[float, float, float]


IMAGENET = Statistics((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CIFAR_10 = Statistics((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
CIFAR_100 = Statistics((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))
NONE = Statistics((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


class Normalise(nn.Module):
    """Subtracts the mean and divides by the standard deviation of each colour. Its
    constants are not saved.

    Example:
        >>> Normalise(Statistics((0.5, 0.5, 0.5), (0.5, 0.25, 1.0)))(
        ...     torch.ones(1, 3, 1, 1)
        ... ).flatten()
        tensor([1.0000, 2.0000, 0.5000])
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, statistics: Statistics) -> None:
        super().__init__()
        self.statistics = statistics
        self.register_buffer("mean", torch.tensor(statistics.mean).view(3, 1, 1), persistent=False)
        self.register_buffer(
            "deviation", torch.tensor(statistics.deviation).view(3, 1, 1), persistent=False
        )

    def forward(self, images: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B 3 H W"]:
        """Images with mean 0 and deviation 1, about."""
        return (images - self.mean) / self.deviation

    def extra_repr(self) -> str:
        """The constants, by which two networks may differ that are otherwise the same."""
        return f"mean={self.statistics.mean}, deviation={self.statistics.deviation}"
