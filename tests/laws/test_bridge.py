"""Laws that every bridge obeys, over every structure: those of the public check, and
others that need our own structures and block sizes.
"""

import pytest
import torch
from cases import BRIDGES, STRUCTURES, gaussian, seeded, total_variation

import laplacebridge as lb
from laplacebridge import _blocks

EVERY_BRIDGE = pytest.mark.parametrize("bridge", BRIDGES.values(), ids=BRIDGES.keys())
EVERY_STRUCTURE = pytest.mark.parametrize("structure", STRUCTURES)
SIZES = pytest.mark.parametrize("classes", [2, 3, 10])


@EVERY_BRIDGE
def test_it_passes_the_public_check_with_what_it_claims(bridge):
    lb.testing.check_bridge(
        bridge.function,
        shift_invariant=bridge.shift_invariant,
        common_mode_invariant=bridge.common_mode_invariant,
        consistent=bridge.consistent,
        structured_tolerance=bridge.structured_tolerance,
        float32_tolerance=bridge.float32_mean,
    )


@EVERY_BRIDGE
@EVERY_STRUCTURE
def test_rows_are_independent_and_blocks_of_rows_change_nothing(bridge, structure, monkeypatch):
    batch = gaussian(structure, 1, 7, 5)
    together = bridge.function(batch).log_concentration
    alone = torch.cat([bridge.function(batch[row]).log_concentration for row in range(len(batch))])
    torch.testing.assert_close(together, alone)
    for size in ("ELEMENTS_IN_CACHE", "ELEMENTS_OF_A_RACE"):
        monkeypatch.setattr(_blocks, size, 10)  # two rows of five classes
    torch.testing.assert_close(bridge.function(batch).log_concentration, together)


@EVERY_BRIDGE
@EVERY_STRUCTURE
def test_gradients_match_finite_differences(bridge, structure):
    batch = gaussian(structure, 4, 2, 4, spread=1.0)
    tensors = {name: t.clone().requires_grad_() for name, t in batch.covariance.tensors().items()}
    kind = type(batch.covariance)

    def log_concentration(mean, *parts):
        covariance = kind(**dict(zip(tensors, parts)))
        if kind is lb.Dense:  # gradcheck moves one entry at a time; covariances are symmetric
            covariance = lb.Dense((covariance.covariance + covariance.covariance.mT) / 2)
        # without factors, whose axes carry no gradient: tests/bridges/test_factors.py has theirs
        given = lb.LogitGaussian(mean, covariance, seek_factors=False)
        return bridge.function(given).log_concentration

    tolerance = bridge.gradcheck_tolerance
    inputs = (batch.mean.clone().requires_grad_(), *tensors.values())
    assert torch.autograd.gradcheck(
        log_concentration, inputs, atol=tolerance, rtol=max(1e-3, tolerance)
    )


@EVERY_BRIDGE
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("variance", [0.0, 1e-30, 1e-10, 1.0, 1e6, 1e12])
def test_gradients_are_finite_wherever_values_are(bridge, dtype, variance):
    mean = torch.tensor([[0.0, 0.0, 0.0], [100.0, 0.0, -100.0], [1e4, 9999.0, -1e4]], dtype=dtype)
    mean.requires_grad_()
    variances = torch.full((3, 3), variance, dtype=dtype, requires_grad=True)
    bridge.function(lb.LogitGaussian(mean, lb.Diagonal(variances))).mean[:, 0].sum().backward()
    assert mean.grad.isfinite().all()
    assert variances.grad.isfinite().all()


@EVERY_BRIDGE
def test_a_variance_common_to_all_logits_is_no_uncertainty(bridge):
    if not bridge.common_mode_invariant:
        pytest.skip("reads the variance common to all logits, as published")
    mean = torch.tensor([[2.0, 0.0, -1.0]], dtype=torch.float64)
    dirichlet = bridge.function(
        lb.LogitGaussian(mean, lb.Dense(torch.full((1, 3, 3), 7.0).double()))
    )
    torch.testing.assert_close(dirichlet.mean, mean.softmax(-1), atol=1e-6, rtol=1e-5)


def test_the_papers_bridge_is_not_consistent_for_three_classes_or_more():
    mean = 1.5 * torch.randn(20, 10, generator=seeded(0), dtype=torch.float64)
    tiny = lb.LogitGaussian(mean, lb.Diagonal(torch.full((20, 10), 1e-6).double()))
    assert total_variation(lb.laplace_bridge(tiny).mean, mean.softmax(-1)).mean() > 0.1
