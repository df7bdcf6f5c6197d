"""Dirichlets: every number against mpmath for concentrations from 1e-30 to 1e18, and against SciPy and torch."""

import itertools
import math
from functools import cache

import mpmath
import numpy as np
import pytest
import scipy.stats
import torch
from cases import seeded

import laplacebridge as lb

DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
CONCENTRATIONS = [1e-30, 1e-12, 1e-3, 0.3, 1.0, 2.5, 30.0, 1e4, 1e9, 1e18]


@cache
def extreme_logs(classes, num_rows=80):
    """Log-concentrations of every size, alone and mixed within a row."""
    rows = list(itertools.product(CONCENTRATIONS, repeat=classes))
    chosen = np.random.default_rng(0).permutation(len(rows))[:num_rows]
    alike = [(value,) * classes for value in CONCENTRATIONS]
    return torch.tensor(alike + [rows[index] for index in chosen], dtype=torch.float64).log()


def concentrations_by_mpmath(log_row):
    concentration = [mpmath.exp(mpmath.mpf(value)) for value in log_row]
    return concentration, mpmath.fsum(concentration)


def analytics_by_mpmath(log_row):
    """Everything by its textbook formula, in enough digits for the textbook formula."""
    psi = mpmath.digamma
    alpha, total = concentrations_by_mpmath(log_row)
    classes, mean = len(alpha), [a / total for a in alpha]
    excess = [max(a - 1, mpmath.mpf(0)) for a in alpha]
    largest = alpha.index(max(alpha))
    vertex = [mpmath.mpf(index == largest) for index in range(classes)]
    entropy = mpmath.fsum(mpmath.loggamma(a) - (a - 1) * psi(a) for a in alpha)
    entropy += (total - classes) * psi(total) - mpmath.loggamma(total)
    entropy_of_mean = -mpmath.fsum(m * mpmath.log(m) for m in mean)
    expected_entropy = psi(total + 1) - mpmath.fsum(m * psi(a + 1) for m, a in zip(mean, alpha))
    return {
        "mean": mean,
        "variance": [m * (total - a) / total / (total + 1) for m, a in zip(mean, alpha)],
        "covariance": [[(m * (i == j) - m * n) / (total + 1) for j, n in enumerate(mean)] for i, m in enumerate(mean)],
        "mode": [e / mpmath.fsum(excess) for e in excess] if any(excess) else vertex,
        "total": total,
        "log_total": mpmath.log(total),
        "entropy": entropy,
        "entropy_of_mean": entropy_of_mean,
        "expected_entropy": expected_entropy,
        "mutual_information": entropy_of_mean - expected_entropy,
    }


def as_array(values):
    return np.array([[float(value) for value in np.ravel(row)] for row in values])


@cache
def exact(classes, dtype):
    """Dirichlets, and their analytics at the log-concentrations that the type stores."""
    dirichlet = lb.Dirichlet(extreme_logs(classes).to(dtype))
    with mpmath.workdps(120):
        rows = [analytics_by_mpmath(row) for row in dirichlet.log_concentration.double().tolist()]
    return dirichlet, {name: as_array([row[name] for row in rows]) for name in rows[0]}


def asked(dirichlet, name):
    value = getattr(dirichlet, name)
    value = value() if callable(value) else value
    assert value.dtype == dirichlet.dtype
    return value.detach().double().reshape(len(dirichlet), -1).numpy()


EVERY_SIZE = pytest.mark.parametrize("classes", [2, 3, 6])


@DTYPES
@EVERY_SIZE
@pytest.mark.parametrize("name", ["mean", "variance", "covariance", "mode", "total", "entropy_of_mean"])
def test_positive_numbers_are_right_relative_to_themselves_for_every_concentration(name, classes, dtype):
    dirichlet, expected = exact(classes, dtype)
    # logarithms of up to 70 are stored to one rounding, so concentrations are known to 70 of them
    tolerance = 200 * torch.finfo(dtype).eps
    smallest = torch.finfo(dtype).smallest_normal
    np.testing.assert_allclose(asked(dirichlet, name), expected[name], rtol=tolerance, atol=smallest)


@DTYPES
@EVERY_SIZE
def test_the_logarithm_of_the_total_is_right_for_every_concentration(classes, dtype):
    dirichlet, expected = exact(classes, dtype)
    tolerance = 4 * torch.finfo(dtype).eps
    np.testing.assert_allclose(asked(dirichlet, "log_total"), expected["log_total"], rtol=tolerance, atol=tolerance)


@DTYPES
@EVERY_SIZE
def test_the_entropy_is_right_for_every_concentration(classes, dtype):
    dirichlet, expected = exact(classes, dtype)
    tolerance = 1e-11 if dtype == torch.float64 else 2e-5
    np.testing.assert_allclose(asked(dirichlet, "entropy"), expected["entropy"], rtol=tolerance, atol=tolerance)


@DTYPES
@EVERY_SIZE
def test_the_expected_entropy_is_right_for_every_concentration(classes, dtype):
    dirichlet, expected = exact(classes, dtype)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    known = expected["expected_entropy"]
    np.testing.assert_allclose(asked(dirichlet, "expected_entropy"), known, rtol=0, atol=tolerance)


@DTYPES
@EVERY_SIZE
def test_the_mutual_information_keeps_its_digits_however_large_the_total(classes, dtype):
    dirichlet, expected = exact(classes, dtype)
    got, known = asked(dirichlet, "mutual_information"), expected["mutual_information"]
    size = known + np.minimum(1, 1 / expected["total"])  # about (K − 1)/(2α₀) for a large total
    assert (np.abs(got - known) / size).max() < (1e-11 if dtype == torch.float64 else 2e-5)


@DTYPES
@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_the_mutual_information_of_a_sure_dirichlet_is_half_the_degrees_of_freedom_over_the_total(classes, dtype):
    dirichlet = lb.Dirichlet(torch.full((1, classes), math.log(1e18), dtype=dtype))
    assert dirichlet.mutual_information().item() * 1e18 * classes == pytest.approx((classes - 1) / 2, rel=1e-4)


def test_the_uncertainties_add_up():
    dirichlet = lb.Dirichlet(2 * torch.randn(50, 7, generator=seeded(0), dtype=torch.float64))
    parts = dirichlet.expected_entropy() + dirichlet.mutual_information()
    torch.testing.assert_close(parts, dirichlet.entropy_of_mean())
    assert (dirichlet.expected_entropy() > 0).all()
    assert (dirichlet.mutual_information() > 0).all()
    assert (dirichlet.entropy_of_mean() < math.log(7)).all()


@DTYPES
@pytest.mark.parametrize(
    "name", ["mean", "variance", "mode", "entropy", "entropy_of_mean", "expected_entropy", "mutual_information"]
)
def test_gradients_are_finite_for_every_concentration(name, dtype):
    log = extreme_logs(3).to(dtype).clone().requires_grad_()
    value = getattr(lb.Dirichlet(log), name)
    value = value() if callable(value) else value
    weights = torch.rand(value.shape, generator=seeded(1), dtype=dtype)
    (value * weights).sum().backward()
    assert log.grad.isfinite().all()


@pytest.mark.parametrize(
    "name", ["mean", "variance", "entropy", "entropy_of_mean", "expected_entropy", "mutual_information"]
)
def test_gradients_match_finite_differences(name):
    log = torch.randn(3, 4, generator=seeded(2), dtype=torch.float64, requires_grad=True)

    def analytic(log):
        value = getattr(lb.Dirichlet(log), name)
        return value() if callable(value) else value

    assert torch.autograd.gradcheck(analytic, (log,), atol=1e-7, rtol=1e-5)


# ordinary values, against other libraries


@pytest.fixture
def ordinary():
    return lb.Dirichlet(1.5 * torch.randn(40, 5, generator=seeded(3), dtype=torch.float64))


def test_agrees_with_torch_on_ordinary_values(ordinary):
    twin = torch.distributions.Dirichlet(ordinary.concentration)
    torch.testing.assert_close(ordinary.mean, twin.mean)
    torch.testing.assert_close(ordinary.variance, twin.variance)
    torch.testing.assert_close(ordinary.entropy(), twin.entropy(), rtol=1e-9, atol=1e-9)
    points = twin.sample().clamp_min(1e-12)
    torch.testing.assert_close(ordinary.log_prob(points), twin.log_prob(points), rtol=1e-9, atol=1e-9)
    inside = lb.Dirichlet(ordinary.log_concentration.abs() + 0.1)
    torch.testing.assert_close(inside.mode, torch.distributions.Dirichlet(inside.concentration).mode)


def test_agrees_with_scipy_on_ordinary_values(ordinary):
    for row in range(len(ordinary)):
        twin = scipy.stats.dirichlet(ordinary.concentration[row].numpy())
        np.testing.assert_allclose(ordinary[row].mean[0], twin.mean(), rtol=1e-12)
        np.testing.assert_allclose(ordinary[row].variance[0], twin.var(), rtol=1e-12)
        np.testing.assert_allclose(ordinary[row].covariance()[0], twin.cov(), rtol=1e-12, atol=1e-17)
        np.testing.assert_allclose(ordinary[row].entropy()[0], twin.entropy(), rtol=1e-9, atol=1e-9)
        point = torch.softmax(torch.randn(1, 5, generator=seeded(row), dtype=torch.float64), -1)
        np.testing.assert_allclose(
            ordinary[row].log_prob(point)[0], twin.logpdf(point[0].numpy()), rtol=1e-9, atol=1e-9
        )


def test_rows_of_the_covariance_sum_to_zero(ordinary):
    covariance = ordinary.covariance()
    torch.testing.assert_close(covariance.sum(-1), torch.zeros(40, 5).double(), atol=1e-16, rtol=0)
    torch.testing.assert_close(covariance.diagonal(dim1=-2, dim2=-1), ordinary.variance, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("concentration", "expected"),
    [
        ([3.0, 2.0, 2.0], [0.5, 0.25, 0.25]),
        ([3.0, 1.0, 0.5], [1.0, 0.0, 0.0]),  # at the boundary where α ≤ 1
        ([3.0, 5.0, 0.5], [1 / 3, 2 / 3, 0.0]),
        ([1.05, 1.95, 0.5], [0.05, 0.95, 0.0]),
        ([1 + 2**-30, 1 + 2**-30, 1.0], [0.5, 0.5, 0.0]),
        ([0.2, 0.9, 0.5], [0.0, 1.0, 0.0]),  # no class above 1: the largest
    ],
)
def test_the_mode_by_hand(concentration, expected):
    mode = lb.Dirichlet.from_concentration(torch.tensor([concentration], dtype=torch.float64)).mode
    torch.testing.assert_close(mode, torch.tensor([expected], dtype=torch.float64))


def test_no_point_nearby_is_denser_than_the_mode():
    dirichlet = lb.Dirichlet.from_concentration(1.1 + 5 * torch.rand(20, 4, generator=seeded(4), dtype=torch.float64))
    mode = dirichlet.mode
    at_mode = dirichlet.log_prob(mode)
    for seed in range(10):
        step = 1e-3 * torch.randn(mode.shape, generator=seeded(seed), dtype=torch.float64)
        beside = (mode * step.exp()) / (mode * step.exp()).sum(-1, keepdim=True)
        assert (dirichlet.log_prob(beside) < at_mode).all()


# the density


def test_the_density_of_two_classes_integrates_to_one():
    nodes, weights = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(200))
    point = (nodes + 1) / 2
    for alpha, beta in ((1.0, 1.0), (2.0, 3.5), (40.0, 7.0), (500.0, 500.0)):
        row = torch.tensor([[alpha, beta]], dtype=torch.float64).log().expand(len(point), -1)
        density = lb.Dirichlet(row).log_prob(torch.stack([point, 1 - point], -1)).exp()
        assert (density * weights / 2).sum().item() == pytest.approx(1, rel=1e-9)


def test_the_density_of_three_classes_integrates_to_one_and_has_the_mean():
    nodes, weights = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(60))
    first, second = torch.meshgrid((nodes + 1) / 2, (nodes + 1) / 2, indexing="ij")
    points = torch.stack([first, (1 - first) * second, (1 - first) * (1 - second)], -1).reshape(-1, 3)
    volume = (weights[:, None] * weights / 4 * (1 - first)).flatten()
    row = torch.tensor([[2.0, 6.0, 3.0]], dtype=torch.float64).log()
    density = lb.Dirichlet(row.expand(len(points), -1)).log_prob(points).exp() * volume
    assert density.sum().item() == pytest.approx(1, rel=1e-10)
    torch.testing.assert_close(density @ points, lb.Dirichlet(row).mean[0])


def log_density_by_mpmath(log_row, point):
    alpha, total = concentrations_by_mpmath(log_row)
    normaliser = mpmath.loggamma(total) - mpmath.fsum(mpmath.loggamma(a) for a in alpha)
    return normaliser + mpmath.fsum((a - 1) * mpmath.log(mpmath.mpf(p)) for a, p in zip(alpha, point))


@DTYPES
@pytest.mark.parametrize(
    "point", [(0.5, 0.25, 0.25), (0.0078125, 0.9921865463256836, 2**-20), (1 - 2**-20, 2**-21, 2**-21)]
)
def test_the_density_is_right_for_every_concentration(point, dtype):
    assert sum(point) == 1  # in every type: they are sums of a few powers of two
    dirichlet = lb.Dirichlet(extreme_logs(3).to(dtype))
    points = torch.tensor([point], dtype=dtype).expand(len(dirichlet), -1)
    with mpmath.workdps(120):
        rows = dirichlet.log_concentration.double().tolist()
        known = np.array([float(log_density_by_mpmath(row, point)) for row in rows])
    tolerance = 1e-12 if dtype == torch.float64 else 2e-5
    np.testing.assert_allclose(dirichlet.log_prob(points).double(), known, rtol=tolerance, atol=tolerance)


@DTYPES
def test_at_its_mean_the_density_of_a_sure_dirichlet_is_that_of_a_normal(dtype):
    # K = 2 with α = β = 5e17: variance 1/(4e18), the peak of its normal density is √(2e18/π)
    dirichlet = lb.Dirichlet(torch.full((1, 2), math.log(5e17), dtype=dtype))
    peak = 0.5 * math.log(2e18 / math.pi)
    assert dirichlet.log_prob(torch.full((1, 2), 0.5, dtype=dtype)).item() == pytest.approx(peak, rel=1e-5)


# groups of classes


@pytest.fixture
def mixed():
    """Rows of ordinary and of extreme concentrations over six classes."""
    return lb.Dirichlet(torch.cat([torch.randn(20, 6, generator=seeded(5), dtype=torch.float64), extreme_logs(6)]))


GROUPS = [[[0, 3], [1], [2, 4, 5]], [[5]], [[0, 1, 2]], [[4, 0], [3, 5]]]


@pytest.mark.parametrize("groups", GROUPS, ids=str)
def test_aggregating_then_averaging_is_averaging_then_adding(mixed, groups):
    rest = sorted(set(range(6)).difference(*groups))
    complete = [*groups, rest] if rest else groups
    expected = torch.stack([mixed.mean[:, group].sum(-1) for group in complete], -1)
    torch.testing.assert_close(mixed.aggregate(groups).mean, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("groups", GROUPS, ids=str)
def test_aggregating_keeps_the_total(mixed, groups):
    torch.testing.assert_close(mixed.aggregate(groups).log_total, mixed.log_total, rtol=1e-13, atol=1e-13)


def test_the_variance_of_a_group_is_the_sum_over_its_covariances(mixed):
    group = [0, 3, 4]
    covariance = mixed[:20].covariance()
    expected = covariance[:, group][:, :, group].sum((-2, -1))
    torch.testing.assert_close(mixed[:20].aggregate([group]).variance[:, 0], expected)


def test_marginals_of_marginals_agree(mixed):
    twice = mixed.aggregate([[0, 1], [2], [3, 4]]).aggregate([[0, 2]])  # {0, 1, 3, 4} against {2, 5}
    once = mixed.aggregate([[0, 1, 3, 4]])
    torch.testing.assert_close(twice.log_concentration, once.log_concentration, rtol=1e-13, atol=1e-13)
    own = mixed.aggregate([[1], [2]]).marginal(0)
    direct = mixed.marginal(1)
    torch.testing.assert_close(own.log_alpha, direct.log_alpha, rtol=0, atol=0)
    torch.testing.assert_close(own.log_beta, direct.log_beta, rtol=1e-13, atol=1e-13)


def test_the_order_of_groups_and_of_classes_within_them_is_kept():
    dirichlet = lb.Dirichlet.from_concentration(torch.tensor([[1.0, 2.0, 4.0, 8.0]]))
    torch.testing.assert_close(dirichlet.aggregate([[3], [1, 0]]).concentration, torch.tensor([[8.0, 3.0, 4.0]]))


def test_a_marginal_is_the_beta_of_a_class_against_the_rest(mixed):
    for index in range(6):
        beta, pair = mixed.marginal(index), mixed.aggregate([[index]])
        torch.testing.assert_close(beta.log_alpha, pair.log_concentration[:, 0], rtol=0, atol=0)
        torch.testing.assert_close(beta.log_beta, pair.log_concentration[:, 1], rtol=0, atol=1e-13)
        torch.testing.assert_close(beta.mean, mixed.mean[:, index], rtol=1e-13, atol=0)
        torch.testing.assert_close(beta.variance, mixed.variance[:, index], rtol=1e-12, atol=0)


def test_each_example_may_ask_for_its_own_class(mixed):
    classes = torch.arange(len(mixed)) % 6
    together = mixed.marginal(classes)
    for row in range(0, len(mixed), 7):
        alone = mixed[row].marginal(int(classes[row]))
        assert together.log_alpha[row] == alone.log_alpha[0]
        assert together.log_beta[row] == alone.log_beta[0]


# sampling


def within_five_standard_errors(draws, mean, variance):
    num = len(draws)
    average, spread = draws.mean(0), draws.var(0)
    fourth = (draws - average).pow(4).mean(0)
    error_of_variance = ((fourth - spread.square()).clamp_min(0) / num).sqrt()
    return bool(
        ((average - mean).abs() <= 5 * (variance / num).sqrt() + 1e-15).all()
        and ((spread - variance).abs() <= 5 * error_of_variance + 1e-12 * variance).all()
    )


@DTYPES
def test_samples_have_mean_and_variance_within_five_standard_errors(dtype):
    rows = [[0.05, 0.2, 0.7], [1.0, 1.0, 1.0], [20.0, 3.0, 0.5], [300.0, 200.0, 1e3], [0.4, 1e4, 1e4]]
    dirichlet = lb.Dirichlet.from_concentration(torch.tensor(rows, dtype=dtype))
    draws = dirichlet.sample(40_000, seeded(6))
    assert draws.shape == (40_000, 5, 3)
    assert draws.dtype == dtype
    torch.testing.assert_close(draws.sum(-1), torch.ones(40_000, 5, dtype=dtype))
    assert within_five_standard_errors(draws.double(), dirichlet.mean.double(), dirichlet.variance.double())


def test_samples_of_sure_dirichlets_have_their_tiny_spread():
    dirichlet = lb.Dirichlet.from_concentration(torch.tensor([[1e12, 3e12], [1e18, 3e18]], dtype=torch.float64))
    draws = dirichlet.sample(20_000, seeded(7))
    assert within_five_standard_errors(draws[:, 0], dirichlet.mean[0], dirichlet.variance[0])
    # 2e-10 is the deviation of the second; a probability near 1/2 resolves 1e-16
    assert (draws[:, 1] - dirichlet.mean[1]).abs().max() < 6 * 2.2e-10


def test_samples_follow_the_law_of_each_marginal():
    dirichlet = lb.Dirichlet.from_concentration(torch.tensor([[0.3, 2.0, 5.0]], dtype=torch.float64))
    draws = dirichlet.sample(20_000, seeded(8))
    for index, alpha in enumerate([0.3, 2.0, 5.0]):
        law = scipy.stats.beta(alpha, 7.3 - alpha)
        assert scipy.stats.kstest(draws[:, 0, index].numpy(), law.cdf).pvalue > 1e-4


@DTYPES
@pytest.mark.parametrize("largest", [1e-30, 1e-12, 1e-6])
def test_tiny_concentrations_give_vertices_in_proportion(largest, dtype):
    concentration = torch.tensor([[0.1, 0.2, 0.7]], dtype=torch.float64) * largest
    draws = lb.Dirichlet(concentration.log().to(dtype)).sample(20_000, seeded(9))[:, 0].double()
    top = draws.amax(-1)
    assert draws.isfinite().all()
    assert (top > 0.999).double().mean() > 0.999
    shares = torch.tensor([0.1, 0.2, 0.7], dtype=torch.float64)
    assert ((draws.mean(0) - shares).abs() < 5 * (shares * (1 - shares) / 20_000).sqrt()).all()


@DTYPES
@pytest.mark.parametrize("log", [-20_000.0, -800.0, -100.0, 100.0, 800.0, 20_000.0])
def test_log_concentrations_beyond_the_range_of_exp_can_be_sampled(log, dtype):
    row = torch.tensor([[log, log, log + math.log(2)]], dtype=dtype)
    draws = lb.Dirichlet(row).sample(4000, seeded(10))[:, 0].double()
    assert draws.isfinite().all()
    shares = row[0].double().softmax(-1)
    spread = (shares * (1 - shares)).sqrt() if log < 0 else torch.zeros(3).double()
    assert ((draws.mean(0) - shares).abs() <= 5 * spread / 4000**0.5 + 1e-5).all()
    if log < 0:
        assert (draws.amax(-1) > 0.999).all()


def test_the_same_generator_draws_the_same():
    dirichlet = lb.Dirichlet(torch.zeros(2, 3))
    assert torch.equal(dirichlet.sample(5, seeded(0)), dirichlet.sample(5, seeded(0)))
    assert not torch.equal(dirichlet.sample(5, seeded(0)), dirichlet.sample(5, seeded(1)))


# far beyond the range of the type


FAR = [-20_000.0, -300.0, -1.0, 0.0, 3.0, 300.0, 20_000.0]


@DTYPES
def test_logarithms_far_beyond_the_range_of_exp_give_right_answers(dtype):
    rows = torch.tensor(list(itertools.product(FAR, repeat=3)), dtype=dtype)
    dirichlet = lb.Dirichlet(rows)
    mean = rows.double().softmax(-1)
    torch.testing.assert_close(dirichlet.mean.double(), mean, rtol=1e-5, atol=1e-30)
    entropy_of_mean = torch.special.entr(mean).sum(-1)
    torch.testing.assert_close(dirichlet.entropy_of_mean().double(), entropy_of_mean, rtol=1e-5, atol=1e-6)
    information = dirichlet.mutual_information().double()
    rounding = 4 * torch.finfo(dtype).eps * rows.abs().amax(-1).double()
    assert (information >= 0).all()
    assert (information <= entropy_of_mean + rounding).all()
    sure, unsure = dirichlet.log_total > 299, dirichlet.log_total < -299
    assert (information[sure] < 1e-100).all()
    # a vertex chosen in proportion: all uncertainty is about the probabilities
    assert ((information - entropy_of_mean).abs() <= rounding)[unsure].all()
    assert dirichlet.expected_entropy().isfinite().all()
    assert dirichlet.variance.isfinite().all()
    assert dirichlet.mode.isfinite().all()


@DTYPES
def test_an_entropy_too_large_to_store_is_infinite_and_not_nan(dtype):
    for row in ([-20_000.0, -20_000.0], [-800.0, -800.0], [-20_000.0, 3.0], [-20_000.0, 20_000.0]):
        assert lb.Dirichlet(torch.tensor([row], dtype=dtype)).entropy().item() == -math.inf
    sure = lb.Dirichlet(torch.full((1, 2), 20_000.0, dtype=dtype)).entropy().item()
    # K = 2 and α = β: a normal with variance 1/(8α)
    assert sure == pytest.approx(0.5 * (1 + math.log(2 * math.pi / 8) - 20_000), rel=1e-6)


@pytest.mark.parametrize("target", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_keeps_the_mean_to_its_resolution(target):
    dirichlet = lb.Dirichlet(3 * torch.randn(50, 6, generator=seeded(11)))
    half = dirichlet.to(target)
    assert half.dtype == target
    # one rounding of logarithms, which are below 16, and one of the mean itself
    assert ((half.mean.double() / dirichlet.mean.double()).log().abs() < 16 * torch.finfo(target).eps).all()


def test_rows_beyond_the_range_of_half_precision_keep_their_mean():
    rows = torch.tensor([[1e5, 0.0, -1e5], [-1e5, 2e5, 3.0], [1e5, 1e5, 0.0], [1e5, 1e5 - 2, 0.0]])
    half = lb.Dirichlet(rows).to(torch.float16)
    assert half.log_concentration.isfinite().all()
    torch.testing.assert_close(half.mean.float(), rows.softmax(-1), atol=4e-3, rtol=0)


def test_moving_to_a_wider_type_and_back_changes_nothing():
    dirichlet = lb.Dirichlet(torch.randn(5, 4, generator=seeded(12)))
    wide = dirichlet.to(torch.float64)
    assert wide.dtype == torch.float64
    assert torch.equal(wide.to(torch.float32).log_concentration, dirichlet.log_concentration)


# divergence


def divergence_by_mpmath(log_first, log_second):
    first, total = concentrations_by_mpmath(log_first)
    second, other_total = concentrations_by_mpmath(log_second)
    value = mpmath.loggamma(total) - mpmath.loggamma(other_total)
    for a, b in zip(first, second):
        value += mpmath.loggamma(b) - mpmath.loggamma(a) + (a - b) * (mpmath.digamma(a) - mpmath.digamma(total))
    return float(value)


def assert_divergence(first, second, rtol, atol):
    with mpmath.workdps(150):
        pairs = zip(first.log_concentration.double().tolist(), second.log_concentration.double().tolist())
        known = np.array([divergence_by_mpmath(*pair) for pair in pairs])
    representable = known < torch.finfo(first.dtype).max
    got = first.kl_divergence(second).double().numpy()
    np.testing.assert_allclose(got[representable], known[representable], rtol=rtol, atol=atol)
    assert (got[~representable] == np.inf).all()


@EVERY_SIZE
def test_the_divergence_is_right_for_every_pair_of_concentrations(classes):
    first = extreme_logs(classes)
    order = torch.randperm(len(first), generator=seeded(13))
    assert_divergence(lb.Dirichlet(first), lb.Dirichlet(first[order]), rtol=1e-10, atol=1e-11)


@EVERY_SIZE
def test_the_divergence_in_float32_is_right_for_every_pair_of_concentrations(classes):
    first = extreme_logs(classes).float()
    order = torch.randperm(len(first), generator=seeded(13))
    assert_divergence(lb.Dirichlet(first), lb.Dirichlet(first[order]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [1e-30, 1e-12, 1.0, 1e6, 1e12, 1e18])
def test_the_divergence_of_similar_dirichlets_is_right(size):
    first = size * torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64)
    second = first * torch.tensor([[1.0, 1.001, 0.99]], dtype=torch.float64)
    pair = lb.Dirichlet.from_concentration(first), lb.Dirichlet.from_concentration(second)
    assert_divergence(*pair, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([1e-12, 1e-30], [1e18, 1e-30]),  # 1e12, what is left of two terms of 1e30
        ([1e-12, 1e-30], [0.3, 1e-30]),
        ([1e-3, 1e-30], [1e9, 1e-30]),
        ([2.5, 1e-12], [1e-30, 1e18]),
        ([1e4, 0.3], [1e-30, 1e9]),
        ([1e9, 1e18], [1e9, 1e-30]),
    ],
)
@DTYPES
def test_the_divergence_survives_classes_of_opposite_sizes(first, second, dtype):
    pair = (lb.Dirichlet(torch.tensor([row], dtype=torch.float64).log().to(dtype)) for row in (first, second))
    assert_divergence(
        *pair, rtol=1e-10 if dtype == torch.float64 else 1e-4, atol=1e-11 if dtype == torch.float64 else 1e-4
    )


def test_the_divergence_agrees_with_torch_on_ordinary_values(ordinary):
    other = lb.Dirichlet(1.5 * torch.randn(40, 5, generator=seeded(14), dtype=torch.float64))
    expected = torch.distributions.kl_divergence(ordinary.to_torch(), other.to_torch())
    torch.testing.assert_close(ordinary.kl_divergence(other), expected, rtol=1e-9, atol=1e-9)


def test_the_divergence_is_an_average_of_log_ratios_within_five_standard_errors():
    first = lb.Dirichlet.from_concentration(torch.tensor([[2.0, 5.0, 3.0]], dtype=torch.float64))
    second = lb.Dirichlet.from_concentration(torch.tensor([[4.0, 4.0, 1.5]], dtype=torch.float64))
    points = first.sample(20_000, seeded(15))[:, 0]
    many = [lb.Dirichlet(d.log_concentration.expand(len(points), -1)).log_prob(points) for d in (first, second)]
    ratios = many[0] - many[1]
    assert abs(ratios.mean() - first.kl_divergence(second)[0]) < 5 * ratios.std() / len(points) ** 0.5


@DTYPES
@EVERY_SIZE
def test_the_divergence_from_itself_is_zero_for_every_concentration(classes, dtype):
    far = torch.tensor(
        [[-20_000.0] * classes, [20_000.0] * classes, [100.0] * classes, [-20_000.0] + [300.0] * (classes - 1)]
    )
    dirichlet = lb.Dirichlet(torch.cat([extreme_logs(classes).to(dtype), far.to(dtype)]))
    assert (dirichlet.kl_divergence(dirichlet) == 0).all()


def test_the_divergence_from_another_is_positive(ordinary):
    other = lb.Dirichlet(ordinary.log_concentration.roll(1, 0))
    assert (ordinary.kl_divergence(other) > 0).all()


@DTYPES
def test_the_divergence_from_a_neighbour_is_never_negative(dtype):
    log = 2 * torch.randn(500, 4, generator=seeded(16), dtype=dtype)
    step = 1e-6 * torch.randn(500, 4, generator=seeded(17), dtype=dtype)
    assert (lb.Dirichlet(log).kl_divergence(lb.Dirichlet(log + step)) >= 0).all()


# conversions and rows


def test_concentrations_and_their_logarithms_are_two_ways_in():
    concentration = torch.tensor([[1e-30, 1.0, 1e18]], dtype=torch.float64)
    dirichlet = lb.Dirichlet.from_concentration(concentration)
    assert torch.equal(dirichlet.log_concentration, concentration.log())
    torch.testing.assert_close(dirichlet.concentration, concentration, rtol=1e-13, atol=0)
    assert dirichlet.num_classes == 3


def test_a_torch_distribution_comes_back_the_same():
    twin = torch.distributions.Dirichlet(torch.rand(4, 3, generator=seeded(18), dtype=torch.float64) * 9 + 0.1)
    dirichlet = lb.Dirichlet.from_torch(twin)
    returned = dirichlet.to_torch()
    assert isinstance(returned, torch.distributions.Dirichlet)
    torch.testing.assert_close(returned.concentration, twin.concentration)
    torch.testing.assert_close(dirichlet.mean, twin.mean)


def test_indexing_keeps_the_batch_dimension_and_chooses_rows():
    dirichlet = lb.Dirichlet(torch.randn(4, 3, generator=seeded(19)))
    log = dirichlet.log_concentration
    assert len(dirichlet) == 4
    assert torch.equal(dirichlet[1].log_concentration, log[1:2])
    assert torch.equal(dirichlet[-1].log_concentration, log[3:])
    assert torch.equal(dirichlet[1:3].log_concentration, log[1:3])
    assert torch.equal(dirichlet[[2, 0]].log_concentration, log[[2, 0]])
    assert torch.equal(dirichlet[torch.tensor([3, 3])].log_concentration, log[[3, 3]])
    assert torch.equal(dirichlet[torch.tensor([True, False, False, True])].log_concentration, log[[0, 3]])
    assert len(dirichlet[:0]) == 0


def test_a_row_that_is_not_there_is_an_error():
    dirichlet = lb.Dirichlet(torch.zeros(4, 3))
    for row in (4, 7, -5):
        with pytest.raises(IndexError):
            dirichlet[row]


def test_a_loop_visits_each_row_once():
    dirichlet = lb.Dirichlet(torch.randn(4, 3, generator=seeded(20)))
    rows = list(itertools.islice(dirichlet, 10))  # at most ten, in case the loop does not end
    assert len(rows) == 4
    assert torch.equal(torch.cat([row.log_concentration for row in rows]), dirichlet.log_concentration)


def test_an_empty_batch_has_empty_answers():
    empty = lb.Dirichlet(torch.zeros(0, 3))
    assert empty.mean.shape == empty.variance.shape == empty.mode.shape == (0, 3)
    assert empty.entropy().shape == empty.mutual_information().shape == empty.log_total.shape == (0,)
    assert empty.sample(2).shape == (2, 0, 3)
