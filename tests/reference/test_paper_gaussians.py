"""KL(p ‖ Dir) on the authors' Gaussians over three logits, and two wider ones, against
the known table.
"""

import pytest
import torch
from cases import seeded

import laplacebridge as lb
from laplacebridge.bridges.information import information_projection

CORRELATED = [[1.0, 0.0, 0.5], [0.0, 2.0, 0.3], [0.5, 0.3, 0.5]]
IDENTITY = torch.eye(3).tolist()


def scaled(factor):
    return (factor * torch.eye(3)).tolist()


# mean, covariance, then nats for: best Dirichlet, LB, LB-norm, one-vs-rest, KL bridge
TABLE = [
    ([0, 0, 0], scaled(0.1), (0.005, 0.006, 2.34, 0.005, 0.006)),
    ([2, -1, -1], IDENTITY, (0.247, 0.264, 0.870, 0.343, 0.249)),
    ([1, 1, -2], CORRELATED, (1.331, 6.11, 3.85, 2.50, 1.334)),
    ([3, -2, -1], IDENTITY, (0.415, 0.530, 3.53, 0.631, 0.415)),
    ([3, -2, -1], scaled(5), (0.401, 1.77, 0.866, 0.611, 0.403)),
    ([3, -2, -1], scaled(50), (0.219, 3.46, 4.78, 0.303, 0.220)),
]


def divergence(log_concentration, log_probabilities, log_density):
    """KL from samples of the logistic normal, whose density is known, with its standard
    error.
    """
    dirichlet = lb.Dirichlet(log_concentration.expand(len(log_probabilities), -1))
    ratios = log_density - dirichlet.log_prob(log_probabilities.exp())
    return ratios.mean().item(), ratios.std().item() / len(ratios) ** 0.5


@pytest.mark.parametrize(("mean", "covariance", "nats"), TABLE, ids=range(1, 7))
def test_divergences_reproduce_the_table_within_monte_carlo_error(mean, covariance, nats):
    mean, covariance = torch.tensor(mean).double(), torch.tensor(covariance).double()
    gaussian = lb.LogitGaussian(mean[None], lb.Dense(covariance[None]))
    logits = gaussian.sample(300_000, seeded(0))[:, 0]
    log_probabilities = logits.log_softmax(-1)
    # the law of softmax is that of the log-ratios to the last class, up to the Jacobian
    # Π π
    ratios = torch.tensor([[1.0, 0.0, -1.0], [0.0, 1.0, -1.0]]).double()
    law = torch.distributions.MultivariateNormal(ratios @ mean, ratios @ covariance @ ratios.T)
    log_density = law.log_prob(logits @ ratios.T) - log_probabilities.sum(-1)
    gap = logits.logsumexp(-1).mean() - mean.logsumexp(-1)
    answers = [
        information_projection(mean[None], gap[None]),
        lb.laplace_bridge(gaussian).log_concentration,
        lb.bridges.laplace_bridge_norm(gaussian).log_concentration,
        lb.bridges.one_vs_rest_bridge(gaussian).log_concentration,
        lb.bridges.kl_bridge(gaussian).log_concentration,
    ]
    for answer, expected in zip(answers, nats):
        value, error = divergence(answer, log_probabilities, log_density)
        rounding = 0.0006 if expected < 1 else 0.006
        assert value == pytest.approx(expected, abs=5 * error + rounding)
