"""Heads as large as vocabularies: tables are made some classes at a time, and are the
same.
"""

import pytest
import torch
from cases import seeded

from laplacebridge.laplace import DiagKron, DiagKronPosterior
from laplacebridge.laplace import width as width_module
from laplacebridge.laplace.posterior import Posterior


def posterior(bias):
    generator = seeded(0)
    features = torch.randn(30, 5, generator=generator, dtype=torch.float64)
    weight = torch.randn(17, 5, generator=generator, dtype=torch.float64)
    offset = torch.randn(17, generator=generator, dtype=torch.float64) if bias else None
    inputs = torch.cat([features, torch.ones(30, 1).double()], -1) if bias else features
    probabilities = (features @ weight.T).softmax(-1)
    return DiagKronPosterior(weight, offset, DiagKron.of_batch(inputs, probabilities), 0.3)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("elements", [1, 13, 2**22])
def test_blocks_of_classes_give_the_same(monkeypatch, bias, elements):
    monkeypatch.setattr("laplacebridge._blocks.ELEMENTS_AT_ONCE", elements)
    found = posterior(bias)
    torch.testing.assert_close(found.variances, 1 / (found.eigenvalues() + 0.3))
    expected = torch.log1p(found.eigenvalues() / 2.0).sum()
    torch.testing.assert_close(found._log_determinant(2.0), expected)
    torch.testing.assert_close(found._squared_norm(), Posterior._squared_norm(found))
    whole = -0.5 * float(2.0 * found.trained().square().sum() + expected)
    assert found.log_evidence(0.0, prior_precision=2.0) == pytest.approx(whole)


def test_held_out_examples_are_as_many_as_fit(monkeypatch):
    monkeypatch.setattr(width_module, "HELD_OUT_ELEMENTS", 17 * 20)
    found, labels = posterior(False), torch.arange(100) % 17
    features = torch.arange(100.0).unsqueeze(-1).expand(-1, 5)
    some, chosen, votes = width_module._affordable(found, features, labels, None)
    assert len(some) == len(chosen) == 20
    assert votes is None
    assert torch.equal(some[:, 0].long() % 17, chosen)
    assert (some[0, 0], some[-1, 0]) == (0, 99)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("prior", [1e-4, 1.0, 1e6])
def test_variances_between_nodes_are_those_of_the_table(monkeypatch, dtype, prior):
    """Of classes from never seen to always seen, and features of all sizes."""
    generator = seeded(1)
    features = torch.randn(200, 12, generator=generator, dtype=torch.float64)
    features *= torch.logspace(-3, 3, 12, dtype=torch.float64)
    weight = torch.zeros(900, 12, dtype=dtype)
    probabilities = torch.softmax(
        torch.linspace(-60, 0, 900, dtype=torch.float64).expand(200, -1), -1
    )
    curvature = DiagKron.of_batch(features, probabilities)
    exact = DiagKronPosterior(weight, None, curvature, prior)
    inputs = features[:20].to(dtype)
    expected = exact(inputs).variance
    monkeypatch.setattr("laplacebridge.laplace.head_posteriors.diag_kron.LARGEST_TABLE", 1)
    found = DiagKronPosterior(weight, None, curvature, 3.0).with_prior(prior)
    assert found.variances is None  # the table of K × D numbers is not there
    assert sum(buffer.nbytes for buffer in found.buffers()) < sum(
        buffer.nbytes for buffer in exact.buffers()
    )
    torch.testing.assert_close(found(inputs).variance, expected, rtol=3e-4, atol=0)
    torch.testing.assert_close(found.all_variances(), exact._variances(), rtol=1e-6, atol=0)
    again = DiagKronPosterior.from_buffers(found.state_dict())
    assert torch.equal(again(inputs).variance, found(inputs).variance)


def test_classes_that_are_all_alike_have_one_variance(monkeypatch):
    monkeypatch.setattr("laplacebridge.laplace.head_posteriors.diag_kron.LARGEST_TABLE", 1)
    features = torch.eye(3, dtype=torch.float64)
    curvature = DiagKron.of_batch(features, torch.full((3, 40), 1 / 40, dtype=torch.float64))
    found = DiagKronPosterior(torch.zeros(40, 3).double(), None, curvature, 1.0)
    exact = 1 / (3 / 3 * 40 * (1 / 40) * (39 / 40) / 40 * 3 / 3 + 1.0)
    variance = found(features).variance
    assert torch.equal(variance, variance[:, :1].expand(-1, 40))
    assert 0.9 < float(variance[0, 0]) / exact < 1.1
