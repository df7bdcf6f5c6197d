"""Invariances as properties, over every structure."""

import hypothesis.strategies as st
import pytest
import torch
from cases import BRIDGES, LINKS, STRUCTURES, gaussian, seeded
from hypothesis import given

import laplacebridge as lb

EVERY_BRIDGE = pytest.mark.parametrize("bridge", BRIDGES.values(), ids=BRIDGES.keys())
EVERY_LINK = pytest.mark.parametrize("link", LINKS.values(), ids=LINKS.keys())
seeds = st.integers(0, 10_000)
sizes = st.integers(2, 12)
structures = st.sampled_from(sorted(STRUCTURES))


def permuted(batch, order):
    dense = batch.covariance.to_dense()
    return lb.LogitGaussian(batch.mean[:, order], lb.Dense(dense[:, order][:, :, order]))


@EVERY_BRIDGE
@given(structure=structures, seed=seeds, classes=sizes)
def test_renaming_classes_renames_the_answer(bridge, structure, seed, classes):
    batch = gaussian(structure, seed, 3, classes)
    order = torch.randperm(classes, generator=seeded(seed))
    unchanged = permuted(batch, torch.arange(classes))
    answer = bridge.function(permuted(batch, order)).log_concentration
    torch.testing.assert_close(
        answer, bridge.function(unchanged).log_concentration[:, order], atol=1e-7, rtol=1e-7
    )


@EVERY_LINK
@given(structure=structures, seed=seeds, classes=sizes)
def test_renaming_classes_renames_the_probabilities(link, structure, seed, classes):
    if not link.exact_permutation:
        pytest.skip("sampled: holds in distribution only")
    batch = gaussian(structure, seed, 3, classes)
    order = torch.randperm(classes, generator=seeded(seed))
    expected = link.function(permuted(batch, torch.arange(classes)))[:, order]
    torch.testing.assert_close(link.function(permuted(batch, order)), expected)


@EVERY_BRIDGE
@given(structure=structures, seed=seeds, classes=sizes, shift=st.floats(-50, 50))
def test_a_constant_added_to_all_logits_changes_nothing(bridge, structure, seed, classes, shift):
    if not bridge.shift_invariant:
        pytest.skip(
            "conditioning depends on the sum of the logits, as published; see the test of that"
            " below"
        )
    batch = gaussian(structure, seed, 3, classes)
    shifted = lb.LogitGaussian(batch.mean + shift, batch.covariance)
    torch.testing.assert_close(
        bridge.function(shifted).log_concentration,
        bridge.function(batch).log_concentration,
        atol=1e-7,
        rtol=1e-7,
    )


@EVERY_BRIDGE
@given(seed=seeds, classes=sizes)
def test_noise_common_to_all_logits_changes_nothing(bridge, seed, classes):
    if not bridge.common_mode_invariant:
        pytest.skip("reads variances that softmax cannot see, as published")
    batch = gaussian("dense", seed, 3, classes)
    tilt = 0.1 * torch.randn(3, classes, generator=seeded(seed), dtype=torch.float64)
    moved = batch.covariance.to_dense() + tilt[:, :, None] + tilt[:, None, :] + 3.0
    shifted = lb.LogitGaussian(batch.mean + 1.0, lb.Dense(moved))
    torch.testing.assert_close(
        bridge.function(shifted).log_concentration,
        bridge.function(batch).log_concentration,
        atol=1e-6,
        rtol=1e-6,
    )


@EVERY_LINK
@given(seed=seeds, classes=sizes, shift=st.floats(-50, 50))
def test_links_ignore_a_constant_too(link, seed, classes, shift):
    if not link.shift_invariant:
        pytest.skip("tempers each logit by its own variance, as published")
    batch = gaussian("diagonal", seed, 3, classes)
    shifted = lb.LogitGaussian(batch.mean + shift, batch.covariance)
    torch.testing.assert_close(link.function(shifted), link.function(batch), atol=1e-10, rtol=1e-8)


def test_conditioning_as_published_does_depend_on_a_constant():
    mean, variance = (
        torch.tensor([[1.0, 0.0, 0.0]]).double(),
        torch.tensor([[4.0, 1.0, 1.0]]).double(),
    )
    tops = [
        lb.laplace_bridge(lb.LogitGaussian(mean + shift, lb.Diagonal(variance))).mean[0, 0].item()
        for shift in (0, 5, -5)
    ]
    assert tops == pytest.approx([0.289, 0.001, 0.997], abs=1e-3)


@EVERY_BRIDGE
@given(classes=sizes, mean=st.floats(-100, 100), variance=st.floats(1e-6, 1e6))
def test_exchangeable_logits_give_a_uniform_mean(bridge, classes, mean, variance):
    batch = lb.LogitGaussian(
        torch.full((2, classes), mean, dtype=torch.float64),
        lb.Diagonal(torch.full((2, classes), variance, dtype=torch.float64)),
    )
    torch.testing.assert_close(
        bridge.function(batch).mean, torch.full_like(batch.mean, 1 / classes)
    )


@given(seed=seeds, classes=sizes, spread=st.floats(0.1, 10))
def test_from_dirichlet_to_gaussian_and_back_is_exact(seed, classes, spread):
    log = spread * torch.randn(4, classes, generator=seeded(seed), dtype=torch.float64)
    returned = lb.bridges.laplace_bridge_raw(lb.bridges.dirichlet_to_gaussian(lb.Dirichlet(log)))
    torch.testing.assert_close(returned.log_concentration, log, atol=1e-9, rtol=1e-9)


@given(seed=seeds, classes=sizes, scale=st.floats(1e-3, 1e3))
def test_the_corrected_bridge_sees_means_only_in_units_of_standard_deviations(seed, classes, scale):
    batch = gaussian("diagonal", seed, 3, classes)
    factor = torch.full((3,), scale, dtype=torch.float64)
    scaled = lb.LogitGaussian(batch.mean * scale**0.5, batch.covariance.scaled(factor))
    torch.testing.assert_close(
        lb.bridges.laplace_bridge_norm(scaled).log_concentration,
        lb.bridges.laplace_bridge_norm(batch).log_concentration,
    )


@given(structure=structures, seed=seeds, classes=sizes)
def test_after_the_zero_sum_step_means_sum_to_zero(structure, seed, classes):
    batch = gaussian(structure, seed, 3, classes)
    for zero_sum in (lb.bridges.condition, lb.bridges.center):
        assert zero_sum(batch).mean.sum(-1).abs().max() < 1e-10


@given(seed=seeds, classes=sizes)
def test_conditioning_and_centring_agree_when_row_sums_are_equal(seed, classes):
    noise = torch.randn(classes, classes, generator=seeded(seed), dtype=torch.float64)
    noise[:, 0] = 1
    basis, _ = torch.linalg.qr(
        noise
    )  # its first column is along 1, as a softmax head's class factor has it
    weights = torch.rand(2, classes, generator=seeded(seed), dtype=torch.float64) + 0.1
    mean = torch.randn(2, classes, generator=seeded(seed + 1), dtype=torch.float64)
    batch = lb.LogitGaussian(mean, lb.SharedBasis(weights, basis))
    for conditioned, centered in zip(lb.bridges.condition(batch), lb.bridges.center(batch)):
        torch.testing.assert_close(conditioned, centered)
