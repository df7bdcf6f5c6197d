"""Special functions: against 60 digits of mpmath, adaptive quadrature, and their own
derivatives.
"""

import itertools

import mpmath
import numpy as np
import pytest
import scipy.integrate
import scipy.special
import torch

from laplacebridge import _special as special

DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
# every decade, off the round numbers too, and both sides of the places where a formula
# changes
CONCENTRATIONS = [
    *np.geomspace(1e-30, 1e18, 97),
    0.9e-12,
    1.1e-12,
    0.9e-6,
    1.1e-6,
    0.999,
    1.001,
    9.999,
    10.001,
]
LOGARITHMS = [float(np.log(x)) for x in CONCENTRATIONS]
FAR = [-20_000.0, -1000.0, -100.0, 100.0, 1000.0, 20_000.0]  # logarithms of what no type can hold


def log_minus_digamma(x):
    return mpmath.log(x) - mpmath.digamma(x)


def log_minus_digamma_slope(x):
    return 1 - x * mpmath.psi(1, x)


def scaled_log_minus_digamma(log_x):
    return mpmath.exp(log_x) * log_minus_digamma(mpmath.exp(log_x))


def stirling_remainder(log_x):
    x = mpmath.exp(log_x)
    return mpmath.loggamma(x) - (x - 0.5) * log_x + x - mpmath.log(2 * mpmath.pi) / 2


def digamma_next_minus_log(log_x):
    return mpmath.digamma(mpmath.exp(log_x) + 1) - log_x


ON_THEIR_POINTS = [
    (log_minus_digamma, CONCENTRATIONS),
    (log_minus_digamma_slope, CONCENTRATIONS),
    (scaled_log_minus_digamma, LOGARITHMS),
    (digamma_next_minus_log, LOGARITHMS),
]


def errors(definition, points, dtype):
    """Absolute errors and exact values, with the definition evaluated where the type
    rounds the points to.
    """
    inputs = torch.tensor(points, dtype=dtype)
    outputs = getattr(special, definition.__name__)(inputs)
    assert outputs.dtype == dtype
    with mpmath.workdps(80):
        exact = [definition(mpmath.mpf(point)) for point in inputs.double().tolist()]
        error = [
            float(abs(mpmath.mpf(got) - value))
            for got, value in zip(outputs.double().tolist(), exact)
        ]
    return np.array(error), np.array([float(abs(value)) for value in exact])


@DTYPES
@pytest.mark.parametrize(
    ("definition", "points"), ON_THEIR_POINTS, ids=[item[0].__name__ for item in ON_THEIR_POINTS]
)
def test_digamma_gaps_lose_no_digits_for_any_concentration(definition, points, dtype):
    error, size = errors(definition, points, dtype)
    assert (error / size).max() < (1e-11 if dtype == torch.float64 else 5e-6)


def test_the_stirling_remainder_loses_no_digits_in_float64():
    error, size = errors(stirling_remainder, LOGARITHMS, torch.float64)
    assert (error / size).max() < 1e-11


def test_the_stirling_remainder_in_float32_is_right_to_its_resolution_near_one():
    error, size = errors(stirling_remainder, LOGARITHMS, torch.float32)
    assert (error / (1 + size)).max() < 2e-6
    # from 10 on nothing is subtracted, so all digits are there however small it becomes
    large = np.array(LOGARITHMS) > np.log(10.01)
    assert (error[large] / size[large]).max() < 2e-6


@DTYPES
def test_far_beyond_the_range_of_the_type_the_limits_are_taken(dtype):
    logs = torch.tensor(FAR, dtype=dtype)
    rounding = {"atol": 0, "rtol": 4 * torch.finfo(dtype).eps}
    scaled = torch.tensor([1.0] * 3 + [0.5] * 3, dtype=dtype)
    torch.testing.assert_close(special.scaled_log_minus_digamma(logs), scaled, atol=2e-6, rtol=0)
    small = logs[:3]
    remainder = -small / 2 - 0.5 * float(np.log(2 * np.pi))
    torch.testing.assert_close(special.stirling_remainder(small), remainder, **rounding)
    torch.testing.assert_close(
        special.digamma_next_minus_log(small), -small - float(np.euler_gamma), **rounding
    )
    assert (special.stirling_remainder(logs[3:]) < 1e-34).all()
    assert (special.digamma_next_minus_log(logs[3:]) < 1e-40).all()


@DTYPES
def test_the_slope_is_negative_up_to_the_largest_float32(dtype):
    x = torch.tensor(np.geomspace(1e-18, 1e37, 200), dtype=dtype)
    assert (special.log_minus_digamma_slope(x) < 0).all()
    large = x[x > 1e10]
    torch.testing.assert_close(
        special.log_minus_digamma_slope(large) * large, torch.full_like(large, -0.5)
    )


def test_the_slope_is_the_derivative_by_the_logarithm():
    logs = torch.linspace(-60, 40, 101, dtype=torch.float64, requires_grad=True)
    (derivative,) = torch.autograd.grad(special.log_minus_digamma(logs.exp()).sum(), logs)
    torch.testing.assert_close(
        derivative, special.log_minus_digamma_slope(logs.detach().exp()), rtol=1e-9, atol=0
    )


@pytest.mark.parametrize(
    "name", ["scaled_log_minus_digamma", "stirling_remainder", "digamma_next_minus_log"]
)
def test_gradients_by_log_x_match_finite_differences(name):
    logs = torch.tensor(
        [-50.0, -5.0, -0.7, 0.7, 2.2, 2.4, 5.0], dtype=torch.float64, requires_grad=True
    )
    assert torch.autograd.gradcheck(getattr(special, name), (logs,), atol=1e-7, rtol=1e-4)


@pytest.mark.parametrize("name", ["log_minus_digamma", "log_minus_digamma_slope"])
def test_gradients_by_x_match_finite_differences(name):
    x = torch.tensor([0.05, 0.7, 3.0, 9.0, 40.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(getattr(special, name), (x,), atol=1e-7, rtol=1e-5)


@DTYPES
@pytest.mark.parametrize(
    "name", ["scaled_log_minus_digamma", "stirling_remainder", "digamma_next_minus_log"]
)
def test_gradients_by_log_x_are_finite_for_every_concentration(name, dtype):
    logs = torch.tensor([*LOGARITHMS, *FAR], dtype=dtype, requires_grad=True)
    getattr(special, name)(logs).sum().backward()
    assert logs.grad.isfinite().all()


def test_softmax_of_a_hundred_thousand_classes_sums_to_one_in_float32():
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(8, 100_000, generator=generator)
    logits = torch.cat(
        [normal, 5 * normal, torch.zeros(1, 100_000), torch.linspace(-9, 9, 100_000).unsqueeze(0)]
    )
    probabilities = special.softmax(logits)
    assert probabilities.dtype == torch.float32
    assert (probabilities.double().sum(-1) - 1).abs().max() < 1e-6
    torch.testing.assert_close(
        probabilities.double(), logits.double().softmax(-1), rtol=2e-5, atol=0
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_softmax_in_half_precision_is_rounded_once(dtype):
    logits = (3 * torch.randn(10, 1000, generator=torch.Generator().manual_seed(1))).to(dtype)
    expected = logits.double().softmax(-1)
    got = special.softmax(logits)
    assert got.dtype == dtype
    half_a_step = (
        0.5 * torch.finfo(dtype).eps * expected + 0.5 * torch.finfo(dtype).smallest_normal * 2**-7
    )
    assert ((got.double() - expected).abs() <= 1.001 * half_a_step).all()


def test_softmax_of_logits_beyond_exp_is_finite():
    logits = torch.tensor([[1e4, -1e4, 0.0], [-1e4, -1e4, -1e4], [3e38, 0.0, -3e38]])
    expected = torch.tensor([[1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3], [1.0, 0.0, 0.0]])
    torch.testing.assert_close(special.softmax(logits), expected)


def test_gradients_of_softmax_match_finite_differences():
    logits = torch.randn(
        3, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64, requires_grad=True
    )
    assert torch.autograd.gradcheck(special.softmax, (logits,))


def logistic_normal_by_quadrature(mean, variance):
    """E σ(x) by adaptive quadrature, in pieces around the edge of σ and the peak of the
    integrand.
    """
    deviation = variance**0.5

    def integrand(normal):
        return np.exp(scipy.special.log_expit(mean + deviation * normal) - normal**2 / 2) / np.sqrt(
            2 * np.pi
        )

    last = deviation + 12  # the integrand peaks between 0 and the deviation
    edges = (np.array([-40, -10, 0, 10]) - mean) / deviation
    points = np.unique(np.clip([*edges, *np.linspace(-12, last, 2 + int(last / 5))], -12, last))
    pieces = (
        scipy.integrate.quad(integrand, *ends, epsabs=1e-300, epsrel=1e-9)[0]
        for ends in itertools.pairwise(points)
        if ends[1] - ends[0] > 1e-9
    )
    return sum(pieces)


VARIANCES = [
    1e-6,
    1e-2,
    0.1,
    0.5,
    1.0,
    2.0,
    5.0,
    12.0,
    30.0,
    60.0,
    100.0,
    142.0,
    200.0,
    400.0,
    3000.0,
    1e5,
]


@pytest.fixture(scope="module")
def logistic_normals():
    """Means from 0 to far below, variances, and E σ by quadrature."""
    points = []
    for variance in VARIANCES:
        reach = 30 if variance < 1 else min(8 * variance**0.5 + 10, 30 + variance / 2)
        points += [(-reach * share**2, variance) for share in np.linspace(0, 1, 12)]
        points += [(-variance / 2, variance)]  # where the two forms meet
    exact = np.array([logistic_normal_by_quadrature(*point) for point in points])
    return torch.tensor(points, dtype=torch.float64), torch.from_numpy(exact)


@DTYPES
def test_the_logistic_normal_mean_is_right_within_a_ten_thousandth(logistic_normals, dtype):
    points, exact = logistic_normals
    got = special.logistic_normal_mean(*points.to(dtype).T)
    assert got.dtype == dtype
    assert (got.double() - exact).abs().max() < 1.3e-4


@DTYPES
def test_small_logistic_normal_means_are_right_within_a_hundredth_of_themselves(
    logistic_normals, dtype
):
    points, exact = logistic_normals
    visible = exact > 1e-12
    got = special.logistic_normal_mean(*points[visible].to(dtype).T).double()
    assert (got / exact[visible] - 1).abs().max() < 2e-2


@DTYPES
def test_the_logistic_normal_mean_without_variance_is_the_logistic_function(dtype):
    mean = -torch.linspace(0, 60, 50, dtype=dtype)
    for variance in (0.0, 1e-12):
        got = special.logistic_normal_mean(mean, torch.full_like(mean, variance))
        torch.testing.assert_close(
            got, mean.sigmoid(), rtol=1e-5 if dtype == torch.float32 else 1e-9, atol=0
        )


def test_the_logistic_normal_mean_of_a_symmetric_law_is_one_half():
    variance = torch.logspace(-8, 12, 41, dtype=torch.float64)
    got = special.logistic_normal_mean(torch.zeros_like(variance), variance)
    torch.testing.assert_close(got, torch.full_like(got, 0.5), rtol=1e-12, atol=0)


def test_the_logistic_normal_mean_in_float32_agrees_with_float64(logistic_normals):
    points, exact = logistic_normals
    wide, narrow = (
        special.logistic_normal_mean(*points.to(dtype).T).double()
        for dtype in (torch.float64, torch.float32)
    )
    visible = exact > 1e-12
    torch.testing.assert_close(narrow[visible], wide[visible], rtol=2e-4, atol=0)


def test_gradients_of_the_logistic_normal_mean_match_finite_differences():
    mean = torch.tensor(
        [-0.1, -1.0, -1.0, -5.0, -5.0, -20.0], dtype=torch.float64, requires_grad=True
    )
    variance = torch.tensor(
        [0.3, 0.1, 9.0, 4.0, 30.0, 10.0], dtype=torch.float64, requires_grad=True
    )
    assert torch.autograd.gradcheck(
        special.logistic_normal_mean, (mean, variance), atol=1e-8, rtol=1e-4
    )


@pytest.mark.parametrize(("mean", "variance"), [(0.0, 0.0), (-0.5, 1.0), (-8.0, 16.0)])
def test_where_the_two_forms_of_the_logistic_normal_mean_meet_the_gradient_is_that_of_the_neighbours(
    mean, variance
):
    means = torch.tensor([mean - 1e-6, mean], dtype=torch.float64, requires_grad=True)
    variances = torch.full((2,), variance, dtype=torch.float64, requires_grad=True)
    special.logistic_normal_mean(means, variances).sum().backward()
    for beside, there in (means.grad, variances.grad):
        torch.testing.assert_close(there, beside, rtol=0.05, atol=1e-5)
