"""Every method that is compared, and what it is given: the same Gaussians over logits."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from laplacebridge import _blocks, links
from laplacebridge.bridges import BRIDGES
from laplacebridge.classifier import Classifier
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.gaussian import LogitGaussian
from laplacebridge.laplace.examples import Examples
from laplacebridge.prediction import Prediction
from laplacebridge.report.table import (
    DEFAULT,
    NETWORK,
    REFERENCE_SAMPLES,
    SAMPLE_SIZES,
    TEMPERATURE,
)
from laplacebridge.temperature import TemperatureScaling, temperature_scaling
from laplacebridge.unusual import Unusual

Predicted: TypeAlias = Dirichlet | Tensor
Compared: TypeAlias = Callable[[LogitGaussian], Predicted]

# The bridges that are compared, by their names in the registry.
COMPARED_BRIDGES = ("laplace", "laplace-norm", "kl", "one-vs-rest", DEFAULT)
# A page of a thousand classes and 5000 examples should take a minute at most. So these
# many numbers may be drawn for the reference (500 examples of 40 classes) and for a row of
# the table, and have an information projection; what takes more is left out.
REFERENCE_NUMBERS, SAMPLED_NUMBERS, PROJECTED_NUMBERS = 200_000_000, 100_000_000, 2_000_000
SLOW_BRIDGE = "kl"


@dataclass(frozen=True, eq=False)
class Gaussians:
    """Gaussians over logits, block by block, made anew on every walk: all of them would
    take much memory.
    """

    classifier: Classifier
    examples: Examples

    def __iter__(self) -> Iterator[LogitGaussian]:
        for features in rows_of(self.examples):
            with torch.no_grad():
                gaussian = gaussian_of(self.classifier, features)
            yield gaussian


def gaussians_of(classifier: Classifier, examples: Examples) -> Iterable[LogitGaussian]:
    """Gaussians whose mean probabilities are predicted; kept where they take long."""
    blocks = Gaussians(classifier, examples)
    # a backward pass for each class and example is too much for every method to repeat
    return list(blocks) if classifier.network.runs_backward else blocks


def answers_of(classifier: Classifier, examples: Examples) -> Prediction:
    """What the classifier itself answers."""
    with torch.no_grad():
        parts = [classifier.predict_features(block) for block in rows_of(examples)]
    unusual = None
    if parts[0].unusual is not None:
        scored = torch.cat([part.ood_score for part in parts])
        unusual = Unusual(scored, parts[0].unusual.reference).to("cpu")
    return Prediction(
        Dirichlet(torch.cat([part.dirichlet.log_concentration for part in parts]).cpu()),
        torch.cat([part.log_odds_variance for part in parts]).cpu(),
        unusual,
    )


def rows_of(examples: Examples) -> Iterator[Any]:
    """Features, block by block."""
    return (
        examples.features[start : start + _blocks.ROWS_OF_A_REPORT]
        for start in range(0, len(examples), _blocks.ROWS_OF_A_REPORT)
    )


def compared_methods(
    classifier: Classifier,
    scaling: TemperatureScaling | None,
    *,
    num_examples: int,
    seed: int,
) -> dict[str, Compared]:
    """What stands in the table, by name: from Gaussians over logits to predictions."""
    scaled: dict[str, Compared] = {}
    if scaling is not None:
        scaled[TEMPERATURE] = lambda gaussian: scaling(own_logits(classifier, gaussian))
    numbers = num_examples * classifier.num_classes
    sizes = [count for count in SAMPLE_SIZES if numbers * count <= SAMPLED_NUMBERS]
    own = own_method(classifier)
    bridges = [
        name for name in COMPARED_BRIDGES if name != SLOW_BRIDGE or numbers <= PROJECTED_NUMBERS
    ]
    return {
        NETWORK: lambda gaussian: own_logits(classifier, gaussian).softmax(-1),
        **scaled,
        "probit": partial(links.probit, centered=True),
        **{f"MC-{count}": partial(_sampled, count, seed) for count in sizes},
        **{name: BRIDGES[name] for name in bridges},
        **({} if own in bridges else {own: classifier.bridge}),
    }


def own_method(classifier: Classifier) -> str:
    """The name of the row that is the classifier's own answer."""
    known = (name for name, bridge in BRIDGES.items() if bridge is classifier.bridge)
    return next(known, getattr(classifier.bridge, "__name__", "own"))


def own_logits(classifier: Classifier, gaussian: LogitGaussian) -> Float[Tensor, "n K"]:
    """The logits of the network itself: a temperature that the fit has chosen is no
    part of it.
    """
    return gaussian.mean * classifier.posterior.temperature.to(gaussian.mean.dtype)


def network_logits(
    classifier: Classifier, gaussians: Iterable[LogitGaussian]
) -> Float[Tensor, "N K"]:
    """The network's own logits for all examples."""
    with torch.no_grad():
        return torch.cat([own_logits(classifier, gaussian) for gaussian in gaussians]).cpu()


def temperature_of(
    classifier: Classifier, validation: Examples | None
) -> tuple[TemperatureScaling | None, str]:
    """Temperature scaling, or why there is none."""
    if validation is None or validation.labels is None:
        return None, "none: no validation data"
    logits = network_logits(classifier, Gaussians(classifier, validation))
    try:
        scaling = temperature_scaling(logits, validation.labels.cpu())
    except ValueError as problem:  # validation data without a single error ask for T = 0
        return None, f"none: {problem}"
    return scaling, f"{scaling.temperature:.3f}"


def reference_of(
    gaussians: Iterable[LogitGaussian], num_classes: int, seed: int
) -> Float[Tensor, "n K"]:
    """Probabilities from many samples, for as many examples as that is affordable for."""
    wanted = max(10, REFERENCE_NUMBERS // (REFERENCE_SAMPLES * num_classes))
    generator = Generator().manual_seed(
        seed + 1
    )  # not the samples of the methods it is compared with
    parts: list[Tensor] = []
    for gaussian in gaussians:
        chosen = gaussian[:wanted]
        parts.append(
            links.monte_carlo(chosen, num_samples=REFERENCE_SAMPLES, generator=generator).cpu()
        )
        wanted -= len(chosen)
        if not wanted:
            break
    return torch.cat(parts)


def gaussian_of(classifier: Classifier, features: Any) -> LogitGaussian:  # noqa: ANN401
    """The Gaussian whose mean probabilities are predicted; that of intervals may be
    wider.
    """
    wide, narrow = classifier.gaussians(features)
    return wide if narrow is None else narrow


def _sampled(num_samples: int, seed: int, gaussian: LogitGaussian) -> Predicted:
    # the same samples on every call
    return links.monte_carlo(
        gaussian, num_samples=num_samples, generator=Generator().manual_seed(seed)
    )
