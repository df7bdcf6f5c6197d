"""One-vs-rest of many classes: leading ones in full, the others to first order."""

import pytest
import torch
from cases import seeded, total_variation
from many_classes import CLASSES, populations
from torch import nn

import laplacebridge as lb
from laplacebridge.bridges import leading_odds
from laplacebridge.bridges.leading_odds import (
    many_log_odds_variances,
    many_probabilities,
    many_probabilities_and_variances,
)
from laplacebridge.bridges.log_odds import log_odds, one_vs_rest_probabilities


def in_full(mean, variance):
    odds = log_odds(mean, lb.Diagonal(variance))
    return one_vs_rest_probabilities(odds), odds.variance


@pytest.mark.parametrize("classes", [1000, 5000])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_it_is_one_vs_rest_of_all_classes(classes, dtype):
    for name, mean, variance in populations(5, classes):
        expected, variances = in_full(mean, variance)
        found, own = many_probabilities_and_variances(mean.to(dtype), variance.to(dtype))
        assert (total_variation(found.double(), expected) < 1e-4).all(), name
        assert torch.equal(many_probabilities(mean.to(dtype), variance.to(dtype)), found), name
        torch.testing.assert_close(found.sum(-1), torch.ones(5).to(dtype), atol=1e-5, rtol=0)
        for variance_of_odds in (own, many_log_odds_variances(mean.to(dtype), variance.to(dtype))):
            apart = (variance_of_odds.double() / variances - 1).abs()
            assert ((apart * expected).sum(-1) < 1e-4).all(), name
            assert apart.max() < 5e-3, name


def test_ordinary_rows_need_their_leading_classes_only_and_hard_ones_are_told():
    enough = {
        name: leading_odds.leading_odds(mean, variance).chances().is_enough
        for name, mean, variance in populations(4)
    }
    for name in ("ordinary", "confident", "variance 0.3, logits of 1.0", "far"):
        assert enough[name].all(), name
    for name in ("variance 10.0, logits of 1.0", "few of variance 1000000000000.0", "fifty alike"):
        assert not enough[name].any(), name


def test_a_row_answers_alike_whatever_its_batch():
    both = [*populations(1)]
    mean = torch.cat([mean for _, mean, _ in both])
    variance = torch.cat([variance for _, _, variance in both])
    for part in (0, 1):
        alone = [
            many_probabilities_and_variances(*row)[part]
            for row in zip(mean.split(1), variance.split(1))
        ]
        found = many_probabilities_and_variances(mean, variance)[part]
        torch.testing.assert_close(found, torch.cat(alone), atol=1e-12, rtol=1e-9)


def test_gradients_are_those_of_one_vs_rest_of_all_classes():
    generator = seeded(0)
    mean = 4 * torch.randn(2, CLASSES, generator=generator).double()
    variance = torch.tensor([[0.3], [9.0]]).double().expand(2, CLASSES)  # the second is told
    weights = torch.randn(2, CLASSES, generator=generator).double()
    found = []
    for function in (many_probabilities_and_variances, in_full):
        given = mean.clone().requires_grad_(), variance.clone().requires_grad_()
        (function(*given)[0] * weights).sum().backward()
        found.append([some.grad for some in given])
    for ours, full in zip(*found):
        assert ours.isfinite().all()
        torch.testing.assert_close(ours, full, atol=2e-4, rtol=1e-2)
        assert full.abs().amax(-1).min() > 1e-3


@pytest.mark.parametrize("bridge", [lb.race_bridge, lb.bridges.one_vs_rest_bridge])
def test_bridges_of_many_classes_use_it(bridge, monkeypatch):
    gaussian = lb.LogitGaussian(torch.randn(2, CLASSES), lb.Diagonal(torch.rand(2, CLASSES)))
    calls = []
    whole = leading_odds.leading_odds

    def counted(*args):
        calls.append(len(args[0]))
        return whole(*args)

    monkeypatch.setattr(leading_odds, "leading_odds", counted)
    assert lb.predict(gaussian, bridge).mean.isfinite().all()
    assert calls == [2]


class Answers(nn.Module):
    """The function as a module, which can be exported."""

    def forward(self, mean, variance):
        return many_probabilities_and_variances(mean, variance)


@torch.no_grad()
def test_exported_code_gives_what_eager_code_gives():
    mean = 2 * torch.randn(5, CLASSES, generator=seeded(0))
    variance = 0.5 * torch.rand(5, CLASSES, generator=seeded(1))
    variance[3] *= 300  # computed in full
    exported = torch.export.export(Answers(), (mean, variance), strict=False).module()
    for found, expected in zip(exported(mean, variance), Answers()(mean, variance)):
        torch.testing.assert_close(found, expected, atol=0, rtol=0)
