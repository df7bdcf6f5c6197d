"""Reports on classifiers of scikit-learn, in the words of their users."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from laplacebridge.errors import InputError
from laplacebridge.report import Evaluation, evaluate
from laplacebridge.sklearn.fitting import Trained, known_codes
from laplacebridge.sklearn.heads import LinearHead

OWN = """model = LaplaceBridgeClassifier(estimator).fit(X, y)
probabilities = model.predict_proba(X_new)
lower, upper = model.predict_interval(X_new)"""
UNUSUAL = "usual = model.score_samples(X_new)  # low for unusual rows"
NETWORK = "probabilities = model.estimator_.predict_proba(X_new)"


def evaluated(
    trained: Trained, classes: npt.NDArray[Any], inputs: Any, labels: Any, choices: dict[str, Any]
) -> Evaluation:
    """Judges a classifier on examples that it has not seen.

    Args:
        trained: The classifier.
        classes: Its classes, in order.
        inputs: Inputs.
        labels: Their classes.
        choices: As `laplacebridge.report.evaluate` takes them, with inputs in the place
            of loaders.

    Raises:
        InputError: If `validation` is no pair, or a class is not known.
    """
    codes = torch.from_numpy(known_codes(classes, labels))
    choices = {"class_names": [str(name) for name in classes], **choices}
    head = trained.head
    if trained.classifier is None or head is None:
        own = torch.from_numpy(np.asarray(trained.probabilities(inputs)))
        return evaluate(own, codes, **choices)
    ood, validation = choices.get("ood"), choices.get("validation")
    if isinstance(ood, Mapping):
        choices["ood"] = {name: [head.features(rows)] for name, rows in ood.items()}
    elif ood is not None:
        choices["ood"] = [head.features(ood)]
    if validation is not None:
        if not isinstance(validation, (tuple, list)) or len(validation) != 2:
            raise InputError(
                "`report(validation)` needs a pair (X, y), inputs and their classes; got"
                f" {type(validation).__name__}."
            )
        rows, known = validation
        held_out = torch.from_numpy(known_codes(classes, known))
        choices["validation"] = [(head.features(rows), held_out)]
    choices = {"feature_names": columns_of(head, inputs), **choices}
    found = evaluate(trained.classifier, [(head.features(inputs), codes)], **choices)
    return as_for_scikit_learn(found)


def columns_of(head: LinearHead, inputs: Any) -> Sequence[str] | None:
    """Names of the features that a head takes, if they are columns of a frame, or what
    a pipeline makes of these.

    Args:
        head: The head.
        inputs: As the user gives them.
    """
    given = getattr(inputs, "columns", None)
    if given is None or head.body is not None:  # features of a network have no names
        return None
    names: Sequence[str] = [str(name) for name in given]
    if head.steps is not None:
        try:
            names = [str(name) for name in head.steps.get_feature_names_out(names)]
        except (AttributeError, ValueError):  # a step that says nothing of names
            return None
    return names if len(names) == head.num_features else None


def as_for_scikit_learn(evaluation: Evaluation) -> Evaluation:
    """The same, with advice that a user of scikit-learn can follow: no loaders, and no
    command, which takes networks.

    Args:
        evaluation: Of the features of a classifier's last layer.
    """
    advice = evaluation.advice
    if advice.method == evaluation.own:
        code = OWN if advice.score != "ood_score" else f"{OWN}\n{UNUSUAL}"
    elif advice.method == "MAP":
        code = NETWORK
    else:
        return evaluation
    return replace(evaluation, advice=replace(advice, code=code, command=""))
