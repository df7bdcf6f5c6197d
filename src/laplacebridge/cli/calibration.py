"""Predictions that commands calibrate with, and what a calibration says in their words."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from laplacebridge._warnings import warn
from laplacebridge.cli.predictions import Predictions, read_predictions
from laplacebridge.errors import InputError
from laplacebridge.laplace.label_checks import IGNORED_LABEL
from laplacebridge.selective.thresholds import WITHOUT_A_PROMISE


def read_calibration(
    path: Path, predictions: Predictions, *, needs_labels: bool = True
) -> Predictions:
    """Other predictions of the same classifier, to calibrate with; those that have
    labels, if these are needed.

    Args:
        path: An .npz file.
        predictions: What the calibration will be applied to.
        needs_labels: Whether examples without a label are of no use.
    """
    found = read_predictions(str(path), option="--calibrate")
    if found.dirichlet.num_classes != predictions.dirichlet.num_classes:
        raise InputError(
            f"{path} has {found.dirichlet.num_classes} classes, and the predictions have"
            f" {predictions.dirichlet.num_classes}. Calibrate with predictions of the same"
            " classifier."
        )
    if torch.equal(found.dirichlet.log_concentration, predictions.dirichlet.log_concentration):
        warn(
            f"{path} holds the very predictions that it is to be applied to, so that what the"
            " calibration promises does not hold. Calibrate with examples that are used for"
            " nothing else."
        )
    if not needs_labels:
        return found
    if found.labels is None:
        raise InputError(
            f"{path} needs `labels` to calibrate with; it has none. Predict data that have labels."
        )
    rows = (found.labels != IGNORED_LABEL).nonzero().squeeze(-1)
    scores = {name: score[rows] for name, score in found.scores.items()}
    return Predictions(found.dirichlet[rows], found.labels[rows], scores=scores)


@contextmanager
def calibrating(prediction: str) -> Iterator[None]:
    """Says what a calibration lacks by the names of options and commands instead of
    those of Python.

    Args:
        prediction: The file that a person may look at instead.

    Raises:
        InputError: As the calibration did.
    """
    try:
        yield
    except InputError as error:
        named = re.sub(r"`selective\.calibrate\((\w+)\)`", _as_option, str(error))
        instead = (
            "Which cases to look at first, without a promise:"
            f" `laplacebridge review {prediction} --number 10`."
        )
        raise InputError(named.replace(WITHOUT_A_PROMISE, instead)) from error


def _as_option(parameter: re.Match[str]) -> str:
    return f"--{parameter.group(1).replace('_', '-')}"
