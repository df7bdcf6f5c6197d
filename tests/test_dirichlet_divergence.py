"""KL divergence between Dirichlets, right for every pair of concentrations."""

import mpmath
import numpy as np
import pytest
import torch
from cases import seeded
from dirichlet_oracle import DTYPES, EVERY_SIZE, concentrations_by_mpmath, extreme_logs

import laplacebridge as lb


@pytest.fixture
def ordinary():
    return lb.Dirichlet(1.5 * torch.randn(40, 5, generator=seeded(3), dtype=torch.float64))


def divergence_by_mpmath(log_first, log_second):
    first, total = concentrations_by_mpmath(log_first)
    second, other_total = concentrations_by_mpmath(log_second)
    value = mpmath.loggamma(total) - mpmath.loggamma(other_total)
    for a, b in zip(first, second):
        value += (
            mpmath.loggamma(b)
            - mpmath.loggamma(a)
            + (a - b) * (mpmath.digamma(a) - mpmath.digamma(total))
        )
    return float(value)


def assert_divergence(first, second, rtol, atol):
    with mpmath.workdps(150):
        pairs = zip(
            first.log_concentration.double().tolist(), second.log_concentration.double().tolist()
        )
        known = np.array([divergence_by_mpmath(*pair) for pair in pairs])
    representable = known < torch.finfo(first.dtype).max
    got = first.kl_divergence(second).double().numpy()
    np.testing.assert_allclose(got[representable], known[representable], rtol=rtol, atol=atol)
    assert (got[~representable] == np.inf).all()


@EVERY_SIZE
def test_the_divergence_is_right_for_every_pair_of_concentrations(classes):
    first = extreme_logs(classes)
    order = torch.randperm(len(first), generator=seeded(13))
    assert_divergence(lb.Dirichlet(first), lb.Dirichlet(first[order]), rtol=1e-10, atol=1e-11)


@EVERY_SIZE
def test_the_divergence_in_float32_is_right_for_every_pair_of_concentrations(classes):
    first = extreme_logs(classes).float()
    order = torch.randperm(len(first), generator=seeded(13))
    assert_divergence(lb.Dirichlet(first), lb.Dirichlet(first[order]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [1e-30, 1e-12, 1.0, 1e6, 1e12, 1e18])
def test_the_divergence_of_similar_dirichlets_is_right(size):
    first = size * torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64)
    second = first * torch.tensor([[1.0, 1.001, 0.99]], dtype=torch.float64)
    pair = lb.Dirichlet.from_concentration(first), lb.Dirichlet.from_concentration(second)
    assert_divergence(*pair, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([1e-12, 1e-30], [1e18, 1e-30]),  # 1e12, what is left of two terms of 1e30
        ([1e-12, 1e-30], [0.3, 1e-30]),
        ([1e-3, 1e-30], [1e9, 1e-30]),
        ([2.5, 1e-12], [1e-30, 1e18]),
        ([1e4, 0.3], [1e-30, 1e9]),
        ([1e9, 1e18], [1e9, 1e-30]),
    ],
)
@DTYPES
def test_the_divergence_survives_classes_of_opposite_sizes(first, second, dtype):
    pair = (
        lb.Dirichlet(torch.tensor([row], dtype=torch.float64).log().to(dtype))
        for row in (first, second)
    )
    assert_divergence(
        *pair,
        rtol=1e-10 if dtype == torch.float64 else 1e-4,
        atol=1e-11 if dtype == torch.float64 else 1e-4,
    )


def test_the_divergence_agrees_with_torch_on_ordinary_values(ordinary):
    other = lb.Dirichlet(1.5 * torch.randn(40, 5, generator=seeded(14), dtype=torch.float64))
    expected = torch.distributions.kl_divergence(ordinary.to_torch(), other.to_torch())
    torch.testing.assert_close(ordinary.kl_divergence(other), expected, rtol=1e-9, atol=1e-9)


def test_the_divergence_is_an_average_of_log_ratios_within_five_standard_errors():
    first = lb.Dirichlet.from_concentration(torch.tensor([[2.0, 5.0, 3.0]], dtype=torch.float64))
    second = lb.Dirichlet.from_concentration(torch.tensor([[4.0, 4.0, 1.5]], dtype=torch.float64))
    points = first.sample(20_000, seeded(15))[:, 0]
    many = [
        lb.Dirichlet(d.log_concentration.expand(len(points), -1)).log_prob(points)
        for d in (first, second)
    ]
    ratios = many[0] - many[1]
    assert (
        abs(ratios.mean() - first.kl_divergence(second)[0]) < 5 * ratios.std() / len(points) ** 0.5
    )


@DTYPES
@EVERY_SIZE
def test_the_divergence_from_itself_is_zero_for_every_concentration(classes, dtype):
    far = torch.tensor(
        [
            [-20_000.0] * classes,
            [20_000.0] * classes,
            [100.0] * classes,
            [-20_000.0] + [300.0] * (classes - 1),
        ]
    )
    dirichlet = lb.Dirichlet(torch.cat([extreme_logs(classes).to(dtype), far.to(dtype)]))
    assert (dirichlet.kl_divergence(dirichlet) == 0).all()


def test_the_divergence_from_another_is_positive(ordinary):
    other = lb.Dirichlet(ordinary.log_concentration.roll(1, 0))
    assert (ordinary.kl_divergence(other) > 0).all()


@DTYPES
def test_the_divergence_from_a_neighbour_is_never_negative(dtype):
    log = 2 * torch.randn(500, 4, generator=seeded(16), dtype=dtype)
    step = 1e-6 * torch.randn(500, 4, generator=seeded(17), dtype=dtype)
    assert (lb.Dirichlet(log).kl_divergence(lb.Dirichlet(log + step)) >= 0).all()


# conversions and rows
