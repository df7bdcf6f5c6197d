"""Fitting: a classifier trained on all data, copies of it for the folds, and what they
say about examples that they have not seen.
"""

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import _safe_indexing
from torch import nn

from laplacebridge.classifier import Classifier
from laplacebridge.errors import InputError
from laplacebridge.sklearn.folds import HeldOut, fitted, folds_of
from laplacebridge.sklearn.heads import LinearHead, head_of
from laplacebridge.sklearn.held_out import HeldOutAnswers
from laplacebridge.sklearn.skorch_training import is_skorch, trained_by_skorch

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained classifier and what held-out examples say about it.

    Attributes:
        estimator: The classifier.
        head: Its last linear layer; None if it has none.
        classifier: With the posterior of that layer; None without one.
        folds: Copies that have not seen a fold each; none for a classifier that came
            trained.
        answers: To held-out examples.
    """

    estimator: Any
    head: LinearHead | None
    classifier: Classifier | None
    answers: HeldOutAnswers
    folds: list[Any] = field(default_factory=list)

    def probabilities(self, inputs: Any) -> Array:
        """The classifier's own probabilities."""
        return own_probabilities(self.estimator, self.head, inputs)

    def fold_probabilities(self, inputs: Any) -> list[Array]:
        """Those of the folds' classifiers."""
        return [own_probabilities(estimator, head, inputs) for estimator, head in self.folds]


def known_codes(classes: Array, labels: Any) -> Array:
    """Classes by number.

    Args:
        classes: The classes that a trained classifier knows, in order.
        labels: Classes of some examples.

    Raises:
        InputError: If the classifier does not know one of them.
    """
    labels = np.asarray(labels)
    codes = np.searchsorted(classes, labels).clip(max=len(classes) - 1)
    if (classes[codes] != labels).any():
        unknown = labels[classes[codes] != labels][0]
        raise InputError(
            f"`y` has the class '{unknown}', which the trained classifier does not know;"
            f" it knows {', '.join(map(str, classes[:5]))} ({len(classes)} in all)."
        )
    return codes


def train(estimator: Any, cv: Any, inputs: Any, classes: Array, codes: Array) -> Trained:
    """Trains a classifier on all data, and copies of it on folds.

    Args:
        estimator: The classifier, untrained.
        cv: How many folds, a splitter, or pairs of rows.
        inputs: The inputs.
        classes: The classes.
        codes: The class of each input, by number.
    """

    def copy_on(rows: Array | slice) -> tuple[Any, LinearHead | None, Any]:
        part = inputs if isinstance(rows, slice) else _safe_indexing(inputs, rows)
        if is_skorch(estimator):
            model = trained_by_skorch(clone(estimator), part, codes[rows])
        else:
            model = clone(estimator).fit(part, classes[codes][rows])
        _require_probabilities(model)
        return model, head_of(model, part), part

    model, head, _ = copy_on(slice(None))
    numbers = torch.from_numpy(codes)
    folds, held, probabilities, kept = [], [], [], []
    for rows, left_out in folds_of(cv, inputs, codes):
        fold, fold_head, part = copy_on(rows)
        rest = _safe_indexing(inputs, left_out)
        folds.append((fold, fold_head))
        probabilities.append(torch.from_numpy(own_probabilities(fold, fold_head, rest)))
        kept.append(numbers[left_out])
        if head is not None and fold_head is not None:
            training = fold_head.prepared(part), numbers[rows]
            held.append(HeldOut(fold_head, training, (fold_head.prepared(rest), kept[-1])))
    classifier = None
    if head is not None:
        with warnings.catch_warnings():
            # it was trained just now, on these labels: hard problems and balanced classes do that
            warnings.filterwarnings("ignore", message="The network gets .* of the training labels")
            classifier = fitted(head, head.prepared(inputs), numbers, held)
    return Trained(model, head, classifier, HeldOutAnswers(probabilities, kept), folds)


def calibrate_trained(
    estimator: Any,
    inputs: Any,
    codes: Array,
    training: tuple[Any, Array] | None,
) -> Trained:
    """A classifier that came trained, calibrated by examples that it has not seen.

    Args:
        estimator: The classifier.
        inputs: The examples.
        codes: Their classes by number.
        training: What it was trained on, if that is known.
    """
    _require_probabilities(estimator)
    head, numbers = head_of(estimator, inputs), torch.from_numpy(codes)
    classifier = None
    if head is not None:
        held_out = head.prepared(inputs), numbers
        seen = (
            held_out
            if training is None
            else (head.prepared(training[0]), torch.from_numpy(training[1]))
        )
        with warnings.catch_warnings():
            if training is None:  # they stand for the training data, which are not at hand
                for said in ("The held-out data are the training data", "No training example has"):
                    warnings.filterwarnings("ignore", message=said)
            classifier = fitted(head, *seen, [HeldOut(head, seen, held_out)])
    own = torch.from_numpy(own_probabilities(estimator, head, inputs))
    return Trained(estimator, head, classifier, HeldOutAnswers([own], [numbers]))


def own_probabilities(estimator: Any, head: LinearHead | None, inputs: Any) -> Array:
    """A classifier's own probabilities, in float64; of a network softmax of its logits.

    Args:
        estimator: The classifier.
        head: Its last layer, if it has one.
        inputs: The inputs.
    """
    if head is None or head.estimator is not None:
        return np.asarray(estimator.predict_proba(inputs), dtype=np.float64)
    with torch.no_grad():
        logits = head.linear()(head.features(inputs))
    return logits.softmax(-1).numpy()


def unwrapped(estimator: Any) -> Any:
    """A frozen classifier without its wrapper.

    Args:
        estimator: The classifier.
    """
    while isinstance(estimator, FrozenEstimator):
        estimator = estimator.estimator
    return estimator


def _require_probabilities(estimator: Any) -> None:
    if not isinstance(estimator, nn.Module) and not hasattr(estimator, "predict_proba"):
        raise InputError(
            "`LaplaceBridgeClassifier(estimator)` needs a classifier with `predict_proba`, or a"
            f" network; {type(estimator).__name__} has none. Give `SGDClassifier` its"
            " `loss='log_loss'`; wrap others in `CalibratedClassifierCV`."
        )
