"""Small trained networks with their data, and a silent fit: what tests of fitting,
priors and files begin with.
"""

import functools

import torch
from cases import seeded
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import laplacebridge as lb

FEATURES, CLASSES = 5, 3


def examples(num, seed=0):
    inputs = torch.randn(num, FEATURES, generator=seeded(seed))
    return inputs, (inputs[:, 0] > 0).long() + (inputs[:, 1] > 0.5).long()


def trained(build, inputs, labels, *, seed=0, steps=300, learning_rate=1e-2, weight_decay=5e-4):
    """The network that `build` makes, trained by Adam on all examples at once."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = build()
        optimiser = torch.optim.Adam(network.parameters(), learning_rate, weight_decay=weight_decay)
        for _ in range(steps):
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(inputs), labels).backward()
            optimiser.step()
    return network


@functools.cache
def trained_network():
    return trained(
        lambda: nn.Sequential(
            nn.Linear(FEATURES, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, CLASSES)
        ),
        *examples(400),
        steps=150,
        weight_decay=0.0,
    )


def loader(num=400, seed=0, batch_size=64):
    return DataLoader(TensorDataset(*examples(num, seed)), batch_size)


def fit(model, batches=None, **options):
    return lb.fit(model, loader() if batches is None else batches, progress=False, **options)
