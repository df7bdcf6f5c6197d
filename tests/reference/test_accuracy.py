"""How close the means are to the truth: exact for independent logits, sampled with
error bars for correlated ones.
"""

import pytest
import torch
from cases import seeded, total_variation

import laplacebridge as lb
from laplacebridge._quadrature import exact_independent_mean


def uniform(generator, low, high, *shape):
    return low + (high - low) * torch.rand(*shape, generator=generator, dtype=torch.float64)


def normal(generator, *shape):
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def one_huge_variance(generator, rows, classes):
    variance = torch.full((rows, classes), 0.5, dtype=torch.float64)
    variance[:, -1] = 10 ** uniform(generator, 1.3, 5, rows)
    return 2 * normal(generator, rows, classes), variance


def half_the_classes_unused(generator, rows, classes):
    mean, variance = 2 * normal(generator, rows, classes), uniform(generator, 0.2, 2, rows, classes)
    mean[:, ::2] -= 30
    variance[:, ::2] = uniform(generator, 50, 1000, rows, (classes + 1) // 2)
    return mean, variance


def thirteen_decades(generator, rows, classes):
    return 2 * normal(generator, rows, classes), 10 ** uniform(generator, -8, 5, rows, classes)


def far_logits(generator, rows, classes):
    return uniform(generator, -100, 100, rows, classes), 10 ** uniform(
        generator, -1, 4, rows, classes
    )


def many_classes(generator, rows, classes):
    mean = 1.5 * normal(generator, rows, classes)
    mean[:, :5] += 6
    return mean, uniform(generator, 2, 7, rows, 1).expand(rows, classes)


HARD = {
    "one huge variance": (one_huge_variance, (5, 30, 300)),
    "half the classes unused, with large variance": (half_the_classes_unused, (5, 30, 300)),
    "variances over thirteen decades": (thirteen_decades, (5, 30, 300)),
    "logits over ±100": (far_logits, (5, 30, 300)),
    "K = 1000 with variance 2 to 7": (many_classes, (1000,)),
}


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_the_race_is_exact_for_independent_logits_in_the_hard_regimes_too(name, dtype):
    population, sizes = HARD[name]
    for classes in sizes:
        rows = 40 if classes < 1000 else 10
        mean, variance = population(seeded(classes), rows, classes)
        exact = exact_independent_mean(mean, variance)
        answer = lb.bridges.race_mean(
            lb.LogitGaussian(mean.to(dtype), lb.Diagonal(variance.to(dtype)))
        )
        error = total_variation(answer, exact)
        assert error.mean() <= 1e-3
        assert error.max() <= 1e-2


def ordinary(structure, rows, classes):
    """Variances within a factor of ten, as posteriors of trained networks have them."""
    generator = seeded(classes)
    mean = 2 * normal(generator, rows, classes)
    scale = 10 ** uniform(generator, -1, 1, rows, 1)
    if structure == "independent":
        return lb.LogitGaussian(
            mean, lb.Diagonal(scale * 10 ** uniform(generator, -0.5, 0.5, rows, classes))
        )
    if structure == "shared basis":
        basis, _ = torch.linalg.qr(normal(generator, classes, classes))
        weights = scale * 10 ** uniform(generator, -0.5, 0.5, rows, classes)
        return lb.LogitGaussian(mean, lb.SharedBasis(weights, basis))
    factor = normal(generator, rows, classes, 4 * classes)
    return lb.LogitGaussian(
        mean, lb.Dense(scale.unsqueeze(-1) * factor @ factor.mT / (4 * classes))
    )


@pytest.mark.parametrize("classes", [2, 3, 10, 100])
def test_on_ordinary_independent_logits_the_race_is_exact_and_one_vs_rest_close(classes):
    batch = ordinary("independent", 40, classes)
    exact = exact_independent_mean(batch.mean, batch.variance)
    assert total_variation(lb.bridges.race_mean(batch), exact).max() < 4e-4
    assert total_variation(lb.bridges.one_vs_rest_mean(batch), exact).mean() < 1.5e-2
    assert total_variation(lb.laplace_bridge(batch).mean, exact).mean() > 3e-2


# error beyond five standard errors of the samples that each bridge is allowed, in total
# variation of the worst row
@pytest.mark.parametrize("structure", ["shared basis", "dense"])
@pytest.mark.parametrize(
    ("bridge", "bias"), [(lb.race_bridge, 0.01), (lb.bridges.one_vs_rest_bridge, 0.03)]
)
@pytest.mark.parametrize("classes", [3, 10])
def test_correlated_means_agree_with_sampling(structure, bridge, bias, classes):
    batch = ordinary(structure, 20, classes)
    draws = batch.sample(20_000, seeded(3)).softmax(-1)
    error = draws.std(0) / len(draws) ** 0.5
    excess = (bridge(batch).mean - draws.mean(0)).abs() - 5 * error
    assert excess.clamp_min(0).sum(-1).max() / 2 < bias


@pytest.mark.parametrize("structure", ["independent", "shared basis", "dense"])
@pytest.mark.parametrize("bridge", [lb.race_bridge, lb.bridges.one_vs_rest_bridge])
@pytest.mark.parametrize("classes", [3, 10, 100])
def test_intervals_of_the_top_class_hold_what_they_promise(structure, bridge, classes):
    batch = ordinary(structure, 60, classes)
    draws = batch.sample(4000, seeded(5)).softmax(-1)
    dirichlet = bridge(batch)
    top = draws.mean(0).argmax(-1)
    low, high = dirichlet.marginal(top).interval(0.95)
    of_top = draws.gather(-1, top.expand(len(draws), -1).unsqueeze(-1)).squeeze(-1)
    assert 0.93 <= ((of_top >= low) & (of_top <= high)).double().mean() <= 0.97


@pytest.mark.parametrize("bridge", [lb.race_bridge, lb.bridges.one_vs_rest_bridge])
def test_nothing_jumps_where_the_largest_class_changes(bridge):
    gap = torch.tensor([-1e-9, 1e-9], dtype=torch.float64)
    mean = torch.stack([gap, torch.zeros(2).double(), torch.full((2,), -1.0).double()], -1)
    covariance = (
        torch.tensor([[2.0, 0.3, 0.1], [0.3, 0.5, 0.0], [0.1, 0.0, 1.0]]).double().expand(2, 3, 3)
    )
    before, after = bridge(lb.LogitGaussian(mean, lb.Dense(covariance))).log_concentration
    assert (before - after).abs().max() < 1e-6


def test_the_kl_bridge_does_jump_there_a_little():
    gap = torch.tensor([-1e-9, 1e-9], dtype=torch.float64)
    mean = torch.stack([gap, torch.zeros(2).double(), torch.full((2,), -1.0).double()], -1)
    variance = torch.tensor([[20.0, 0.5, 1.0]]).double().expand(2, 3)
    before, after = lb.bridges.kl_bridge(
        lb.LogitGaussian(mean, lb.Diagonal(variance))
    ).log_concentration
    assert 1e-6 < (before - after).abs().max() < 0.5
