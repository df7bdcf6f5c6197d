"""Scores of features against second implementations, in NumPy and SciPy."""

import numpy as np
import pytest
import torch
from cases import seeded
from scipy import linalg, spatial, special
from torch import nn

import laplacebridge as lb
from laplacebridge import scores

SIZE, CLASSES = 6, 4


def data():
    labels = torch.arange(200) % CLASSES
    train = torch.randn(200, SIZE, generator=seeded(0)) @ torch.randn(
        SIZE, SIZE, generator=seeded(1)
    )
    train = (train + 2 * torch.eye(SIZE)[labels]).abs()
    others = 2 * torch.randn(30, SIZE, generator=seeded(2)).abs()
    return others, train, labels


def head():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Linear(SIZE, CLASSES)


def numbers(*tensors):
    return [tensor.detach().double().numpy() for tensor in tensors]


def centred(train, labels):
    means = np.stack([train[labels == k].mean(0) for k in np.unique(labels)])
    return means, train - means[labels]


def distances(others, means, rest):
    """SciPy's distance, one pair at a time."""
    inverse = linalg.inv(rest.T @ rest / len(rest))
    return np.array(
        [
            [spatial.distance.mahalanobis(row, mean, inverse) ** 2 for mean in means]
            for row in others
        ]
    )


def unit(rows):
    return rows / np.sqrt((rows**2).sum(-1, keepdims=True))


def test_mahalanobis():
    found = scores.mahalanobis(*data())
    others, train, labels = numbers(*data())
    expected = distances(others, *centred(train, labels.astype(int))).min(-1)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_relative_mahalanobis():
    found = scores.relative_mahalanobis(*data())
    others, train, labels = numbers(*data())
    mean = train.mean(0)
    together = distances(others, mean[None], train - mean)[:, 0]
    expected = distances(others, *centred(train, labels.astype(int))).min(-1) - together
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


def test_mahalanobis_plus_plus():
    found = scores.mahalanobis_plus_plus(*data())
    others, train, labels = numbers(*data())
    expected = distances(unit(others), *centred(unit(train), labels.astype(int))).min(-1)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("neighbours", [1, 7])
def test_knn(neighbours):
    others, train, _ = data()
    found = scores.knn(others, train, neighbours=neighbours)
    places, known = map(unit, numbers(others, train))
    expected = spatial.KDTree(known).query(places, k=[neighbours])[0][:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("dimension", [None, 4])
def test_vim(dimension):
    others, train, _ = data()
    found = scores.vim(others, train, head(), dimension=dimension)
    places, known, weight, bias = numbers(others, train, head().weight, head().bias)
    kept = dimension or SIZE // 2
    origin = -np.linalg.lstsq(weight, bias, rcond=None)[0]
    directions = np.linalg.svd(known - origin, full_matrices=False)[2][kept:]
    outside = [np.linalg.norm((rows - origin) @ directions.T, axis=1) for rows in (known, places)]
    scale = (known @ weight.T + bias).max(-1).mean() / outside[0].mean()
    expected = scale * outside[1] - special.logsumexp(places @ weight.T + bias, axis=-1)
    np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_react():
    others, train, _ = data()
    found = scores.react(others, train, head(), quantile=0.8)
    places, known, weight, bias = numbers(others, train, head().weight, head().bias)
    cut = np.minimum(places, np.quantile(known, 0.8))
    np.testing.assert_allclose(found, -special.logsumexp(cut @ weight.T + bias, axis=-1))


def test_ash():
    others, _, _ = data()
    found = scores.ash(others, head(), removed=0.5)
    places, weight, bias = numbers(others, head().weight, head().bias)
    expected = []
    for row in places:
        pruned = np.where(row >= np.sort(row)[SIZE - SIZE // 2], row, 0)
        grown = pruned * np.exp(row.sum() / pruned.sum())
        expected.append(-special.logsumexp(weight @ grown + bias))
    np.testing.assert_allclose(found, expected)


def test_generalised_entropy():
    logits = 3 * torch.randn(20, 5, generator=seeded(3), dtype=torch.float64)
    probabilities = np.sort(special.softmax(logits.numpy(), -1))[:, ::-1][:, :3]
    expected = (probabilities**0.2 * (1 - probabilities) ** 0.2).sum(-1)
    found = scores.generalised_entropy(logits, power=0.2, largest=3)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize(
    "call",
    [
        lambda: scores.mahalanobis(torch.ones(2, 3), torch.ones(4, 5), torch.zeros(4).long()),
        lambda: scores.mahalanobis(torch.ones(2, 3), torch.ones(4, 3), torch.zeros(5).long()),
        lambda: scores.knn(torch.ones(2, 3), torch.ones(4, 3), neighbours=5),
        lambda: scores.vim(torch.ones(2, SIZE), torch.ones(4, SIZE), head(), dimension=SIZE),
        lambda: scores.react(torch.ones(2, 3), torch.ones(4, 3), head()),
        lambda: scores.ash(-torch.ones(2, SIZE), head()),
        lambda: scores.ash(torch.full((2, SIZE), torch.nan), head()),
        lambda: scores.generalised_entropy(torch.zeros(2, 3), power=2.0),
    ],
)
def test_what_does_not_fit_is_refused(call):
    with pytest.raises(lb.errors.InputError):
        call()


def test_covariances_without_full_rank_give_a_score():
    others, train, labels = data()
    train[:, 0] = 1.0
    assert scores.mahalanobis(others, train, labels).isfinite().all()
