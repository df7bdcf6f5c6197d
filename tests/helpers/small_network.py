"""A small trained network with its data, and a silent fit: what tests of fitting, priors and files begin with."""

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


@functools.cache
def trained_network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, CLASSES))
        optimiser = torch.optim.Adam(network.parameters(), 1e-2)
        inputs, labels = examples(400)
        for _ in range(150):
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(inputs), labels).backward()
            optimiser.step()
    return network


def loader(num=400, seed=0, batch_size=64):
    return DataLoader(TensorDataset(*examples(num, seed)), batch_size)


def fit(model, batches=None, **options):
    return lb.fit(model, loader() if batches is None else batches, progress=False, **options)
