"""The half-moons of the paper's first figure."""

import math

import numpy as np
import torch

from laplacebridge_reproduction.data.dataset import DataSet


def half_moons(num_points: int = 100, *, noise: float = 0.1, seed: int = 62) -> DataSet:
    """Two interleaving half circles with Gaussian noise; by default the paper's 100 points.

    The points are those of scikit-learn's `make_moons` with the same numbers, in its order.

    Args:
        num_points: How many, half of them on each moon.
        noise: Standard deviation.
        seed: Of the order and the noise.

    Example:
        >>> half_moons().labels.bincount()
        tensor([50, 50])
    """
    generator = np.random.RandomState(seed)  # the paper's points come from this generator
    upper = num_points // 2
    angles = [np.linspace(0, math.pi, count) for count in (upper, num_points - upper)]
    moons = [(np.cos(angles[0]), np.sin(angles[0])), (1 - np.cos(angles[1]), 0.5 - np.sin(angles[1]))]
    points = np.concatenate([np.stack(moon, axis=1) for moon in moons])
    labels = np.repeat([0, 1], [upper, num_points - upper])
    order = np.arange(num_points)
    generator.shuffle(order)
    points = points[order] + generator.normal(scale=noise, size=points.shape)
    return DataSet(
        "half-moons", torch.from_numpy(points).float(), torch.from_numpy(labels[order]).long(), ("upper", "lower")
    )
