"""The race of many classes: leading ones in full, the others by a series."""

import pytest
import torch
from cases import seeded, total_variation
from many_classes import CLASSES, populations
from torch import nn

import laplacebridge as lb
from laplacebridge._quadrature import exact_independent_mean
from laplacebridge.bridges import leading
from laplacebridge.bridges.race import NUM_NODES, race_probabilities


def raced(mean, variance):
    return leading.expected_softmax(mean, variance, num_nodes=NUM_NODES)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_it_is_as_near_to_the_exact_mean_as_the_race_of_all(dtype):
    for name, mean, variance in populations(3):
        exact = exact_independent_mean(mean, variance)
        in_full = total_variation(race_probabilities(mean, variance), exact)
        found = raced(mean.to(dtype), variance.to(dtype)).double()
        assert (total_variation(found, exact) <= in_full + 1e-4).all(), name
        torch.testing.assert_close(found.sum(-1), torch.ones(3).double(), atol=1e-5, rtol=0)


def test_ordinary_rows_need_their_leading_classes_only_and_hard_ones_are_told():
    enough = {
        name: leading.leading_race(mean, variance, num_nodes=NUM_NODES)[1]
        for name, mean, variance in populations(4)
    }
    for name in ("ordinary", "confident", "variance 1.0, logits of 1.0", "far"):
        assert enough[name].all(), name
    for name in ("variance 10.0, logits of 1.0", "few of variance 10000.0"):
        assert not enough[name].any(), name


def test_a_row_answers_alike_whatever_its_batch():
    both = [*populations(1)]
    mean = torch.cat([mean for _, mean, _ in both])
    variance = torch.cat([variance for _, _, variance in both])
    alone = torch.cat([raced(*row) for row in zip(mean.split(1), variance.split(1))])
    torch.testing.assert_close(raced(mean, variance), alone, atol=1e-12, rtol=1e-9)


def test_gradients_are_those_of_the_race_of_all():
    generator = torch.Generator().manual_seed(0)
    mean = 4 * torch.randn(2, CLASSES, generator=generator).double()
    variance = torch.tensor([[0.3], [9.0]]).double().expand(2, CLASSES)  # the second is told
    weights = torch.randn(2, CLASSES, generator=generator).double()
    found = []
    for race in (raced, race_probabilities):
        given = mean.clone().requires_grad_(), variance.clone().requires_grad_()
        (race(*given) * weights).sum().backward()
        found.append([some.grad for some in given])
    for ours, in_full in zip(*found):
        assert ours.isfinite().all()
        torch.testing.assert_close(ours, in_full, atol=1e-4, rtol=1e-2)
        assert in_full.abs().amax(-1).min() > 1e-2


def test_bridges_of_many_classes_use_it(monkeypatch):
    gaussian = lb.LogitGaussian(torch.randn(2, CLASSES), lb.Diagonal(torch.rand(2, CLASSES)))
    calls = []
    whole = leading.leading_race

    def counted(*args, **options):
        calls.append(len(args[0]))
        return whole(*args, **options)

    monkeypatch.setattr(leading, "leading_race", counted)
    assert lb.race_bridge(gaussian).mean.isfinite().all()
    assert calls == [2]


class Expected(nn.Module):
    """The function as a module, which can be exported."""

    def forward(self, mean, variance):
        return raced(mean, variance)


@torch.no_grad()
def test_exported_code_gives_what_eager_code_gives():
    mean = 2 * torch.randn(5, 1000, generator=seeded(0))
    variance = torch.rand(5, 1000, generator=seeded(1))
    variance[3] *= 300  # raced in full
    exported = torch.export.export(Expected(), (mean, variance), strict=False).module()
    found, expected = exported(mean, variance), Expected()(mean, variance)
    led = [0, 1, 2, 4]
    assert torch.equal(found[led], expected[led])
    torch.testing.assert_close(found[3], expected[3])
    assert not torch.equal(found[0], race_probabilities(mean, variance, num_nodes=NUM_NODES)[0])


@pytest.mark.parametrize("number", [-1, 0, 1])
def test_too_few_nodes_are_refused_of_many_classes_too(number):
    gaussian = lb.LogitGaussian(torch.zeros(2, 1000), lb.Diagonal(torch.ones(2, 1000)))
    with pytest.raises(lb.InputError, match="num_nodes"):
        lb.bridges.race_mean(gaussian, num_nodes=number)
