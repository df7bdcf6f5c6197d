"""Gaussians over logits: how they are made, what they say, and that they move and split
as one.
"""

import itertools

import numpy as np
import pytest
import torch
from cases import STRUCTURES, gaussian, seeded
from tensor_sizes import LargestTensor

import laplacebridge as lb

EVERY_STRUCTURE = pytest.mark.parametrize("structure", STRUCTURES)


@EVERY_STRUCTURE
def test_says_what_it_was_given(structure):
    batch = gaussian(structure, 0, 3, 4)
    assert (len(batch), batch.num_classes, batch.dtype) == (3, 4, torch.float64)
    torch.testing.assert_close(
        batch.variance, batch.covariance.to_dense().diagonal(dim1=-2, dim2=-1)
    )


def test_variances_become_a_diagonal():
    mean, variance = torch.zeros(2, 3), torch.rand(2, 3, generator=seeded(0))
    batch = lb.LogitGaussian.from_moments(mean, variance)
    assert isinstance(batch.covariance, lb.Diagonal)
    assert batch.mean is mean
    assert torch.equal(batch.covariance.to_dense(), torch.diag_embed(variance))


def test_matrices_become_dense():
    mean, matrices = torch.zeros(2, 3), torch.eye(3).expand(2, -1, -1)
    batch = lb.LogitGaussian.from_moments(mean, matrices)
    assert isinstance(batch.covariance, lb.Dense)
    assert torch.equal(batch.covariance.to_dense(), matrices)


@pytest.mark.parametrize(("samples", "classes"), [(2, 2), (2, 5), (4, 5), (5, 5), (6, 5), (50, 3)])
def test_samples_have_the_unbiased_moments_of_each_row(samples, classes):
    logits = 3 * torch.randn(samples, 4, classes, generator=seeded(1), dtype=torch.float64) + 10
    batch = lb.LogitGaussian.from_samples(logits)
    assert isinstance(batch.covariance, lb.LowRank if samples < classes else lb.Dense)
    torch.testing.assert_close(batch.mean, logits.mean(0))
    for row in range(4):
        expected = torch.cov(logits[:, row].T)
        torch.testing.assert_close(batch.covariance.to_dense()[row], expected)
        torch.testing.assert_close(batch.variance[row], expected.diagonal())
        np.testing.assert_allclose(
            batch.covariance.to_dense()[row], np.cov(logits[:, row].T.numpy()), rtol=1e-10
        )


def test_fewer_samples_than_classes_form_no_matrix_of_classes():
    samples, rows, classes = 5, 3, 3000
    logits = torch.randn(samples, rows, classes, generator=seeded(2))
    with LargestTensor() as largest:
        batch = lb.LogitGaussian.from_samples(logits)
        lb.laplace_bridge(batch)
        lb.links.monte_carlo(batch, num_samples=10, generator=seeded(3))
        lb.check(batch)
    assert (
        largest.largest <= 10 * rows * classes
    )  # ten draws; a matrix per row would be 300 times that


def test_many_samples_of_a_gaussian_give_it_back_within_five_standard_errors():
    given = gaussian("dense", 3, 2, 3)
    logits = given.sample(20_000, seeded(4))
    batch = lb.LogitGaussian.from_samples(logits)
    exact = given.covariance.to_dense()
    error = (given.variance / 20_000).sqrt()
    assert ((batch.mean - given.mean).abs() < 5 * error).all()
    # Isserlis: the variance of z_k z_l is Σ_kk Σ_ll + Σ_kl²
    spread = (given.variance.unsqueeze(-1) * given.variance.unsqueeze(-2) + exact.square()) / 20_000
    assert ((batch.covariance.to_dense() - exact).abs() < 5 * spread.sqrt()).all()


@EVERY_STRUCTURE
def test_draws_have_its_moments_within_five_standard_errors(structure):
    batch = gaussian(structure, 5, 3, 4)
    draws = batch.sample(20_000, seeded(6))
    assert draws.shape == (20_000, 3, 4)
    exact, variance = batch.covariance.to_dense(), batch.variance
    assert ((draws.mean(0) - batch.mean).abs() < 5 * (variance / 20_000).sqrt()).all()
    noise = draws - batch.mean
    products = torch.einsum("sbk,sbl->bkl", noise, noise) / 20_000
    spread = (variance.unsqueeze(-1) * variance.unsqueeze(-2) + exact.square()) / 20_000
    assert ((products - exact).abs() < 5 * spread.sqrt()).all()


@EVERY_STRUCTURE
def test_the_same_generator_draws_the_same(structure):
    batch = gaussian(structure, 7, 2, 3)
    assert torch.equal(batch.sample(5, seeded(0)), batch.sample(5, seeded(0)))
    assert not torch.equal(batch.sample(5, seeded(0)), batch.sample(5, seeded(1)))


@EVERY_STRUCTURE
def test_centring_is_the_law_of_logits_minus_their_mean(structure):
    batch = gaussian(structure, 8, 3, 4)
    centered = batch.centered()
    centring = torch.eye(4, dtype=torch.float64) - 0.25
    torch.testing.assert_close(centered.mean, batch.mean @ centring)
    torch.testing.assert_close(
        centered.covariance.to_dense(), centring @ batch.covariance.to_dense() @ centring
    )
    assert centered.mean.sum(-1).abs().max() < 1e-14
    again = centered.centered()
    torch.testing.assert_close(again.covariance.to_dense(), centered.covariance.to_dense())


@EVERY_STRUCTURE
def test_softmax_has_the_same_law_after_centring_within_five_standard_errors(structure):
    batch = gaussian(structure, 9, 2, 3, spread=1.0)
    first, second = (
        batch.sample(20_000, seeded(10)).softmax(-1),
        batch.centered().sample(20_000, seeded(11)).softmax(-1),
    )
    error = ((first.var(0) + second.var(0)) / 20_000).sqrt()
    assert ((first.mean(0) - second.mean(0)).abs() < 5 * error).all()


@EVERY_STRUCTURE
def test_indexing_chooses_rows_of_mean_and_covariance_alike(structure):
    batch = gaussian(structure, 12, 4, 3)
    dense = batch.covariance.to_dense()
    choices = [
        (1, [1]),
        (-1, [3]),
        (slice(1, 3), [1, 2]),
        ([2, 0], [2, 0]),
        (torch.tensor([3, 3]), [3, 3]),
        (torch.tensor([True, False, False, True]), [0, 3]),
        (slice(0, 0), []),
    ]
    for rows, expected in choices:
        chosen = batch[rows]
        assert len(chosen) == len(expected)
        assert torch.equal(chosen.mean, batch.mean[expected])
        torch.testing.assert_close(chosen.covariance.to_dense(), dense[expected])


@EVERY_STRUCTURE
def test_a_row_that_is_not_there_is_an_error(structure):
    batch = gaussian(structure, 12, 4, 3)
    for row in (4, 7, -5):
        with pytest.raises(IndexError):
            batch[row]
        with pytest.raises(IndexError):
            batch.covariance[row]


@EVERY_STRUCTURE
def test_a_loop_visits_each_row_once(structure):
    batch = gaussian(structure, 12, 4, 3)
    rows = list(itertools.islice(batch, 10))  # at most ten, in case the loop does not end
    assert len(rows) == 4
    assert torch.equal(torch.cat([row.mean for row in rows]), batch.mean)


@EVERY_STRUCTURE
def test_moving_to_another_type_moves_mean_and_covariance(structure):
    batch = gaussian(structure, 13, 2, 3)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        moved = batch.to(dtype)
        assert moved.dtype == moved.covariance.dtype == dtype
        assert all(tensor.dtype == dtype for tensor in moved.covariance.tensors().values())
        torch.testing.assert_close(
            moved.mean.double(), batch.mean, rtol=torch.finfo(dtype).eps, atol=0
        )
    assert batch.dtype == torch.float64


@EVERY_STRUCTURE
def test_moving_to_another_device_moves_mean_and_covariance(structure):
    for target in ("meta", torch.device("meta")):
        moved = gaussian(structure, 14, 2, 3).to(target)
        assert moved.mean.device.type == moved.covariance.device.type == "meta"
        assert all(tensor.device.type == "meta" for tensor in moved.covariance.tensors().values())


@EVERY_STRUCTURE
def test_knows_whether_a_gradient_may_be_asked_for_any_part(structure):
    batch = gaussian(structure, 15, 2, 3)
    assert not batch.requires_grad
    assert lb.LogitGaussian(batch.mean.clone().requires_grad_(), batch.covariance).requires_grad
    for name in batch.covariance.tensors():
        tensors = {key: tensor.clone() for key, tensor in batch.covariance.tensors().items()}
        tensors[name].requires_grad_()
        assert lb.LogitGaussian(batch.mean, type(batch.covariance)(**tensors)).requires_grad


def test_an_empty_batch_is_a_batch():
    empty = lb.LogitGaussian(torch.zeros(0, 3), lb.Diagonal(torch.zeros(0, 3)))
    assert len(empty) == 0
    assert empty.sample(4).shape == (4, 0, 3)
    assert lb.laplace_bridge(empty).mean.shape == (0, 3)
    assert len(lb.LogitGaussian.from_samples(torch.zeros(5, 0, 3))) == 0


def test_gaussians_are_values_that_cannot_be_changed():
    batch = gaussian("diagonal", 16, 2, 3)
    with pytest.raises(AttributeError):
        batch.mean = torch.zeros(2, 3)


def test_probabilities_in_place_of_logits_are_noticed():
    members = torch.randn(5, 7, 3, generator=seeded(9)).softmax(-1)
    with pytest.raises(ValueError, match="needs logits; these are probabilities"):
        lb.LogitGaussian.from_samples(members)
    lb.LogitGaussian.from_samples(members.log())


def test_numbers_that_are_none_are_refused_with_their_row():
    members = torch.randn(5, 3, 4)
    members[2, 1, 0] = torch.nan
    with pytest.raises(lb.InputError, match=r"from_samples.*finite logits; row 1 holds nan"):
        lb.LogitGaussian.from_samples(members)
    mean, variance = torch.zeros(3, 4), torch.ones(3, 4)
    variance[2, 0] = torch.nan
    with pytest.raises(lb.InputError, match=r"from_moments.*covariances; row 2 holds nan"):
        lb.LogitGaussian.from_moments(mean, variance)
    with pytest.raises(lb.InputError, match=r"from_moments.*means; row 0 holds inf"):
        lb.LogitGaussian.from_moments(torch.full((1, 4), torch.inf), torch.ones(1, 4))
    variance[2, 0] = torch.inf  # as good as very wide
    assert lb.bridges.race_mean(lb.LogitGaussian.from_moments(mean, variance)).isfinite().all()
