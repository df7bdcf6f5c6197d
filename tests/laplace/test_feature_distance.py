"""Distances to the nearest class against NumPy, and what they do at the edges."""

import numpy as np
import pytest
import torch
from cases import seeded

from laplacebridge.laplace.feature_distance import FeatureDistance
from laplacebridge.laplace.feature_statistics import FeatureStatistics


def distance_of(features, labels, num_classes, dtype=torch.float64):
    sums = FeatureStatistics.of_batch(features, torch.zeros(len(features), num_classes), labels)
    return FeatureDistance.of_sums(sums.class_counts, sums.class_sums, sums.squares, dtype)


def by_hand(features, labels, others):
    """As defined: centred by class, divided by deviations, shrunk, inverted."""
    classes = np.unique(labels)
    means = np.stack([features[labels == k].mean(0) for k in classes])
    rest = features - means[np.searchsorted(classes, labels)]
    freedom, size = len(features) - len(classes), features.shape[1]
    within = rest.T @ rest / freedom
    deviations = np.sqrt(np.diag(within))
    correlation = within / np.outer(deviations, deviations)
    share = size / (size + freedom)
    shrunk = (1 - share) * correlation + share * np.trace(correlation) / size * np.eye(size)
    apart = (others[:, None] - means) / deviations
    return np.log(np.einsum("bkd,de,bke->bk", apart, np.linalg.inv(shrunk), apart).min(-1))


def data(num=60, size=5):
    features = torch.randn(num, size, generator=seeded(0), dtype=torch.float64)
    labels = torch.arange(num) % 3
    scale = torch.logspace(-2, 3, size, dtype=torch.float64)
    mixed = features @ torch.randn(size, size, generator=seeded(1), dtype=torch.float64)
    return (mixed + 2 * labels.unsqueeze(-1)) * scale, labels


@pytest.mark.parametrize("num", [9, 60])
def test_distances_are_those_of_the_definition(num):
    features, labels = data(num)
    others = 1.5 * features[:20] + 1
    expected = by_hand(features.numpy(), labels.numpy(), others.numpy())
    np.testing.assert_allclose(distance_of(features, labels, 4)(others), expected, rtol=1e-8)
    single = distance_of(features, labels, 4, torch.float32)
    np.testing.assert_allclose(single(others.float()), expected, rtol=1e-3)


def test_single_examples_of_a_class_share_a_mean():
    features, labels = data()
    labels[0], labels[1] = 3, 4
    assert len(distance_of(features, labels, 5).means) == 4
    labels[1] = 0
    assert len(distance_of(features, labels, 5).means) == 3


@pytest.mark.parametrize("rows", [1, 2])
def test_the_fewest_examples_give_a_finite_distance(rows):
    features = torch.ones(rows, 3)
    found = distance_of(features, torch.arange(rows), 2)(torch.randn(4, 3, generator=seeded(2)))
    assert found.isfinite().all()


def test_a_feature_that_never_moved_is_seen_when_it_moves():
    features, labels = data()
    features[:, 2] = 7.0
    found = distance_of(features, labels, 3)
    moved = features[:5].clone()
    moved[:, 2] += 100 * features.std(0).max()
    assert (found(moved) > found(features).max()).all()


@pytest.mark.parametrize("size", [1e6, 1e18, 1e36])
def test_far_away_it_grows_as_twice_the_logarithm(size):
    features, labels = data()
    found = distance_of(features, labels, 3, torch.float32)
    direction = torch.randn(50, 5, generator=seeded(3))
    near, far = found(size / 10 * direction), found(size * direction)
    torch.testing.assert_close(
        far - near, torch.full((50,), 2 * np.log(10)).float(), rtol=1e-3, atol=1e-3
    )


def test_for_gaussian_classes_it_expects_what_is_found():
    features = torch.randn(4000, 8, generator=seeded(4), dtype=torch.float64)
    labels = torch.arange(4000) % 2
    found = distance_of(features + 20 * labels.unsqueeze(-1), labels, 2)
    logs = found(torch.randn(4000, 8, generator=seeded(5), dtype=torch.float64))
    mean, deviation = found.expected.tolist()
    assert abs(float(logs.mean()) - mean) < 0.02
    assert abs(float(logs.std()) - deviation) < 0.02
