"""Parts of the race: its special function and its nodes."""

import pytest
import torch
from cases import gaussian, total_variation

import laplacebridge as lb
from laplacebridge._quadrature import gumbel_level
from laplacebridge.bridges.gumbel import Runners, lower_end

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
    answers = {num: lb.bridges.race_mean(batch, num_nodes=num) for num in (6, 12, 24, 96)}
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
