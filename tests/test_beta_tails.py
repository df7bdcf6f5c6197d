"""Tails of Beta distributions in log space: right where the plain distribution function
rounds or underflows.
"""

import math

import mpmath
import pytest
import torch

import laplacebridge as lb

PAIRS = [(0.5, 3.0), (1e-6, 1e-6), (1e-3, 50.0), (2.0, 5.0), (1e6, 3e6), (1e12, 1e12), (3.0, 1e10)]


def beta(alpha, other):
    return lb.Beta(*(torch.tensor([value], dtype=torch.float64).log() for value in (alpha, other)))


# the upper half of Beta(1e-6, 1e-6) lies so close to 1 that its logarithm is 0
@pytest.mark.parametrize(
    ("alpha", "other", "level"),
    [
        (*pair, level)
        for pair in PAIRS
        for level in (1e-6, 0.025, 0.5, 0.975)
        if level < 0.9 or pair != (1e-6, 1e-6)
    ],
)
def test_the_mass_below_a_quantile_is_its_level(alpha, other, level):
    marginal = beta(alpha, other)
    log_x = marginal.log_quantile(level)
    assert marginal.log_cdf(log_x).exp().item() == pytest.approx(level, rel=2e-6)
    assert marginal.survival(log_x).item() == pytest.approx(1 - level, rel=2e-6)


@pytest.mark.parametrize(("alpha", "other"), PAIRS)
def test_the_log_quantile_is_the_logarithm_of_the_quantile_where_that_can_be_said(alpha, other):
    marginal = beta(alpha, other)
    for level in (0.3, 0.9):
        quantile = marginal.quantile(level).item()
        if quantile > 1e-280:
            assert marginal.log_quantile(level).item() == pytest.approx(
                math.log(quantile), rel=1e-9, abs=1e-12
            )


def test_quantiles_far_below_the_range_of_the_type_are_right():
    alpha, other, level = 1e-4, 2e-4, 0.1
    with mpmath.workdps(60):
        # F(x) = xᵃ/(a B(a, b)) (1 + O(x)), and x is about 1e-8200
        expected = mpmath.log(level * alpha * mpmath.beta(alpha, other)) / alpha
    assert beta(alpha, other).log_quantile(level).item() == pytest.approx(
        float(expected), rel=1e-10
    )
    assert float(expected) < -1e4


@pytest.mark.parametrize("log_x", [-0.05, -0.2, -1.0])
def test_upper_tails_keep_their_digits_when_they_are_tiny(log_x):
    alpha, other = 30.0, 400.0
    with mpmath.workdps(60):
        expected = mpmath.betainc(alpha, other, mpmath.exp(log_x), 1, regularized=True)
    assert float(expected) < 1e-30
    assert beta(alpha, other).survival(log_x).item() == pytest.approx(float(expected), rel=1e-9)


def test_lower_tails_are_said_beyond_the_range_of_the_type():
    log_x = -1e5
    with mpmath.workdps(60):
        expected = 2 * log_x - mpmath.log(2) - mpmath.log(mpmath.beta(2, 3))
    assert beta(2.0, 3.0).log_cdf(log_x).item() == pytest.approx(float(expected), rel=1e-12)


def test_logarithms_above_zero_are_named():
    with pytest.raises(ValueError, match=r"at most 0; got 0\.5"):
        beta(2.0, 3.0).survival(0.5)
