"""A report on a classifier of one class out of K, in one run: methods, decisions,
intervals, unusual inputs, and what to make of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from laplacebridge._checks import labels_of
from laplacebridge._provenance import versions
from laplacebridge.classifier import Classifier
from laplacebridge.laplace.array_batches import tensors_for
from laplacebridge.laplace.examples import Examples, examples_of
from laplacebridge.metrics import Interval
from laplacebridge.prediction import Prediction
from laplacebridge.report._evaluating.probabilities import class_names_of
from laplacebridge.report._findings import (
    advice,
    fitted,
    gallery,
    headline,
    intervals,
    methods,
    rows,
)
from laplacebridge.report._findings import identity as identified
from laplacebridge.report._findings import unusual as detection
from laplacebridge.report._findings.decisions import Costs
from laplacebridge.report._findings.halves import share
from laplacebridge.report._findings.labelled import Labelled
from laplacebridge.report.evaluation import Evaluation
from laplacebridge.report.table import REFERENCE_SAMPLES


def evaluate_classes(
    classifier: Classifier,
    test: Iterable[Any],
    *,
    ood: Mapping[str, Iterable[Any]],
    validation: Iterable[Any] | None,
    risk: float,
    coverage: float | None,
    alarm_rate: float,
    costs: Costs,
    class_names: Sequence[str] | np.ndarray | None,
    groups: Sequence[str] | None,
    texts: Sequence[str] | None,
    feature_names: Sequence[str] | None,
    example_names: Sequence[str] | None,
    title: str,
    card: Mapping[str, str] | None,
    identity: Mapping[str, str] | None,
    options: str,
    seed: int,
    progress: bool,
) -> Evaluation:
    """Judges a fitted classifier of one class out of K.

    Args:
        classifier: The classifier.
        test: A loader of labelled examples.
        ood: Loaders of unusual inputs, by name.
        validation: As for `evaluate`, like what follows.
        risk: The same.
        coverage: The same.
        alarm_rate: The same.
        costs: Of a wrong answer and of deferring.
        class_names: One for each class.
        groups: A group for each test example.
        texts: Each test example in words.
        feature_names: Of the columns.
        example_names: What each test example is called.
        title: Report title.
        card: What the owner states.
        identity: What else identifies data and model.
        options: How the model is named on the command line.
        seed: Seed for halves, sampling and bootstrap.
        progress: Show progress bars.
    """
    names = class_names_of(class_names, classifier.num_classes)

    def run(loader: Iterable[Any], bar: str, purpose: str, **choices: bool) -> Examples:
        return examples_of(
            classifier.network, loader, purpose=purpose, progress=bar if progress else "", **choices
        )

    network = classifier.network.model
    test, validation = tensors_for(network, test), tensors_for(network, validation)
    kinds = {kind: tensors_for(network, loader) for kind, loader in ood.items()}
    hashed = identified.Hashed(test)
    examples = run(hashed, "testing", "A report", needs_labels=True, keep_inputs=True)
    ood_examples = {
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
    prediction = methods.answers_of(classifier, examples)
    ood_predictions = {
        kind: methods.answers_of(classifier, each) for kind, each in ood_examples.items()
    }
    alarms = detection.alarms(prediction, ood_predictions)
    alarm = next((each for each in alarms if each.stated >= alarm_rate), None)
    unusual = None if alarm is None else prediction.ood_quantile > 1 - alarm.stated
    known = Labelled.of(
        prediction.mean,
        labels,
        risk=risk,
        coverage=coverage,
        costs=costs,
        unusual=unusual,
        class_names=names,
        groups=groups,
        seed=seed,
    )
    scaling, temperature = methods.temperature_of(classifier, held_out)
    table, logits, ood_logits, notes = rows.table_of(
        classifier,
        examples,
        labels,
        ood_examples,
        scaling,
        known.halves,
        known.sets.coverage,
        seed,
        progress,
    )
    noticed = _noticed(alarm, ood_predictions)
    score_rows = (
        detection.detection_scores(
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
    shown = gallery.Shown(
        prediction, examples, example_names or (), texts or (), feature_names or ()
    )
    own = methods.own_method(classifier)
    return Evaluation(
        title=title,
        headline=headline.headline(known.decisions, alarm, noticed, has_ood=bool(kinds)),
        figures=headline.figures(known.decisions, known.sets, checked, alarm, noticed),
        advice=advice.advise(table, score_rows, own=own, options=options, seed=seed),
        rows=tuple(table),
        own=own,
        prediction=prediction,
        labels=labels,
        decisions=known.decisions,
        cost=known.cost,
        sets=known.sets,
        intervals=checked,
        uncertainty=intervals.parts_of_uncertainty(prediction, known.right, ood_predictions),
        scores=score_rows,
        alarms=alarms,
        alarm=alarm,
        ood=ood_predictions,
        class_names=names,
        classes=known.classes,
        groups=known.groups,
        specimens=gallery.gallery(
            shown,
            known.right,
            {
                kind: gallery.Shown(ood_predictions[kind], ood_examples[kind])
                for kind in ood_predictions
            },
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
            **{f"inputs of “{kind}”": str(len(each)) for kind, each in ood_examples.items()},
            "temperature scaling": temperature,
            "distance": f"to {REFERENCE_SAMPLES} samples",
            **notes,
            "seed": str(seed),
            **versions(),
            "threads": str(torch.get_num_threads()),
        },
    )


def _noticed(alarm: detection.Alarm | None, ood: Mapping[str, Prediction]) -> Interval | None:
    """Share of all unusual inputs that set off the alarm."""
    if alarm is None or not ood:
        return None
    count = sum(int((each.ood_quantile > 1 - alarm.stated).sum()) for each in ood.values())
    return share(count, sum(map(len, ood.values())))
