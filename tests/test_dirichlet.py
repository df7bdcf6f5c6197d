"""Dirichlets: moments, density, conversions, rows."""

import itertools
import math

import mpmath
import numpy as np
import pytest
import scipy.stats
import torch
from cases import seeded
from dirichlet_oracle import DTYPES, concentrations_by_mpmath, extreme_logs

import laplacebridge as lb


@pytest.fixture
def ordinary():
    return lb.Dirichlet(1.5 * torch.randn(40, 5, generator=seeded(3), dtype=torch.float64))


def test_agrees_with_torch_on_ordinary_values(ordinary):
    twin = torch.distributions.Dirichlet(ordinary.concentration)
    torch.testing.assert_close(ordinary.mean, twin.mean)
    torch.testing.assert_close(ordinary.variance, twin.variance)
    torch.testing.assert_close(ordinary.entropy(), twin.entropy(), rtol=1e-9, atol=1e-9)
    points = twin.sample().clamp_min(1e-12)
    torch.testing.assert_close(
        ordinary.log_prob(points), twin.log_prob(points), rtol=1e-9, atol=1e-9
    )
    inside = lb.Dirichlet(ordinary.log_concentration.abs() + 0.1)
    torch.testing.assert_close(
        inside.mode, torch.distributions.Dirichlet(inside.concentration).mode
    )


def test_agrees_with_scipy_on_ordinary_values(ordinary):
    for row in range(len(ordinary)):
        twin = scipy.stats.dirichlet(ordinary.concentration[row].numpy())
        np.testing.assert_allclose(ordinary[row].mean[0], twin.mean(), rtol=1e-12)
        np.testing.assert_allclose(ordinary[row].variance[0], twin.var(), rtol=1e-12)
        np.testing.assert_allclose(
            ordinary[row].covariance()[0], twin.cov(), rtol=1e-12, atol=1e-17
        )
        np.testing.assert_allclose(ordinary[row].entropy()[0], twin.entropy(), rtol=1e-9, atol=1e-9)
        point = torch.softmax(torch.randn(1, 5, generator=seeded(row), dtype=torch.float64), -1)
        np.testing.assert_allclose(
            ordinary[row].log_prob(point)[0], twin.logpdf(point[0].numpy()), rtol=1e-9, atol=1e-9
        )


def test_rows_of_the_covariance_sum_to_zero(ordinary):
    covariance = ordinary.covariance()
    torch.testing.assert_close(covariance.sum(-1), torch.zeros(40, 5).double(), atol=1e-16, rtol=0)
    torch.testing.assert_close(
        covariance.diagonal(dim1=-2, dim2=-1), ordinary.variance, rtol=0, atol=0
    )


@pytest.mark.parametrize(
    ("concentration", "expected"),
    [
        ([3.0, 2.0, 2.0], [0.5, 0.25, 0.25]),
        ([3.0, 1.0, 0.5], [1.0, 0.0, 0.0]),  # at the boundary where α ≤ 1
        ([3.0, 5.0, 0.5], [1 / 3, 2 / 3, 0.0]),
        ([1.05, 1.95, 0.5], [0.05, 0.95, 0.0]),
        ([1 + 2**-30, 1 + 2**-30, 1.0], [0.5, 0.5, 0.0]),
        ([0.2, 0.9, 0.5], [0.0, 1.0, 0.0]),  # no class above 1: the largest
    ],
)
def test_the_mode_by_hand(concentration, expected):
    mode = lb.Dirichlet.from_concentration(torch.tensor([concentration], dtype=torch.float64)).mode
    torch.testing.assert_close(mode, torch.tensor([expected], dtype=torch.float64))


def test_no_point_nearby_is_denser_than_the_mode():
    dirichlet = lb.Dirichlet.from_concentration(
        1.1 + 5 * torch.rand(20, 4, generator=seeded(4), dtype=torch.float64)
    )
    mode = dirichlet.mode
    at_mode = dirichlet.log_prob(mode)
    for seed in range(10):
        step = 1e-3 * torch.randn(mode.shape, generator=seeded(seed), dtype=torch.float64)
        beside = (mode * step.exp()) / (mode * step.exp()).sum(-1, keepdim=True)
        assert (dirichlet.log_prob(beside) < at_mode).all()


# the density


def test_the_density_of_two_classes_integrates_to_one():
    nodes, weights = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(200))
    point = (nodes + 1) / 2
    for alpha, beta in ((1.0, 1.0), (2.0, 3.5), (40.0, 7.0), (500.0, 500.0)):
        row = torch.tensor([[alpha, beta]], dtype=torch.float64).log().expand(len(point), -1)
        density = lb.Dirichlet(row).log_prob(torch.stack([point, 1 - point], -1)).exp()
        assert (density * weights / 2).sum().item() == pytest.approx(1, rel=1e-9)


def test_the_density_of_three_classes_integrates_to_one_and_has_the_mean():
    nodes, weights = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(60))
    first, second = torch.meshgrid((nodes + 1) / 2, (nodes + 1) / 2, indexing="ij")
    points = torch.stack([first, (1 - first) * second, (1 - first) * (1 - second)], -1).reshape(
        -1, 3
    )
    volume = (weights[:, None] * weights / 4 * (1 - first)).flatten()
    row = torch.tensor([[2.0, 6.0, 3.0]], dtype=torch.float64).log()
    density = lb.Dirichlet(row.expand(len(points), -1)).log_prob(points).exp() * volume
    assert density.sum().item() == pytest.approx(1, rel=1e-10)
    torch.testing.assert_close(density @ points, lb.Dirichlet(row).mean[0])


def log_density_by_mpmath(log_row, point):
    alpha, total = concentrations_by_mpmath(log_row)
    normaliser = mpmath.loggamma(total) - mpmath.fsum(mpmath.loggamma(a) for a in alpha)
    return normaliser + mpmath.fsum(
        (a - 1) * mpmath.log(mpmath.mpf(p)) for a, p in zip(alpha, point)
    )


@DTYPES
@pytest.mark.parametrize(
    "point",
    [(0.5, 0.25, 0.25), (0.0078125, 0.9921865463256836, 2**-20), (1 - 2**-20, 2**-21, 2**-21)],
)
def test_the_density_is_right_for_every_concentration(point, dtype):
    assert sum(point) == 1  # in every type: they are sums of a few powers of two
    dirichlet = lb.Dirichlet(extreme_logs(3).to(dtype))
    points = torch.tensor([point], dtype=dtype).expand(len(dirichlet), -1)
    with mpmath.workdps(120):
        rows = dirichlet.log_concentration.double().tolist()
        known = np.array([float(log_density_by_mpmath(row, point)) for row in rows])
    tolerance = 1e-12 if dtype == torch.float64 else 2e-5
    np.testing.assert_allclose(
        dirichlet.log_prob(points).double(), known, rtol=tolerance, atol=tolerance
    )


@DTYPES
def test_at_its_mean_the_density_of_a_sure_dirichlet_is_that_of_a_normal(dtype):
    # K = 2 with α = β = 5e17: variance 1/(4e18), the peak of its normal density is
    # √(2e18/π)
    dirichlet = lb.Dirichlet(torch.full((1, 2), math.log(5e17), dtype=dtype))
    peak = 0.5 * math.log(2e18 / math.pi)
    assert dirichlet.log_prob(torch.full((1, 2), 0.5, dtype=dtype)).item() == pytest.approx(
        peak, rel=1e-5
    )


# groups of classes


def test_concentrations_and_their_logarithms_are_two_ways_in():
    concentration = torch.tensor([[1e-30, 1.0, 1e18]], dtype=torch.float64)
    dirichlet = lb.Dirichlet.from_concentration(concentration)
    assert torch.equal(dirichlet.log_concentration, concentration.log())
    torch.testing.assert_close(dirichlet.concentration, concentration, rtol=1e-13, atol=0)
    assert dirichlet.num_classes == 3


def test_a_torch_distribution_comes_back_the_same():
    twin = torch.distributions.Dirichlet(
        torch.rand(4, 3, generator=seeded(18), dtype=torch.float64) * 9 + 0.1
    )
    dirichlet = lb.Dirichlet.from_torch(twin)
    returned = dirichlet.to_torch()
    assert isinstance(returned, torch.distributions.Dirichlet)
    torch.testing.assert_close(returned.concentration, twin.concentration)
    torch.testing.assert_close(dirichlet.mean, twin.mean)


def test_indexing_keeps_the_batch_dimension_and_chooses_rows():
    dirichlet = lb.Dirichlet(torch.randn(4, 3, generator=seeded(19)))
    log = dirichlet.log_concentration
    assert len(dirichlet) == 4
    assert torch.equal(dirichlet[1].log_concentration, log[1:2])
    assert torch.equal(dirichlet[-1].log_concentration, log[3:])
    assert torch.equal(dirichlet[1:3].log_concentration, log[1:3])
    assert torch.equal(dirichlet[[2, 0]].log_concentration, log[[2, 0]])
    assert torch.equal(dirichlet[torch.tensor([3, 3])].log_concentration, log[[3, 3]])
    assert torch.equal(
        dirichlet[torch.tensor([True, False, False, True])].log_concentration, log[[0, 3]]
    )
    assert len(dirichlet[:0]) == 0


def test_a_row_that_is_not_there_is_an_error():
    dirichlet = lb.Dirichlet(torch.zeros(4, 3))
    for row in (4, 7, -5):
        with pytest.raises(IndexError):
            dirichlet[row]


def test_a_loop_visits_each_row_once():
    dirichlet = lb.Dirichlet(torch.randn(4, 3, generator=seeded(20)))
    rows = list(itertools.islice(dirichlet, 10))  # at most ten, in case the loop does not end
    assert len(rows) == 4
    assert torch.equal(
        torch.cat([row.log_concentration for row in rows]), dirichlet.log_concentration
    )


def test_an_empty_batch_has_empty_answers():
    empty = lb.Dirichlet(torch.zeros(0, 3))
    assert empty.mean.shape == empty.variance.shape == empty.mode.shape == (0, 3)
    assert (
        empty.entropy().shape == empty.mutual_information().shape == empty.log_total.shape == (0,)
    )
    assert empty.sample(2).shape == (2, 0, 3)


def test_the_density_of_logits_is_that_of_probabilities_times_the_jacobian():
    """Eq. 4 from Eq. 1 and Eq. 3: the determinant is Π π in differences from the last
    logit.
    """
    alpha = torch.tensor([[0.3, 2.0, 5.0], [40.0, 1e-3, 7.0]], dtype=torch.float64)
    logits = torch.tensor([[0.4, -1.0, 2.0], [3.0, -2.0, 0.0]], dtype=torch.float64)
    dirichlet, point = lb.Dirichlet(alpha.log()), logits.softmax(-1)
    torch.testing.assert_close(
        dirichlet.log_prob_of_logits(logits), dirichlet.log_prob(point) + point.log().sum(-1)
    )
    torch.testing.assert_close(
        dirichlet.log_prob_of_logits(logits + 50), dirichlet.log_prob_of_logits(logits)
    )


def test_the_density_of_logits_is_a_density():
    """Over the differences from the last of three logits it integrates to one, also
    where the density on the simplex is infinite at the corners.
    """
    ticks = torch.linspace(-60, 60, 1201, dtype=torch.float64)
    first, second = torch.meshgrid(ticks, ticks, indexing="ij")
    logits = torch.stack([first, second, torch.zeros_like(first)], -1).reshape(-1, 3)
    row = torch.tensor([[0.5, 0.8, 3.0]], dtype=torch.float64).log()
    density = lb.Dirichlet(row.expand(len(logits), -1)).log_prob_of_logits(logits).exp()
    assert density.sum().item() * 0.1**2 == pytest.approx(1, abs=1e-3)


def test_the_density_of_logits_is_largest_at_the_bridges_mean():
    """Eq. 5: the mode in the softmax basis is where softmax is the Dirichlet's mean."""
    dirichlet = lb.Dirichlet(torch.tensor([[0.2, 1.0, 6.0]], dtype=torch.float64).log())
    mode = lb.bridges.dirichlet_to_gaussian(dirichlet).mean.requires_grad_()
    dirichlet.log_prob_of_logits(mode).sum().backward()
    torch.testing.assert_close(mode.grad, torch.zeros_like(mode), rtol=0, atol=1e-12)


def test_the_density_of_logits_has_numbers_far_out():
    """Where softmax has none left."""
    dirichlet = lb.Dirichlet(torch.zeros(1, 2, dtype=torch.float64))
    found = dirichlet.log_prob_of_logits(torch.tensor([[2000.0, 0.0]], dtype=torch.float64))
    assert found.item() == pytest.approx(-2000)
