"""The composite fit of Beta marginals that gives every mean its precision."""

import numpy as np
import pytest
import torch
from cases import gaussian, seeded
from scipy import integrate, optimize, special, stats

import laplacebridge as lb
from laplacebridge._special import complement
from laplacebridge.bridges.log_odds import log_odds, one_vs_rest_probabilities
from laplacebridge.bridges.precision import jensen_gap, log_precision


def delta(x):
    return np.log(x) - special.digamma(x)


def test_the_precision_solves_its_equation():
    batch = gaussian("diagonal", 0, 10, 6)
    odds = log_odds(batch.mean, batch.covariance)
    means = one_vs_rest_probabilities(odds)
    fitted = log_precision(means, odds.variance).squeeze(-1)
    for row, mean in enumerate(means.numpy()):
        weights = mean**3 / (mean**3).sum()
        gaps = jensen_gap(torch.minimum(means[row], 1 - means[row]), odds.variance[row]).numpy()

        def excess(log_c, mean=mean, weights=weights, gaps=gaps):
            c = np.exp(log_c)
            brackets = mean * delta(c * mean) + (1 - mean) * delta(c * (1 - mean)) - delta(c)
            return (weights * (brackets - gaps)).sum()

        assert fitted[row].item() == pytest.approx(
            optimize.brentq(excess, -10, 20, xtol=1e-12), abs=2e-6
        )


@pytest.mark.parametrize("location", [0.0, -1.0, -4.0])
@pytest.mark.parametrize("variance", [1e-3, 0.3, 3.0, 60.0])
def test_the_gap_is_the_expected_divergence_of_bernoullis(location, variance):
    law = stats.norm(location, variance**0.5)
    reach = 12 * variance**0.5

    def expectation(function):
        edges = (location - reach, location + reach)
        return integrate.quad(lambda x: function(x) * law.pdf(x), *edges, limit=400, epsabs=1e-13)[
            0
        ]

    mean = expectation(special.expit)

    def divergence(x):
        return special.rel_entr(mean, special.expit(x)) + special.rel_entr(
            1 - mean, special.expit(-x)
        )

    closed = jensen_gap(
        torch.tensor(min(mean, 1 - mean)).double(), torch.tensor(variance).double()
    ).item()
    assert 0.84 <= closed / expectation(divergence) <= 1.03


def test_for_two_classes_it_is_the_closest_beta_with_the_given_mean():
    batch = lb.LogitGaussian(
        torch.tensor([[1.0, 0.0]]).double(), lb.Diagonal(torch.tensor([[1.0, 1.0]]).double())
    )
    dirichlet = lb.bridges.one_vs_rest_bridge(batch)
    mean = dirichlet.mean[0, 0].item()
    logits = batch.sample(200_000, seeded(0))[:, 0]
    log_probabilities = logits.log_softmax(-1).mean(0).numpy()

    def cross_entropy(log_c):
        alpha = np.exp(log_c) * np.array([mean, 1 - mean])
        return special.betaln(*alpha) - ((alpha - 1) * log_probabilities).sum()

    best = optimize.minimize_scalar(cross_entropy, bounds=(-3, 6), method="bounded").x
    assert dirichlet.log_total.item() == pytest.approx(best, abs=0.03)


def test_visiting_only_the_largest_classes_costs_what_the_documentation_says():
    batch = gaussian("diagonal", 1, 30, 1000)
    every = lb.bridges.one_vs_rest_bridge(batch, num_largest=5000).log_total
    for num_largest, bound in ((64, 0.03), (16, 0.2), (None, 0.02)):
        shortened = lb.bridges.one_vs_rest_bridge(batch, num_largest=num_largest).log_total
        assert (shortened - every).abs().max() <= bound


def test_two_classes_stand_for_all_that_are_not_visited_among_many():
    generator = torch.Generator().manual_seed(2)

    def normal():
        return torch.randn(20, 1500, generator=generator).double()

    for scale in (0.0, 0.3, 1.0, 3.0, 8.0):
        for variance in (torch.full((20, 1500), 0.5).double(), (normal() - 2).exp()):
            mean = (scale * normal()).softmax(-1)
            whole = log_precision(mean, variance, num_largest=1500)
            assert (log_precision(mean, variance) - whole).abs().max() <= 0.02
    # gaps of large variances grow more slowly than these
    flat, unlike = torch.full((20, 1500), 1 / 1500).double(), (normal() + 2).exp()
    whole = log_precision(flat, unlike, num_largest=1500)
    assert 0.02 < (log_precision(flat, unlike) - whole).abs().max() <= 0.15


def test_the_complement_keeps_its_digits_when_one_class_has_nearly_everything():
    tiny = 1e-20
    means = torch.tensor([[1.0, tiny, 2 * tiny]], dtype=torch.float64)
    torch.testing.assert_close(complement(means)[0, 0].item(), 3 * tiny, rtol=1e-12, atol=0)
