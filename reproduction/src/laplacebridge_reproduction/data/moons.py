"""The half-moons of the paper's first experiment."""

import torch
from sklearn.datasets import make_moons

from laplacebridge_reproduction.data.dataset import DataSet


def half_moons(num_points: int = 100, *, noise: float = 0.1, seed: int = 62) -> DataSet:
    """Two interleaving half circles with Gaussian noise, by scikit-learn; by default
    the paper's 100 points.

    Example:
        >>> half_moons().labels.bincount()
        tensor([50, 50])
    """
    points, labels = make_moons(num_points, noise=noise, random_state=seed)
    return DataSet(
        "half-moons",
        torch.from_numpy(points).float(),
        torch.from_numpy(labels).long(),
        ("upper", "lower"),
    )
