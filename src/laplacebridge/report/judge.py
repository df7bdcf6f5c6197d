"""Judges a fitted classifier on test data: every method on the same features, in one run."""

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor
from tqdm import tqdm

from laplacebridge import links, metrics, scores
from laplacebridge._checks import labels_of
from laplacebridge._predictions import AnyPrediction
from laplacebridge._provenance import versions
from laplacebridge.classifier import Classifier
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.errors import ShapeError
from laplacebridge.gaussian import LogitGaussian
from laplacebridge.laplace import prior
from laplacebridge.report.evaluation import Evaluation, PriorCurve, Row
from laplacebridge.report.examples import Examples
from laplacebridge.report.methods import Method, methods
from laplacebridge.report.specimens import specimens
from laplacebridge.report.verdict import verdict
from laplacebridge.sets import Mass
from laplacebridge.temperature import TemperatureScaling, temperature_scaling

ROWS_AT_ONCE = 1024
REFERENCE_SAMPLES = 10_000
SET_MASS = 0.95
NUM_RESAMPLES = 500
FEWEST_TIMINGS, MOST_TIMINGS, SECONDS_TO_TIME = 3, 30, 0.2
# Numbers that the reference may draw: 500 examples of 40 classes.
REFERENCE_NUMBERS = 200_000_000


def judge(
    classifier: Classifier,
    test: Examples,
    *,
    outside: Examples | None = None,
    validation: Examples | None = None,
    class_names: Sequence[str] | None = None,
    title: str = "A classifier and its uncertainty",
    settings: Mapping[str, str] | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Evaluation:
    """Compares every method on the same features, and says what was found.

    Args:
        classifier: The fitted classifier; its own bridge makes the plots.
        test: Labelled examples that nothing was fitted or chosen on.
        outside: Inputs that belong to no class.
        validation: Labelled examples for temperature scaling and the curve of the prior.
        class_names: One for each class.
        title: Of the report.
        settings: What else someone needs to get the same numbers.
        seed: Of samples and intervals.
        progress: Show a progress bar.

    Raises:
        ShapeError: If the test examples have no labels, or names do not fit the classes.
    """
    if test.labels is None:
        raise ShapeError("A report needs labels for its test examples; the loader yielded inputs alone.")
    names = tuple(class_names) if class_names else tuple(str(index) for index in range(classifier.num_classes))
    if len(names) != classifier.num_classes:
        raise ShapeError(f"A report needs a name for each of {classifier.num_classes} classes; got {len(names)}.")
    labels = labels_of("judge(test)", test.labels, len(test), classifier.num_classes)
    scaling, temperature = _temperature(classifier, validation)
    compared = methods(scaling, seed=seed)
    reference = _Reference.of(classifier, test, seed)
    rows = tuple(
        _row(name, method, classifier, test, labels, outside, reference, seed)
        for name, method in tqdm(compared.items(), desc="judging", unit="method", disable=not progress)
    )
    prediction = _dirichlets(classifier, test)
    strange = None if outside is None else _dirichlets(classifier, outside)
    return Evaluation(
        title=title,
        verdict=verdict(rows),
        rows=rows,
        prediction=prediction,
        labels=labels,
        outside=strange,
        class_names=names,
        specimens=specimens(prediction, test, strange, outside),
        prior=_prior_curve(classifier, validation),
        prior_method=classifier.prior_choice.method,
        settings={
            **(settings or {}),
            "classifier": repr(classifier),
            "test examples": str(len(test)),
            "strange inputs": "none" if outside is None else str(len(outside)),
            "temperature": temperature,
            "sets in the table": f"the smallest that hold {SET_MASS:.0%} of the probability",
            "distance": f"over {reference.num_rows} examples, to {REFERENCE_SAMPLES} samples",
            "seed": str(seed),
            **versions(),
            "threads": str(torch.get_num_threads()),
        },
    )


@dataclass(frozen=True, eq=False)
class _Reference:
    """Probabilities from many samples, for as many examples as that is affordable for."""

    probabilities: Float[Tensor, "n K"]

    @classmethod
    def of(cls, classifier: Classifier, test: Examples, seed: int) -> "_Reference":
        num_rows = max(10, REFERENCE_NUMBERS // (REFERENCE_SAMPLES * classifier.num_classes))
        with torch.no_grad():
            gaussian = classifier.posterior(test.features[:num_rows])
        generator = Generator().manual_seed(seed + 1)  # not the samples of the methods it judges
        return cls(links.monte_carlo(gaussian, num_samples=REFERENCE_SAMPLES, generator=generator).cpu())

    @property
    def num_rows(self) -> int:
        return len(self.probabilities)

    def distance(self, probabilities: Float[Tensor, "N K"]) -> float:
        gap = probabilities[: self.num_rows].double() - self.probabilities.double()
        return float(gap.abs().sum(-1).mean()) / 2


def _row(
    name: str,
    method: Method,
    classifier: Classifier,
    test: Examples,
    labels: Int[Tensor, " N"],
    outside: Examples | None,
    reference: _Reference,
    seed: int,
) -> Row:
    prediction = _predicted(classifier, method, test)
    probabilities = _probabilities(prediction)
    sets = Mass()(probabilities, SET_MASS)
    detection = None
    if outside is not None:
        inside_scores = scores.msp(prediction)
        outside_scores = scores.msp(_predicted(classifier, method, outside))
        generator = Generator().manual_seed(seed)
        detection = metrics.bootstrap(
            metrics.auroc, inside_scores, outside_scores, num_resamples=NUM_RESAMPLES, generator=generator, paired=False
        )
    return Row(
        method=name,
        accuracy=metrics.accuracy(probabilities, labels),
        nll=metrics.nll(prediction, labels),
        ece=metrics.ece(probabilities, labels),
        brier=metrics.brier(probabilities, labels),
        auroc=detection,
        set_size=metrics.mean_set_size(sets),
        coverage=metrics.coverage(sets, labels),
        distance=reference.distance(probabilities),
        microseconds=_microseconds(classifier, method, test.features[:ROWS_AT_ONCE]),
        losses=_losses(prediction, labels),
    )


def _predicted(classifier: Classifier, method: Method, examples: Examples) -> AnyPrediction:
    """A method on all examples, block by block."""
    with torch.no_grad():
        parts = [method(gaussian) for gaussian in _gaussians(classifier, examples)]
    if isinstance(parts[0], Dirichlet):
        return Dirichlet(torch.cat([part.log_concentration for part in parts]).cpu())  # type: ignore[union-attr]
    return torch.cat(parts).cpu()  # type: ignore[arg-type]


def _dirichlets(classifier: Classifier, examples: Examples) -> Dirichlet:
    with torch.no_grad():
        parts = [classifier.bridge(gaussian).log_concentration for gaussian in _gaussians(classifier, examples)]
    return Dirichlet(torch.cat(parts).cpu())


def _gaussians(classifier: Classifier, examples: Examples) -> Iterator[LogitGaussian]:
    return (classifier.posterior(rows) for rows in torch.split(examples.features, ROWS_AT_ONCE))


def _probabilities(prediction: AnyPrediction) -> Float[Tensor, "N K"]:
    return prediction.mean if isinstance(prediction, Dirichlet) else prediction


def _losses(prediction: AnyPrediction, labels: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """−log p(y | x) of every example, in log space where that is possible."""
    if isinstance(prediction, Dirichlet):
        log = prediction.log_concentration.double().log_softmax(-1)
    else:
        log = prediction.double().log()
    return -log.gather(-1, labels.unsqueeze(-1)).squeeze(-1)


def _microseconds(classifier: Classifier, method: Method, features: Float[Tensor, "n D"]) -> float:
    """The shortest of some timings, from features to prediction; quick methods are timed more often."""

    def once() -> float:
        start = time.perf_counter()
        with torch.no_grad():
            method(classifier.posterior(features))
        return time.perf_counter() - start

    calls = max(FEWEST_TIMINGS, int(SECONDS_TO_TIME / max(once(), 1e-9)))
    return min(once() for _ in range(min(calls, MOST_TIMINGS))) / len(features) * 1e6


def _temperature(classifier: Classifier, validation: Examples | None) -> tuple[TemperatureScaling | None, str]:
    """Temperature scaling, or why there is none."""
    if validation is None or validation.labels is None:
        return None, "none: no labelled validation data"
    with torch.no_grad():
        logits = torch.cat([gaussian.mean for gaussian in _gaussians(classifier, validation)])
    try:
        scaling = temperature_scaling(logits, validation.labels)
    except ValueError as problem:  # validation data without a single error ask for T = 0
        return None, f"none: {problem}"
    return scaling, f"{scaling.temperature:.3f}"


def _prior_curve(classifier: Classifier, validation: Examples | None) -> PriorCurve | None:
    """What the fit tried, or else what validation data say now."""
    choice = classifier.prior_choice
    if not choice.candidates and validation is not None and validation.labels is not None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The best prior precision")  # it is shown here, not used
            choice = prior.by_validation(
                classifier.posterior, classifier.bridge, validation.features, validation.labels
            )
    if not choice.candidates:
        return None
    meaning = choice.method if "evidence" not in choice.method else "negative log evidence"
    return PriorCurve(choice.candidates, choice.scores, float(classifier.posterior.prior_precision), meaning)
