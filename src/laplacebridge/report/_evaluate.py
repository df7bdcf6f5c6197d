"""Evaluates a fitted classifier on test data, in one run: methods, decisions, intervals,
unusual inputs, and what to make of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, overload

import numpy as np
import torch

from laplacebridge import scores
from laplacebridge._checks import labels_of
from laplacebridge._provenance import versions
from laplacebridge.classifier import Classifier
from laplacebridge.errors import InputError
from laplacebridge.laplace.array_batches import tensors_for
from laplacebridge.laplace.batch_checks import require_loader
from laplacebridge.laplace.examples import Examples, examples_of
from laplacebridge.metrics import Interval
from laplacebridge.multi_label import MultiLabelClassifier
from laplacebridge.prediction import Prediction
from laplacebridge.report._findings import (
    advice,
    classes,
    fitted,
    gallery,
    headline,
    intervals,
    methods,
)
from laplacebridge.report._findings import decisions as deciding
from laplacebridge.report._findings import identity as identified
from laplacebridge.report._findings import unusual as strangeness
from laplacebridge.report._findings.halves import Halves, share
from laplacebridge.report._labels import LabelEvaluation, evaluate_labels
from laplacebridge.report._plain import CANNOT_HAVE, class_names_of, evaluate_probabilities
from laplacebridge.report.evaluation import Evaluation
from laplacebridge.report.table import REFERENCE_SAMPLES

# Costs that stand in for those that nobody stated.
EXAMPLE_COSTS = (10.0, 1.0)
USUAL_RISK = 0.05
OOD = "unusual inputs"


@overload
def evaluate(
    classifier: MultiLabelClassifier,
    test: Iterable[Any],
    **choices: Any,  # noqa: ANN401
) -> LabelEvaluation: ...


@overload
def evaluate(
    classifier: Any,  # noqa: ANN401
    test: Iterable[Any],
    **choices: Any,  # noqa: ANN401
) -> Evaluation: ...


def evaluate(  # type: ignore[misc]  # it names the choices, each with its type
    classifier: Classifier | Any,
    test: Iterable[Any],
    *,
    ood: Iterable[Any] | Mapping[str, Iterable[Any]] | None = None,
    validation: Iterable[Any] | None = None,
    risk: float = USUAL_RISK,
    coverage: float | None = None,
    alarm_rate: float = 0.05,
    cost_wrong: float | None = None,
    cost_defer: float | None = None,
    class_names: Sequence[str] | np.ndarray | None = None,
    groups: Sequence[str] | None = None,
    texts: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    example_names: Sequence[str] | None = None,
    title: str = "A classifier and its uncertainty",
    card: Mapping[str, str] | None = None,
    identity: Mapping[str, str] | None = None,
    options: str = "--model MODULE:FACTORY --weights WEIGHTS",
    seed: int = 0,
    progress: bool = True,
) -> Evaluation | LabelEvaluation:
    """Judges a classifier on labelled data, compares every method, and says what to use.

    Loaders yield batches as for `fit`: (inputs, labels), mappings, or inputs alone. The
    network is run over each of them once; a classifier that covers several layers runs
    it again, backward, for its Gaussians over logits.

    Whatever needs a threshold is chosen on one half of the test data and judged on the
    other, both ways round: what is promised and what is found are never of the same
    examples.

    Of any other classifier, such as a forest, its probabilities can be judged, and what
    can be decided by them: ``evaluate(forest.predict_proba(X), y)``. Intervals, methods
    and unusual inputs are then left out, and the page says so.

    Of several labels at once each is judged by itself, and the answer is a
    `LabelEvaluation`; risk and costs are of one class out of K.

    Args:
        classifier: The fitted classifier; or probabilities, an array of shape (N, K).
        test: A loader of labelled examples that nothing was fitted or chosen on; for
            probabilities, a label for each row.
        ood: A loader of out-of-distribution inputs, which belong to no class, or several
            by name; labels in them are ignored.
        validation: A loader of labelled examples for temperature scaling and the curve
            of the prior precision.
        risk: The share of wrong answers that is allowed.
        coverage: How often sets are to hold the label; by default 0.9, or 0.95 or 0.99
            where single answers are right more often than that.
        alarm_rate: The share of ordinary inputs that may be taken for unusual, and then
            goes to a person.
        cost_wrong: What a wrong answer costs, in any unit.
        cost_defer: What it costs to defer, in the same unit.
        class_names: One for each class.
        groups: A group for each test example, to be told apart.
        texts: Each test example in words, to be shown.
        feature_names: Of the columns, where inputs are rows of a table.
        example_names: What each test example is called.
        title: Report title.
        card: Intended use, limits and whatever else the owner states, by name.
        identity: What else identifies data and model, by name.
        options: How the model is named on the command line, for the recommendation.
        seed: Seed for halves, sampling and bootstrap.
        progress: Show progress bars.

    Raises:
        InputError: If labels are missing that are needed, a label is no class, or a risk,
            a rate or a cost makes no sense.
        ShapeError: If names or groups do not fit, or there are no two test examples.

    Example:
        >>> from laplacebridge import fit
        >>> data = [(torch.eye(3).repeat(10, 1), torch.arange(30) % 3)]
        >>> head = torch.nn.Linear(3, 3)
        >>> _ = head.weight.data.copy_(4 * torch.eye(3)), head.bias.data.zero_()
        >>> classifier = fit(head, data, prior_precision=1.0, progress=False)
        >>> evaluation = evaluate(classifier, data, ood=[torch.zeros(5, 3)], progress=False)
        >>> (
        ...     evaluation.rows[0].method,
        ...     evaluation.rows[0].accuracy,
        ...     evaluation.rows[0].auroc.estimate,
        ... )
        ('MAP', 1.0, 1.0)
    """
    costs = (
        EXAMPLE_COSTS[0] if cost_wrong is None else cost_wrong,
        EXAMPLE_COSTS[1] if cost_defer is None else cost_defer,
    )
    is_example = cost_wrong is None and cost_defer is None
    if not isinstance(classifier, Classifier):
        _require_rates(risk=risk)
        _refuse(
            f"a fitted classifier; got probabilities. {CANNOT_HAVE}",
            ood=ood,
            validation=validation,
            texts=texts,
            feature_names=feature_names,
            example_names=example_names,
        )
        return evaluate_probabilities(
            classifier,
            test,
            risk=risk,
            coverage=coverage,
            costs=costs,
            is_example=is_example,
            class_names=class_names,
            groups=groups,
            title=title,
            card=card,
            identity=identity,
            seed=seed,
        )
    kinds: dict[str, Iterable[Any]] = (
        {} if ood is None else dict(ood) if isinstance(ood, Mapping) else {OOD: ood}
    )
    _require_loaders(test, kinds, validation)
    _require_rates(risk=risk, alarm_rate=alarm_rate)
    if isinstance(classifier, MultiLabelClassifier):
        _refuse(
            "one class out of K; this classifier has several labels at once, each of which is"
            " judged by itself. Leave it out.",
            validation=validation,
            risk=None if risk == USUAL_RISK else risk,
            cost_wrong=cost_wrong,
            cost_defer=cost_defer,
            groups=groups,
            texts=texts,
            feature_names=feature_names,
            example_names=example_names,
        )
        return evaluate_labels(
            classifier,
            test,
            ood=kinds,
            coverage=coverage,
            alarm_rate=alarm_rate,
            class_names=class_names,
            title=title,
            card=card,
            identity=identity,
            seed=seed,
            progress=progress,
        )
    names = class_names_of(class_names, classifier.num_classes)

    def run(loader: Iterable[Any], bar: str, purpose: str, **choices: bool) -> Examples:
        return examples_of(
            classifier.network, loader, purpose=purpose, progress=bar if progress else "", **choices
        )

    network = classifier.network.model
    test, validation = tensors_for(network, test), tensors_for(network, validation)
    kinds = {kind: tensors_for(network, loader) for kind, loader in kinds.items()}
    hashed = identified.Hashed(test)
    examples = run(hashed, "testing", "A report", needs_labels=True, keep_inputs=True)
    strange = {
        kind: run(loader, kind, "OOD detection", ignore_labels=True, keep_inputs=True)
        for kind, loader in kinds.items()
    }
    held_out = (
        None
        if validation is None
        else run(validation, "validating", "Validation", needs_labels=True)
    )
    assert examples.labels is not None  # noqa: S101  (they were needed)
    labels = labels_of(
        "evaluate(test)", examples.labels, len(examples), classifier.num_classes
    ).cpu()
    halves = Halves.of(len(labels), seed)
    prediction = methods.answers_of(classifier, examples)
    ood_predictions = {kind: methods.answers_of(classifier, each) for kind, each in strange.items()}
    probabilities = prediction.mean
    right = probabilities.argmax(-1) == labels
    asked = halves.coverage_for(float(right.double().mean())) if coverage is None else coverage
    scaling, temperature = methods.temperature_of(classifier, held_out)
    rows, logits, ood_logits, notes = methods.table_of(
        classifier, examples, labels, strange, scaling, halves, asked, seed, progress
    )
    found_sets = halves.sets(probabilities, labels, asked)
    alarms = strangeness.alarms(prediction, ood_predictions)
    alarm = next((each for each in alarms if each.stated >= alarm_rate), None)
    unusual = None if alarm is None else prediction.ood_quantile > 1 - alarm.stated
    decisions = deciding.decide(
        probabilities, labels, halves, found_sets, risk=risk, unusual=unusual
    )
    noticed = _noticed(alarm, ood_predictions)
    score_rows = (
        strangeness.detection_scores(
            prediction,
            logits,
            {kind: (each, ood_logits[kind]) for kind, each in ood_predictions.items()},
            seed=seed,
        )
        if ood_predictions
        else ()
    )
    votes = None if examples.votes is None else examples.votes.cpu()
    checked = intervals.check_intervals(prediction, labels, votes)
    action = None if decisions.chosen is None else decisions.chosen.action
    shown = gallery.Shown(
        prediction, examples, example_names or (), texts or (), feature_names or ()
    )
    own = methods.own_method(classifier)
    return Evaluation(
        title=title,
        headline=headline.headline(decisions, alarm, noticed, has_ood=bool(kinds)),
        figures=headline.figures(decisions, found_sets, checked, alarm, noticed),
        advice=advice.advise(rows, score_rows, own=own, options=options, seed=seed),
        rows=tuple(rows),
        own=own,
        prediction=prediction,
        labels=labels,
        decisions=decisions,
        cost=deciding.cheapest(
            scores.msp(prediction).double(),
            right,
            halves,
            cost_wrong=costs[0],
            cost_defer=costs[1],
            is_example=is_example,
        ),
        sets=found_sets,
        intervals=checked,
        uncertainty=intervals.parts_of_uncertainty(prediction, right, ood_predictions),
        scores=score_rows,
        alarms=alarms,
        alarm=alarm,
        ood=ood_predictions,
        class_names=names,
        classes=classes.by_class(probabilities.argmax(-1), labels, found_sets, action, names),
        groups=(
            ()
            if groups is None
            else classes.by_group(groups, probabilities, labels, found_sets, action)
        ),
        specimens=gallery.gallery(
            shown,
            right,
            {kind: gallery.Shown(ood_predictions[kind], strange[kind]) for kind in ood_predictions},
            seed=seed,
        ),
        prior=fitted.prior_curve(classifier, held_out),
        prior_method=classifier.prior_choice.method,
        basis=fitted.basis_of_intervals(classifier),
        card=dict(card or {}),
        identity={
            "date": identified.today(),
            **(identity or {}),
            "classifier": repr(classifier),
            **fitted.training_accuracy(classifier),
            "sha256 of the test examples": hashed.sha256,
            **identified.of_classifier(classifier),
            "test examples": str(len(labels)),
            **{f"inputs of “{kind}”": str(len(each)) for kind, each in strange.items()},
            "temperature scaling": temperature,
            "distance": f"to {REFERENCE_SAMPLES} samples",
            **notes,
            "seed": str(seed),
            **versions(),
            "threads": str(torch.get_num_threads()),
        },
    )


def _noticed(alarm: strangeness.Alarm | None, ood: Mapping[str, Prediction]) -> Interval | None:
    """Share of all unusual inputs that set off the alarm."""
    if alarm is None or not ood:
        return None
    count = sum(int((each.ood_quantile > 1 - alarm.stated).sum()) for each in ood.values())
    return share(count, sum(map(len, ood.values())))


def _require_loaders(
    test: Iterable[Any], ood: Mapping[str, Iterable[Any]], validation: Iterable[Any] | None
) -> None:
    for name, loader in (
        ("test", test),
        *(("ood", each) for each in ood.values()),
        ("validation", validation),
    ):
        if loader is not None:
            require_loader(name, loader, call="evaluate")


def _refuse(needed: str, **given: object) -> None:
    """Refuses what has no meaning for what is judged.

    Raises:
        InputError: If it was asked for.
    """
    for name, value in given.items():
        if value is not None:
            raise InputError(f"`evaluate({name}=...)` needs {needed}")


def _require_rates(**rates: float) -> None:
    for name, rate in rates.items():
        if not 0 < rate < 1:
            raise InputError(f"`evaluate({name})` needs a share between 0 and 1; got {rate}.")
