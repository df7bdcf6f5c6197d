"""Entropies and information of Dirichlets, right for every concentration."""

import itertools
import math

import numpy as np
import pytest
import torch
from cases import seeded
from dirichlet_oracle import DTYPES, EVERY_SIZE, asked, exact, extreme_logs

import laplacebridge as lb


@DTYPES
@EVERY_SIZE
@pytest.mark.parametrize(
    "name", ["mean", "variance", "covariance", "mode", "total", "entropy_of_mean"]
)
def test_positive_numbers_are_right_relative_to_themselves_for_every_concentration(
    name, classes, dtype
):
    dirichlet, expected = exact(classes, dtype)
    # logarithms of up to 70 are stored to one rounding, so concentrations are known to
    # 70 of them
    tolerance = 200 * torch.finfo(dtype).eps
    smallest = torch.finfo(dtype).smallest_normal
    np.testing.assert_allclose(
        asked(dirichlet, name), expected[name], rtol=tolerance, atol=smallest
    )


@DTYPES
@EVERY_SIZE
def test_the_logarithm_of_the_total_is_right_for_every_concentration(classes, dtype):
    dirichlet, expected = exact(classes, dtype)
    tolerance = 4 * torch.finfo(dtype).eps
    np.testing.assert_allclose(
        asked(dirichlet, "log_total"), expected["log_total"], rtol=tolerance, atol=tolerance
    )


@DTYPES
@EVERY_SIZE
def test_the_entropy_is_right_for_every_concentration(classes, dtype):
    dirichlet, expected = exact(classes, dtype)
    tolerance = 1e-11 if dtype == torch.float64 else 2e-5
    np.testing.assert_allclose(
        asked(dirichlet, "entropy"), expected["entropy"], rtol=tolerance, atol=tolerance
    )


@DTYPES
@EVERY_SIZE
def test_the_expected_entropy_is_right_for_every_concentration(classes, dtype):
    dirichlet, expected = exact(classes, dtype)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    known = expected["expected_entropy"]
    np.testing.assert_allclose(asked(dirichlet, "expected_entropy"), known, rtol=0, atol=tolerance)


@DTYPES
@EVERY_SIZE
def test_the_mutual_information_keeps_its_digits_however_large_the_total(classes, dtype):
    dirichlet, expected = exact(classes, dtype)
    got, known = asked(dirichlet, "mutual_information"), expected["mutual_information"]
    size = known + np.minimum(1, 1 / expected["total"])  # about (K − 1)/(2α₀) for a large total
    assert (np.abs(got - known) / size).max() < (1e-11 if dtype == torch.float64 else 2e-5)


@DTYPES
@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_the_mutual_information_of_a_sure_dirichlet_is_half_the_degrees_of_freedom_over_the_total(
    classes, dtype
):
    dirichlet = lb.Dirichlet(torch.full((1, classes), math.log(1e18), dtype=dtype))
    assert dirichlet.mutual_information().item() * 1e18 * classes == pytest.approx(
        (classes - 1) / 2, rel=1e-4
    )


def test_the_uncertainties_add_up():
    dirichlet = lb.Dirichlet(2 * torch.randn(50, 7, generator=seeded(0), dtype=torch.float64))
    parts = dirichlet.expected_entropy() + dirichlet.mutual_information()
    torch.testing.assert_close(parts, dirichlet.entropy_of_mean())
    assert (dirichlet.expected_entropy() > 0).all()
    assert (dirichlet.mutual_information() > 0).all()
    assert (dirichlet.entropy_of_mean() < math.log(7)).all()


@DTYPES
@pytest.mark.parametrize(
    "name",
    [
        "mean",
        "variance",
        "mode",
        "entropy",
        "entropy_of_mean",
        "expected_entropy",
        "mutual_information",
    ],
)
def test_gradients_are_finite_for_every_concentration(name, dtype):
    log = extreme_logs(3).to(dtype).clone().requires_grad_()
    value = getattr(lb.Dirichlet(log), name)
    value = value() if callable(value) else value
    weights = torch.rand(value.shape, generator=seeded(1), dtype=dtype)
    (value * weights).sum().backward()
    assert log.grad.isfinite().all()


@pytest.mark.parametrize(
    "name",
    ["mean", "variance", "entropy", "entropy_of_mean", "expected_entropy", "mutual_information"],
)
def test_gradients_match_finite_differences(name):
    log = torch.randn(3, 4, generator=seeded(2), dtype=torch.float64, requires_grad=True)

    def analytic(log):
        value = getattr(lb.Dirichlet(log), name)
        return value() if callable(value) else value

    assert torch.autograd.gradcheck(analytic, (log,), atol=1e-7, rtol=1e-5)


# ordinary values, against other libraries


FAR = [-20_000.0, -300.0, -1.0, 0.0, 3.0, 300.0, 20_000.0]


@DTYPES
def test_logarithms_far_beyond_the_range_of_exp_give_right_answers(dtype):
    rows = torch.tensor(list(itertools.product(FAR, repeat=3)), dtype=dtype)
    dirichlet = lb.Dirichlet(rows)
    mean = rows.double().softmax(-1)
    torch.testing.assert_close(dirichlet.mean.double(), mean, rtol=1e-5, atol=1e-30)
    entropy_of_mean = torch.special.entr(mean).sum(-1)
    torch.testing.assert_close(
        dirichlet.entropy_of_mean().double(), entropy_of_mean, rtol=1e-5, atol=1e-6
    )
    information = dirichlet.mutual_information().double()
    rounding = 4 * torch.finfo(dtype).eps * rows.abs().amax(-1).double()
    assert (information >= 0).all()
    assert (information <= entropy_of_mean + rounding).all()
    sure, unsure = dirichlet.log_total > 299, dirichlet.log_total < -299
    assert (information[sure] < 1e-100).all()
    # a vertex chosen in proportion: all uncertainty is about the probabilities
    assert ((information - entropy_of_mean).abs() <= rounding)[unsure].all()
    assert dirichlet.expected_entropy().isfinite().all()
    assert dirichlet.variance.isfinite().all()
    assert dirichlet.mode.isfinite().all()


@DTYPES
def test_an_entropy_too_large_to_store_is_infinite_and_not_nan(dtype):
    for row in ([-20_000.0, -20_000.0], [-800.0, -800.0], [-20_000.0, 3.0], [-20_000.0, 20_000.0]):
        assert lb.Dirichlet(torch.tensor([row], dtype=dtype)).entropy().item() == -math.inf
    sure = lb.Dirichlet(torch.full((1, 2), 20_000.0, dtype=dtype)).entropy().item()
    # K = 2 and α = β: a normal with variance 1/(8α)
    assert sure == pytest.approx(0.5 * (1 + math.log(2 * math.pi / 8) - 20_000), rel=1e-6)


@pytest.mark.parametrize("target", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_keeps_the_mean_to_its_resolution(target):
    dirichlet = lb.Dirichlet(3 * torch.randn(50, 6, generator=seeded(11)))
    half = dirichlet.to(target)
    assert half.dtype == target
    # one rounding of logarithms, which are below 16, and one of the mean itself
    assert (
        (half.mean.double() / dirichlet.mean.double()).log().abs() < 16 * torch.finfo(target).eps
    ).all()


def test_rows_beyond_the_range_of_half_precision_keep_their_mean():
    rows = torch.tensor([[1e5, 0.0, -1e5], [-1e5, 2e5, 3.0], [1e5, 1e5, 0.0], [1e5, 1e5 - 2, 0.0]])
    half = lb.Dirichlet(rows).to(torch.float16)
    assert half.log_concentration.isfinite().all()
    torch.testing.assert_close(half.mean.float(), rows.softmax(-1), atol=4e-3, rtol=0)


def test_moving_to_a_wider_type_and_back_changes_nothing():
    dirichlet = lb.Dirichlet(torch.randn(5, 4, generator=seeded(12)))
    wide = dirichlet.to(torch.float64)
    assert wide.dtype == torch.float64
    assert torch.equal(wide.to(torch.float32).log_concentration, dirichlet.log_concentration)


# divergence
