"""Gaussians that keep what they were made of, and the members' own average."""

import pytest
import torch
from cases import gaussian, seeded

import laplacebridge as lb
from laplacebridge.errors import InputError

MEMBERS = 2 * torch.randn(5, 6, 4, generator=seeded(0), dtype=torch.float64)


def test_the_mean_is_the_members_own_average():
    batch = lb.LogitGaussian.from_samples(MEMBERS)
    average = MEMBERS.softmax(-1).mean(0)
    torch.testing.assert_close(batch.member_mean(), average)
    torch.testing.assert_close(lb.bridges.members_bridge(batch).mean, average)
    predicted = lb.predict(batch, lb.bridges.members_bridge)
    torch.testing.assert_close(predicted.mean, average)
    widths = lb.predict(batch, lb.bridges.one_vs_rest_bridge).log_odds_variance
    torch.testing.assert_close(predicted.log_odds_variance, widths)


def test_members_follow_rows_types_and_temperatures():
    batch = lb.LogitGaussian.from_samples(MEMBERS)
    rows = torch.tensor([4, 1])
    torch.testing.assert_close(batch[rows].members, MEMBERS[:, rows])
    assert batch[2].members.shape == (5, 1, 4)
    assert batch.to(torch.float32).members.dtype == torch.float32
    torch.testing.assert_close(batch.centered().member_mean(), batch.member_mean())
    scaling = lb.temperature.TemperatureScaling(2.0, nll_before=1.0, nll_after=0.9)
    torch.testing.assert_close(scaling.gaussian(batch).members, MEMBERS / 2)


def test_sources_keep_their_members():
    networks = [torch.nn.Linear(3, 4) for _ in range(3)]
    inputs = torch.randn(5, 3, generator=seeded(1))
    batch = lb.sources.ensemble_gaussian(networks, inputs)
    answers = torch.stack([network(inputs).softmax(-1) for network in networks]).mean(0)
    torch.testing.assert_close(batch.member_mean(), answers)


def test_moments_alone_have_no_members():
    batch = gaussian("dense", 0, 3, 4)
    for call in (lb.bridges.members_bridge, lb.LogitGaussian.member_mean):
        with pytest.raises(InputError, match="made of members"):
            call(batch)
