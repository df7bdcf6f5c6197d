"""Correlated logits in the race: factors, points, what is believed and what is doubted."""

import pytest
import torch
from cases import gaussian, seeded, total_variation

import laplacebridge as lb
from laplacebridge.bridges import race_mean
from laplacebridge.bridges.factor_points import (
    averages,
    softmax_averages,
    softmax_averages_with_odds,
)
from laplacebridge.bridges.factors import shared_factors
from laplacebridge.bridges.support_points import PARTS, POINTS
from laplacebridge.errors import InputError

# Means by fine grids over the factors, with the exact mean of independent logits inside.
SIGNS = torch.tensor([1.0, -1.0]).double().repeat(5)
GOLDEN = {
    "rank one": (
        torch.tensor([0.0, 0.5, 1.0, 0.5, 0.0]),
        torch.outer(*[torch.tensor([2.0, 1.0, 0.0, -1.0, -2.0])] * 2),
        torch.tensor([0.2151667, 0.1723538, 0.2249589, 0.1723538, 0.2151667]),
        0.0377,
    ),
    "two blocks of two": (
        torch.tensor([1.0, 0.5, 0.0, -0.5]),
        4 * torch.block_diag(*[torch.tensor([[1.0, 0.9], [0.9, 1.0]])] * 2),
        torch.tensor([0.3770189, 0.2430908, 0.2316860, 0.1482043]),
        0.0391,
    ),
    "two clusters": (
        1.5 * torch.cos(torch.arange(10)),
        2.25 * torch.outer(SIGNS, SIGNS) + 0.5 * torch.eye(10),
        torch.tensor(
            [
                *[0.2251680, 0.1410649, 0.0311671, 0.0159022, 0.0220203],
                *[0.0992717, 0.2136813, 0.1877325, 0.0461314, 0.0178606],
            ]
        ),
        0.0405,
    ),
}


def matrices(mean, covariance, rows=1):
    matrix = covariance.double().expand(rows, -1, -1)
    return lb.LogitGaussian(mean.double().expand(rows, -1), lb.Dense(matrix))


def without_factors(batch):
    return lb.LogitGaussian(batch.mean, batch.covariance, seek_factors=False)


@pytest.mark.parametrize("name", GOLDEN)
def test_known_means_of_correlated_logits(name):
    mean, covariance, exact, before = GOLDEN[name]
    batch = matrices(mean, covariance)
    assert total_variation(race_mean(batch), exact).item() < 0.006
    plain = total_variation(race_mean(without_factors(batch)), exact).item()
    assert plain == pytest.approx(before, abs=2e-3)  # what it was without factors


def blocks(size, classes, rows=8):
    group = torch.arange(classes) // size
    same = (group[:, None] == group).double()
    matrix = 5 * (0.9 * same + 0.1 * torch.eye(classes).double())
    mean = 1.5 * torch.randn(rows, classes, generator=seeded(size), dtype=torch.float64)
    return lb.LogitGaussian(mean, lb.Dense(matrix.expand(rows, -1, -1)))


def rank_one(classes, rows=8):
    factor = 3 * torch.randn(rows, classes, 1, generator=seeded(classes), dtype=torch.float64)
    mean = torch.randn(rows, classes, generator=seeded(classes + 1), dtype=torch.float64)
    return lb.LogitGaussian(mean, lb.LowRank(factor))


def ensemble(classes, rows=8):
    return lb.LogitGaussian.from_samples(
        2 * torch.randn(5, rows, classes, generator=seeded(classes), dtype=torch.float64)
    )


HARD = {
    "blocks of 3, K = 10": blocks(3, 10),
    "blocks of 10, K = 30": blocks(10, 30),
    "two clusters, K = 30": blocks(15, 30),
    "blocks of 3, K = 100": blocks(3, 100, rows=4),
    "rank one, K = 30": rank_one(30),
    "five members, K = 10": ensemble(10),
    "five members, K = 30": ensemble(30),
    "dense, K = 10": gaussian("dense", 3, 8, 10),
}


@pytest.fixture(scope="module")
def truths():
    return {
        name: lb.links.monte_carlo(batch, num_samples=40_000, generator=seeded(0))
        for name, batch in HARD.items()
    }


@pytest.mark.parametrize("name", HARD)
def test_correlated_logits_are_as_good_as_a_thousand_samples(name, truths):
    batch = HARD[name]
    sampled = lb.links.monte_carlo(batch, num_samples=1000, generator=seeded(1))
    error = total_variation(race_mean(batch), truths[name]).mean()
    assert error <= total_variation(sampled, truths[name]).mean()


def test_the_estimated_error_sees_noise_and_what_factors_leave_out(truths):
    estimates, errors = [], []
    for name, batch in HARD.items():
        mean, estimate = race_mean(batch, return_error=True)
        torch.testing.assert_close(mean, race_mean(batch), atol=0, rtol=0)
        assert estimate.shape == (len(batch),)
        estimates.append(estimate)
        errors.append(total_variation(mean, truths[name]))
    estimate, error = torch.cat(estimates), torch.cat(errors)
    sure = estimate < 0.01
    assert sure.double().mean() > 0.5
    assert (error[sure] < 0.02).double().mean() >= 0.95
    # many small groups are more than the factors: their bias is seen, though no point is
    small = list(HARD).index("blocks of 3, K = 100")
    assert (estimates[small] > 0.5 * errors[small]).all()
    assert estimates[small].mean() > 0.01
    # and without factors, which is worse, it says so
    for name in ("rank one, K = 30", "two clusters, K = 30"):
        plain, estimate = race_mean(without_factors(HARD[name]), return_error=True)
        assert (estimate > 0.5 * total_variation(plain, truths[name])).all()


def test_the_estimated_error_sees_groups_whose_classes_hardly_differ():
    """There the variance of all logits says little: classes of a group compete by what is
    their own.
    """
    same = torch.block_diag(*[torch.full((10, 10), 0.999)] * 3).fill_diagonal_(1.0)
    deviations = (50 * (0.3 * torch.randn(6, 30, generator=seeded(2))).exp()).sqrt()
    covariance = same * deviations.unsqueeze(-1) * deviations.unsqueeze(-2)
    mean = 1.5 * torch.randn(6, 30, generator=seeded(3))
    batch = lb.LogitGaussian(mean.double(), lb.Dense(covariance.double()))
    truth = lb.links.monte_carlo(batch, num_samples=100_000, generator=seeded(4))
    answer, estimate = race_mean(batch, return_error=True)
    assert (estimate > 0.5 * total_variation(answer, truth)).all()


def test_independent_logits_have_a_small_estimated_error():
    for structure in ("diagonal", "centered diagonal"):
        _, error = race_mean(gaussian(structure, 0, 5, 10), return_error=True)
        assert (error < 1e-3).all()


def test_estimates_come_in_blocks_of_rows_too():
    batch = gaussian("dense", 5, 700, 100)
    mean, error = race_mean(batch, return_error=True)
    assert mean.shape == (700, 100)
    assert error.shape == (700,)
    alone = race_mean(batch[650:660], return_error=True)
    torch.testing.assert_close(error[650:660], alone[1])
    torch.testing.assert_close(mean[650:660], alone[0])


def test_factors_that_are_there_are_found():
    factor = 2 * torch.randn(4, 40, 3, generator=seeded(1), dtype=torch.float64)
    own = torch.rand(4, 40, generator=seeded(2), dtype=torch.float64) + 0.2
    covariance = lb.Dense(factor @ factor.mT + torch.diag_embed(own))
    mean = torch.randn(4, 40, generator=seeded(3), dtype=torch.float64)
    found = shared_factors(mean, covariance)
    assert (found.presence == 1).all()
    centre = torch.eye(40).double() - 1 / 40
    rebuilt = found.loadings @ found.loadings.mT + torch.diag_embed(found.own)
    apart = centre @ (rebuilt - covariance.covariance) @ centre
    assert apart.norm(dim=(1, 2)).max() < 0.02 * covariance.covariance.norm(dim=(1, 2)).min()


def test_an_outlier_is_not_mistaken_for_a_factor():
    batch = gaussian("diagonal", 3, 10, 10)
    variance = batch.variance.clone()
    variance[:, 4] = 400.0
    assert (shared_factors(batch.mean, lb.Dense(torch.diag_embed(variance))).presence == 0).all()


@pytest.mark.parametrize("classes", [10, 30])
def test_a_class_that_varies_far_more_does_not_hide_what_the_others_share(classes):
    generator = seeded(3)
    loadings = 1.2 * torch.randn(classes, 3, generator=generator, dtype=torch.float64)
    deviations = torch.ones(classes, dtype=torch.float64)
    deviations[0] = 20.0
    matrix = loadings @ loadings.T + 0.5 * torch.eye(classes, dtype=torch.float64)
    matrix = deviations * matrix * deviations.unsqueeze(-1)
    batch = matrices(torch.randn(classes, generator=generator), matrix)
    draws = batch.sample(100_000, generator=generator).softmax(-1).mean(0)
    mean, error = race_mean(batch, return_error=True)
    assert total_variation(mean, draws).item() < 0.025  # .06 to .1 without factors
    assert error.item() > 0.01


@pytest.mark.parametrize("variance", [2e3, 1e6, 1e10])
def test_a_class_of_almost_all_the_variance_is_no_factor(variance):
    generator, rows, classes = seeded(0), 8, 10
    loadings = torch.randn(rows, classes, 3, generator=generator, dtype=torch.float64)
    own = 0.3 * torch.rand(rows, classes, generator=generator, dtype=torch.float64)
    own[:, 0] = variance
    covariance = lb.Dense(loadings @ loadings.mT + torch.diag_embed(own))
    mean = torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    batch = lb.LogitGaussian(mean, covariance)
    draws = batch.sample(20_000, generator=generator).softmax(-1).mean(0)
    found, error = race_mean(batch, return_error=True)
    distance = total_variation(found, draws)
    assert distance.mean() < 0.03  # .033 to .067 where it was taken for one
    assert error.mean() > distance.mean()
    narrow = race_mean(batch.to(torch.float32)).double()
    assert total_variation(narrow, found).max() < 0.005


@pytest.mark.parametrize("classes", [21, 24])
def test_matrices_of_unlike_scale_are_the_same_in_float32_and_when_renamed(classes):
    generator, rows = seeded(5), 40
    factor = torch.randn(rows, classes, classes, generator=generator, dtype=torch.float64)
    spread = torch.rand(rows, classes, 1, generator=generator, dtype=torch.float64)
    factor = factor * 10 / classes**0.5 * 10 ** (2 * spread - 1)
    mean = 1.5 * torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    matrix = factor @ factor.mT
    narrow = race_mean(lb.LogitGaussian(mean.float(), lb.Dense(matrix.float())))
    wide, error = race_mean(lb.LogitGaussian(mean, lb.Dense(matrix)), return_error=True)
    assert total_variation(narrow, wide).max() < 1e-3
    order = torch.randperm(classes, generator=generator)
    renamed = lb.Dense(matrix[:, order][:, :, order].float())
    moved = race_mean(lb.LogitGaussian(mean[:, order].float(), renamed))
    assert total_variation(moved, narrow[:, order]).max() < 1e-3
    assert error.max() <= 1  # a total variation


def test_an_estimated_error_is_a_number_for_every_finite_covariance():
    factor = torch.randn(3, 30, 30, generator=seeded(7)) * torch.tensor([1.0, 1e10, 1e18]).view(
        -1, 1, 1
    )
    batch = lb.LogitGaussian(torch.zeros(3, 30), lb.Dense(factor @ factor.mT))
    error = race_mean(batch, return_error=True)[1]
    assert ((error >= 0) & (error <= 1)).all()


@pytest.mark.parametrize("classes", [3, 30])
def test_no_rows_have_no_answers(classes):
    batch = lb.LogitGaussian.from_samples(torch.zeros(4, 0, classes))
    assert race_mean(batch).shape == (0, classes)
    assert lb.race_bridge(batch).mean.shape == (0, classes)


def test_rows_that_share_nothing_keep_their_answer():
    variance = torch.diag_embed(gaussian("diagonal", 5, 6, 10).variance)
    mixed = blocks(5, 10, rows=2)
    mean = torch.randn(8, 10, generator=seeded(6), dtype=torch.float64)
    batch = lb.LogitGaussian(mean, lb.Dense(torch.cat([variance, mixed.covariance.covariance])))
    plain, answer = race_mean(without_factors(batch)), race_mean(batch)
    torch.testing.assert_close(plain[:6], answer[:6], atol=0, rtol=0)
    assert total_variation(plain[6:], answer[6:]).min() > 1e-3


def test_every_part_of_the_points_has_the_moments_of_normal_variables():
    for number, part in zip(PARTS, POINTS):
        points = torch.from_numpy(part._values)
        levels, values = points[:, 0], points[:, 1:]
        assert len(points) == number
        torch.testing.assert_close(values.mean(0), torch.zeros(16).double())
        torch.testing.assert_close(values.T @ values / number, torch.eye(16).double())
        assert (-levels).exp().mean().item() == pytest.approx(2, abs=0.2)  # Gamma(2, 1)


def test_more_points_disagree_less():
    batch = ensemble(100, rows=4)
    truth = lb.links.monte_carlo(batch, num_samples=40_000, generator=seeded(0))
    loadings = batch.covariance.modulo_shift().factor
    parts = [part.mean for part in softmax_averages(batch.mean, loadings, range(len(PARTS)))]
    few = total_variation((parts[0] + parts[1]) / 2, truth).mean()
    weights = torch.tensor(PARTS, dtype=torch.float64) / sum(PARTS)
    many = torch.einsum("p,pbk->bk", weights, torch.stack(parts))
    assert total_variation(many, truth).mean() < 0.4 * few


def test_a_low_rank_and_the_same_matrix_differ_by_the_noise_of_the_points():
    batch = ensemble(40)
    matrix = lb.LogitGaussian(batch.mean, lb.Dense(batch.covariance.to_dense()))
    (few, error), (searched, other) = (race_mean(g, return_error=True) for g in (batch, matrix))
    assert (total_variation(few, searched) < 2 * (error + other)).all()
    assert total_variation(few, searched).mean() < 0.02


def test_short_rows_are_averaged_like_long_ones(monkeypatch):
    batch = ensemble(10)
    loadings = batch.covariance.modulo_shift().factor
    across = softmax_averages(batch.mean, loadings, (0, 1))
    monkeypatch.setattr("laplacebridge.bridges.factor_shares.FEW_CLASSES", 0)
    for one, other in zip(across, softmax_averages(batch.mean, loadings, (0, 1))):
        torch.testing.assert_close(one.mean, other.mean)
        torch.testing.assert_close(one.square, other.square)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log_odds_are_those_at_the_points_also_where_another_class_is_certain(dtype):
    mean = torch.randn(20, 6, generator=seeded(3), dtype=torch.float64)
    loadings = 30 * torch.randn(20, 6, 3, generator=seeded(4), dtype=torch.float64)
    points = torch.cat([POINTS[part].like(mean) for part in (0, 1)])[:, 1:4]
    logits = mean + torch.einsum("nr,bkr->nbk", points, loadings)
    others = logits.unsqueeze(-2).expand(-1, -1, 6, -1).masked_fill(torch.eye(6) > 0, -torch.inf)
    odds = logits - others.logsumexp(-1)
    _, location, variance = softmax_averages_with_odds(mean.to(dtype), loadings.to(dtype), (0, 1))
    rounding = {"rtol": 1e-4, "atol": 1e-2}
    torch.testing.assert_close(location.double(), odds.mean(0), **rounding)
    torch.testing.assert_close(variance.double(), odds.var(0, correction=0), **rounding)


def test_rows_without_noise_of_their_own_need_no_race_beside_rows_that_have_some():
    batch, classes = blocks(5, 10, rows=2), 10
    found = shared_factors(batch.mean, batch.covariance)
    found = found._replace(own=found.own * torch.tensor([[0.0], [1.0]]))
    both = averages(batch.mean, found, (0, 1))
    alone = softmax_averages(batch.mean, found.loadings, (0, 1))
    raced = averages(batch.mean[1:], found.of_rows(slice(1, None)), (0, 1))
    for part in range(2):
        torch.testing.assert_close(both[part].mean[0], alone[part].mean[0])
        torch.testing.assert_close(both[part].mean[1], raced[part].mean[0])
        assert both[part].mean.shape == (2, classes)


@pytest.mark.parametrize("classes", [12, 100])
@pytest.mark.parametrize("low", [-1e6, -1e9, -1e20])
def test_a_class_that_is_ruled_out_may_stand_first_or_last(classes, low):
    generator = seeded(4)
    loadings = 1.2 * torch.randn(classes, 3, generator=generator)
    matrix = loadings @ loadings.T + 0.5 * torch.eye(classes)
    mean = torch.randn(classes, generator=generator)
    mean[0] = low
    order = torch.arange(classes).roll(-1)
    first = race_mean(lb.LogitGaussian(mean[None], lb.Dense(matrix[None])))
    last = race_mean(lb.LogitGaussian(mean[None, order], lb.Dense(matrix[None, order][..., order])))
    assert total_variation(first[:, order], last).item() < 1e-5


def test_members_may_come_in_any_order():
    members = 2 * torch.randn(5, 8, 30, generator=seeded(4), dtype=torch.float64)
    ordered = race_mean(lb.LogitGaussian.from_samples(members))
    turned = race_mean(lb.LogitGaussian.from_samples(members[[3, 1, 4, 0, 2]]))
    torch.testing.assert_close(ordered, turned)


@pytest.mark.parametrize("classes", [3, 12, 40])
def test_gradients_agree_with_finite_differences_as_far_as_points_do(classes):
    batch = blocks(2, classes, rows=1)
    step = torch.randn(1, classes, generator=seeded(8), dtype=torch.float64)
    mean = batch.mean.clone().requires_grad_()
    chosen = race_mean(lb.LogitGaussian(mean, batch.covariance))[0, 0]
    (gradient,) = torch.autograd.grad(chosen, mean)
    ends = [
        race_mean(lb.LogitGaussian(batch.mean + sign * 0.05 * step, batch.covariance))[0, 0]
        for sign in (1, -1)
    ]
    assert (gradient * step).sum().item() == pytest.approx(
        ((ends[0] - ends[1]) / 0.1).item(), abs=0.02
    )


def with_noise_of_their_own(batch):
    matrix = batch.covariance.to_dense() + 0.1 * torch.eye(batch.num_classes).double()
    return lb.LogitGaussian(batch.mean, lb.Dense(matrix))


ODDS = {
    "rank one": rank_one(10),
    "rank one and noise": with_noise_of_their_own(rank_one(30)),
    "ensemble": ensemble(10),
    "ensemble and noise": with_noise_of_their_own(ensemble(30)),
}


@pytest.mark.parametrize("name", ODDS)
def test_variances_of_log_odds_are_those_of_samples(name):
    batch = ODDS[name]
    odds = torch.logit(batch.sample(4000, seeded(0)).softmax(-1))
    sampled = odds.var(0)
    likely = race_mean(batch) > 0.05
    found, before = (
        (lb.predict(each).log_odds_variance / sampled).log()[likely].abs().mean()
        for each in (batch, without_factors(batch))
    )
    assert found < 0.1
    assert found < 0.5 * before


@pytest.mark.parametrize("classes", [5, 20])
def test_a_low_rank_and_the_same_matrix_of_few_classes_have_the_same_variances(classes):
    for batch in (rank_one(classes), ensemble(classes)):
        matrix = lb.LogitGaussian(batch.mean, lb.Dense(batch.covariance.to_dense()))
        torch.testing.assert_close(
            lb.predict(batch).log_odds_variance, lb.predict(matrix).log_odds_variance
        )


def test_variances_of_rows_without_factors_and_of_each_row_alone_are_kept():
    independent = torch.diag_embed(gaussian("diagonal", 5, 2, 10).variance)
    shared = blocks(5, 10, rows=2)
    mean = torch.randn(4, 10, generator=seeded(6), dtype=torch.float64)
    batch = lb.LogitGaussian(mean, lb.Dense(torch.cat([independent, shared.covariance.covariance])))
    found = lb.predict(batch).log_odds_variance
    plain = lb.predict(without_factors(batch)).log_odds_variance
    torch.testing.assert_close(found[:2], plain[:2], atol=0, rtol=0)
    assert (found[2:] / plain[2:] - 1).abs().amax(-1).min() > 0.05
    alone = torch.cat([lb.predict(batch[row]).log_odds_variance for row in range(4)])
    torch.testing.assert_close(found, alone)
    low = lb.predict(batch.to(torch.float32)).log_odds_variance
    torch.testing.assert_close(low.double(), found, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("classes", [5, 12, 40])
def test_variances_do_not_jump_as_a_factor_fades_in(classes):
    steps = 1001
    factor = torch.randn(classes, 1, generator=seeded(3), dtype=torch.float64)
    mean = torch.randn(classes, generator=seeded(4), dtype=torch.float64).expand(steps, -1)
    strength = torch.linspace(0, 1.5, steps, dtype=torch.float64)[:, None, None]
    matrix = strength.square() * (factor @ factor.mT) + 0.5 * torch.eye(classes).double()
    variance = lb.predict(lb.LogitGaussian(mean, lb.Dense(matrix))).log_odds_variance
    change = variance.diff(dim=0).abs() / variance[1:]
    assert change.max() < 0.015


@pytest.mark.parametrize("classes", [3, 12, 40])
def test_gradients_of_variances_agree_with_finite_differences(classes):
    batch = with_noise_of_their_own(rank_one(classes, rows=1))
    step = torch.randn(1, classes, generator=seeded(8), dtype=torch.float64)

    def variance(mean):
        return lb.predict(lb.LogitGaussian(mean, batch.covariance)).log_odds_variance[0, 0]

    mean = batch.mean.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(variance(mean), mean)
    ends = [variance(batch.mean + sign * 0.01 * step) for sign in (1, -1)]
    assert (gradient * step).sum().item() == pytest.approx(
        ((ends[0] - ends[1]) / 0.02).item(), abs=0.05
    )


@pytest.mark.parametrize("call", [lb.race_bridge, race_mean, lb.race_bridge.prediction])
@pytest.mark.parametrize("nodes", [0, 1, -3])
def test_a_race_needs_nodes(call, nodes):
    with pytest.raises(InputError, match=f"at least two nodes to integrate over; got {nodes}"):
        call(gaussian("diagonal", 3, 2, 4), num_nodes=nodes)
    low_rank = lb.LogitGaussian(torch.zeros(2, 30), lb.LowRank(torch.ones(2, 30, 1)))
    with pytest.raises(InputError, match=f"got {nodes}"):
        call(low_rank, num_nodes=nodes)


def test_whether_factors_are_sought_follows_the_gaussian():
    batch = without_factors(blocks(5, 10))
    derived = [batch[:3], batch.to(torch.float32), batch.centered(), batch[0]]
    assert not any(part.seek_factors for part in derived)
    scaling = lb.temperature.TemperatureScaling(2.0, nll_before=1.0, nll_after=0.9)
    wide = scaling.gaussian(batch)
    assert not wide.seek_factors


def test_the_gaussians_of_a_fit_are_answered_without_a_search():
    generator = seeded(0)
    inputs = torch.randn(40, 6, generator=generator)
    labels = torch.arange(40) % 4
    for curvature in (lb.laplace.Kron, lb.laplace.Full):
        classifier = lb.fit(
            torch.nn.Linear(6, 4),
            [(inputs, labels)],
            curvature=curvature,
            prior_precision=1.0,
            progress=False,
        )
        gaussian_of_fit = classifier.logits(inputs)
        assert not gaussian_of_fit.seek_factors
        torch.testing.assert_close(
            classifier(inputs).mean, lb.predict(gaussian_of_fit).mean, atol=1e-6, rtol=1e-5
        )
