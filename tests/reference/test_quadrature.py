"""The references themselves: against mpmath, SciPy, sampling and the cases whose answer
is known.
"""

import itertools
from functools import partial
from pathlib import Path

import mpmath
import numpy as np
import pytest
import scipy.integrate
import scipy.special
import torch

from laplacebridge._quadrature import exact_independent_mean, gumbel_level

GOLDEN = Path(__file__).parents[1] / "data" / "golden.npz"
double = partial(torch.tensor, dtype=torch.float64)
VARIANCES = [1e-8, 1e-3, 0.1, 1.0, 10.0, 100.0, 1e4, 1e6]


def interval(variance):
    """Distances whose levels cover -2.6 to 13 and a little more."""
    return 0.577 - (11.56 + 39 * variance) ** 0.5, (225 + 30 * variance) ** 0.5


def level_by_mpmath(distance, variance):
    """The definition in 25 digits: integrates F, or 1 - F where F is close to 1."""
    with mpmath.workdps(25):
        distance, deviation = mpmath.mpf(distance), mpmath.sqrt(variance)

        def before(normal):
            return mpmath.exp(-mpmath.exp(deviation * normal - distance)) * mpmath.npdf(normal)

        def after(normal):
            return -mpmath.expm1(-mpmath.exp(deviation * normal - distance)) * mpmath.npdf(normal)

        edge = distance / deviation
        points = [mpmath.mpf(unit) for unit in (-14, -10, -7, -5, -3, -1, 0, 1, 3, 5, 7, 10, 14)]
        # The edge is as wide as 1/deviation; the peak of the tilted density is
        # `deviation` away from 0.
        points += [
            edge + unit / deviation
            for unit in (-40, -20, -12, -8, -5, -3, -2, -1, 0, 1, 2, 3, 4, 6)
        ]
        points += [deviation + unit for unit in (-7, -4, -2, 0, 2, 4, 7)] if deviation < 8 else []
        points = sorted(point for point in points if abs(point) <= 14)
        if distance < 1:
            return float(-mpmath.log(-mpmath.log(mpmath.quad(before, points))))
        return float(-mpmath.log(-mpmath.log1p(-mpmath.quad(after, points))))


@pytest.mark.parametrize("variance", VARIANCES)
def test_level_agrees_with_mpmath(variance):
    start, stop = interval(variance)
    distances = [start + (stop - start) * fraction for fraction in (0.05, 0.4, 0.85)]
    expected = [level_by_mpmath(distance, variance) for distance in distances]
    assert gumbel_level(double(distances), double(variance)).tolist() == pytest.approx(
        expected, abs=1e-10
    )


def test_level_without_variance_is_the_distance():
    distance = torch.linspace(-6, 800, 50, dtype=torch.float64)
    assert torch.equal(gumbel_level(distance, torch.tensor(0.0)), distance)


def test_level_for_a_small_variance_has_the_right_first_order():
    distance, variance = torch.linspace(-2.5, 14, 100, dtype=torch.float64), double(1e-6)
    ratio = (gumbel_level(distance, variance) - distance) / variance
    torch.testing.assert_close(ratio, (torch.exp(-distance) - 1) / 2, atol=3e-4, rtol=0)


def test_level_far_right_is_that_of_a_log_normal_mean():
    distance, variance = double([40.0, 400.0, 4000.0]), double([1.0, 9.0, 100.0])
    torch.testing.assert_close(
        gumbel_level(distance, variance), distance - variance / 2, atol=1e-9, rtol=0
    )


def test_level_for_a_huge_variance_is_that_of_the_normal():
    place = np.linspace(-5, 8, 30)
    level = gumbel_level(torch.from_numpy(place * 1e7), double(1e14))
    np.testing.assert_allclose(level, -np.log(-scipy.special.log_ndtr(place)), atol=1e-5)


@pytest.mark.parametrize("variance", [0.0, *VARIANCES])
def test_level_increases_with_the_distance(variance):
    start, stop = interval(variance)
    distance = torch.linspace(1.5 * start, 3 * stop, 2000, dtype=torch.float64)
    assert torch.all(gumbel_level(distance, double(variance)).diff() > 0)


def test_level_broadcasts():
    level = gumbel_level(torch.zeros(4, 1), torch.ones(3))
    assert level.shape == (4, 3)
    assert level.dtype == torch.float64


def extreme_rows(classes=40):
    """One row for each kind of mixture that breaks simpler rules; means and variances."""
    generator = torch.Generator().manual_seed(0)
    mean = 2 * torch.randn(5, classes, generator=generator, dtype=torch.float64)
    variance = torch.full_like(mean, 0.5)
    uniform = torch.rand(3, classes, generator=generator, dtype=torch.float64)
    variance[0] = 10 ** (13 * uniform[0] - 8)
    variance[1, 0] = 1e5
    mean[2, classes // 2 :] = -30
    variance[2, classes // 2 :] = 50 * 20 ** uniform[1, classes // 2 :]
    mean[3], variance[3] = 200 * uniform[2] - 100, 1e4 * uniform[1]
    variance[4] = 1e6
    return mean, variance


@pytest.mark.parametrize(
    "variances", [(0.0, 0.3), (1.0, 1.0), (1e-8, 50.0), (3.0, 1e3), (1e5, 1e-3)]
)
@pytest.mark.parametrize("gap", [0.0, 1.0, -8.0])
def test_two_classes_are_a_logistic_normal(gap, variances):
    deviation = sum(variances) ** 0.5

    def integrand(normal):
        return (
            scipy.special.expit(gap + deviation * normal)
            * np.exp(-(normal**2) / 2)
            / np.sqrt(2 * np.pi)
        )

    around_edge = (np.array([-40, -8, 0, 8, 40]) - gap) / deviation
    points = np.unique(np.clip([-10, *around_edge, 10], -10, 10))
    pieces = [
        scipy.integrate.quad(integrand, *ends, epsabs=1e-13)[0]
        for ends in itertools.pairwise(points)
    ]
    expected = sum(pieces)
    mean = exact_independent_mean(double([[gap, 0.0]]), double([variances]))
    assert mean[0].tolist() == pytest.approx([expected, 1 - expected], abs=1e-8)


def test_mean_without_variance_is_softmax():
    mean = 5 * torch.randn(6, 30, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    without_variance = exact_independent_mean(mean, torch.zeros_like(mean))
    torch.testing.assert_close(without_variance, mean.softmax(-1), atol=1e-9, rtol=0)


@pytest.mark.parametrize("variance", [0.0, 1e-8, 0.3, 30.0, 1e6])
def test_mean_of_exchangeable_logits_is_uniform(variance):
    mean = exact_independent_mean(torch.full((2, 17), 3.0), torch.full((2, 17), variance))
    torch.testing.assert_close(
        mean, torch.full((2, 17), 1 / 17, dtype=torch.float64), atol=1e-14, rtol=0
    )


def test_mean_ignores_a_common_shift():
    mean, variance = extreme_rows()
    shifted = exact_independent_mean(mean + 1000, variance)
    torch.testing.assert_close(shifted, exact_independent_mean(mean, variance), atol=1e-11, rtol=0)


def test_mean_has_converged_in_the_nodes():
    mean, variance = extreme_rows()
    fine = exact_independent_mean(mean, variance, num_nodes=1000)
    torch.testing.assert_close(exact_independent_mean(mean, variance), fine, atol=1e-12, rtol=0)


def test_mean_agrees_with_sampling():
    mean, variance = extreme_rows()
    generator, total, squares, num_samples = torch.Generator().manual_seed(2), 0.0, 0.0, 200_000
    for _ in range(20):
        noise = torch.randn(
            num_samples // 20, *mean.shape, generator=generator, dtype=torch.float64
        )
        probabilities = torch.softmax(mean + variance.sqrt() * noise, -1)
        total, squares = total + probabilities.sum(0), squares + probabilities.square().sum(0)
    average = total / num_samples
    standard_error = torch.sqrt((squares / num_samples - average.square()) / num_samples)
    # The least error is for classes whose rare wins may all be missing from the sample.
    assert torch.all(
        (exact_independent_mean(mean, variance) - average).abs() < 5 * standard_error + 1e-5
    )


@pytest.mark.parametrize("classes", [2, 3, 5, 10, 100])
def test_mean_agrees_with_the_golden_vectors(classes):
    names = ("mean", "covariance", "race_diagonal/exact_probabilities")
    with np.load(GOLDEN) as golden:
        mean, covariance, expected = (
            torch.from_numpy(golden[f"K{classes}/{name}"]) for name in names
        )
    difference = exact_independent_mean(mean, covariance.diagonal(dim1=-2, dim2=-1)) - expected
    assert difference.abs().sum(-1).max() / 2 < 5e-5
