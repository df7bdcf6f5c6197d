"""`LaplaceBridgeClassifier`: a classifier of scikit-learn that says how sure it is."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.utils import get_tags, indexable
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d
from torch import nn

from laplacebridge.errors import InputError
from laplacebridge.prediction import Prediction
from laplacebridge.report import Evaluation
from laplacebridge.selective import Decision, ReviewCase, review
from laplacebridge.sklearn.fitting import calibrate_trained, known_codes, train, unwrapped
from laplacebridge.sklearn.held_out import decisions, unusual_rows
from laplacebridge.sklearn.last_layer import NeedsLastLayer
from laplacebridge.sklearn.output import FORMS, labelled
from laplacebridge.sklearn.reporting import evaluated

Array = npt.NDArray[Any]
FOLDS = 5


class LaplaceBridgeClassifier(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Wraps a classifier, and answers with intervals, sets and decisions.

    Linear classifiers with probabilities (`LogisticRegression`, `SGDClassifier` with
    log loss, `LinearDiscriminantAnalysis`), `MLPClassifier`, a `Pipeline` that ends in
    one of them, a network (`nn.Module`, or skorch's `NeuralNetClassifier` with a module
    that returns logits): these get a distribution over class probabilities. Any other
    classifier with `predict_proba` keeps its own probabilities, and gets sets and
    rules.

    `fit` trains the classifier on all data. Prior, temperature, width of intervals,
    sets and rules are chosen on held-out folds, by copies of it that have not seen
    them. A classifier that is already trained is given as
    ``FrozenEstimator(classifier)``, or with ``cv="prefit"``, and `fit` is given data
    that it has *not* seen; a network is always taken as trained.

    Args:
        estimator: The classifier; by default `LogisticRegression()`.
        cv: How many folds, 5 by default; a splitter of scikit-learn; pairs of rows; or
            "prefit" for a classifier that is already trained.
        coverage: How often sets are to hold the right class.

    Attributes:
        classes_: The classes.
        estimator_: The trained classifier.
        classifier_: Its `laplacebridge.Classifier`, which takes the features of the
            last layer; None for a classifier that has no last layer.
        fold_estimators_: The classifiers of the folds; none for a trained one.

    Example:
        >>> from sklearn.datasets import load_breast_cancer
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> inputs, labels = load_breast_cancer(return_X_y=True)
        >>> model = LaplaceBridgeClassifier(make_pipeline(StandardScaler(), LogisticRegression()))
        >>> _ = model.fit(inputs[:400], labels[:400])
        >>> model.predict(inputs[400:402]), model.predict_proba(inputs[400:402]).shape
        (array([0, 1]), (2, 2))
        >>> lower, upper = model.predict_interval(inputs[400:402])
        >>> model.predict_set(inputs[400:402])
        array([[ True, False],
               [False,  True]])
        >>> model.decision(inputs[401:402])
        [Decision(action='answer', classes=[np.int64(1)], reason='')]
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        cv: Any = None,
        coverage: float = 0.9,
    ) -> None:
        self.estimator = estimator
        self.cv = cv
        self.coverage = coverage

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        X_train: Any = None,
        y_train: Any = None,
    ) -> "LaplaceBridgeClassifier":
        """Trains the classifier, and chooses by held-out folds how sure it may be.

        Args:
            X: Inputs; of a classifier that is already trained, some that it has not
                seen.
            y: Their classes.
            X_train: What a trained classifier was trained on, if that is at hand. By
                default `X` stands for it.
            y_train: The classes of these.

        Raises:
            InputError: If there is only one class, or the coverage is no probability.
        """
        X, y = self._checked(X, y)
        if self._is_trained:
            estimator = unwrapped(self.estimator)
            codes = self._codes_of_trained(estimator, X, y)
            training = None
            if X_train is not None:
                training = X_train, self._codes_of_trained(estimator, X_train, y_train)
            self._trained = calibrate_trained(estimator, X, codes, training)
        elif X_train is not None or y_train is not None:
            raise InputError(
                "`fit(X_train, y_train)` are for a classifier that is already trained; this one is"
                " trained by `fit` itself, on X and y. Freeze it first:"
                " `FrozenEstimator(classifier)`."
            )
        else:
            self.classes_, codes = np.unique(y, return_inverse=True)
            if len(self.classes_) < 2:
                raise InputError(
                    "`LaplaceBridgeClassifier.fit` needs examples of at least two classes; got"
                    f" {len(self.classes_)} class."
                )
            folds = FOLDS if self.cv is None else self.cv
            self._trained = train(self._base, folds, X, self.classes_, codes)
        self.estimator_ = self._trained.estimator
        self.classifier_ = self._trained.classifier
        self.fold_estimators_ = [estimator for estimator, _ in self._trained.folds]
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
            elif hasattr(self, name):
                delattr(self, name)
        return self

    def predict(self, X: Any) -> Array:
        """The most probable class of each row.

        Args:
            X: Inputs.
        """
        probabilities = self._probabilities(X)
        return self.classes_[probabilities.argmax(-1)]

    def predict_proba(self, X: Any) -> Any:
        """Class probabilities, in the order of `classes_`.

        Args:
            X: Inputs.
        """
        return labelled(self, self._probabilities(X), X)

    @NeedsLastLayer
    def predict_interval(self, X: Any, level: float = 0.95) -> tuple[Any, Any]:
        """Lower and upper bounds of the probability of every class, (n, K) each.

        Args:
            X: Inputs.
            level: How probable it is that a probability lies within its bounds.
        """
        lower, upper = self.prediction(X).interval(level)
        return labelled(self, lower.numpy(), X), labelled(self, upper.numpy(), X)

    def predict_set(self, X: Any, coverage: float | None = None) -> Any:
        """Which classes are in the set of each row, (n, K): sets hold the right class
        as often as `coverage` says.

        By folds, that is what is seen; what can be proved is in
        `laplacebridge.sets.CrossCalibratedSets`. With a classifier that is already
        trained it is split-conformal, and proved. They rest on the classifier's own
        probabilities, and are never empty.

        Args:
            X: Inputs.
            coverage: Another than that of the classifier.
        """
        asked = self.coverage if coverage is None else coverage
        return labelled(self, self._inside(X, asked), X)

    def decision(self, X: Any, *, risk: float | None = None) -> Any:
        """What to do with each row: "answer" with a class, "set" with a few, or
        "defer".

        An input that is more unusual than 99 % of held-out ones is deferred (than all,
        if they are fewer than a hundred). Without a risk, a row is answered if its set
        holds one class. With one, it is answered if its confidence is so high that
        among held-out rows as sure, with 95 % confidence, at most that share is wrong.

        Args:
            X: Inputs.
            risk: The share of answers that may be wrong.
        """
        inside = self._inside(X, self.coverage)
        own = self._trained.probabilities(X)
        if risk is None:
            answered, answers = inside.sum(-1) == 1, inside.argmax(-1)
        else:
            answered, answers = self._trained.answers.answers(own, risk), own.argmax(-1)
        known = None if self.classifier_ is None else self.prediction(X).unusual
        unusual = unusual_rows(known, len(own))
        found = decisions(self.classes_, inside, own, answered, answers, unusual)
        return labelled(self, found, X, columns=list(Decision._fields))

    def review(self, X: Any, n: int | None = None) -> Any:
        """Which rows a person should look at first, and why, as `laplacebridge.review`:
        for data that are too few for a risk.

        Args:
            X: Inputs, all at once.
            n: How many; by default all, in order.
        """
        check_is_fitted(self)
        known = self._trained.probabilities(X) if self.classifier_ is None else self.prediction(X)
        cases = review(known, n, class_names=list(self.classes_))
        rows = np.array([case.row for case in cases])
        return labelled(self, cases, X, columns=list(ReviewCase._fields), rows=rows)

    @NeedsLastLayer
    def score_samples(self, X: Any) -> Any:
        """How usual each row is: lower is more unusual, as for scikit-learn's outlier
        detectors.

        Args:
            X: Inputs.
        """
        return -self.prediction(X).ood_score.numpy()

    @NeedsLastLayer
    def prediction(self, X: Any) -> Prediction:
        """Everything that is known about each row, as `laplacebridge.Prediction`.

        Args:
            X: Inputs.
        """
        check_is_fitted(self)
        classifier, head = self._trained.classifier, self._trained.head
        assert classifier is not None  # noqa: S101  (or the method would not be there)
        assert head is not None  # noqa: S101
        with torch.no_grad():
            return classifier.predict_features(head.features(X))

    def report(self, X: Any, y: Any, path: str | Path | None = None, **choices: Any) -> Evaluation:
        """Judges the classifier on rows that it has not seen, and writes one page about
        it. Needs the extra ``report``.

        Args:
            X: Inputs.
            y: Their classes.
            path: Where to write the page; by default it is not written.
            choices: As `laplacebridge.report.evaluate` takes them; ``ood=`` takes
                inputs, or several by name, ``validation=`` a pair (X, y),
                ``class_names=`` are the classes. A classifier without a last linear
                layer, such as a forest, is judged by its probabilities alone, and takes
                neither.

        Raises:
            InputError: If `validation` is no pair, or a class is not known.
        """
        check_is_fitted(self)
        found = evaluated(self._trained, self.classes_, X, y, choices)
        if path is not None:
            found.save(path)
        return found

    def set_output(self, *, transform: str | None = None) -> "LaplaceBridgeClassifier":
        """In which form answers come: "default" for NumPy, "pandas" or "polars" for
        frames with the classes as columns.

        Args:
            transform: The form; None leaves it as it is.

        Raises:
            InputError: If there is no such form.
        """
        if transform is not None and transform not in FORMS:
            raise InputError(
                f"`set_output(transform)` needs 'default', 'pandas' or 'polars'; got {transform!r}."
            )
        if transform is not None:
            self._output = transform
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "classifier_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if not isinstance(self._base, nn.Module):
            tags.input_tags = get_tags(self._base).input_tags
        return tags

    @property
    def _base(self) -> Any:
        return LogisticRegression() if self.estimator is None else self.estimator

    @property
    def _is_trained(self) -> bool:
        return isinstance(self.cv, str) or isinstance(self.estimator, (FrozenEstimator, nn.Module))

    def _probabilities(self, inputs: Any) -> Array:
        check_is_fitted(self)
        if self.classifier_ is None:
            return self._trained.probabilities(inputs)
        return self.prediction(inputs).mean.numpy()

    def _inside(self, inputs: Any, coverage: float) -> Array:
        """Which class is in which set."""
        check_is_fitted(self)
        trained = self._trained
        own, by_folds = trained.probabilities(inputs), trained.fold_probabilities(inputs)
        return trained.answers.mask(own, by_folds, coverage)

    def _checked(self, inputs: Any, labels: Any) -> tuple[Any, Array]:
        """Inputs whose rows can be taken, and their classes.

        Raises:
            InputError: If an argument cannot be used, or there are no classes.
        """
        if isinstance(self.cv, str) and self.cv != "prefit":
            raise InputError(
                "`LaplaceBridgeClassifier(cv)` needs a number of folds, a splitter, pairs of rows"
                f" or 'prefit'; got {self.cv!r}."
            )
        if not 0 < self.coverage < 1:
            raise InputError(
                "`LaplaceBridgeClassifier(coverage)` needs a probability between 0 and 1; got"
                f" {self.coverage}. 0.9 is usual."
            )
        if labels is None:
            raise InputError(
                "This LaplaceBridgeClassifier estimator requires y to be passed, but the target y"
                " is None."
            )
        inputs, labels = indexable(inputs, labels)
        check_classification_targets(labels)
        return inputs, column_or_1d(labels, warn=True)

    def _codes_of_trained(self, estimator: Any, inputs: Any, labels: Any) -> Array:
        """Classes by number, in the order of a classifier that is already trained."""
        self.classes_ = np.asarray(getattr(estimator, "classes_", np.unique(labels)))
        return known_codes(self.classes_, labels)
