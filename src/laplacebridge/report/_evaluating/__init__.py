"""Evaluates a classifier on test data: which report it gets, and what that cannot take."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, overload

import numpy as np

from laplacebridge.classifier import Classifier
from laplacebridge.errors import InputError
from laplacebridge.laplace.batch_checks import require_loader
from laplacebridge.multi_label import MultiLabelClassifier
from laplacebridge.report._evaluating.classes import evaluate_classes
from laplacebridge.report._evaluating.labels import evaluate_labels
from laplacebridge.report._evaluating.probabilities import CANNOT_HAVE, evaluate_probabilities
from laplacebridge.report._findings.decisions import Costs
from laplacebridge.report.evaluation import Evaluation
from laplacebridge.report.label_evaluation import LabelEvaluation

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
    """Judges a classifier on labelled data, compares every method, and says what to
    use.

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
        ood: A loader of out-of-distribution inputs, which belong to no class, or
            several by name; labels in them are ignored.
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
        InputError: If labels are missing that are needed, a label is no class, or a
            risk, a rate or a cost makes no sense.
        ShapeError: If names or groups do not fit, or there are no two test examples.

    Example:
        >>> import torch
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
    costs = Costs.stated(cost_wrong, cost_defer)
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
    return evaluate_classes(
        classifier,
        test,
        ood=kinds,
        validation=validation,
        risk=risk,
        coverage=coverage,
        alarm_rate=alarm_rate,
        costs=costs,
        class_names=class_names,
        groups=groups,
        texts=texts,
        feature_names=feature_names,
        example_names=example_names,
        title=title,
        card=card,
        identity=identity,
        options=options,
        seed=seed,
        progress=progress,
    )


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
