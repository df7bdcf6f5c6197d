"""Logit-normal marginals: the location gives the wanted mean, quantiles are those of a
Gaussian, limits hold.
"""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from laplacebridge.errors import InputError
from laplacebridge.logit_normal import LogitNormal

LOCATIONS = (0.0, -0.1, -1.0, -4.0, -12.0, -30.0)
VARIANCES = (1e-4, 0.1, 1.0, 4.0, 16.0)


def log_mean_by_quadrature(location, variance):
    """log E σ(x), by a fine sum in log space."""
    grid = np.linspace(-12, 12, 20_001)
    log_weight = stats.norm.logpdf(grid) + math.log(grid[1] - grid[0])
    return np.logaddexp.reduce(
        -np.logaddexp(0, -(location + math.sqrt(variance) * grid)) + log_weight
    )


@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("location", LOCATIONS)
def test_the_location_gives_the_mean(location, variance):
    mean = torch.tensor(
        [[math.exp(log_mean_by_quadrature(location, variance))]], dtype=torch.float64
    )
    for sign, first, second in ((1, mean, 1 - mean), (-1, 1 - mean, mean)):
        found = LogitNormal.with_mean(
            first, second, torch.full_like(mean, variance)
        ).location.item()
        # what the approximation of the mean leaves, in deviations
        assert abs(sign * found - location) < 0.01 * math.sqrt(variance) + 1e-6


def test_the_interval_of_three_independent_classes():
    mean = torch.tensor(
        [[0.7621955661819755, 0.16759157082364098, 0.07021286299438356]], dtype=torch.float64
    )
    variance = torch.tensor(
        [[1.6132709470403064, 1.8978093088052161, 1.7795777811504214]], dtype=torch.float64
    )
    lower, upper = LogitNormal.with_mean(mean, 1 - mean, variance).interval(0.95)
    np.testing.assert_allclose(lower, [[0.2729147546, 0.0079972486, 0.0027906216]], rtol=1e-6)
    np.testing.assert_allclose(upper, [[0.9819960617, 0.6409531954, 0.3431066321]], rtol=1e-6)


def test_quantile_and_survival_invert_each_other():
    marginal = LogitNormal(
        torch.tensor([[0.3, -5.0]]).double(), torch.tensor([[2.0, 0.5]]).double()
    )
    for level in (0.01, 0.5, 0.975):
        for column in range(2):
            threshold = marginal.quantile(level)[0, column].item()
            assert marginal.survival(threshold)[0, column].item() == pytest.approx(1 - level)


def test_without_variance_everything_is_at_the_mean():
    mean = torch.tensor([[0.7, 0.3]], dtype=torch.float64)
    marginal = LogitNormal.with_mean(mean, 1 - mean, torch.zeros_like(mean))
    for bound in marginal.interval(0.95):
        torch.testing.assert_close(bound, mean)
    assert marginal.survival(0.5).tolist() == [[1.0, 0.0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_means_and_variances_give_bounds_in_order(dtype):
    tiny = torch.finfo(dtype).tiny
    for mean in (tiny, 1e-30, 1e-6, 0.5):
        for variance in (0.0, 1e-12, 1.0, 1e3, 1e6, 1e30):
            smaller = torch.tensor([[mean]], dtype=dtype)
            marginal = LogitNormal.with_mean(
                smaller, 1 - smaller, torch.full_like(smaller, variance)
            )
            lower, upper = marginal.interval(0.95)
            assert 0 <= lower <= upper <= 1, (mean, variance)


def test_bad_arguments_are_named():
    marginal = LogitNormal(torch.zeros(1, 2), torch.ones(1, 2))
    for call in (
        lambda: marginal.interval(1.0),
        lambda: marginal.quantile(0.0),
        lambda: marginal.survival(2.0),
    ):
        with pytest.raises(InputError, match="between 0 and 1"):
            call()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("variance", [0.0, 1e-8, 1.0, 50.0, 1e4, 1e10])
def test_bounds_are_numbers_where_probabilities_vanish(variance, dtype):
    mean = torch.tensor([[0.0, 1.0, 0.5, 1e-45, 1e-38, 0.5 + 1e-7]], dtype=dtype)
    marginal = LogitNormal.with_mean(mean, 1 - mean, torch.full_like(mean, variance))
    lower, upper = marginal.interval()
    assert marginal.location.isfinite().all()
    assert ((lower >= 0) & (lower <= upper) & (upper <= 1)).all()


def test_one_step_in_float32_is_enough_for_intervals():
    log_mean = -torch.logspace(-0.15, 1.9, 60, dtype=torch.float64)[:, None]
    variance = torch.logspace(-4, 5, 90, dtype=torch.float64)[None]
    mean, variance = torch.broadcast_tensors(log_mean.exp(), variance)
    exact = LogitNormal.with_mean(mean, 1 - mean, variance)
    single = LogitNormal.with_mean(mean.float(), (1 - mean).float(), variance.float())
    for found, wanted in zip(single.interval(), exact.interval()):
        torch.testing.assert_close(found.double(), wanted, atol=1e-4, rtol=0)


@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1e-4), (torch.float64, 1e-6)])
def test_a_large_variance_leaves_the_location_its_digits(dtype, most):
    """Beside it a logistic function is a step: the location is √B times a normal
    quantile.
    """
    quantiles = torch.tensor([0.0, 0.05, 0.5, 1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    mean = torch.special.ndtr(-quantiles).to(dtype).unsqueeze(0)
    for exponent in range(8, 31, 2):
        variance = torch.full_like(mean, 10.0**exponent)
        found = LogitNormal.with_mean(mean, 1 - mean, variance).location / variance.sqrt()
        assert (found + quantiles).abs().max() < most, exponent
