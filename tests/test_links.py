"""Links: against quadrature, autograd and formulas worked by hand."""

import math

import numpy as np
import pytest
import scipy.special
import torch
from cases import STRUCTURES, gaussian, seeded
from tensor_sizes import LargestTensor

import laplacebridge as lb
from laplacebridge import _blocks, links

EVERY_STRUCTURE = pytest.mark.parametrize("structure", STRUCTURES)
NODES, WEIGHTS = (torch.from_numpy(part) for part in np.polynomial.hermite_e.hermegauss(64))


def moments_by_quadrature(batch):
    """Mean and variance of softmax for three classes: Gauss-Hermite over the two
    differences of logits.
    """
    assert batch.num_classes == 3
    contrasts = torch.tensor([[1.0, 0.0, -1.0], [0.0, 1.0, -1.0]], dtype=torch.float64)
    differences = contrasts @ batch.covariance.to_dense() @ contrasts.T
    values, vectors = torch.linalg.eigh(differences)
    root = vectors * values.clamp_min(0).sqrt().unsqueeze(-2)
    grid = torch.cartesian_prod(NODES, NODES)
    weights = torch.cartesian_prod(WEIGHTS, WEIGHTS).prod(-1) / (2 * math.pi)
    logits = (batch.mean @ contrasts.T).unsqueeze(-2) + grid @ root.mT
    probabilities = torch.nn.functional.pad(logits, (0, 1)).softmax(-1)
    mean = (weights[:, None] * probabilities).sum(-2)
    return mean, (weights[:, None] * (probabilities - mean.unsqueeze(-2)).square()).sum(-2)


def test_the_quadrature_itself_agrees_with_another_rule():
    batch = gaussian("dense", 0, 1, 3, spread=1.0)
    nodes, weights = np.polynomial.legendre.leggauss(200)
    grid = np.stack(np.meshgrid(9 * nodes, 9 * nodes), -1)
    density = np.exp(-(grid**2).sum(-1) / 2) / (2 * np.pi) * 81 * weights[:, None] * weights
    contrasts = np.array([[1.0, 0.0, -1.0], [0.0, 1.0, -1.0]])
    root = np.linalg.cholesky(contrasts @ batch.covariance.to_dense()[0].numpy() @ contrasts.T)
    logits = contrasts @ batch.mean[0].numpy() + grid @ root.T
    probabilities = scipy.special.softmax(np.pad(logits, ((0, 0), (0, 0), (0, 1))), -1)
    expected = (density[..., None] * probabilities).sum((0, 1))
    np.testing.assert_allclose(moments_by_quadrature(batch)[0][0], expected, atol=1e-9)


def moderate(structure, seed):
    """Three rows of three classes whose variances the quadrature resolves."""
    batch = gaussian(structure, seed, 3, 3, spread=1.5)
    return lb.LogitGaussian(batch.mean, batch.covariance.scaled(3 / batch.variance.amax(-1)))


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(_blocks, "ELEMENTS_AT_ONCE", 1000)


# what the network says


def test_the_map_estimate_is_softmax_whatever_the_variance():
    batch = gaussian("diagonal", 1, 5, 4)
    torch.testing.assert_close(
        links.map_estimate(batch), batch.mean.softmax(-1), rtol=1e-14, atol=0
    )
    wider = lb.LogitGaussian(batch.mean, batch.covariance.scaled(torch.full((5,), 100.0).double()))
    assert torch.equal(links.map_estimate(wider), links.map_estimate(batch))


# Monte Carlo


@EVERY_STRUCTURE
@pytest.mark.parametrize("num_samples", [10_000, 7])
def test_monte_carlo_is_right_within_five_standard_errors(structure, num_samples):
    batch = moderate(structure, 2)
    mean, variance = moments_by_quadrature(batch)
    estimate = links.monte_carlo(batch, num_samples=num_samples, generator=seeded(3))
    assert ((estimate - mean).abs() <= 5 * (variance / num_samples).sqrt() + 1e-9).all()


@EVERY_STRUCTURE
def test_monte_carlo_in_small_blocks_is_right_within_five_standard_errors(structure, small_blocks):
    batch = moderate(structure, 4)
    mean, variance = moments_by_quadrature(batch)
    estimate = links.monte_carlo(
        batch, num_samples=10_001, generator=seeded(5)
    )  # the last block is not full
    assert ((estimate - mean).abs() <= 5 * (variance / 10_001).sqrt() + 1e-9).all()


@EVERY_STRUCTURE
def test_a_structure_and_its_dense_twin_agree_in_distribution(structure):
    batch = moderate(structure, 6)
    twin = lb.LogitGaussian(batch.mean, lb.Dense(batch.covariance.to_dense()))
    _, variance = moments_by_quadrature(batch)
    first, second = (
        links.monte_carlo(one, num_samples=10_000, generator=seeded(s))
        for one, s in ((batch, 7), (twin, 8))
    )
    assert ((first - second).abs() <= 5 * (2 * variance / 10_000).sqrt() + 1e-9).all()


def test_the_error_of_monte_carlo_is_the_standard_error_and_no_less():
    batch = moderate("diagonal", 9)
    mean, variance = moments_by_quadrature(batch)
    estimates = torch.stack(
        [links.monte_carlo(batch, num_samples=50, generator=seeded(s)) for s in range(400)]
    )
    # 400 repetitions know a variance to √(2/400) of itself, seven percent
    observed = (estimates - mean).square().mean(0) / (variance / 50)
    assert ((observed - 1).abs() < 5 * (2 / 400) ** 0.5).all()


@EVERY_STRUCTURE
def test_the_same_generator_gives_the_same_answer(structure, small_blocks):
    batch = moderate(structure, 10)
    first, again, other = (
        links.monte_carlo(batch, num_samples=300, generator=seeded(s)) for s in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_no_draw_comes_from_global_randomness_if_a_generator_is_given():
    state = torch.random.get_rng_state()
    links.monte_carlo(moderate("dense", 11), num_samples=20, generator=seeded(0))
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("num_samples", [1, 2, 110, 111, 112, 1000, 1001])
def test_any_number_of_samples_is_averaged_whole(num_samples, small_blocks):
    # blocks of 1000 // 9 = 111 draws; without variance each draw is softmax(μ) itself
    mean = torch.randn(3, 3, generator=seeded(12), dtype=torch.float64)
    certain = lb.LogitGaussian(mean, lb.Diagonal(torch.zeros_like(mean)))
    estimate = links.monte_carlo(certain, num_samples=num_samples, generator=seeded(13))
    torch.testing.assert_close(estimate, mean.softmax(-1), rtol=1e-13, atol=0)


@pytest.mark.parametrize("num_samples", [1, 111, 112, 500])
def test_as_many_draws_are_made_as_were_asked_for(num_samples, small_blocks, monkeypatch):
    drawn = []

    def sample(self, num_samples, generator=None):
        drawn.append(num_samples)
        return torch.zeros(num_samples, *self.shape, dtype=self.dtype)

    monkeypatch.setattr(lb.Diagonal, "sample", sample)
    links.monte_carlo(moderate("diagonal", 14), num_samples=num_samples)
    assert sum(drawn) == num_samples
    assert max(drawn) <= 1000 // 9


@EVERY_STRUCTURE
def test_no_tensor_grows_with_the_number_of_samples(structure, small_blocks):
    batch = gaussian(structure, 15, 10, 5)
    largest = {}
    for num_samples in (40, 4000):
        with LargestTensor() as mode:
            links.monte_carlo(batch, num_samples=num_samples, generator=seeded(16))
        largest[num_samples] = mode.largest
    assert largest[4000] == largest[40]
    assert largest[40] <= 2 * 1000  # a factor may have up to K/2 + 2 columns for K classes


def test_millions_of_samples_stay_within_the_documented_block():
    batch = gaussian("diagonal", 17, 1, 2)
    with LargestTensor() as mode:
        links.monte_carlo(batch, num_samples=5_000_000, generator=seeded(18))
    assert mode.largest <= _blocks.ELEMENTS_AT_ONCE


def test_a_dense_covariance_is_factorised_once(small_blocks, monkeypatch):
    calls = []
    factorise = torch.linalg.cholesky_ex
    monkeypatch.setattr(
        torch.linalg, "cholesky_ex", lambda matrix: calls.append(1) or factorise(matrix)
    )
    links.monte_carlo(moderate("dense", 19), num_samples=1000, generator=seeded(20))
    assert len(calls) == 1


@pytest.mark.parametrize("num_samples", [0, -1])
def test_without_samples_there_is_no_answer(num_samples):
    with pytest.raises(
        ValueError, match=rf"needs num_samples ≥ 1; got {num_samples}\. 100 is the paper's choice"
    ):
        links.monte_carlo(moderate("diagonal", 21), num_samples=num_samples)


def test_monte_carlo_of_many_classes_sums_to_one_in_float32():
    mean = torch.randn(1, 100_000, generator=seeded(22))
    estimate = links.monte_carlo(
        lb.LogitGaussian(mean, lb.Diagonal(torch.ones_like(mean))),
        num_samples=50,
        generator=seeded(23),
    )
    assert (estimate.double().sum(-1) - 1).abs().max() < 1e-6


# probit


def test_probit_by_hand():
    # 1 + π/8 · 24/π = 4, so these logits are halved; 1 + π/8 · 64/π = 9 makes a third
    variance = torch.tensor([[0.0, 24 / math.pi, 64 / math.pi]], dtype=torch.float64)
    mean = torch.tensor([[math.log(2), 2 * math.log(3), 3 * math.log(5)]], dtype=torch.float64)
    expected = torch.tensor([[0.2, 0.3, 0.5]], dtype=torch.float64)  # proportional to 2, 3 and 5
    torch.testing.assert_close(
        links.probit(lb.LogitGaussian(mean, lb.Diagonal(variance))), expected
    )


@EVERY_STRUCTURE
def test_probit_reads_the_variances_as_they_are(structure):
    batch = gaussian(structure, 24, 4, 3)
    variance = batch.covariance.to_dense().diagonal(dim1=-2, dim2=-1)
    expected = (batch.mean / torch.sqrt(1 + math.pi / 8 * variance)).softmax(-1)
    torch.testing.assert_close(links.probit(batch), expected)


@EVERY_STRUCTURE
def test_centred_probit_is_probit_of_the_centred_law(structure):
    batch = gaussian(structure, 25, 4, 3)
    centring = torch.eye(3, dtype=torch.float64) - 1 / 3
    variance = (centring @ batch.covariance.to_dense() @ centring).diagonal(dim1=-2, dim2=-1)
    expected = (batch.mean @ centring / torch.sqrt(1 + math.pi / 8 * variance)).softmax(-1)
    torch.testing.assert_close(links.probit(batch, centered=True), expected)


def test_a_large_common_variance_makes_probit_uniform_unless_centred():
    mean = torch.tensor([[3.0, 0.0, 0.0]], dtype=torch.float64)
    common = lb.LogitGaussian(mean, lb.Dense(torch.full((1, 3, 3), 1e6, dtype=torch.float64)))
    torch.testing.assert_close(
        links.probit(common), torch.full((1, 3), 1 / 3).double(), atol=2e-3, rtol=0
    )
    torch.testing.assert_close(
        links.probit(common, centered=True), mean.softmax(-1), atol=1e-9, rtol=0
    )


# second order


def taylor_by_autograd(batch):
    """softmax(μ) + ½ Σ_ij Σ_ij ∂²softmax/∂z_i∂z_j by brute force."""
    hessian = torch.func.jacrev(torch.func.jacrev(lambda logits: logits.softmax(-1)))
    hessians = torch.stack([hessian(row) for row in batch.mean])
    return batch.mean.softmax(-1) + 0.5 * torch.einsum(
        "bkij,bij->bk", hessians, batch.covariance.to_dense()
    )


@EVERY_STRUCTURE
@pytest.mark.parametrize("classes", [2, 3, 6])
def test_second_order_is_the_taylor_expansion_where_that_is_inside_the_simplex(structure, classes):
    batch = gaussian(structure, 26, 6, classes, spread=1.0)
    batch = lb.LogitGaussian(batch.mean, batch.covariance.scaled(0.3 / batch.variance.amax(-1)))
    expected = taylor_by_autograd(batch)
    inside = (expected > 0).all(-1)
    assert inside.sum() >= 5
    torch.testing.assert_close(
        links.second_order(batch)[inside], expected[inside], rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize("structure", ["diagonal", "dense"])
def test_second_order_outside_the_simplex_is_the_expansion_cut_and_normalised(structure):
    batch = gaussian(structure, 27, 20, 4, spread=3.0)
    batch = lb.LogitGaussian(batch.mean, batch.covariance.scaled(30 / batch.variance.amax(-1)))
    expected = taylor_by_autograd(batch)
    assert (expected < 0).any(-1).sum() > 5
    cut = expected.clamp_min(0)
    torch.testing.assert_close(
        links.second_order(batch), cut / cut.sum(-1, keepdim=True), rtol=1e-9, atol=1e-12
    )


@EVERY_STRUCTURE
def test_second_order_is_exact_to_first_order_as_the_variance_vanishes(structure):
    batch = moderate(structure, 28)
    errors = []
    for scale in (1e-2, 1e-3):
        small = lb.LogitGaussian(
            batch.mean, batch.covariance.scaled(torch.full((3,), scale).double())
        )
        truth, _ = moments_by_quadrature(small)
        errors.append((links.second_order(small) - truth).abs().amax().item())
    # what is left falls like the square of the variance; what softmax(μ) misses, like
    # the variance itself
    assert errors[0] / errors[1] == pytest.approx(100, rel=0.15)
    assert (links.map_estimate(small) - truth).abs().amax().item() > 100 * errors[1]


def test_without_variance_every_link_is_softmax():
    mean = torch.tensor([[2.0, 0.0, -1.0], [1e4, 0.0, -1e4]], dtype=torch.float64)
    certain = lb.LogitGaussian(mean, lb.Diagonal(torch.zeros_like(mean)))
    for link in (links.map_estimate, links.monte_carlo, links.probit, links.second_order):
        torch.testing.assert_close(link(certain), mean.softmax(-1), rtol=1e-12, atol=0)


@pytest.mark.parametrize("link", [links.map_estimate, links.probit, links.second_order])
def test_a_batch_of_many_blocks_is_answered_row_by_row(link):
    few = gaussian("diagonal", 29, 7, 4)
    many = few[torch.arange(70_000) % 7]  # 280 000 numbers, more than two blocks of 131 072
    torch.testing.assert_close(link(many), link(few)[torch.arange(70_000) % 7], rtol=1e-13, atol=0)
