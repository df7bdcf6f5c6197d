"""Beta distributions: against SciPy on ordinary values, and against series and limits
where SciPy has none.
"""

import itertools
import math

import mpmath
import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from cases import seeded

import laplacebridge as lb

DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
LEVELS = [1e-6, 0.025, 0.3, 0.5, 0.9, 0.975, 1 - 1e-6]


def beta_of(pairs, dtype=torch.float64):
    """Betas with these parameters, and the parameters that the type stores."""
    log_alpha, log_beta = torch.tensor(pairs, dtype=torch.float64).log().to(dtype).T
    return (
        lb.Beta(log_alpha, log_beta),
        log_alpha.double().exp().numpy(),
        log_beta.double().exp().numpy(),
    )


def ordinary_pairs(num_pairs=60):
    generator = np.random.default_rng(0)
    return np.exp(generator.uniform(np.log(0.05), np.log(2000), (num_pairs, 2))).tolist()


@pytest.fixture(scope="module")
def ordinary():
    return beta_of(ordinary_pairs())


def test_agrees_with_scipy_on_ordinary_values(ordinary):
    beta, first, second = ordinary
    twin = scipy.stats.beta(first, second)
    np.testing.assert_allclose(beta.alpha, first, rtol=1e-14)
    np.testing.assert_allclose(beta.beta, second, rtol=1e-14)
    np.testing.assert_allclose(beta.mean, twin.mean(), rtol=1e-13)
    np.testing.assert_allclose(beta.variance, twin.var(), rtol=1e-12)
    for level in LEVELS:
        np.testing.assert_allclose(beta.quantile(level), twin.ppf(level), rtol=1e-10)
        np.testing.assert_allclose(beta.cdf(level), twin.cdf(level), rtol=1e-10, atol=1e-300)


def test_the_cdf_is_the_integral_of_the_dirichlets_density():
    pair = lb.Dirichlet.from_concentration(torch.tensor([[2.5, 4.0]], dtype=torch.float64))
    nodes, weights = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(200))
    point = 0.35 * (nodes + 1) / 2
    rows = lb.Dirichlet(pair.log_concentration.expand(len(point), -1))
    mass = (rows.log_prob(torch.stack([point, 1 - point], -1)).exp() * weights).sum() * 0.35 / 2
    assert pair.marginal(0).cdf(0.35).item() == pytest.approx(mass.item(), rel=1e-6)


def test_the_cdf_undoes_the_quantile(ordinary):
    beta, _, _ = ordinary
    for level in LEVELS:
        quantile = beta.quantile(level)
        resolvable = quantile < 1 - 1e-9  # next to 1 a float64 cannot say which quantile it is
        assert resolvable.sum() > 40
        expected = torch.full_like(quantile, level)
        torch.testing.assert_close(
            beta.cdf(quantile)[resolvable], expected[resolvable], rtol=1e-6, atol=0
        )


def test_the_quantile_undoes_the_cdf_with_one_level_per_example(ordinary):
    beta, _, _ = ordinary
    points = 0.5 * beta.mean
    levels = beta.cdf(points)
    inside = (levels > 1e-12) & (levels < 1 - 1e-6)
    assert inside.sum() > 30
    torch.testing.assert_close(beta.quantile(levels)[inside], points[inside], rtol=1e-8, atol=0)


def test_exchanging_the_parameters_exchanges_the_tails(ordinary):
    beta, _, _ = ordinary
    mirrored = lb.Beta(beta.log_beta, beta.log_alpha)
    torch.testing.assert_close(mirrored.mean, 1 - beta.mean, rtol=0, atol=1e-15)
    torch.testing.assert_close(mirrored.cdf(0.7), 1 - beta.cdf(0.3), rtol=0, atol=1e-10)
    torch.testing.assert_close(mirrored.quantile(0.9), 1 - beta.quantile(0.1), rtol=0, atol=1e-10)


def test_the_interval_leaves_the_same_mass_on_both_sides(ordinary):
    beta, first, second = ordinary
    twin = scipy.stats.beta(first, second)
    for level in (0.5, 0.95, 0.999):
        lower, upper = beta.interval(level)
        np.testing.assert_allclose(lower, twin.ppf((1 - level) / 2), rtol=1e-10)
        np.testing.assert_allclose(upper, twin.ppf(1 - (1 - level) / 2), rtol=1e-10)
        assert (lower < upper).all()
    np.testing.assert_array_equal(beta.interval()[0], beta.interval(0.95)[0])


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 95.0, math.nan])
def test_an_interval_needs_a_mass_between_zero_and_one(level):
    beta = lb.Beta(torch.zeros(1), torch.zeros(1))
    with pytest.raises(ValueError, match=r"needs a mass between 0 and 1; got .* 0\.95 is usual"):
        beta.interval(level)


@DTYPES
def test_moments_are_right_for_every_concentration(dtype):
    pairs = list(itertools.product([1e-30, 1e-12, 1e-3, 1.0, 30.0, 1e9, 1e18], repeat=2))
    beta, _, _ = beta_of(pairs, dtype)
    means, variances = [], []
    with mpmath.workdps(80):
        for logs in zip(beta.log_alpha.double().tolist(), beta.log_beta.double().tolist()):
            first, second = (mpmath.exp(mpmath.mpf(log)) for log in logs)
            total = first + second
            means.append(float(first / total))
            variances.append(float(first * second / total**2 / (total + 1)))
    smallest = torch.finfo(dtype).smallest_normal
    tolerance = 200 * torch.finfo(dtype).eps
    np.testing.assert_allclose(beta.mean.double(), means, rtol=tolerance, atol=smallest)
    np.testing.assert_allclose(beta.variance.double(), variances, rtol=tolerance, atol=smallest)


def cdf_by_mpmath(alpha, beta, point):
    """The incomplete beta function by its series of positive terms, in 60 digits."""
    with mpmath.workdps(60):
        alpha, beta, point = mpmath.mpf(alpha), mpmath.mpf(beta), mpmath.mpf(point)
        log_beta = mpmath.loggamma(alpha) + mpmath.loggamma(beta) - mpmath.loggamma(alpha + beta)
        scale = (
            mpmath.exp(alpha * mpmath.log(point) + beta * mpmath.log1p(-point) - log_beta) / alpha
        )
        term = total = mpmath.mpf(1)
        step = 0
        while term > total * mpmath.mpf("1e-20"):
            term *= (alpha + beta + step) / (alpha + 1 + step) * point
            total += term
            step += 1
        return scale * total


SURE_OF_ABSENCE = [
    (0.3, 1e9),
    (2.5, 1e12),
    (2.5, 1e17),
    (30.0, 1e15),
    (30.0, 1e18),
    (1e3, 1e13),
    (1e4, 1e18),
    (9.0, 7e17),
]


@pytest.mark.parametrize("level", [1e-6, 0.025, 0.3, 0.5, 0.9, 0.999])
def test_quantiles_of_a_class_that_is_surely_rare_hold_their_mass(level):
    beta, first, second = beta_of(SURE_OF_ABSENCE)
    quantiles = beta.quantile(level).tolist()
    masses = [float(cdf_by_mpmath(*case)) for case in zip(first, second, quantiles)]
    np.testing.assert_allclose(masses, level, rtol=1e-6)


@pytest.mark.parametrize("deviations", [-4.0, -1.0, 0.0, 0.5, 3.0])
def test_the_cdf_of_a_class_that_is_surely_rare_is_that_of_the_series(deviations):
    beta, first, second = beta_of(SURE_OF_ABSENCE)
    points = scipy.special.gammaincinv(first, scipy.special.ndtr(deviations)) / second
    got = beta.cdf(torch.from_numpy(points)).tolist()
    masses = [float(cdf_by_mpmath(*case)) for case in zip(first, second, points)]
    np.testing.assert_allclose(got, masses, rtol=1e-8)


HUGE = [
    (9e8, 9e8),
    (1.1e9, 1.1e9),
    (1e10, 3e12),
    (5e12, 2e10),
    (1e15, 1e15),
    (1e18, 1e18),
    (4e17, 1e18),
    (1e12, 1e18),
]


def moments_of(first, second):
    """Mean, standard deviation and skewness of a Beta, in mpmath's precision."""
    first, second = mpmath.mpf(first), mpmath.mpf(second)
    total = first + second
    mean = first / total
    deviation = mpmath.sqrt(mean * second / total / (total + 1))
    skewness = 2 * (second - first) * mpmath.sqrt(total + 1) / (total + 2)
    return mean, deviation, skewness / mpmath.sqrt(first * second)


@pytest.mark.parametrize("pair", HUGE, ids=str)
def test_quantiles_of_huge_parameters_are_those_of_a_skewed_normal(pair):
    beta, (first,), (second,) = beta_of([pair])
    with mpmath.workdps(60):
        mean, deviation, skewness = moments_of(first, second)
        for level in LEVELS:
            normal = mpmath.mpf(float(scipy.special.ndtri(level)))
            expected = mean + deviation * (normal + (normal**2 - 1) * skewness / 6)
            got = mpmath.mpf(beta.quantile(level).item())
            resolution = mpmath.mpf(2) ** -52 * expected
            assert abs(got - expected) < 1e-7 * deviation + 2 * resolution


@pytest.mark.parametrize("pair", HUGE, ids=str)
def test_the_cdf_of_huge_parameters_is_that_of_a_skewed_normal(pair):
    beta, (first,), (second,) = beta_of([pair])
    with mpmath.workdps(60):
        mean, deviation, skewness = moments_of(first, second)
        for level in LEVELS:
            point = float(mean + deviation * mpmath.mpf(float(scipy.special.ndtri(level))))
            normal = (mpmath.mpf(point) - mean) / deviation  # of the point that float64 rounds to
            expected = mpmath.ncdf(normal) - mpmath.npdf(normal) * (normal**2 - 1) * skewness / 6
            blur = mpmath.npdf(normal) * mpmath.mpf(2) ** -52 * mean / deviation
            assert (
                abs(beta.cdf(point).item() - expected) < 1.5e-8 + 4 * blur
            )  # 1.1e-8 by SciPy before 1.17


@pytest.mark.parametrize(
    "pair", [*HUGE, (1e12, 2e9), (2e9, 1e12), (2e9, 1e18), (1e18, 2e9)], ids=str
)
def test_far_from_the_mean_the_cdf_of_huge_parameters_is_zero_or_one(pair):
    beta, _, _ = beta_of([pair])
    mean, deviation = beta.mean.item(), beta.variance.sqrt().item()
    below = [0.0, 0.1 * mean, 0.5 * mean, 0.99 * mean, mean - 60 * deviation]
    above = [mean + 60 * deviation, 1 - 0.5 * (1 - mean), 1.0]
    assert [beta.cdf(point).item() for point in below] == [0.0] * len(below)
    assert [beta.cdf(point).item() for point in above] == [1.0] * len(above)


@pytest.mark.parametrize("alpha", [1e9, 3e9])
def test_the_expansion_agrees_with_scipy_where_it_takes_over(alpha):
    for beta in (alpha, 2 * alpha, 1e3 * alpha):
        below, first, second = beta_of([(0.999 * alpha / 3, beta), (1.001 * alpha, beta)])
        deviation = scipy.stats.beta.std(first, second)
        for level in (0.025, 0.5, 0.9):
            difference = below.quantile(level).numpy() - scipy.special.betaincinv(
                first, second, level
            )
            assert (np.abs(difference) < 1e-6 * deviation).all()


def test_tiny_concentrations_put_the_mass_at_the_ends():
    beta, _, _ = beta_of([(1e-30, 3e-30), (1e-12, 3e-12)])
    # 0 with chance 3/4 and 1 with chance 1/4
    np.testing.assert_allclose(beta.cdf(0.5), 0.75, rtol=1e-9)
    np.testing.assert_allclose(beta.cdf(1e-6), 0.75, rtol=1e-9)
    np.testing.assert_allclose(beta.quantile(0.7), 0.0, atol=1e-300)
    np.testing.assert_allclose(beta.quantile(0.8), 1.0, rtol=1e-15)


def test_marginals_far_beyond_the_range_of_exp_have_their_limits():
    logs = torch.tensor(
        [
            [-20_000.0, 3.0],
            [3.0, -20_000.0],
            [-20_000.0, 20_000.0],
            [20_000.0, -20_000.0],
            [3.0, 20_000.0],
        ]
    )
    beta = lb.Beta(*logs.T)
    expected = torch.tensor([0.0, 1.0, 0.0, 1.0, 0.0])
    for level in (0.025, 0.5, 0.975):
        torch.testing.assert_close(beta.quantile(level), expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(beta.cdf(0.5), 1 - expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(beta.mean, expected, atol=1e-6, rtol=0)


def test_parameters_beyond_the_range_of_float64_keep_their_mean():
    beta = lb.Beta(torch.tensor([2000.0, 20_000.0]), torch.tensor([2000.0 + math.log(3), 20_000.0]))
    for level in (0.025, 0.5, 0.975):
        torch.testing.assert_close(
            beta.quantile(level), torch.tensor([0.25, 0.5]), atol=1e-4, rtol=0
        )
    torch.testing.assert_close(beta.cdf(torch.tensor([0.24, 0.51])), torch.tensor([0.0, 1.0]))


def test_both_parameters_tiny_beyond_the_range_are_a_coin():
    beta = lb.Beta(torch.tensor([-20_000.0]), torch.tensor([-20_000.0 + math.log(3)]))
    assert beta.cdf(0.5).item() == pytest.approx(0.75, rel=1e-3)
    assert beta.quantile(0.7).item() == 0
    assert beta.quantile(0.8).item() == 1


def test_float32_is_computed_in_float64_and_rounded_once():
    pairs = [*ordinary_pairs(), (1e12, 3e12), (1e-12, 3.0), (4e17, 1e18)]
    narrow, first, second = beta_of(pairs, torch.float32)
    wide, _, _ = beta_of(list(zip(first, second)))
    for level in LEVELS:
        for answer in ("quantile", "cdf"):
            got = getattr(narrow, answer)(level)
            assert got.dtype == torch.float32
            rounded = getattr(wide, answer)(level).float()
            torch.testing.assert_close(
                got, rounded, rtol=2.5e-7, atol=torch.finfo(torch.float32).smallest_normal
            )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_answers_in_its_own_type(dtype):
    beta = lb.Beta(torch.tensor([1.0], dtype=dtype), torch.tensor([0.5], dtype=dtype))
    twin = scipy.stats.beta(math.exp(1.0), math.exp(0.5))
    for got, expected in (
        (beta.quantile(0.3), twin.ppf(0.3)),
        (beta.cdf(0.3), twin.cdf(0.3)),
        (beta.mean, twin.mean()),
    ):
        assert got.dtype == dtype
        assert got.item() == pytest.approx(expected, rel=2 * torch.finfo(dtype).eps)


def test_each_example_may_have_its_own_point():
    beta = lb.Beta(torch.randn(6, generator=seeded(0)), torch.randn(6, generator=seeded(1)))
    points = torch.rand(6, generator=seeded(2))
    for row in range(6):
        alone = lb.Beta(beta.log_alpha[row : row + 1], beta.log_beta[row : row + 1])
        assert beta.cdf(points)[row] == alone.cdf(points[row].item())
        assert beta.quantile(points)[row] == alone.quantile(points[row].item())


def test_the_ends_are_reached_with_certainty():
    beta, _, _ = beta_of([(2.0, 3.0), (0.1, 0.1), (1e12, 1e12)])
    np.testing.assert_array_equal(beta.cdf(0.0), 0.0)
    np.testing.assert_array_equal(beta.cdf(1.0), 1.0)
    np.testing.assert_array_equal(beta.quantile(0.0), 0.0)
    np.testing.assert_array_equal(beta.quantile(1.0), 1.0)
