"""A report from probabilities alone, of any classifier: what can be said without a
network, and what cannot.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from laplacebridge import metrics, scores
from laplacebridge._arrays import to_arrays, to_tensors
from laplacebridge._checks import labels_of
from laplacebridge._predictions import probabilities_of
from laplacebridge._provenance import versions
from laplacebridge.errors import InputError, ShapeError
from laplacebridge.report._findings import headline
from laplacebridge.report._findings import identity as identified
from laplacebridge.report._findings.advice import Advice
from laplacebridge.report._findings.decisions import Costs
from laplacebridge.report._findings.labelled import Labelled
from laplacebridge.report._findings.rows import row_of_probabilities
from laplacebridge.report.evaluation import Evaluation
from laplacebridge.report.table import GIVEN, percent

CALL = "evaluate(probabilities)"
CANNOT_HAVE = (
    "Probabilities alone have no intervals and no epistemic part, and unusual inputs cannot be"
    " noticed by their features: these need a classifier with a last linear layer"
    " (`lb.fit(network, loader)`, or `laplacebridge.sklearn.LaplaceBridgeClassifier` around a"
    " linear model or a neural network)."
)
_CODE = """\
sets = lb.sets.calibrate(lb.sets.LeastAmbiguous(), probabilities, labels, coverage={coverage:g})
rule = lb.selective.calibrate(lb.scores.msp, probabilities, labels, risk={risk:g})
rule(new_probabilities, sets=sets(new_probabilities))"""


def evaluate_probabilities(
    probabilities: Any,  # noqa: ANN401
    labels: Any,  # noqa: ANN401
    *,
    risk: float,
    coverage: float | None,
    costs: Costs,
    class_names: Sequence[str] | np.ndarray | None,
    groups: Sequence[str] | None,
    title: str,
    card: Mapping[str, str] | None,
    identity: Mapping[str, str] | None,
    seed: int,
) -> Evaluation:
    """Judges probabilities that some classifier gave for labelled examples.

    Args:
        probabilities: An array or tensor of shape (N, K).
        labels: A class for each, by number; or by name, one of `class_names`.
        risk: As for `evaluate`, like what follows.
        coverage: The same.
        costs: Of a wrong answer and of deferring.
        class_names: One for each class.
        groups: A group for each example.
        title: Report title.
        card: What the owner states.
        identity: What else identifies data and model.
        seed: Of the halves.
    """
    given = probabilities_of(CALL, to_tensors(probabilities)).double().cpu()
    num_classes = given.shape[1]
    names = class_names_of(class_names, num_classes)
    classes_of = labels_of(
        "evaluate(labels)", _numbered(labels, names), len(given), num_classes
    ).cpu()
    known = Labelled.of(
        given,
        classes_of,
        risk=risk,
        coverage=coverage,
        costs=costs,
        unusual=None,
        class_names=names,
        groups=groups,
        seed=seed,
    )
    found = Evaluation(
        title=title,
        headline=headline.headline(known.decisions, None, None, has_ood=False, has_features=False),
        figures=headline.figures(known.decisions, known.sets, None, None, None),
        advice=_advice(given, classes_of, known.sets.coverage, risk),
        rows=(
            row_of_probabilities(
                GIVEN,
                given,
                classes_of,
                scores.msp(given).double(),
                known.sets,
                nll=metrics.nll(given, classes_of),
            ),
        ),
        own=GIVEN,
        prediction=given,
        labels=classes_of,
        decisions=known.decisions,
        cost=known.cost,
        sets=known.sets,
        intervals=None,
        uncertainty={},
        scores=(),
        alarms=(),
        alarm=None,
        ood={},
        class_names=names,
        classes=known.classes,
        groups=known.groups,
        specimens=(),
        prior=None,
        prior_method="",
        basis=(),
        card=dict(card or {}),
        identity={
            "date": identified.today(),
            **(identity or {}),
            "judged": "probabilities, as they were given",
            "sha256 of probabilities and labels": identified.sha256_of_tensors(
                {"probabilities": given, "labels": classes_of}
            ),
            "test examples": str(len(classes_of)),
            "seed": str(seed),
            **versions(),
        },
    )
    return found if isinstance(probabilities, Tensor) else to_arrays(found)


def class_names_of(given: Sequence[str] | np.ndarray | None, num_classes: int) -> tuple[str, ...]:
    """A name for each class; its number where none are given.

    Args:
        given: Names, in the order of the classes.
        num_classes: K.

    Raises:
        ShapeError: If there are more or fewer than classes.
    """
    if given is None or len(given) == 0:
        return tuple(str(index) for index in range(num_classes))
    if len(given) != num_classes:
        raise ShapeError(
            f"A report needs a name for each of {num_classes} classes; got {len(given)}."
        )
    return tuple(map(str, given))


def _numbered(labels: Any, class_names: Sequence[str]) -> Any:  # noqa: ANN401
    """Labels by number; names are looked up.

    Raises:
        InputError: If one is no name of a class.
    """
    if isinstance(labels, Tensor):
        return labels
    known = np.asarray(labels)
    numbered = [str(number) for number in range(len(class_names))]
    is_number = known.dtype.kind in "biuf"
    if is_number and not set(class_names) & {str(label) for label in np.unique(known).tolist()}:
        return torch.from_numpy(np.ascontiguousarray(known))  # names are words
    if is_number and list(class_names) == numbered:
        return torch.from_numpy(np.ascontiguousarray(known))
    places = {name: place for place, name in enumerate(class_names)}
    known = known.astype(str)
    unknown = [name for name in known.tolist() if name not in places]
    if unknown:
        raise InputError(
            f"`evaluate(labels)` needs a class for each row, by number or by one of `class_names`;"
            f" got {unknown[0]!r}. Give `class_names=` in the order of the columns, such as"
            " `estimator.classes_`."
        )
    return torch.tensor([places[name] for name in known.tolist()])


def _advice(
    probabilities: Float[Tensor, "N K"], labels: Int[Tensor, " N"], coverage: float, risk: float
) -> Advice:
    """How to use them, and what they cannot have."""
    impossible = int((probabilities.gather(-1, labels.unsqueeze(-1)) == 0).sum())
    sentences = ["Sets, rules and costs rest on these probabilities as they are."]
    if impossible:
        sentences.append(
            f"{impossible} of {len(labels)} labels"
            f" ({percent(impossible / len(labels))}) have a probability of exactly zero, so that"
            " the negative log-likelihood is infinite: such a zero says more than its classifier"
            " can know (for a forest, that no tree has seen it; more trees, or calibration,"
            " help)."
        )
    return Advice(
        method=GIVEN,
        score=None,
        sentences=tuple(sentences),
        code=_CODE.format(coverage=coverage, risk=risk),
        command="",
        beside=CANNOT_HAVE,
    )
