"""SWAG: a Gaussian over weights from snapshots of a training, and BatchNorm's
statistics for weights drawn from it.
"""

import copy

import pytest
import torch
from cases import seeded
from torch import nn

from laplacebridge import sources

FEATURES = 16


def rows(seed=0):
    return torch.randn(20, FEATURES, generator=seeded(seed), dtype=torch.float64)


def small(dtype=torch.float64):
    return nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2)).to(dtype)


def with_batch_norm():
    return nn.Sequential(
        nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 3)
    ).double()


def wandered(model, count, *, rank=20, seed=6):
    """A recorder after some random steps, and all snapshots that it saw."""
    generator, snapshots = seeded(seed), []
    swag = sources.SWAG(model, rank=rank)
    for _ in range(count):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.1 * torch.randn(
                    parameter.shape, generator=generator, dtype=parameter.dtype
                )
        swag.record()
        snapshots.append(nn.utils.parameters_to_vector(model.parameters()).detach().double())
    return swag, torch.stack(snapshots)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_swags_moments_are_those_of_the_snapshots(dtype):
    swag, snapshots = wandered(small(dtype), 7, rank=3)
    assert swag.num_snapshots == 7
    torch.testing.assert_close(swag.mean, snapshots.mean(0))
    torch.testing.assert_close(swag.variance, snapshots.var(0))


@pytest.mark.parametrize(("count", "rank"), [(5, 20), (8, 3)], ids=["all kept", "three kept"])
def test_drawn_networks_have_half_the_variances_and_half_the_covariance_of_what_is_kept(
    count, rank
):
    model = small()
    swag, snapshots = wandered(model, count, rank=rank)
    deviations = snapshots[-rank:] - snapshots.mean(0)
    expected = (
        torch.diag(snapshots.var(0)) + deviations.T @ deviations / (len(deviations) - 1)
    ) / 2
    draws, generator = 4000, seeded(7)
    drawn = torch.stack(
        [
            nn.utils.parameters_to_vector(swag.sample(generator).parameters()).detach()
            for _ in range(draws)
        ]
    )
    centered = drawn - snapshots.mean(0)
    variance = expected.diagonal()
    assert (centered.mean(0).abs() < 5 * (variance / draws).sqrt()).all()
    scale = torch.outer(variance, variance) + expected.square()
    assert ((centered.T @ centered / draws - expected).abs() < 5 * (scale / draws).sqrt()).all()


def test_the_network_in_training_is_only_read():
    model = with_batch_norm().train()
    swag, snapshots = wandered(model, 3)
    before = copy.deepcopy(model.state_dict())
    drawn = swag.sample(seeded(0), batches=[rows()])
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(module.training for module in model.modules())
    assert not any(module.training for module in drawn.modules())
    assert torch.equal(nn.utils.parameters_to_vector(model.parameters()).detach(), snapshots[-1])


def test_drawn_networks_are_decided_by_the_seed():
    swag, _ = wandered(small(), 4)
    first, again, other = (
        nn.utils.parameters_to_vector(swag.sample(seeded(s)).parameters()) for s in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_drawn_networks_are_an_ensemble():
    swag, _ = wandered(small(), 4)
    gaussian = sources.ensemble_gaussian(
        [swag.sample(seeded(seed)) for seed in range(5)], torch.ones(3, 2).double()
    )
    assert (gaussian.variance > 0).all()


def test_swag_needs_two_snapshots():
    swag = sources.SWAG(small())
    for given in (0, 1):
        for ask in (swag.sample, lambda: swag.mean, lambda: swag.variance):
            with pytest.raises(
                ValueError, match=rf"at least two snapshots.*got {given}. Call `record\(\)`"
            ):
                ask()
        swag.record()
    with pytest.raises(ValueError, match=r"rank ≥ 2 .*got 1"):
        sources.SWAG(small(), rank=1)


def test_weights_of_a_diverged_training_are_not_recorded():
    model = small()
    swag, snapshots = wandered(model, 3)
    with torch.no_grad():
        model[0].weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"needs finite weights.*diverged"):
        swag.record()
    torch.testing.assert_close(swag.mean, snapshots.mean(0))


# BatchNorm


def test_batch_norm_needs_data_for_its_statistics():
    swag, _ = wandered(with_batch_norm(), 3)
    with pytest.raises(
        ValueError, match=r"`batches` for Sequential, which has BatchNorm.*training loader"
    ):
        swag.sample(seeded(0))


def test_a_drawn_network_has_the_statistics_of_its_own_weights():
    swag, _ = wandered(with_batch_norm().train(), 3)
    batches = [rows(seed=1), (rows(seed=2), torch.zeros(20))]
    drawn = swag.sample(seeded(0), batches=batches)
    hidden = torch.stack([drawn[0](rows(seed=seed)) for seed in (1, 2)])
    torch.testing.assert_close(drawn[1].running_mean, hidden.mean(1).mean(0))
    torch.testing.assert_close(drawn[1].running_var, hidden.var(1).mean(0))


def test_refreshing_leaves_modes_momentum_weights_and_dropout_alone():
    model = with_batch_norm()
    model[1].momentum = 0.25
    model.train()
    model[3].eval()
    before = [module.training for module in model.modules()]
    weights = nn.utils.parameters_to_vector(model.parameters()).clone()
    seen = []
    model[3].register_forward_pre_hook(lambda module, _: seen.append(module.training))
    sources.refresh_batch_norm(model, [rows()])
    assert [module.training for module in model.modules()] == before
    assert model[1].momentum == 0.25
    assert torch.equal(nn.utils.parameters_to_vector(model.parameters()), weights)
    assert seen == [False]


def test_statistics_are_not_lost_when_there_are_no_batches():
    model = with_batch_norm()
    sources.refresh_batch_norm(model, [rows()])
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=r"at least one batch; got none. A generator is used up"):
        sources.refresh_batch_norm(model, iter([]))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_a_network_without_batch_norm_needs_no_data():
    sources.refresh_batch_norm(small(), [])
