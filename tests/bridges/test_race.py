"""Parts of the race: its special function, its nodes and its conditioning on a shared
direction.
"""

import pytest
import torch
from cases import gaussian, seeded, total_variation

import laplacebridge as lb
from laplacebridge._quadrature import gumbel_level
from laplacebridge.bridges import race
from laplacebridge.bridges.gumbel import Runners, lower_end
from laplacebridge.bridges.shared_direction import shared_direction

VARIANCES = torch.tensor([0.0, 1e-8, 1e-3, 0.1, 1.0, 7.0, 100.0, 1e4, 1e6]).double()


def levels(distances, variance):
    """y = −log φ of one runner at some distances, by the table."""
    runner = Runners.of(torch.zeros(1, 1).to(distances), variance.reshape(1, 1).to(distances))
    return -runner.hazards(distances.unsqueeze(-1)).log()[:, 0, 0]


@pytest.mark.parametrize("variance", VARIANCES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_the_special_function_agrees_with_direct_quadrature(variance, dtype):
    distances = torch.linspace(0, 1, 400).double() ** 2 * 30 * (1 + variance.sqrt())
    distances = lower_end(variance.reshape(1, 1))[0, 0] + distances
    exact = gumbel_level(distances, variance)
    inside = (exact > -2.6) & (exact < 13)
    assert inside.sum() > 20
    error = (levels(distances.to(dtype), variance).double() - exact).abs()
    assert error[inside].max() <= 2e-3


@pytest.mark.parametrize("variance", [*VARIANCES, torch.tensor(1e12).double()], ids=str)
def test_beyond_its_range_the_special_function_is_finite_and_monotone(variance):
    start = lower_end(variance.reshape(1, 1))[0, 0]
    distances = start + torch.logspace(-3, 4, 500).double() * (1 + variance.sqrt())
    runner = Runners.of(torch.zeros(1, 1).double(), variance.reshape(1, 1))
    hazards = runner.hazards(distances.unsqueeze(-1))[:, 0, 0]
    assert hazards.isfinite().all()
    assert (hazards.diff() <= 0).all()


def test_for_certain_logits_the_hazard_is_that_of_a_gumbel_variable():
    distances = torch.linspace(-2.5, 40, 50).double()
    torch.testing.assert_close(
        levels(distances, torch.tensor(0.0)), distances, atol=1e-12, rtol=1e-12
    )


def test_more_nodes_converge():
    batch = gaussian("diagonal", 0, 30, 10)
    answers = {num: race.race_mean(batch, num_nodes=num) for num in (6, 12, 24, 96)}
    errors = [total_variation(answers[num], answers[96]).max().item() for num in (6, 12, 24)]
    assert errors[0] > errors[1] > errors[2]
    assert errors[1] < 5e-4


def test_the_mean_alone_is_the_bridges_mean():
    for structure in ("diagonal", "dense"):
        batch = gaussian(structure, 1, 8, 6)
        torch.testing.assert_close(lb.bridges.race_mean(batch), lb.race_bridge(batch).mean)
        torch.testing.assert_close(
            lb.bridges.one_vs_rest_mean(batch), lb.bridges.one_vs_rest_bridge(batch).mean
        )


def test_for_independent_logits_given_as_matrices_the_ratio_is_one():
    batch = gaussian("diagonal", 2, 10, 8)
    dense = lb.LogitGaussian(batch.mean, lb.Dense(batch.covariance.to_dense()))
    torch.testing.assert_close(
        lb.bridges.race_mean(batch), lb.bridges.race_mean(dense), atol=1e-10, rtol=1e-8
    )


def clusters(rows, classes, correlation):
    sign = torch.where(torch.arange(classes) < classes // 2, 1.0, -1.0).double()
    same = (sign[:, None] * sign[None, :] > 0).double()
    scale = 20.0
    matrix = scale * (correlation * same + (1 - correlation) * torch.eye(classes).double())
    mean = torch.randn(rows, classes, generator=seeded(classes), dtype=torch.float64)
    return lb.LogitGaussian(mean, lb.Dense(matrix.expand(rows, -1, -1)))


def rank_one(rows, classes):
    factor = 4 * torch.randn(rows, classes, 1, generator=seeded(classes), dtype=torch.float64)
    mean = torch.randn(rows, classes, generator=seeded(classes + 1), dtype=torch.float64)
    return lb.LogitGaussian(mean, lb.LowRank(factor))


@pytest.mark.parametrize(
    "batch", [clusters(10, 30, 0.9), rank_one(10, 30)], ids=["two clusters", "rank one"]
)
def test_conditioning_on_the_shared_direction_repairs_what_the_ratio_cannot(batch):
    truth = lb.links.monte_carlo(batch, num_samples=20_000, generator=seeded(0))
    plain = total_variation(lb.bridges.race_mean(batch), truth).mean()
    conditioned = total_variation(lb.bridges.race_mean(batch, shared_direction=True), truth).mean()
    assert plain > 0.05
    assert conditioned < 0.02


def test_an_outlier_is_not_mistaken_for_a_shared_direction():
    batch = gaussian("diagonal", 3, 10, 10)
    variance = batch.variance.clone()
    variance[:, 4] = 400.0
    dense = lb.Dense(torch.diag_embed(variance))
    flagged, _ = shared_direction(batch.mean, dense.modulo_shift())
    assert not flagged.any()


def test_the_shared_direction_is_the_leading_axis_of_what_independence_cannot_express():
    batch = clusters(4, 12, 0.7)
    covariance = batch.covariance.modulo_shift()
    flagged, contrast = shared_direction(batch.mean, covariance)
    assert flagged.all()
    # the contrast compares the two clusters: it has one sign on each
    first, second = contrast[:, :6], contrast[:, 6:]
    assert (first.sign() == first.sign()[:, :1]).all()
    assert (second.sign() == -first.sign()[:, :1]).all()


def test_rows_that_are_not_flagged_keep_their_answer():
    plain, mixed = gaussian("dense", 5, 6, 10), clusters(2, 10, 0.9)
    mean = torch.cat([plain.mean, mixed.mean])
    covariance = lb.Dense(
        torch.cat([0.01 * plain.covariance.to_dense(), mixed.covariance.to_dense()])
    )
    batch = lb.LogitGaussian(mean, covariance)
    without, with_direction = (
        lb.bridges.race_mean(batch),
        lb.bridges.race_mean(batch, shared_direction=True),
    )
    torch.testing.assert_close(without[:6], with_direction[:6], atol=0, rtol=0)
    assert total_variation(without[6:], with_direction[6:]).min() > 1e-3
