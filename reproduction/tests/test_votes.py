"""Human votes: found in the right order, and judged by what is known of them."""

import numpy as np
import pytest
import torch
from cases import seeded
from scipy import stats

import laplacebridge as lb
from laplacebridge_reproduction import votes, votes_covered
from laplacebridge_reproduction.data import DamagedFileError, DataMissingError
from laplacebridge_reproduction.data.cifar_votes import find_votes
from laplacebridge_reproduction.data.dataset import DataSet

NUMBER, CLASSES = 40, 10


@pytest.fixture
def images():
    labels = torch.randint(CLASSES, (NUMBER,), generator=seeded(1))
    names = tuple(str(name) for name in range(CLASSES))
    return DataSet("CIFAR-10 test", torch.zeros(NUMBER, 1), labels, names)


def counts_of(images):
    counts = torch.nn.functional.one_hot(images.labels, CLASSES) * 45 + 1
    counts[:, 0] += torch.arange(NUMBER) % 3  # so that rows differ
    return counts.numpy().astype(np.uint8)


def test_votes_are_found_in_the_order_of_the_images(images, tmp_path):
    (tmp_path / "cifar-10h").mkdir()
    counts, official = counts_of(images), np.random.default_rng(0).permutation(NUMBER)
    path = tmp_path / "cifar-10h" / "cifar10h-in-shared-order.npz"
    np.savez(path, counts=counts, official_index=official.astype(np.int32))
    found, used = find_votes(images, tmp_path, download=False)
    np.testing.assert_array_equal(found, counts)
    assert len(used[path.name]) == 64
    # the same images in the order of the official files
    place = torch.from_numpy(official).argsort()
    reordered, _ = find_votes(images[place], tmp_path, download=False)
    np.testing.assert_array_equal(reordered, counts[place.numpy()])


def test_votes_of_other_images_are_refused(images, tmp_path):
    (tmp_path / "cifar-10h").mkdir()
    np.save(tmp_path / "cifar-10h" / "cifar10h-counts.npy", np.roll(counts_of(images), 1, axis=1))
    with pytest.raises(DamagedFileError, match="most voted classes are not their labels"):
        find_votes(images, tmp_path, download=False)


def test_the_published_file_is_read_and_named_when_it_is_missing(images, tmp_path):
    with pytest.raises(DataMissingError, match=r"cifar10h-counts\.npy"):
        find_votes(images, tmp_path, download=False)
    (tmp_path / "cifar-10h").mkdir()
    np.save(tmp_path / "cifar-10h" / "cifar10h-counts.npy", counts_of(images).astype(np.int64))
    np.testing.assert_array_equal(
        find_votes(images, tmp_path, download=False)[0], counts_of(images)
    )


@pytest.fixture(scope="module")
def drawn():
    """Dirichlets, and votes that have their law."""
    generator = np.random.default_rng(3)
    alpha = generator.gamma(1.0, size=(3000, 4)) + 0.05
    shares = np.array([generator.dirichlet(row) for row in alpha])
    return alpha, torch.from_numpy(generator.multinomial(50, shares))


def test_votes_lie_within_the_intervals_of_their_own_law(drawn):
    alpha, counts = drawn
    dirichlet = lb.Dirichlet(torch.from_numpy(alpha).log())
    found = votes_covered.shares(dirichlet, counts, seed=0)
    assert found["predicted_class"] == pytest.approx(0.95, abs=0.015)
    assert found["all_classes"] == pytest.approx(0.95, abs=0.01)
    sure = votes_covered.shares(dirichlet.mean, counts, seed=0)
    assert sure["all_classes"] < 0.6  # votes of one image have more in common than chance
    wide = lb.Dirichlet(dirichlet.log_concentration - 2)
    assert votes_covered.shares(wide, counts, seed=0)["predicted_class"] > 0.97


def test_chances_of_numbers_of_votes_are_scipys(drawn):
    alpha, counts = drawn
    alpha, counts = alpha[:20], counts[:20].numpy()
    below, at = votes_covered._by_beta(
        lb.Dirichlet(torch.from_numpy(alpha).log()), counts, counts.sum(-1, keepdims=True)
    )
    law = stats.betabinom(50, alpha, alpha.sum(-1, keepdims=True) - alpha)
    np.testing.assert_allclose(at, law.pmf(counts), rtol=1e-9)
    np.testing.assert_allclose(below, law.cdf(counts - 1), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("size", [1e10, 1e30, 1e300])
def test_a_dirichlet_without_width_gives_binomial_chances(size):
    mean, counts = np.array([[0.7, 0.3, 1e-12]]), np.array([[30, 20, 0]])
    dirichlet = lb.Dirichlet(torch.from_numpy(mean / mean.sum()).log() + np.log(size))
    total = counts.sum(-1, keepdims=True)
    for found, expected in zip(
        votes_covered._by_beta(dirichlet, counts, total),
        votes_covered._binomial(mean, counts, total),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-12)


def test_intervals_of_a_prediction_are_for_normal_log_odds():
    generator = np.random.default_rng(5)
    location, deviation = np.array([1.0, -1.0]), 0.8
    shares = 1 / (1 + np.exp(-(location[0] + deviation * generator.normal(size=4000))))
    counts = generator.binomial(50, shares)
    gaussian = lb.LogitGaussian(
        torch.tensor(location / 2).expand(4000, -1).contiguous(),
        lb.Diagonal(torch.full((4000, 2), deviation**2 / 2, dtype=torch.float64)),
    )
    both = torch.from_numpy(np.stack([counts, 50 - counts], -1))
    found = votes_covered.shares(lb.predict(gaussian), both, seed=0)
    assert found["predicted_class"] == pytest.approx(0.95, abs=0.012)


def test_a_network_alone_pays_the_cross_entropy_of_its_mean():
    probabilities, counts = torch.tensor([[0.75, 0.25]]), torch.tensor([[3, 1]])
    expected = -(3 * np.log(0.75) + np.log(0.25)) / 4
    assert votes._surprise(probabilities, counts) == pytest.approx(expected)
    # who knows the shares needs their entropy
    assert votes._vote_entropy(counts) == pytest.approx(expected)


def test_one_total_for_all_is_the_likeliest(drawn):
    generator = np.random.default_rng(7)
    mean = generator.dirichlet(np.ones(3), size=2000)
    shares = np.array([generator.dirichlet(8 * row) for row in mean])
    counts = torch.from_numpy(generator.multinomial(50, shares))
    assert votes._best_total(torch.from_numpy(mean), counts) == pytest.approx(8, rel=0.1)


def test_a_row_of_the_table_is_missing_where_the_data_is():
    table = votes.VOTES.tables({"ResNet-20": {"missing": True}})[0]
    assert table.rows[0][0] == "data not available here"
    assert "not available" in votes.VOTES.finding({"ResNet-20": {"missing": True}})
