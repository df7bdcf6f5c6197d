"""Every method on the same Gaussians over logits: the rows of the table."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor
from tqdm import tqdm

from laplacebridge import _blocks, links, metrics, scores
from laplacebridge._stopwatch import seconds_per_call
from laplacebridge.bridges import BRIDGES
from laplacebridge.classifier import Classifier
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.gaussian import LogitGaussian
from laplacebridge.laplace.examples import Examples
from laplacebridge.prediction import Prediction
from laplacebridge.report._findings.halves import FoundSets, Halves
from laplacebridge.report.table import (
    DEFAULT,
    NETWORK,
    REFERENCE_SAMPLES,
    SAMPLE_SIZES,
    TEMPERATURE,
    Evidence,
    Row,
)
from laplacebridge.temperature import TemperatureScaling, temperature_scaling
from laplacebridge.unusual import Unusual

Predicted: TypeAlias = Dirichlet | Tensor
Compared: TypeAlias = Callable[[LogitGaussian], Predicted]

# The bridges that are compared, by their names in the registry.
COMPARED_BRIDGES = ("laplace", "laplace-norm", "kl", "one-vs-rest", DEFAULT)
NUM_RESAMPLES = 500
# A page of a thousand classes and 5000 examples should take a minute at most. So these
# many numbers may be drawn for the reference (500 examples of 40 classes) and for a row of
# the table, and have an information projection; what takes more is left out.
REFERENCE_NUMBERS, SAMPLED_NUMBERS, PROJECTED_NUMBERS = 200_000_000, 100_000_000, 2_000_000
SLOW_BRIDGE = "kl"
# Numbers that are timed, and examples where each takes a backward pass for every class.
TIMED_NUMBERS, TIMED_BACKWARD = 2**17, 64


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
                gaussian = _gaussian(self.classifier, features)
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


def table_of(
    classifier: Classifier,
    examples: Examples,
    labels: Tensor,
    strange: Mapping[str, Examples],
    scaling: TemperatureScaling | None,
    halves: Halves,
    coverage: float,
    seed: int,
    progress: bool,
) -> tuple[list[Row], Tensor, dict[str, Tensor], dict[str, str]]:
    """The table, the network's own logits, and what was left out."""
    gaussians = gaussians_of(classifier, examples)
    ood = {kind: gaussians_of(classifier, each) for kind, each in strange.items()}
    reference = reference_of(gaussians, classifier.num_classes, seed)
    compared = compared_methods(classifier, scaling, num_examples=len(examples), seed=seed)
    rows = [
        row_of(
            name,
            method,
            gaussians,
            labels,
            [part for each in ood.values() for part in each] if ood else None,
            reference=reference,
            halves=halves,
            coverage=coverage,
            seconds=seconds_of(method, classifier, examples),
            seed=seed,
        )
        for name, method in tqdm(
            compared.items(), desc="evaluating", unit="method", disable=not progress
        )
    ]
    return (
        rows,
        network_logits(classifier, gaussians),
        {kind: network_logits(classifier, each) for kind, each in ood.items()},
        settings_of(compared),
    )


def row_of(
    name: str,
    method: Compared,
    gaussians: Iterable[LogitGaussian],
    labels: Int[Tensor, " N"],
    ood: Iterable[LogitGaussian] | None,
    *,
    reference: Float[Tensor, "n K"],
    halves: Halves,
    coverage: float,
    seconds: float,
    seed: int,
) -> Row:
    """A row of the table."""
    prediction = _predicted(method, gaussians)
    probabilities = prediction if isinstance(prediction, Tensor) else prediction.mean
    losses = metrics.proper.surprise(prediction, labels)
    sets = halves.sets(probabilities, labels, coverage)
    # not 1 − the largest probability, which loses the digits of sure predictions
    doubt, right = scores.msp(prediction).double(), metrics.correct(probabilities, labels)
    auroc = ood_doubt = None
    if ood is not None:
        ood_doubt = scores.msp(_predicted(method, ood)).double()
        auroc = metrics.bootstrap(
            metrics.auroc,
            doubt,
            ood_doubt,
            num_resamples=NUM_RESAMPLES,
            generator=Generator().manual_seed(seed),
            paired=False,
        )
    gap = probabilities[: len(reference)].double() - reference.double()
    return replace(
        judged(name, probabilities, labels, doubt, sets, nll=float(losses.mean())),
        auroc=auroc,
        distance=float(gap.abs().sum(-1).mean()) / 2,
        microseconds=1e6 * seconds,
        evidence=Evidence(losses, doubt, right, sets.sizes.double(), ood_doubt),
    )


def judged(
    name: str,
    probabilities: Float[Tensor, "N K"],
    labels: Int[Tensor, " N"],
    doubt: Float[Tensor, " N"],
    sets: FoundSets,
    *,
    nll: float,
) -> Row:
    """What a row says of probabilities by themselves."""
    right = metrics.correct(probabilities, labels)
    return Row(
        method=name,
        accuracy=float(right.double().mean()),
        nll=nll,
        ece=metrics.ece(probabilities, labels),
        brier=metrics.brier(probabilities, labels),
        aurc=metrics.aurc(doubt, right),
        auroc=None,
        set_size=float(sets.sizes.double().mean()),
        coverage=float(sets.held.double().mean()),
        distance=None,
        microseconds=None,
    )


def seconds_of(method: Compared, classifier: Classifier, examples: Examples) -> float:
    """From features to prediction, for one example."""
    affordable = max(1, TIMED_NUMBERS // classifier.num_classes)
    features = examples.features[
        : TIMED_BACKWARD
        if classifier.network.runs_backward
        else min(affordable, _blocks.ROWS_OF_A_REPORT)
    ]
    with torch.no_grad():
        return seconds_per_call(lambda: method(_gaussian(classifier, features))) / len(features)


def settings_of(rows: Mapping[str, Compared]) -> dict[str, str]:
    """What the table leaves out, and why."""
    expected = [*(f"MC-{count}" for count in SAMPLE_SIZES), *COMPARED_BRIDGES]
    missing = [name for name in expected if name not in rows]
    return {"left out": f"{', '.join(missing)}: too slow for so many numbers"} if missing else {}


def _gaussian(classifier: Classifier, features: Any) -> LogitGaussian:  # noqa: ANN401
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


def _predicted(method: Compared, gaussians: Iterable[LogitGaussian]) -> Predicted:
    with torch.no_grad():
        parts = [method(gaussian) for gaussian in gaussians]
    if isinstance(parts[0], Dirichlet):
        return Dirichlet(torch.cat([part.log_concentration for part in parts]).cpu())  # type: ignore[union-attr]
    return torch.cat(parts).cpu()  # type: ignore[arg-type]
