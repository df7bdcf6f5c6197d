"""How often votes lie within the interval that a prediction gives for them.

The interval is for the number of votes: it holds what is not known of the probability
and the chance of a few dozen votes. Numbers of votes are whole, so ties with an end of
the interval are broken at random, and a distribution that is right covers exactly its
level.
"""

import numpy as np
import torch
from scipy import special
from torch import Tensor

from laplacebridge import Prediction
from laplacebridge._special import complement
from laplacebridge.dirichlet import Dirichlet
from laplacebridge_reproduction.artifact import Result

LEVEL = 0.95
# Above this a Beta is as good as its mean, and differences of log Beta have no digits.
LARGEST_TOTAL = 1e9
NODES = 80  # of the quadrature over log-odds
AT_ONCE = 1000  # images


def shares(answer: Tensor | Dirichlet | Prediction, votes: Tensor, *, seed: int) -> Result:
    """The share of images whose votes for the predicted class lie within its interval,
    and the mean of that share over all classes.

    Args:
        answer: Probabilities, Dirichlets, or predictions with intervals of their own.
        votes: Votes on the same images, shape (N, K).
        seed: Seed of ties.
    """
    generator = np.random.default_rng(seed)
    counts = votes.numpy()
    parts = [
        _placed(answer[rows], counts[rows.numpy()], generator)
        for rows in torch.split(torch.arange(len(counts)), AT_ONCE)
    ]
    placed = np.concatenate(parts)
    inside = np.abs(placed - 0.5) <= LEVEL / 2
    mean = answer if isinstance(answer, Tensor) else answer.mean
    predicted = mean.argmax(-1, keepdim=True).numpy()
    return {
        "predicted_class": float(np.take_along_axis(inside, predicted, 1).mean()),
        "all_classes": float(inside.mean()),
    }


def _placed(
    answer: Tensor | Dirichlet | Prediction, counts: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Where each number of votes lies among those that the prediction expects, uniform
    from 0 to 1 if it is right.
    """
    total = counts.sum(-1, keepdims=True)
    if isinstance(answer, Prediction):
        below, at = _by_log_odds(answer, counts, total)
    elif isinstance(answer, Dirichlet):
        below, at = _by_beta(answer, counts, total)
    else:
        below, at = _binomial(answer.double().numpy(), counts, total)
    return below + generator.uniform(size=counts.shape) * at


def _binomial(
    probability: np.ndarray, counts: np.ndarray, total: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The chance of fewer votes, and of as many."""
    up_to = special.bdtr(counts, total, probability)
    below = np.where(counts > 0, special.bdtr(np.maximum(counts - 1, 0), total, probability), 0.0)
    return below, up_to - below


def _by_beta(
    dirichlet: Dirichlet, counts: np.ndarray, total: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The same when the probability has the Dirichlet's Beta marginal."""
    mean = dirichlet.mean.double().numpy()
    total_alpha = dirichlet.log_total.double().exp().numpy()[:, None]
    narrow = total_alpha > LARGEST_TOTAL
    # a Beta with a parameter of zero has no density; of the smallest number it has
    alpha, rest = (
        np.maximum(np.where(narrow, 1.0, total_alpha) * part, np.finfo(float).tiny)
        for part in (mean, complement(dirichlet.mean.double()).numpy())
    )
    below, at = np.zeros(counts.shape), np.zeros(counts.shape)
    for number in range(int(counts.max()) + 1):
        possible = number <= total
        log_chance = (
            -np.log1p(total)
            - special.betaln(total - number + 1, number + 1)
            + special.betaln(alpha + number, rest + np.maximum(total - number, 0))
            - special.betaln(alpha, rest)
        )
        chance = np.where(possible, np.exp(np.where(possible, log_chance, 0.0)), 0.0)
        below += np.where(number < counts, chance, 0.0)
        at += np.where(number == counts, chance, 0.0)
    sure_below, sure_at = _binomial(mean, counts, total)
    return np.where(narrow, sure_below, below), np.where(narrow, sure_at, at)


def _by_log_odds(
    prediction: Prediction, counts: np.ndarray, total: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The same when the log-odds of the probability are normal, as in the prediction's
    intervals.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    weights = weights / weights.sum()
    marginals = prediction.marginals()
    location = marginals.location.double().numpy()
    deviation = marginals.variance.double().sqrt().numpy()
    below, at = np.zeros(counts.shape), np.zeros(counts.shape)
    for node, weight in zip(nodes, weights):
        parts = _binomial(special.expit(location + node * deviation), counts, total)
        below += weight * parts[0]
        at += weight * parts[1]
    return below, at
