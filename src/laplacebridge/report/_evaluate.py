"""Evaluates a fitted classifier on test data: every method on the same Gaussians over
logits, in one run.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor
from tqdm import tqdm

from laplacebridge import _blocks, links, metrics, scores
from laplacebridge._checks import labels_of
from laplacebridge._provenance import versions
from laplacebridge._stopwatch import seconds_per_call
from laplacebridge.bridges import BRIDGES
from laplacebridge.classifier import Classifier
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.errors import ShapeError
from laplacebridge.gaussian import LogitGaussian
from laplacebridge.laplace import prior
from laplacebridge.laplace.batch_checks import require_loader
from laplacebridge.laplace.examples import Examples, examples_of
from laplacebridge.laplace.posterior import AS_FITTED
from laplacebridge.report._verdict import verdict
from laplacebridge.report.evaluation import (
    DEFAULT,
    NETWORK,
    REFERENCE_SAMPLES,
    SAMPLE_SIZES,
    SET_MASS,
    TEMPERATURE,
    Evaluation,
    PriorCurve,
    Row,
    Specimen,
)
from laplacebridge.sets import Mass
from laplacebridge.temperature import TemperatureScaling, temperature_scaling

Predicted: TypeAlias = Dirichlet | Tensor
Method = Callable[[LogitGaussian], Predicted]

# The bridges that are compared, by their names in the registry.
COMPARED_BRIDGES = ("laplace", "laplace-norm", "kl", "one-vs-rest", DEFAULT)
NUM_RESAMPLES = 500
# Numbers that the reference may draw: 500 examples of 40 classes.
REFERENCE_NUMBERS = 200_000_000
# Examples to time where each takes a backward pass for every class.
TIMED_BACKWARD = 64


def evaluate(
    classifier: Classifier,
    test: Iterable[Any],
    *,
    ood: Iterable[Any] | None = None,
    validation: Iterable[Any] | None = None,
    class_names: Sequence[str] | None = None,
    title: str = "A classifier and its uncertainty",
    settings: Mapping[str, str] | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Evaluation:
    """Compares every method on the same data, and says what was found.

    Loaders yield batches as for `fit`: (inputs, labels), mappings, or inputs alone. The
    network is run over each of them once; a classifier that covers several layers runs
    it again, backward, for its Gaussians over logits.

    Args:
        classifier: The fitted classifier; its own bridge makes the plots.
        test: A loader of labelled examples that nothing was fitted or chosen on.
        ood: A loader of out-of-distribution inputs, which belong to no class; labels in
            it are ignored.
        validation: A loader of labelled examples for temperature scaling and the curve
            of the prior precision.
        class_names: One for each class.
        title: Report title.
        settings: What else someone needs to get the same numbers, by name.
        seed: Seed for sampling and bootstrap.
        progress: Show progress bars.

    Raises:
        InputError: If labels are missing that are needed, or a label is no class.
        ShapeError: If names do not fit the classes.

    Example:
        >>> from laplacebridge import fit
        >>> data = [(torch.eye(3).repeat(10, 1), torch.arange(30) % 3)]
        >>> head = torch.nn.Linear(3, 3)
        >>> _ = head.weight.data.copy_(4 * torch.eye(3)), head.bias.data.zero_()
        >>> classifier = fit(head, data, prior_precision=1.0, progress=False)
        >>> evaluation = evaluate(classifier, data, ood=[torch.zeros(5, 3)], progress=False)
        >>> evaluation.rows[0].method, evaluation.rows[0].accuracy, evaluation.rows[0].auroc.estimate
        ('MAP', 1.0, 1.0)
    """
    for name, loader in (("test", test), ("ood", ood), ("validation", validation)):
        if loader is not None:
            require_loader(name, loader, call="evaluate")
    names = (
        tuple(class_names)
        if class_names
        else tuple(str(index) for index in range(classifier.num_classes))
    )
    if len(names) != classifier.num_classes:
        raise ShapeError(
            f"A report needs a name for each of {classifier.num_classes} classes; got {len(names)}."
        )

    def run(loader: Iterable[Any], bar: str, purpose: str, **choices: bool) -> Examples:
        return examples_of(
            classifier.network, loader, purpose=purpose, progress=bar if progress else "", **choices
        )

    test_examples = run(test, "testing", "A report", needs_labels=True, keep_images=True)
    ood_examples = (
        None
        if ood is None
        else run(ood, "OOD", "OOD detection", ignore_labels=True, keep_images=True)
    )
    val_examples = (
        None
        if validation is None
        else run(validation, "validating", "Validation", needs_labels=True)
    )
    assert test_examples.labels is not None  # noqa: S101  (they were needed)
    labels = labels_of(
        "evaluate(test)", test_examples.labels, len(test_examples), classifier.num_classes
    ).cpu()
    gaussians = _gaussians(classifier, test_examples)
    ood_gaussians = None if ood_examples is None else _gaussians(classifier, ood_examples)
    scaling, temperature = _temperature(classifier, val_examples)
    reference = _reference(gaussians, classifier.num_classes, seed)
    rows = []
    compared = _methods(classifier, scaling, seed)
    for name, method in tqdm(
        compared.items(), desc="evaluating", unit="method", disable=not progress
    ):
        ood_prediction = None if ood_gaussians is None else _predicted(method, ood_gaussians)
        seconds = _seconds(method, classifier, test_examples)
        rows.append(
            _row(
                name,
                _predicted(method, gaussians),
                labels,
                ood_prediction,
                reference,
                seconds,
                seed,
            )
        )
    prediction = _answers(classifier, test_examples)
    ood_answers = None if ood_examples is None else _answers(classifier, ood_examples)
    accuracy = (
        {}
        if classifier.labels is None
        else {"training accuracy": f"{classifier.labels.accuracy:.1%}"}
    )
    return Evaluation(
        title=title,
        verdict=verdict(rows),
        rows=tuple(rows),
        prediction=prediction,
        labels=labels,
        ood=ood_answers,
        class_names=names,
        specimens=_specimens(prediction, test_examples, ood_answers, ood_examples),
        prior=_prior_curve(classifier, val_examples),
        prior_method=classifier.prior_choice.method,
        intervals=_basis_of_intervals(classifier),
        settings={
            **(settings or {}),
            "classifier": repr(classifier),
            **accuracy,
            "test examples": str(len(test_examples)),
            "OOD inputs": "none" if ood_examples is None else str(len(ood_examples)),
            "temperature": temperature,
            "sets in the table": f"the smallest that hold {SET_MASS:.0%} of the probability",
            "distance": f"over {len(reference)} examples, to {REFERENCE_SAMPLES} samples",
            "seed": str(seed),
            **versions(),
            "threads": str(torch.get_num_threads()),
        },
    )


def _methods(
    classifier: Classifier, scaling: TemperatureScaling | None, seed: int
) -> dict[str, Method]:
    """What stands in the table, by name: from Gaussians over logits to predictions."""
    scaled: dict[str, Method] = {}
    if scaling is not None:
        scaled[TEMPERATURE] = lambda gaussian: scaling(_own_logits(classifier, gaussian))
    return {
        NETWORK: lambda gaussian: _own_logits(classifier, gaussian).softmax(-1),
        **scaled,
        "probit": partial(links.probit, centered=True),
        **{f"MC-{count}": partial(_sampled, count, seed) for count in SAMPLE_SIZES},
        **{name: BRIDGES[name] for name in COMPARED_BRIDGES},
    }


def _own_logits(classifier: Classifier, gaussian: LogitGaussian) -> Float[Tensor, "n K"]:
    """The logits of the network itself: a temperature that the fit has chosen is no
    part of it.
    """
    return gaussian.mean * classifier.posterior.temperature.to(gaussian.mean.dtype)


def _sampled(num_samples: int, seed: int, gaussian: LogitGaussian) -> Predicted:
    # the same samples on every call
    return links.monte_carlo(
        gaussian, num_samples=num_samples, generator=Generator().manual_seed(seed)
    )


@dataclass(frozen=True, eq=False)
class _Blocks:
    """Gaussians over logits, block by block, made anew on every walk: all of them would
    take much memory.
    """

    classifier: Classifier
    examples: Examples

    def __iter__(self) -> Iterator[LogitGaussian]:
        for features in _rows(self.examples):
            with torch.no_grad():
                gaussian = _gaussian(self.classifier, features)
            yield gaussian


def _basis_of_intervals(classifier: Classifier) -> tuple[str, ...]:
    width = classifier.prior_choice.width
    if width is None:
        alone = (
            "Intervals rest on the posterior alone: no held-out labels chose their width when the"
            " classifier was fitted (`val_loader=`, `--validation`)."
        )
        return (alone,)
    described = width.described(classifier.num_classes)
    return described[0].upper() + described[1:] + ".", *width.warnings()


def _rows(examples: Examples) -> Iterator[Any]:
    return (
        examples.features[start : start + _blocks.ROWS_OF_A_REPORT]
        for start in range(0, len(examples), _blocks.ROWS_OF_A_REPORT)
    )


def _gaussian(classifier: Classifier, features: Any) -> LogitGaussian:  # noqa: ANN401
    """The Gaussian whose mean probabilities are predicted; that of intervals may be
    wider.
    """
    wide, narrow = classifier.gaussians(features)
    return wide if narrow is None else narrow


def _gaussians(classifier: Classifier, examples: Examples) -> Iterable[LogitGaussian]:
    blocks = _Blocks(classifier, examples)
    # a backward pass for each class and example is too much for every method to repeat
    return list(blocks) if classifier.network.runs_backward else blocks


def _predicted(method: Method, gaussians: Iterable[LogitGaussian]) -> Predicted:
    with torch.no_grad():
        parts = [method(gaussian) for gaussian in gaussians]
    if isinstance(parts[0], Dirichlet):
        return Dirichlet(torch.cat([part.log_concentration for part in parts]).cpu())  # type: ignore[union-attr]
    return torch.cat(parts).cpu()  # type: ignore[arg-type]


def _answers(classifier: Classifier, examples: Examples) -> Dirichlet:
    """What the classifier itself answers."""
    with torch.no_grad():
        parts = [classifier.predict_features(features).dirichlet for features in _rows(examples)]
    return Dirichlet(torch.cat([part.log_concentration for part in parts]).cpu())


def _reference(
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


def _row(
    method: str,
    prediction: Predicted,
    labels: Int[Tensor, " N"],
    ood_prediction: Predicted | None,
    reference: Float[Tensor, "n K"],
    seconds: float,
    seed: int,
) -> Row:
    probabilities = prediction if isinstance(prediction, Tensor) else prediction.mean
    losses = metrics.proper.surprise(prediction, labels)
    sets = Mass()(probabilities, SET_MASS)
    auroc = None
    if ood_prediction is not None:
        both = scores.msp(prediction), scores.msp(ood_prediction)
        generator = Generator().manual_seed(seed)
        auroc = metrics.bootstrap(
            metrics.auroc, *both, num_resamples=NUM_RESAMPLES, generator=generator, paired=False
        )
    gap = probabilities[: len(reference)].double() - reference.double()
    return Row(
        method=method,
        accuracy=metrics.accuracy(probabilities, labels),
        nll=float(losses.mean()),
        ece=metrics.ece(probabilities, labels),
        brier=metrics.brier(probabilities, labels),
        auroc=auroc,
        set_size=metrics.mean_set_size(sets),
        coverage=metrics.coverage(sets, labels),
        distance=float(gap.abs().sum(-1).mean()) / 2,
        microseconds=1e6 * seconds,
        losses=losses,
    )


def _seconds(method: Method, classifier: Classifier, examples: Examples) -> float:
    """From features to prediction, for one example."""
    features = examples.features[
        : TIMED_BACKWARD if classifier.network.runs_backward else _blocks.ROWS_OF_A_REPORT
    ]
    with torch.no_grad():
        return seconds_per_call(lambda: method(_gaussian(classifier, features))) / len(features)


def _temperature(
    classifier: Classifier, validation: Examples | None
) -> tuple[TemperatureScaling | None, str]:
    """Temperature scaling, or why there is none."""
    if validation is None or validation.labels is None:
        return None, "none: no validation data"
    logits = torch.cat(
        [_own_logits(classifier, gaussian) for gaussian in _Blocks(classifier, validation)]
    )
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
            warnings.filterwarnings(
                "ignore", message="The best prior precision"
            )  # it is shown here, not used
            choice = prior.by_validation(
                classifier.posterior.widened(AS_FITTED),
                classifier.bridge,
                validation.features,
                validation.labels,
            )
    if not choice.candidates:
        return None
    meaning = (
        choice.method.removeprefix("smallest ")
        if "evidence" not in choice.method
        else "negative log evidence"
    )
    return PriorCurve(
        choice.candidates, choice.scores, float(classifier.posterior.prior_precision), meaning
    )


def _specimens(
    prediction: Dirichlet, test: Examples, ood_prediction: Dirichlet | None, ood: Examples | None
) -> tuple[Specimen, ...]:
    """Inputs worth looking at: a sure one, one between two classes, one that the model
    knows least of (Figure 6).
    """
    top = prediction.mean.topk(2).values
    sure = int(prediction.log_total.add(top[:, 0].log()).argmax())
    between = int(top[:, 1].argmax())
    chosen = [
        _specimen("sure", prediction, test, sure),
        _specimen("between two classes", prediction, test, between),
    ]
    if ood_prediction is None or ood is None:
        title, source, examples = "most epistemic uncertainty", prediction, test
    else:
        title, source, examples = "out-of-distribution", ood_prediction, ood
    return (*chosen, _specimen(title, source, examples, int(source.mutual_information().argmax())))


def _specimen(title: str, prediction: Dirichlet, examples: Examples, row: int) -> Specimen:
    label = None if examples.labels is None else int(examples.labels[row])
    return Specimen(
        title, prediction[row], label, None if examples.images is None else examples.images[row]
    )
