"""Golden vectors: what every map makes of eighty Gaussians, computed by another
implementation in float64.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from cases import total_variation

import laplacebridge as lb
from laplacebridge.bridges.information import expected_log_sum_exp_gap
from laplacebridge.bridges.log_odds import log_odds
from laplacebridge.bridges.race import race_probabilities

GOLDEN = np.load(Path(__file__).parents[1] / "data" / "golden.npz", allow_pickle=False)
CLASSES = pytest.mark.parametrize("classes", [2, 3, 5, 10, 100])
norm, center = lb.bridges.laplace_bridge_norm, lb.bridges.center

PAPER = {
    "laplace_raw": lb.bridges.laplace_bridge_raw,
    "laplace_condition": lb.laplace_bridge,
    "laplace_center": partial(lb.laplace_bridge, zero_sum=center),
    "laplace_norm_condition": norm,
    "laplace_norm_center": partial(norm, zero_sum=center),
    "laplace_norm_sum_condition": partial(norm, average=False),
    "laplace_norm_sum_center": partial(norm, zero_sum=center, average=False),
    "laplace_norm_only_large_condition": partial(norm, only_large=True),
    "laplace_norm_only_large_center": partial(norm, zero_sum=center, only_large=True),
}


def golden(classes, name):
    return torch.from_numpy(GOLDEN[f"K{classes}/{name}"])


def given(classes):
    return lb.LogitGaussian(golden(classes, "mean"), lb.Dense(golden(classes, "covariance")))


def on_diagonal(classes, variance):
    return lb.LogitGaussian(golden(classes, "mean"), lb.Diagonal(variance))


@CLASSES
@pytest.mark.parametrize("name", PAPER)
def test_every_reading_of_the_papers_bridge(classes, name):
    answer = PAPER[name](given(classes)).log_concentration
    torch.testing.assert_close(answer, golden(classes, name), atol=1e-9, rtol=1e-9)


@CLASSES
def test_probit_as_published_and_centred(classes):
    for name, centered in (("probit", False), ("probit_centered", True)):
        answer = lb.links.probit(given(classes), centered=centered)
        torch.testing.assert_close(answer, golden(classes, name), atol=1e-12, rtol=1e-9)


@CLASSES
def test_monte_carlo_agrees_within_five_standard_errors(classes):
    num_samples = 4000
    sampled = lb.links.monte_carlo(
        given(classes), num_samples=num_samples, generator=torch.Generator().manual_seed(1)
    )
    stored_error = golden(classes, "monte_carlo/standard_error")  # of 40 000 samples
    error = stored_error * (1 + 40_000 / num_samples) ** 0.5
    difference = (sampled - golden(classes, "monte_carlo/probabilities")).abs()
    # probabilities that hardly any sample reaches have no useful error bar
    assert (difference <= 5 * error + 2e-3).all()
    assert (difference <= 5 * error)[golden(classes, "monte_carlo/probabilities") > 0.01].all()


@CLASSES
def test_effective_variances(classes):
    answer = given(classes).covariance.effective_variance()
    torch.testing.assert_close(
        answer, golden(classes, "effective_variance"), atol=1e-10, rtol=1e-10
    )


@CLASSES
def test_one_vs_rest_step_by_step(classes):
    gaussian = given(classes)
    odds = log_odds(gaussian.mean, gaussian.covariance.modulo_shift())
    torch.testing.assert_close(
        odds.mean, golden(classes, "one_vs_rest_steps/a"), atol=1e-10, rtol=1e-10
    )
    torch.testing.assert_close(
        odds.variance, golden(classes, "one_vs_rest_steps/B"), atol=1e-10, rtol=1e-10
    )
    expected = golden(classes, "one_vs_rest_steps/probabilities")
    torch.testing.assert_close(
        lb.bridges.one_vs_rest_mean(gaussian), expected, atol=1e-12, rtol=1e-10
    )


@CLASSES
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_one_vs_rest_with_products_with_row_sums_only_and_independent(classes, dtype):
    tolerance = 1e-6 if dtype == torch.float64 else 1e-4
    full = given(classes)
    for name, gaussian in {
        "one_vs_rest": full,
        "one_vs_rest_row_sums_only": on_diagonal(classes, full.covariance.effective_variance()),
        "one_vs_rest_diagonal": on_diagonal(classes, full.variance),
    }.items():
        answer = lb.bridges.one_vs_rest_bridge(gaussian.to(dtype)).log_concentration.double()
        torch.testing.assert_close(answer, golden(classes, name), atol=tolerance, rtol=0)


@CLASSES
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_delta(classes, dtype):
    answer = lb.bridges.delta_bridge(given(classes).to(dtype)).log_concentration.double()
    tolerance = 1e-6 if dtype == torch.float64 else 1e-4
    torch.testing.assert_close(answer, golden(classes, "delta"), atol=tolerance, rtol=0)


@CLASSES
def test_kl(classes):
    gaussian = given(classes)
    gap = expected_log_sum_exp_gap(gaussian)
    torch.testing.assert_close(gap, golden(classes, "kl_steps/jensen_gap"), atol=1e-12, rtol=1e-8)
    torch.testing.assert_close(
        lb.bridges.kl_bridge(gaussian).log_concentration, golden(classes, "kl"), atol=1e-4, rtol=0
    )


@CLASSES
def test_race(classes):
    # the golden race is that of a fit's Gaussians, without a search for factors
    answer = lb.race_bridge(replace(given(classes), seek_factors=False))
    expected = lb.Dirichlet(golden(classes, "race"))
    assert total_variation(answer.mean, expected.mean).max() < 1e-3
    assert (answer.log_total - expected.log_total).abs().max() < 5e-3


@CLASSES
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_the_race_of_independent_logits_is_the_exact_mean(classes, dtype):
    gaussian = given(classes).to(dtype)
    answer = race_probabilities(gaussian.mean, gaussian.variance)
    exact = golden(classes, "race_diagonal/exact_probabilities")
    assert total_variation(answer, exact).max() < 1e-3
