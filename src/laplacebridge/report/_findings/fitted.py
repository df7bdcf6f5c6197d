"""How the classifier was fitted: its prior, and what its intervals rest on."""

import warnings

from laplacebridge.classifier import Classifier
from laplacebridge.laplace import prior
from laplacebridge.laplace.examples import Examples
from laplacebridge.laplace.posterior import AS_FITTED
from laplacebridge.report.evaluation import PriorCurve


def basis_of_intervals(classifier: Classifier) -> tuple[str, ...]:
    """What the width of intervals rests on, and what to know before relying on them."""
    width = classifier.prior_choice.width
    if width is None:
        alone = (
            "Intervals rest on the posterior alone: no held-out labels chose their width when the"
            " classifier was fitted (`val_loader=`, `--validation`)."
        )
        return (alone,)
    described = width.described(classifier.num_classes)
    return described[0].upper() + described[1:] + ".", *width.warnings()


def training_accuracy(classifier: Classifier) -> dict[str, str]:
    """What the fit saw, by name; nothing where it saw no labels."""
    if classifier.labels is None:
        return {}
    return {"training accuracy": f"{classifier.labels.accuracy:.1%}"}


def prior_curve(classifier: Classifier, validation: Examples | None) -> PriorCurve | None:
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
