"""Gaussians from MC dropout, ensembles and variational heads: their moments, and that
nothing else is changed.
"""

import copy

import pytest
import torch
from cases import seeded, total_variation
from torch import nn
from torch.nn import functional

import laplacebridge as lb
from laplacebridge import sources
from laplacebridge.errors import HeadNotFoundError

FEATURES, CLASSES = 16, 5


def rows(count=20, seed=0):
    return torch.randn(count, FEATURES, generator=seeded(seed), dtype=torch.float64)


def dropping(seed=0):
    """With layers that behave differently in training."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Linear(FEATURES, 200),
            nn.BatchNorm1d(200),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(200, CLASSES),
        ).double()


def linear_members(count, spread):
    """Linear heads whose weights are Gaussian, so that their logits are."""
    generator, members = seeded(3), []
    mean = 0.5 * torch.randn(CLASSES, FEATURES, generator=generator, dtype=torch.float64)
    for _ in range(count):
        member = nn.Linear(FEATURES, CLASSES, bias=False).double()
        member.weight.data = mean + spread * torch.randn(
            mean.shape, generator=generator, dtype=torch.float64
        )
        members.append(member)
    return members


# agreement with averaging softmax over the same samples


@torch.no_grad()
def test_the_bridge_of_an_ensemble_averages_its_softmax_where_logits_are_gaussian():
    members, batch = linear_members(2000, spread=0.3), rows()
    gaussian = sources.ensemble_gaussian(members, batch)
    average = torch.stack([member(batch).softmax(-1) for member in members]).mean(0)
    assert total_variation(lb.race_bridge(gaussian).mean, average).max() < 0.01
    assert (
        total_variation(lb.links.map_estimate(gaussian), average).max() > 0.05
    )  # the spread matters


@torch.no_grad()
def test_the_bridge_of_mc_dropout_averages_its_softmax_where_many_units_are_summed():
    model, batch, seen = dropping(), rows(), []
    model[-1].weight.data *= 8
    model.register_forward_hook(lambda _, __, logits: seen.append(logits))
    gaussian = sources.dropout_gaussian(model, batch, num_samples=1000, generator=seeded(0))
    average = torch.stack(seen).softmax(-1).mean(0)
    assert total_variation(lb.race_bridge(gaussian).mean, average).max() < 0.02
    assert total_variation(lb.links.map_estimate(gaussian), average).max() > 0.05


# ensembles


def test_an_ensembles_moments_are_those_of_its_members():
    members = [dropping(seed).train() for seed in range(3)]
    gaussian = sources.ensemble_gaussian(iter(members), (rows(), torch.zeros(20)))
    logits = torch.stack([copy.deepcopy(member).eval()(rows()) for member in members])
    torch.testing.assert_close(gaussian.mean, logits.mean(0))
    torch.testing.assert_close(gaussian.variance, logits.var(0))
    assert all(module.training for member in members for module in member.modules())


def test_an_ensemble_of_one_is_refused():
    member = nn.Linear(2, 3)
    for models, given in (
        ([], "got 0"),
        ([member], "got 1"),
        ([member] * 5, r"got 1 \(in a list of 5\)"),
    ):
        with pytest.raises(
            ValueError, match=rf"at least two different networks.*{given}.*use `lb.fit`"
        ):
            sources.ensemble_gaussian(models, torch.zeros(1, 2))


def test_members_with_other_classes_are_named():
    members = [nn.Linear(2, 3), nn.Linear(2, 3), nn.Linear(2, 4)]
    with pytest.raises(
        lb.errors.ShapeError, match=r"same classes.*\(1, 3\), number 3 of shape \(1, 4\)"
    ):
        sources.ensemble_gaussian(members, torch.zeros(1, 2))


def test_outputs_that_are_no_rows_of_logits_are_refused():
    members = [nn.Linear(2, 3), nn.Linear(2, 3)]
    with pytest.raises(
        lb.errors.ShapeError, match=r"got shape \(4, 7, 3\).*tokens or pixels are rows"
    ):
        sources.ensemble_gaussian(members, torch.zeros(4, 7, 2))
    with pytest.raises(HeadNotFoundError, match="must return logits"):
        sources.ensemble_gaussian([nn.Identity(), nn.Identity()], [[1.0]])


# MC dropout


def test_only_dropout_is_in_training_mode_and_all_modes_are_restored():
    model = dropping()
    model.train()
    model[1].eval()
    before = [module.training for module in model.modules()]
    statistics = copy.deepcopy(model[1].state_dict())
    seen = []
    model.register_forward_pre_hook(
        lambda running, _: seen.append([module.training for module in running])
    )
    sources.dropout_gaussian(model, rows(), num_samples=2, generator=seeded(0))
    assert seen == [[False, False, False, True, False]] * 2
    assert [module.training for module in model.modules()] == before
    assert all(
        torch.equal(statistics[name], value) for name, value in model[1].state_dict().items()
    )


def test_modes_are_restored_after_an_error():
    model = dropping().train()
    with pytest.raises(RuntimeError):
        sources.dropout_gaussian(model, torch.zeros(1, 3).double(), generator=seeded(0))
    assert all(module.training for module in model.modules())


def test_a_seed_decides_what_is_dropped_and_the_global_state_stays():
    model = dropping()
    before = torch.get_rng_state()
    first, again, other = (
        sources.dropout_gaussian(model, rows(), num_samples=5, generator=seeded(seed)).mean
        for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_without_a_generator_the_global_seed_decides():
    model, means = dropping(), []
    with torch.random.fork_rng():
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            means.append(
                [sources.dropout_gaussian(model, rows(), num_samples=5).mean for _ in range(2)]
            )
    assert torch.equal(means[0][0], means[1][0])
    assert not torch.equal(means[0][0], means[2][0])
    assert not torch.equal(*means[0])  # one call after another gives other samples


DROPOUT_FREE = {"none": nn.Linear(2, 3), "p = 0": nn.Sequential(nn.Dropout(0.0), nn.Linear(2, 3))}


@pytest.mark.parametrize("name", DROPOUT_FREE)
def test_a_network_without_dropout_is_refused(name):
    with pytest.raises(
        ValueError, match=r"no layer with p > 0 among Dropout, Dropout1d, .*AlphaDropout.*`lb.fit`"
    ):
        sources.dropout_gaussian(DROPOUT_FREE[name], torch.zeros(1, 2))


def test_other_layers_that_drop_can_be_named():
    class DropPath(nn.Module):
        def forward(self, inputs):
            return functional.dropout(inputs, 0.5, self.training)

    model = nn.Sequential(DropPath(), nn.Linear(FEATURES, 3).double())
    with pytest.raises(ValueError, match="needs a network with dropout"):
        sources.dropout_gaussian(model, rows())
    assert (
        sources.dropout_gaussian(model, rows(), layers=(DropPath,), generator=seeded(0)).variance
        > 0
    ).all()


def test_a_single_pass_is_refused():
    with pytest.raises(ValueError, match="num_samples ≥ 2 to see any spread; got 1"):
        sources.dropout_gaussian(dropping(), rows(), num_samples=1)


# variational heads


def variational_head():
    generator = seeded(4)
    means = [
        torch.randn(*shape, generator=generator).double()
        for shape in ((CLASSES, FEATURES), (CLASSES,))
    ]
    variances = [torch.rand(mean.shape, generator=generator).double() for mean in means]
    return means[0], variances[0], means[1], variances[1]


def test_a_mean_field_head_has_the_moments_of_sampled_weights():
    mean, variance, bias, bias_variance = variational_head()
    gaussian = sources.mean_field_gaussian(
        rows(), mean, variance, bias_mean=bias, bias_variance=bias_variance
    )
    assert isinstance(gaussian.covariance, lb.Diagonal)
    count, generator = 20_000, seeded(5)
    noise = torch.randn(count, *mean.shape, generator=generator, dtype=torch.float64)
    biases = bias + bias_variance.sqrt() * torch.randn(
        count, CLASSES, generator=generator, dtype=torch.float64
    )
    logits = torch.einsum("bd,skd->sbk", rows(4), mean + variance.sqrt() * noise) + biases[:, None]
    deviations = logits - gaussian.mean[:4]
    assert (deviations.mean(0).abs() < 5 * (gaussian.variance[:4] / count).sqrt()).all()
    covariance = torch.einsum("sbk,sbl->bkl", deviations, deviations) / count
    expected = gaussian.covariance.to_dense()[:4]
    scale = torch.einsum("bk,bl->bkl", gaussian.variance[:4], gaussian.variance[:4])
    assert ((covariance - expected).abs() < 5 * ((scale + expected.square()) / count).sqrt()).all()


def test_a_bias_may_be_known_or_absent():
    mean, variance, bias, bias_variance = variational_head()
    without = sources.mean_field_gaussian(rows(), mean, variance)
    known = sources.mean_field_gaussian(rows(), mean, variance, bias_mean=bias)
    uncertain = sources.mean_field_gaussian(
        rows(), mean, variance, bias_mean=bias, bias_variance=bias_variance
    )
    torch.testing.assert_close(known.mean, without.mean + bias)
    assert torch.equal(known.variance, without.variance)
    torch.testing.assert_close(uncertain.variance, known.variance + bias_variance)


def test_a_head_that_does_not_fit_is_refused():
    mean, variance, bias, _ = variational_head()
    for wrong in ((mean.T, variance.T), (mean, variance[:-1])):
        with pytest.raises(
            lb.errors.ShapeError,
            match=r"features \(B, D\), and means and variances \(K, D\).*`nn.Linear`",
        ):
            sources.mean_field_gaussian(rows(), *wrong)
    with pytest.raises(lb.errors.ShapeError, match=r"`bias_mean` of shape \(5,\).*got \(4,\)"):
        sources.mean_field_gaussian(rows(), mean, variance, bias_mean=bias[1:])
    with pytest.raises(lb.errors.ShapeError, match="means and variances of the same type"):
        sources.mean_field_gaussian(rows(), mean, variance.float())
