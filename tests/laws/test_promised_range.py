"""The range that docs/promises.md states, by type, up to its edges: every row of every
bridge is valid, with its intervals, chances and Beta quantiles.
"""

import math

import pytest
import torch
from cases import seeded

import laplacebridge as lb
from laplacebridge.bridges import BRIDGES

# the largest |mean| and variance of logits, as powers of ten
RANGES = {
    torch.float64: (100.0, 100.0),
    torch.float32: (18.0, 30.0),
    torch.bfloat16: (18.0, 30.0),
    torch.float16: (math.log10(65504), math.log10(65504)),
}
QUICK = {2: 300, 3: 300, 10: 200, 30: 60, 1000: 12}  # low rank has a way of its own from 21 on
MILLION = {2: 12_000, 3: 12_000, 10: 12_000, 100: 600, 1000: 60, 20_000: 4}  # × 28 = 1.03 million
LEVELS = (0.0, 1e-6, 0.025, 0.5, 0.975, 1.0)

EVERY_TYPE = pytest.mark.parametrize("dtype", RANGES, ids=str)
EVERY_BRIDGE = pytest.mark.parametrize("name", BRIDGES)


def random_rows(count, classes, dtype, seed=0):
    """Means of every size, and variances that are equal, all different, of one class
    alone, or the largest there are; both with rows at their edges.
    """
    generator = seeded(seed + classes)
    most, widest = RANGES[dtype]

    def uniform(*shape):
        return torch.rand(shape, generator=generator, dtype=torch.float64)

    size = 10.0 ** (uniform(count, 1) * (most + 3) - 3)
    size[:10] = 10.0**most
    mean = torch.randn(count, classes, generator=generator, dtype=torch.float64) * size
    mean = mean.clamp(-(10.0**most), 10.0**most)
    equal = (10.0 ** (uniform(count, 1) * (widest + 30) - 30)).expand(count, classes)
    different = 10.0 ** (uniform(count, classes) * (widest + 30) - 30)
    alone = torch.where(uniform(count, classes) < 1 / classes, equal, 0.0)
    largest = torch.full_like(equal, 10.0**widest)
    kind = torch.randint(4, (count, 1), generator=generator)
    variance = torch.stack([equal, different, alone, largest]).gather(
        0, kind.expand(count, classes).unsqueeze(0)
    )
    mean, variance = mean.to(dtype), variance.squeeze(0).to(dtype)
    assert mean.isfinite().all()
    assert variance.isfinite().all()
    return mean, variance


def invalid_rows(gaussian, bridge):
    """How many rows have each fault."""
    prediction = lb.predict(gaussian, bridge)
    dirichlet, dtype = prediction.dirichlet, gaussian.dtype
    wide = dtype in {torch.float32, torch.float64}
    tolerance = 1e-6 if wide else 4 * torch.finfo(dtype).eps
    sums, (lower, upper) = prediction.mean.double().sum(-1), prediction.interval()
    marginal = dirichlet.marginal(0)
    quantiles = torch.stack([marginal.quantile(level) for level in LEVELS])
    chances = [prediction.probability_above(threshold) for threshold in (1e-6, 0.3, 0.999)]
    checks = {
        "concentrations": dirichlet.log_concentration.isfinite().all(-1),
        "sum": (sums - 1).abs() <= tolerance,
        "variances": (prediction.log_odds_variance >= 0).all(-1)
        & prediction.log_odds_variance.isfinite().all(-1),
        "interval": ((lower >= 0) & (lower <= upper) & (upper <= 1)).all(-1),
        "chance": torch.stack([((c >= 0) & (c <= 1)).all(-1) for c in chances]).all(0),
        "Beta": ((quantiles >= 0) & (quantiles <= 1)).all(0),
        "Beta in order": (quantiles[1:] >= quantiles[:-1]).all(0),
        "uncertainty": torch.stack(
            [part.isfinite() for part in (prediction.total, prediction.epistemic)]
        ).all(0),
    }
    return {fault: int((~held).sum()) for fault, held in checks.items() if not held.all()}


@EVERY_BRIDGE
@EVERY_TYPE
@pytest.mark.parametrize("classes", QUICK)
def test_random_rows_up_to_the_edges(name, dtype, classes):
    mean, variance = random_rows(QUICK[classes], classes, dtype)
    structures = [lb.Diagonal(variance), lb.covariance.CenteredDiagonal(variance)]
    if classes <= 30:
        structures.append(lb.Dense(torch.diag_embed(variance)))
        structures.append(lb.LowRank(variance.sqrt().unsqueeze(-1)))
    for covariance in structures:
        found = invalid_rows(lb.LogitGaussian(mean, covariance), BRIDGES[name])
        assert not found, (type(covariance).__name__, found)


@pytest.mark.slow
@EVERY_BRIDGE
@EVERY_TYPE
@pytest.mark.parametrize("classes", MILLION)
def test_a_million_random_rows(name, dtype, classes):
    for start in range(0, MILLION[classes], 4000):
        count = min(4000, MILLION[classes] - start)
        mean, variance = random_rows(count, classes, dtype, seed=start + 1)
        found = invalid_rows(lb.LogitGaussian(mean, lb.Diagonal(variance)), BRIDGES[name])
        assert not found, found


@EVERY_BRIDGE
@EVERY_TYPE
def test_infinite_variances_are_read_as_the_largest_of_the_range(name, dtype):
    mean = torch.tensor([[2.0, 0.0, -1.0]] * 3, dtype=dtype)
    infinite = torch.tensor([[1.0] * 3, [1.0, 0, 0], [0, 0, 1.0]]).bool()
    variance = torch.ones(3, 3, dtype=dtype).masked_fill(infinite, math.inf)
    largest = variance.float().clamp_max(1e30) if dtype != torch.float64 else variance
    for kind in (
        lb.Diagonal,
        lb.covariance.CenteredDiagonal,
        lambda v: lb.Dense(torch.diag_embed(v)),
    ):
        gaussian = lb.LogitGaussian(mean, kind(variance))
        assert not invalid_rows(gaussian, BRIDGES[name])
        if dtype == torch.float32:
            limit = BRIDGES[name](lb.LogitGaussian(mean, kind(largest))).log_concentration
            assert torch.equal(BRIDGES[name](gaussian).log_concentration, limit)


@pytest.mark.parametrize("num_classes", [2, 3, 10, 100, 1000])
@pytest.mark.parametrize("width", [1e9, 1e20, math.inf])
@EVERY_TYPE
def test_one_logit_that_may_be_anything_wins_half_of_the_races(dtype, width, num_classes):
    mean = 2 * torch.randn(60, num_classes, generator=seeded(num_classes)).to(dtype)
    variance = torch.rand(60, num_classes, generator=seeded(1)).to(dtype) + 0.1
    variance[:, 0] = width
    mean = lb.bridges.race_mean(lb.LogitGaussian(mean, lb.Diagonal(variance)))
    assert (mean[:, 0] - 0.5).abs().max() < 0.02


@pytest.mark.parametrize("bridge", BRIDGES.values(), ids=BRIDGES.keys())
@pytest.mark.parametrize(
    "curvature", [lb.laplace.Diag, lb.laplace.Kron, lb.laplace.DiagKron, lb.laplace.Full]
)
def test_features_of_1e18_have_predictions(curvature, bridge):
    head = torch.nn.Linear(4, 3)
    inputs = 1e18 * torch.randn(40, 4, generator=seeded(0))
    labels = torch.randint(3, (40,), generator=seeded(1))
    options = {"curvature": curvature, "bridge": bridge, "prior_precision": 1e-4}
    classifier = lb.fit(head, [(inputs / 1e18, labels)], progress=False, **options)
    prediction = classifier(inputs)
    lb.check(prediction.dirichlet)
    lower, upper = prediction.interval()
    assert ((lower >= 0) & (lower <= upper) & (upper <= 1)).all()


def test_a_very_sharp_beta_has_quantiles_on_both_sides():
    log_alpha = torch.tensor([342.4, 360.0, 500.0, 716.0, 716.0]).double()
    log_beta = torch.tensor([-363.2, 10.0, 15.0, 20.0, -700.0]).double()
    for level in (0.0, 0.025, 0.5, 0.975, 1.0):
        near_one = lb.Beta(log_alpha, log_beta).quantile(level)
        near_zero = lb.Beta(log_beta, log_alpha).quantile(1 - level)
        torch.testing.assert_close(near_one, 1 - near_zero, atol=1e-15, rtol=0)


def test_a_beta_near_one_mirrors_one_near_zero_where_both_can_be_seen():
    log_alpha = torch.full((5,), math.log(2e15), dtype=torch.float64)
    log_beta = torch.tensor([-3.0, 0.0, 3.0, 10.0, 20.0]).double()
    for level in (1e-6, 0.025, 0.5, 0.975):
        near_one = lb.Beta(log_alpha, log_beta).quantile(level)
        exact = 1 - lb.Beta(log_beta, log_alpha).quantile(1 - level)
        torch.testing.assert_close(near_one, exact, atol=2e-16, rtol=0)
        assert (near_one < 1).any() or level > 0.5


def test_quantiles_too_small_for_their_type_are_in_order():
    log_alpha = torch.linspace(-9, -4, 4000, dtype=torch.float64)
    for log_beta in (-3.0, 0.0, 5.0):
        marginal = lb.Beta(log_alpha, torch.full_like(log_alpha, log_beta))
        quantiles = torch.stack([marginal.quantile(level / 40) for level in range(41)])
        assert (quantiles[1:] >= quantiles[:-1]).all()
