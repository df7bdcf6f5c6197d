"""Evaluates a fitted classifier on test data, in one run: methods, decisions, intervals,
unusual inputs, and what to make of them.
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from laplacebridge import scores
from laplacebridge._checks import labels_of
from laplacebridge._provenance import versions
from laplacebridge.classifier import Classifier
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.errors import InputError, ShapeError
from laplacebridge.laplace import prior
from laplacebridge.laplace.array_batches import tensors_for
from laplacebridge.laplace.batch_checks import require_loader
from laplacebridge.laplace.examples import Examples, examples_of
from laplacebridge.laplace.posterior import AS_FITTED
from laplacebridge.metrics import Interval
from laplacebridge.prediction import Prediction, Unusual
from laplacebridge.report import _advice, _decisions, _evidence, _headline, _identity, _trust
from laplacebridge.report import _methods as methods
from laplacebridge.report._halves import Halves, share
from laplacebridge.report.evaluation import Evaluation, PriorCurve
from laplacebridge.report.table import REFERENCE_SAMPLES, Row

# Costs that stand in for those that nobody stated.
EXAMPLE_COSTS = (10.0, 1.0)
OOD = "unusual inputs"


def evaluate(
    classifier: Classifier,
    test: Iterable[Any],
    *,
    ood: Iterable[Any] | Mapping[str, Iterable[Any]] | None = None,
    validation: Iterable[Any] | None = None,
    risk: float = 0.05,
    coverage: float | None = None,
    alarm_rate: float = 0.05,
    cost_wrong: float | None = None,
    cost_defer: float | None = None,
    class_names: Sequence[str] | None = None,
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
) -> Evaluation:
    """Judges a classifier on labelled data, compares every method, and says what to use.

    Loaders yield batches as for `fit`: (inputs, labels), mappings, or inputs alone. The
    network is run over each of them once; a classifier that covers several layers runs
    it again, backward, for its Gaussians over logits.

    Whatever needs a threshold is chosen on one half of the test data and judged on the
    other, both ways round: what is promised and what is found are never of the same
    examples.

    Args:
        classifier: The fitted classifier.
        test: A loader of labelled examples that nothing was fitted or chosen on.
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
        >>> evaluation.rows[0].method, evaluation.rows[0].accuracy, evaluation.rows[0].auroc.estimate
        ('MAP', 1.0, 1.0)
    """
    kinds: dict[str, Iterable[Any]] = (
        {} if ood is None else dict(ood) if isinstance(ood, Mapping) else {OOD: ood}
    )
    _require_loaders(test, kinds, validation)
    _require_rates(risk=risk, alarm_rate=alarm_rate)
    names = _class_names(class_names, classifier.num_classes)

    def run(loader: Iterable[Any], bar: str, purpose: str, **choices: bool) -> Examples:
        return examples_of(
            classifier.network, loader, purpose=purpose, progress=bar if progress else "", **choices
        )

    network = classifier.network.model
    test, validation = tensors_for(network, test), tensors_for(network, validation)
    kinds = {kind: tensors_for(network, loader) for kind, loader in kinds.items()}
    hashed = _identity.Hashed(test)
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
    prediction = _answers(classifier, examples)
    ood_predictions = {kind: _answers(classifier, each) for kind, each in strange.items()}
    probabilities = prediction.mean
    right = probabilities.argmax(-1) == labels
    asked = halves.coverage_for(float(right.double().mean())) if coverage is None else coverage
    scaling, temperature = methods.temperature_of(classifier, held_out)
    rows, logits, ood_logits, notes = _rows(
        classifier, examples, labels, strange, scaling, halves, asked, seed, progress
    )
    found_sets = halves.sets(probabilities, labels, asked)
    alarms = _trust.alarms(prediction, ood_predictions)
    alarm = next((each for each in alarms if each.stated >= alarm_rate), None)
    unusual = None if alarm is None else prediction.ood_quantile > 1 - alarm.stated
    decisions = _decisions.decide(
        probabilities, labels, halves, found_sets, risk=risk, unusual=unusual
    )
    noticed = _noticed(alarm, ood_predictions)
    score_rows = (
        _trust.detection_scores(
            prediction,
            logits,
            {kind: (each, ood_logits[kind]) for kind, each in ood_predictions.items()},
            seed=seed,
        )
        if ood_predictions
        else ()
    )
    votes = None if examples.votes is None else examples.votes.cpu()
    checked = _trust.check_intervals(prediction, labels, votes)
    action = None if decisions.chosen is None else decisions.chosen.action
    shown = _evidence.Shown(
        prediction, examples, example_names or (), texts or (), feature_names or ()
    )
    own = methods.own_method(classifier)
    return Evaluation(
        title=title,
        headline=_headline.headline(decisions, alarm, noticed, has_ood=bool(kinds)),
        figures=_headline.figures(decisions, found_sets, checked, alarm, noticed),
        advice=_advice.advise(rows, score_rows, own=own, options=options, seed=seed),
        rows=tuple(rows),
        own=own,
        prediction=prediction,
        labels=labels,
        decisions=decisions,
        cost=_decisions.cheapest(
            scores.msp(prediction).double(),
            right,
            halves,
            cost_wrong=EXAMPLE_COSTS[0] if cost_wrong is None else cost_wrong,
            cost_defer=EXAMPLE_COSTS[1] if cost_defer is None else cost_defer,
            is_example=cost_wrong is None and cost_defer is None,
        ),
        sets=found_sets,
        intervals=checked,
        uncertainty=_trust.parts_of_uncertainty(prediction, right, ood_predictions),
        scores=score_rows,
        alarms=alarms,
        alarm=alarm,
        ood=ood_predictions,
        class_names=names,
        classes=_evidence.by_class(probabilities.argmax(-1), labels, found_sets, action, names),
        groups=(
            ()
            if groups is None
            else _evidence.by_group(groups, probabilities, labels, found_sets, action)
        ),
        specimens=_evidence.gallery(
            shown,
            right,
            {
                kind: _evidence.Shown(ood_predictions[kind], strange[kind])
                for kind in ood_predictions
            },
            seed=seed,
        ),
        prior=_prior_curve(classifier, held_out),
        prior_method=classifier.prior_choice.method,
        basis=_basis_of_intervals(classifier),
        card=dict(card or {}),
        identity={
            "date": _identity.today(),
            **(identity or {}),
            "classifier": repr(classifier),
            **_training_accuracy(classifier),
            "sha256 of the test examples": hashed.sha256,
            **_identity.of_classifier(classifier),
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


def _rows(
    classifier: Classifier,
    examples: Examples,
    labels: Tensor,
    strange: Mapping[str, Examples],
    scaling: Any,  # noqa: ANN401 - temperature scaling, or None
    halves: Halves,
    coverage: float,
    seed: int,
    progress: bool,
) -> tuple[list[Row], Tensor, dict[str, Tensor], dict[str, str]]:
    """The table, the network's own logits, and what was left out."""
    gaussians = methods.gaussians_of(classifier, examples)
    ood = {kind: methods.gaussians_of(classifier, each) for kind, each in strange.items()}
    reference = methods.reference_of(gaussians, classifier.num_classes, seed)
    compared = methods.compared_methods(classifier, scaling, num_examples=len(examples), seed=seed)
    rows = [
        methods.row_of(
            name,
            method,
            gaussians,
            labels,
            [part for each in ood.values() for part in each] if ood else None,
            reference=reference,
            halves=halves,
            coverage=coverage,
            seconds=methods.seconds_of(method, classifier, examples),
            seed=seed,
        )
        for name, method in tqdm(
            compared.items(), desc="evaluating", unit="method", disable=not progress
        )
    ]
    return (
        rows,
        methods.network_logits(classifier, gaussians),
        {kind: methods.network_logits(classifier, each) for kind, each in ood.items()},
        methods.settings_of(compared),
    )


def _answers(classifier: Classifier, examples: Examples) -> Prediction:
    """What the classifier itself answers."""
    with torch.no_grad():
        parts = [classifier.predict_features(block) for block in methods.rows_of(examples)]
    unusual = None
    if parts[0].unusual is not None:
        scored = torch.cat([part.ood_score for part in parts])
        unusual = Unusual(scored, parts[0].unusual.reference).to("cpu")
    return Prediction(
        Dirichlet(torch.cat([part.dirichlet.log_concentration for part in parts]).cpu()),
        torch.cat([part.log_odds_variance for part in parts]).cpu(),
        unusual,
    )


def _noticed(alarm: _trust.Alarm | None, ood: Mapping[str, Prediction]) -> Interval | None:
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


def _require_rates(**rates: float) -> None:
    for name, rate in rates.items():
        if not 0 < rate < 1:
            raise InputError(f"`evaluate({name})` needs a share between 0 and 1; got {rate}.")


def _class_names(given: Sequence[str] | None, num_classes: int) -> tuple[str, ...]:
    names = tuple(given) if given else tuple(str(index) for index in range(num_classes))
    if len(names) != num_classes:
        raise ShapeError(
            f"A report needs a name for each of {num_classes} classes; got {len(names)}."
        )
    return names


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


def _training_accuracy(classifier: Classifier) -> dict[str, str]:
    if classifier.labels is None:
        return {}
    return {"training accuracy": f"{classifier.labels.accuracy:.1%}"}


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
