"""Reports on classifiers of scikit-learn, in the words of their users."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from laplacebridge.report import Evaluation
from laplacebridge.sklearn.heads import LinearHead

OWN = """model = LaplaceBridgeClassifier(estimator).fit(X, y)
probabilities = model.predict_proba(X_new)
lower, upper = model.predict_interval(X_new)"""
UNUSUAL = "usual = model.score_samples(X_new)  # low for unusual rows"
NETWORK = "probabilities = model.estimator_.predict_proba(X_new)"


def columns_of(head: LinearHead, inputs: Any) -> Sequence[str] | None:
    """Names of the features that a head takes, if they are columns of a frame, or what a
    pipeline makes of these.

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
