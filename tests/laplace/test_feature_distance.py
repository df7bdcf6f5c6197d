"""Distances to the nearest class against NumPy, and what they do at the edges."""

import numpy as np
import pytest
import torch
from cases import seeded

from laplacebridge.laplace import feature_distance
from laplacebridge.laplace.feature_distance import FeatureDistances
from laplacebridge.laplace.feature_statistics import FeatureStatistics


def distances_of(features, labels, num_classes, dtype=torch.float64):
    sums = FeatureStatistics.of_batch(features, torch.zeros(len(features), num_classes), labels)
    return FeatureDistances.of_sums(sums.class_counts, sums.class_sums, sums.squares, dtype)


def plain(distances, features):
    return distances(features)[:, 1]


def by_hand(features, labels, others, directions=None):
    """As defined: centred by class, divided by deviations, shrunk, kept along some
    directions, inverted; of features and of their polar form.
    """
    classes = np.unique(labels)
    means = np.stack([features[labels == k].mean(0) for k in classes])
    rest = features - means[np.searchsorted(classes, labels)]
    freedom, size = len(features) - len(classes), features.shape[1]
    within = rest.T @ rest / freedom
    deviations = np.sqrt(np.diag(within))
    correlation = within / np.outer(deviations, deviations)
    share = size / (size + freedom)
    shrunk = (1 - share) * correlation + share * np.trace(correlation) / size * np.eye(size)
    means, others = means / deviations, others / deviations
    kept = shrunk
    if directions is not None:
        own = np.linalg.svd(means, full_matrices=False)[2].T
        outside = np.eye(size) - own @ own.T
        vectors = np.linalg.eigh(outside @ shrunk @ outside)[1][:, ::-1]
        basis = np.concatenate([own, vectors[:, : directions - own.shape[1]]], -1)
        inside = basis @ basis.T
        left = np.eye(size) - inside
        kept = inside @ shrunk @ inside + np.trace(left @ shrunk) / (size - directions) * left
    inverse = np.linalg.inv(kept)

    def squares(rows, centers):
        apart = rows[:, None] - centers
        return np.einsum("bkd,de,bke->bk", apart, inverse, apart)

    expected = np.square(means).sum(-1) + np.trace(shrunk)  # of squared lengths
    along = np.einsum("kd,de,ke->k", means, kept, means)
    variances = (np.square(shrunk).sum() / 2 + along) / np.square(expected)
    length = np.linalg.norm(others, axis=-1, keepdims=True)
    usual = np.sqrt(expected.mean())
    polar = squares(usual * others / length, usual * means / np.sqrt(expected)[:, None])
    polar = polar + np.square(np.log(length) - np.log(expected) / 2) / variances
    return np.log(np.stack([polar.min(-1), squares(others, means).min(-1)], -1))


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
    np.testing.assert_allclose(distances_of(features, labels, 4)(others), expected, rtol=1e-8)
    single = distances_of(features, labels, 4, torch.float32)
    np.testing.assert_allclose(single(others.float()), expected, rtol=1e-3)


def test_many_features_are_kept_along_some_directions():
    features, labels = data(200, 56)
    others = 1.5 * features[:20] + 1
    expected = by_hand(features.numpy(), labels.numpy(), others.numpy(), directions=48)
    found = distances_of(features, labels, 4)
    assert found.basis.shape == (56, 48)
    np.testing.assert_allclose(found(others), expected, rtol=1e-7)
    single = distances_of(features, labels, 4, torch.float32)
    np.testing.assert_allclose(single(others.float()), expected, rtol=1e-3)
    everywhere = by_hand(features.numpy(), labels.numpy(), others.numpy())
    assert abs(everywhere - expected).max() > 0.01


def test_features_far_from_zero_keep_their_distances():
    """Products of numbers that nearly cancel would not."""
    features, labels = data(200, 56)
    features = features / features.std(0)
    others = features[:20] + 1
    features, others = features + 300, others + 300
    exact, single = (
        distances_of(features.to(dtype), labels, 4, dtype)(others.to(dtype)).double()
        for dtype in (torch.float64, torch.float32)
    )
    torch.testing.assert_close(single, exact, rtol=0, atol=2e-3)


def test_directions_grow_with_classes_and_no_further_than_the_features():
    for classes, number in ((2, 48), (16, 48), (17, 64), (50, 96)):
        features = torch.randn(300, 90, generator=seeded(6), dtype=torch.float64)
        found = distances_of(features, torch.arange(300) % classes, classes)
        number = min(number, 90)
        assert found.basis.shape == (90, number)
        assert feature_distance.MORE_DIRECTIONS + classes <= number or number == 90


def test_single_examples_of_a_class_share_a_mean():
    features, labels = data()
    labels[0], labels[1] = 3, 4
    assert len(distances_of(features, labels, 5).means) == 4
    labels[1] = 0
    assert len(distances_of(features, labels, 5).means) == 3


@pytest.mark.parametrize("rows", [1, 2])
def test_the_fewest_examples_give_a_finite_distance(rows):
    features = torch.ones(rows, 3)
    found = distances_of(features, torch.arange(rows), 2)(torch.randn(4, 3, generator=seeded(2)))
    assert found.isfinite().all()


def test_a_feature_that_never_moved_is_seen_when_it_moves():
    features, labels = data()
    features[:, 2] = 7.0
    found = distances_of(features, labels, 3)
    moved = features[:5].clone()
    moved[:, 2] += 100 * features.std(0).max()
    assert (plain(found, moved) > plain(found, features).max()).all()


@pytest.mark.parametrize("size", [1e6, 1e18, 1e36])
def test_far_away_it_grows_as_twice_the_logarithm(size):
    features, labels = data()
    found = distances_of(features, labels, 3, torch.float32)
    direction = torch.randn(50, 5, generator=seeded(3))
    near, far = (plain(found, each * direction) for each in (size / 10, size))
    torch.testing.assert_close(
        far - near, torch.full((50,), 2 * np.log(10)).float(), rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize("deviation", [1e-6, 1e-9, 1e-12])
def test_a_feature_that_hardly_varies_takes_no_digits_from_the_others(deviation):
    features, labels = data()
    features = features.double()
    features[:, 2] *= deviation
    near = torch.randn(9, 5, generator=seeded(6), dtype=torch.float64)
    near[:, 2] *= deviation
    exact = distances_of(features, labels, 3)(near)
    found = distances_of(features, labels, 3, torch.float32)(near.float())
    torch.testing.assert_close(found.double(), exact, rtol=1e-3, atol=1e-3)


def test_for_gaussian_classes_it_expects_what_is_found():
    features = torch.randn(4000, 8, generator=seeded(4), dtype=torch.float64)
    labels = torch.arange(4000) % 2
    found = distances_of(features + 20 * labels.unsqueeze(-1), labels, 2)
    logs = plain(found, torch.randn(4000, 8, generator=seeded(5), dtype=torch.float64))
    mean, deviation = found.expected.tolist()
    assert abs(float(logs.mean()) - mean) < 0.02
    assert abs(float(logs.std()) - deviation) < 0.02
