"""Every finite input gives a valid answer: finite positive concentrations, rows that
sum to one.
"""

import itertools

import hypothesis.strategies as st
import pytest
import torch
from cases import BRIDGES, LINKS, seeded
from hypothesis import given, settings

import laplacebridge as lb

EVERY_MAP = pytest.mark.parametrize("name", [*BRIDGES, *LINKS])
VARIANCES = (0.0, 1e-30, 1e-12, 1e-3, 1.0, 50.0, 1e4, 1e12)


def assert_valid(name, gaussian):
    tolerance = (
        1e-6
        if gaussian.dtype in {torch.float32, torch.float64}
        else 4 * torch.finfo(gaussian.dtype).eps
    )
    if name in BRIDGES:
        dirichlet = BRIDGES[name].function(gaussian)
        assert dirichlet.log_concentration.isfinite().all()
        mean = dirichlet.mean
    else:
        mean = LINKS[name].function(gaussian)
    assert mean.dtype == gaussian.dtype
    assert mean.isfinite().all()
    assert (mean >= 0).all()
    sums = mean.double().sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums), atol=tolerance, rtol=0)


def means(classes, dtype):
    generator = seeded(classes)
    normal = torch.randn(classes, generator=generator)
    one_hot = torch.zeros(classes)
    one_hot[0] = 1
    rows = [normal * scale for scale in (0.0, 1.0, 100.0, 1e3)]
    rows += [
        (normal * 4e3).clamp(-1e4, 1e4),
        1e4 * one_hot,
        -1e4 * one_hot,
        1e4 * (2 * one_hot - 1),
    ]
    rows += [1e4 - one_hot, torch.full((classes,), -1e4), torch.linspace(-1e4, 1e4, classes)]
    return torch.stack(rows).to(dtype)


def variances(classes, dtype):
    generator = seeded(classes)
    rows = [torch.full((classes,), value) for value in VARIANCES]
    exponents = torch.rand(3, classes, generator=generator) * 42 - 30
    rows += list(10.0**exponents)
    outlier = torch.full((classes,), 1e-30)
    outlier[-1] = 1e12
    rows += [outlier, 1e12 - outlier + 1, torch.where(torch.arange(classes) % 2 == 0, 0.0, 1.0)]
    return torch.stack(rows).to(dtype)


def all_pairs(first, second):
    pairs = list(itertools.product(range(len(first)), range(len(second))))
    return torch.stack([first[i] for i, _ in pairs]), torch.stack([second[j] for _, j in pairs])


@EVERY_MAP
@pytest.mark.parametrize("classes", [2, 3, 10, 1000])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_extreme_independent_logits(name, classes, dtype):
    mean, variance = all_pairs(means(classes, dtype), variances(classes, dtype))
    assert_valid(name, lb.LogitGaussian(mean, lb.Diagonal(variance)))
    assert_valid(name, lb.LogitGaussian(mean, lb.covariance.CenteredDiagonal(variance)))


@EVERY_MAP
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_extreme_logits_in_half_precision(name, dtype):
    mean, variance = all_pairs(means(10, dtype), variances(10, dtype))
    representable = variance.isfinite().all(-1)
    assert_valid(name, lb.LogitGaussian(mean[representable], lb.Diagonal(variance[representable])))


@EVERY_MAP
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_a_hundred_thousand_classes(name, dtype):
    mean, variance = means(100_000, dtype), variances(100_000, dtype)[: len(means(2, dtype))]
    assert_valid(name, lb.LogitGaussian(mean, lb.Diagonal(variance)))


@EVERY_MAP
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-6, 1.0, 1e6, 1e12])
def test_singular_and_strongly_correlated_covariances(name, dtype, classes, scale):
    generator = seeded(classes)
    ones = torch.ones(classes).double()
    signs = torch.where(torch.arange(classes) % 2 == 0, 1.0, -1.0).double()
    random = torch.randn(classes, generator=generator).double()
    axis = torch.zeros(classes).double()
    axis[0] = 1
    eye = torch.eye(classes).double()
    matrices = [torch.outer(v, v) for v in (ones, signs, random, axis)]
    matrices += [0.999999 * torch.outer(ones, ones) + 1e-6 * eye, eye, 0 * eye]
    matrices += [torch.outer(ones, ones) + 1e-3 * torch.outer(random, random), eye - 1 / classes]
    dense = scale * torch.stack(matrices)
    mean, which = all_pairs(means(classes, dtype), torch.arange(len(matrices)))
    assert_valid(name, lb.LogitGaussian(mean, lb.Dense(dense[which].to(dtype))))
    factors = scale**0.5 * torch.stack([ones, signs, random, axis])
    rows, which = all_pairs(means(classes, dtype), torch.arange(4))
    assert_valid(name, lb.LogitGaussian(rows, lb.LowRank(factors[which].unsqueeze(-1).to(dtype))))
    basis = torch.stack([ones, signs, random, axis], -1)
    weights = scale * 10.0 ** (12 * torch.rand(len(rows), 4, generator=generator) - 12)
    assert_valid(name, lb.LogitGaussian(rows, lb.SharedBasis(weights.to(dtype), basis.to(dtype))))


finite = st.floats(-1e4, 1e4, width=32)
any_variance = st.one_of(st.just(0.0), st.floats(-30, 12).map(lambda e: 10.0**e))


@EVERY_MAP
@settings(max_examples=60)
@given(
    data=st.data(), classes=st.integers(2, 6), dtype=st.sampled_from([torch.float32, torch.float64])
)
def test_whatever_hypothesis_finds(name, data, classes, dtype):
    row = st.lists(finite, min_size=classes, max_size=classes)
    variance = st.lists(any_variance, min_size=classes, max_size=classes)
    mean = torch.tensor([data.draw(row)], dtype=dtype)
    assert_valid(
        name, lb.LogitGaussian(mean, lb.Diagonal(torch.tensor([data.draw(variance)], dtype=dtype)))
    )
