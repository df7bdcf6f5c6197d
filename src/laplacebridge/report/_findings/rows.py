"""The rows of the table: what each method reaches on the same test data."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor
from tqdm import tqdm

from laplacebridge import _blocks, metrics, scores
from laplacebridge._stopwatch import seconds_per_call
from laplacebridge.classifier import Classifier
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.gaussian import LogitGaussian
from laplacebridge.laplace.examples import Examples
from laplacebridge.report._findings.halves import FoundSets, Halves
from laplacebridge.report._findings.methods import (
    COMPARED_BRIDGES,
    Compared,
    Predicted,
    compared_methods,
    gaussian_of,
    gaussians_of,
    network_logits,
    reference_of,
)
from laplacebridge.report.table import SAMPLE_SIZES, Evidence, Row
from laplacebridge.temperature import TemperatureScaling

NUM_RESAMPLES = 500
# Numbers that are timed, and examples where each takes a backward pass for every class.
TIMED_NUMBERS, TIMED_BACKWARD = 2**17, 64


def table_of(
    classifier: Classifier,
    examples: Examples,
    labels: Tensor,
    ood_examples: Mapping[str, Examples],
    scaling: TemperatureScaling | None,
    halves: Halves,
    coverage: float,
    seed: int,
    progress: bool,
) -> tuple[list[Row], Tensor, dict[str, Tensor], dict[str, str]]:
    """The table, the network's own logits, and what was left out."""
    gaussians = gaussians_of(classifier, examples)
    ood = {kind: gaussians_of(classifier, each) for kind, each in ood_examples.items()}
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
    msp, right = scores.msp(prediction).double(), metrics.correct(probabilities, labels)
    auroc = ood_msp = None
    if ood is not None:
        ood_msp = scores.msp(_predicted(method, ood)).double()
        auroc = metrics.bootstrap(
            metrics.auroc,
            msp,
            ood_msp,
            num_resamples=NUM_RESAMPLES,
            generator=Generator().manual_seed(seed),
            paired=False,
        )
    gap = probabilities[: len(reference)].double() - reference.double()
    return replace(
        row_of_probabilities(name, probabilities, labels, msp, sets, nll=float(losses.mean())),
        auroc=auroc,
        distance=float(gap.abs().sum(-1).mean()) / 2,
        microseconds=1e6 * seconds,
        evidence=Evidence(losses, msp, right, sets.sizes.double(), ood_msp),
    )


def row_of_probabilities(
    name: str,
    probabilities: Float[Tensor, "N K"],
    labels: Int[Tensor, " N"],
    msp: Float[Tensor, " N"],
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
        aurc=metrics.aurc(msp, right),
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
        return seconds_per_call(lambda: method(gaussian_of(classifier, features))) / len(features)


def settings_of(rows: Mapping[str, Compared]) -> dict[str, str]:
    """What the table leaves out, and why."""
    expected = [*(f"MC-{count}" for count in SAMPLE_SIZES), *COMPARED_BRIDGES]
    missing = [name for name in expected if name not in rows]
    return {"left out": f"{', '.join(missing)}: too slow for so many numbers"} if missing else {}


def _predicted(method: Compared, gaussians: Iterable[LogitGaussian]) -> Predicted:
    with torch.no_grad():
        parts = [method(gaussian) for gaussian in gaussians]
    if isinstance(parts[0], Dirichlet):
        return Dirichlet(torch.cat([part.log_concentration for part in parts]).cpu())  # type: ignore[union-attr]
    return torch.cat(parts).cpu()  # type: ignore[arg-type]
