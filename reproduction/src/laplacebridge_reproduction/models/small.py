"""The two small networks that the paper trains itself, and how any network gets its
first weights.
"""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

Network = TypeVar("Network", bound=nn.Module)


def initialised(build: Callable[[], Network], *, seed: int) -> Network:
    """A network with weights drawn from a seed; the global random state is left as it
    was.

    Args:
        build: Makes the network.
        seed: Seed of its weights.

    Example:
        >>> first, second = (initialised(moons_mlp, seed=7777) for _ in range(2))
        >>> torch.equal(first[0].weight, second[0].weight)
        True
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


def moons_mlp() -> nn.Sequential:
    """The multilayer perceptron 2-20-20-2 of the half-moons, the paper's first figure.

    Example:
        >>> moons_mlp()(torch.zeros(5, 2)).shape
        torch.Size([5, 2])
    """
    return nn.Sequential(
        nn.Linear(2, 20), nn.ReLU(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 2)
    )


def mnist_cnn() -> nn.Sequential:
    """The convolutional network of the MNIST tables, also of the prior network beside
    them.

    Example:
        >>> mnist_cnn()(torch.zeros(5, 1, 28, 28)).shape
        torch.Size([5, 10])
    """
    return nn.Sequential(
        nn.Conv2d(1, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 10),
    )
