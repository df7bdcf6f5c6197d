"""How the tables judge: one trained network, one posterior, every method on every data
set, by the paper's metrics.
"""

import functools
import operator
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Generator, Tensor, nn
from tqdm import tqdm

from laplacebridge import links, metrics
from laplacebridge.bridges import center, laplace_bridge, one_vs_rest_bridge, race_bridge
from laplacebridge.gaussian import LogitGaussian
from laplacebridge.laplace.curvature import Curvature, Diag, Kron
from laplacebridge.laplace.head import HeadNetwork
from laplacebridge.laplace.head_posteriors import POSTERIORS
from laplacebridge.laplace.head_posteriors.base import with_constant
from laplacebridge.laplace.posterior import Posterior
from laplacebridge.laplace.sums import Sums
from laplacebridge_reproduction import conventions
from laplacebridge_reproduction.artifact import Result
from laplacebridge_reproduction.data.dataset import DataSet, scaled

STRUCTURES: dict[str, type[Curvature]] = {"diagonal": Diag, "Kronecker": Kron}
IMAGES_AT_ONCE = 500
ROWS_AT_ONCE = 5000
ROWS_TO_MATCH = 1000
SEARCHED, HALVINGS = (1e-6, 1e8), 30

Method = Callable[[LogitGaussian, Generator], Tensor]

METHODS: dict[str, Method] = {
    "MAP": lambda gaussian, _: links.map_estimate(gaussian),
    "MC": lambda gaussian, generator: conventions.monte_carlo(gaussian, generator=generator),
    "LB": lambda gaussian, _: conventions.lb(gaussian).mean,
    "LB, centred": lambda gaussian, _: laplace_bridge(gaussian, zero_sum=center).mean,
    "LB-norm": lambda gaussian, _: conventions.lb_norm(gaussian).mean,
    "probit": lambda gaussian, _: conventions.probit(gaussian),
    "probit, centred": lambda gaussian, _: links.probit(gaussian, centered=True),
    "race": lambda gaussian, _: race_bridge(gaussian).mean,
    "one-vs-rest": lambda gaussian, _: one_vs_rest_bridge(gaussian).mean,
}


def with_features(network: HeadNetwork, data: DataSet, *, progress: bool = True) -> DataSet:
    """The data set with the input of the head in place of images, so that they go
    through the network once.

    Args:
        network: The network, split at its head.
        data: Images.
        progress: Show a progress bar.
    """
    parts = torch.split(data.inputs, IMAGES_AT_ONCE)
    bar = tqdm(
        parts, desc=f"features of {data.name}", unit="batch", disable=not progress, leave=False
    )
    with torch.no_grad():
        return replace(data, inputs=torch.cat([network(scaled(part)) for part in bar]))


def last_layer_posterior(
    head: nn.Module,
    training: DataSet,
    structure: str,
    prior_precision: float,
    num_examples: int | None = None,
) -> Posterior:
    """The posterior of the head.

    Args:
        head: The last linear layer.
        training: Features and labels.
        structure: One of `STRUCTURES`.
        prior_precision: Precision of the prior.
        num_examples: How many examples the training data stands for. The curvature is a
            sum over examples, so it is scaled to that; None leaves it as it is.
    """
    kind = STRUCTURES[structure]
    times = 1.0 if num_examples is None else num_examples / len(training)
    with torch.no_grad():
        sums = [
            kind.of_batch(
                with_constant(rows), head(rows).softmax(-1), torch.full((len(rows),), times)
            )
            for rows in torch.split(training.inputs, ROWS_AT_ONCE)
        ]
    total: Sums = functools.reduce(operator.add, sums)
    return POSTERIORS[kind](head.weight, head.bias, total, prior_precision)


def keeping_confidence(posterior: Posterior, features: Tensor, *, share: float) -> Posterior:
    """The posterior under the prior that leaves a share of the network's mean maximum
    confidence, by the race.

    Args:
        posterior: Posterior under any prior.
        features: Features of some examples, shape (N, D).
        share: Between 0 and 1; 0.95 is the paper's rule.
    """
    rows = features[:ROWS_TO_MATCH]
    target = share * metrics.mmc(links.map_estimate(posterior(rows)))
    low, high = SEARCHED  # the wider the prior, the smaller the confidence
    with torch.no_grad():
        for _ in range(HALVINGS):
            middle = (low * high) ** 0.5
            if metrics.mmc(race_bridge(posterior.with_prior(middle)(rows)).mean) < target:
                low = middle
            else:
                high = middle
    return posterior.with_prior(high)


def last_layer_gaussians(posterior: Posterior, features: Tensor) -> Iterator[LogitGaussian]:
    """Gaussians over logits, some rows at a time.

    Args:
        posterior: Posterior of the head.
        features: Input of the head, shape (N, D).
    """
    for rows in torch.split(features, ROWS_AT_ONCE):
        yield posterior(rows)


def predicted(gaussians: Iterator[LogitGaussian], *, seed: int) -> dict[str, Tensor]:
    """Probabilities by every method, shape (N, K) each.

    Args:
        gaussians: Some rows at a time.
        seed: Seed of the samples.
    """
    generator = torch.Generator().manual_seed(seed)
    found: dict[str, list[Tensor]] = {name: [] for name in METHODS}
    with torch.no_grad():
        for gaussian in gaussians:
            for name, method in METHODS.items():
                found[name].append(method(gaussian, generator))
    return {name: torch.cat(parts) for name, parts in found.items()}


def mean_variances(gaussians: Iterator[LogitGaussian]) -> Result:
    """Mean variance of the logits as they are, and without what is common to all of
    them, which softmax cannot see.

    Args:
        gaussians: Some rows at a time.
    """
    with torch.no_grad():
        pairs = [
            (gaussian.variance.mean(-1), gaussian.centered().variance.mean(-1))
            for gaussian in gaussians
        ]
    return {
        name: torch.cat(parts).double().mean().item()
        for name, parts in zip(("as they are", "centred"), zip(*pairs))
    }


def judged(probabilities: Tensor, labels: Tensor, inside: Tensor | None) -> Result:
    """The metrics of one method on one data set.

    Args:
        probabilities: Predictions for the data set, shape (N, K).
        labels: Its own, which need not be classes of the model.
        inside: Probabilities of the data set of the network, by the same method; None
            if this is that.
    """
    clipped = conventions.labels_outside(labels, probabilities.shape[1])
    found = {
        "mmc": metrics.mmc(probabilities),
        "nll": conventions.nll(probabilities, clipped),
        "ece": conventions.ece(probabilities, clipped),
        "brier": conventions.brier(probabilities, clipped),
    }
    if inside is None:
        return {**found, "accuracy": metrics.accuracy(probabilities, clipped)}
    usual, unusual = conventions.score(inside), conventions.score(probabilities)
    return {
        **found,
        "auroc": metrics.auroc(usual, unusual),
        "fpr95": conventions.fpr95(usual, unusual),
    }


def detection_errors(
    inside: dict[str, Tensor], outside: dict[str, Tensor], other: str
) -> dict[str, float]:
    """Standard error over examples of the difference of every method's AUROC from one
    method's, by DeLong's formula for scores of the same examples.

    Args:
        inside: Probabilities of usual examples by method.
        outside: Probabilities of unusual examples by method.
        other: The method that the others are compared with.
    """
    placed = {
        name: _placements(conventions.score(inside[name]), conventions.score(outside[name]))
        for name in outside
    }
    return {
        name: sum(float((own - its).var() / len(own)) for own, its in zip(found, placed[other]))
        ** 0.5
        for name, found in placed.items()
    }


def _placements(usual: Tensor, unusual: Tensor) -> tuple[Tensor, Tensor]:
    """Which share of unusual examples scores above each usual one, and which share of
    usual ones below each unusual one; ties count half.
    """
    found = []
    for these, those in ((usual, unusual), (unusual, usual)):
        ordered = those.sort().values
        below = sum(torch.searchsorted(ordered, these, right=right) for right in (False, True))
        found.append(torch.as_tensor(below).double() / (2 * len(those)))
    return 1 - found[0], found[1]
