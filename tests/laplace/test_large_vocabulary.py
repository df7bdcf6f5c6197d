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
