"""Marginals, groups of classes and samples of Dirichlets."""

import math

import pytest
import scipy.stats
import torch
from cases import seeded
from dirichlet_oracle import DTYPES, extreme_logs

import laplacebridge as lb


@pytest.fixture
def mixed():
    """Rows of ordinary and of extreme concentrations over six classes."""
    return lb.Dirichlet(
        torch.cat([torch.randn(20, 6, generator=seeded(5), dtype=torch.float64), extreme_logs(6)])
    )


GROUPS = [[[0, 3], [1], [2, 4, 5]], [[5]], [[0, 1, 2]], [[4, 0], [3, 5]]]


@pytest.mark.parametrize("groups", GROUPS, ids=str)
def test_aggregating_then_averaging_is_averaging_then_adding(mixed, groups):
    rest = sorted(set(range(6)).difference(*groups))
    complete = [*groups, rest] if rest else groups
    expected = torch.stack([mixed.mean[:, group].sum(-1) for group in complete], -1)
    torch.testing.assert_close(mixed.aggregate(groups).mean, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("groups", GROUPS, ids=str)
def test_aggregating_keeps_the_total(mixed, groups):
    torch.testing.assert_close(
        mixed.aggregate(groups).log_total, mixed.log_total, rtol=1e-13, atol=1e-13
    )


def test_the_variance_of_a_group_is_the_sum_over_its_covariances(mixed):
    group = [0, 3, 4]
    covariance = mixed[:20].covariance()
    expected = covariance[:, group][:, :, group].sum((-2, -1))
    torch.testing.assert_close(mixed[:20].aggregate([group]).variance[:, 0], expected)


def test_marginals_of_marginals_agree(mixed):
    twice = mixed.aggregate([[0, 1], [2], [3, 4]]).aggregate(
        [[0, 2]]
    )  # {0, 1, 3, 4} against {2, 5}
    once = mixed.aggregate([[0, 1, 3, 4]])
    torch.testing.assert_close(
        twice.log_concentration, once.log_concentration, rtol=1e-13, atol=1e-13
    )
    own = mixed.aggregate([[1], [2]]).marginal(0)
    direct = mixed.marginal(1)
    torch.testing.assert_close(own.log_alpha, direct.log_alpha, rtol=0, atol=0)
    torch.testing.assert_close(own.log_beta, direct.log_beta, rtol=1e-13, atol=1e-13)


def test_the_order_of_groups_and_of_classes_within_them_is_kept():
    dirichlet = lb.Dirichlet.from_concentration(torch.tensor([[1.0, 2.0, 4.0, 8.0]]))
    torch.testing.assert_close(
        dirichlet.aggregate([[3], [1, 0]]).concentration, torch.tensor([[8.0, 3.0, 4.0]])
    )


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
    rows = [
        [0.05, 0.2, 0.7],
        [1.0, 1.0, 1.0],
        [20.0, 3.0, 0.5],
        [300.0, 200.0, 1e3],
        [0.4, 1e4, 1e4],
    ]
    dirichlet = lb.Dirichlet.from_concentration(torch.tensor(rows, dtype=dtype))
    draws = dirichlet.sample(40_000, seeded(6))
    assert draws.shape == (40_000, 5, 3)
    assert draws.dtype == dtype
    torch.testing.assert_close(draws.sum(-1), torch.ones(40_000, 5, dtype=dtype))
    assert within_five_standard_errors(
        draws.double(), dirichlet.mean.double(), dirichlet.variance.double()
    )


def test_samples_of_sure_dirichlets_have_their_tiny_spread():
    dirichlet = lb.Dirichlet.from_concentration(
        torch.tensor([[1e12, 3e12], [1e18, 3e18]], dtype=torch.float64)
    )
    draws = dirichlet.sample(20_000, seeded(7))
    assert within_five_standard_errors(draws[:, 0], dirichlet.mean[0], dirichlet.variance[0])
    # 2e-10 is the deviation of the second; a probability near 1/2 resolves 1e-16
    assert (draws[:, 1] - dirichlet.mean[1]).abs().max() < 6 * 2.2e-10


def test_samples_follow_the_law_of_each_marginal():
    dirichlet = lb.Dirichlet.from_concentration(
        torch.tensor([[0.3, 2.0, 5.0]], dtype=torch.float64)
    )
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
