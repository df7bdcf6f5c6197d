"""Predictions read back: from an `.npz` file, or from a pipe as `.npz` or JSON lines."""

import json
import math
import sys
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

import numpy as np
import torch

import laplacebridge as lb
from laplacebridge.cli import modules, outputs
from laplacebridge.cli.predictions import SCORE_PREFIX, Predictions
from laplacebridge.cli.weights import read_arrays
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.errors import LaplaceBridgeError
from laplacebridge.laplace.fitting import IGNORED_LABEL

ZIP_START = b"PK"  # an .npz file is a zip file


def predictions_named(source: str, class_names: tuple[str, ...]) -> Predictions:
    """Predictions as the user named them, checked.

    Args:
        source: An .npz file, or ``-``.
        class_names: Names of the classes, if given.
    """
    if source == outputs.STANDARD_STREAM:
        found = read_predictions_from(sys.stdin.buffer.read())
    else:
        modules.require_file(Path(source), "PREDICTION")
        found = read_predictions(Path(source))
    lb.check(found.dirichlet)
    return found.with_class_names(class_names)


def calibration_for(predictions: Predictions, path: Path, *, needs_labels: bool = True) -> Predictions:
    """Other predictions of the same classifier, to calibrate with; those that have labels, if these are needed.

    Args:
        predictions: What will be decided about.
        path: An .npz file.
        needs_labels: Whether examples without a label are of no use.

    Raises:
        LaplaceBridgeError: If there are no labels, or other classes.
    """
    modules.require_file(path, "--calibrate")
    found = read_predictions(path)
    lb.check(found.dirichlet)
    if found.dirichlet.num_classes != predictions.dirichlet.num_classes:
        raise LaplaceBridgeError(
            f"{path} has {found.dirichlet.num_classes} classes, and the predictions have "
            f"{predictions.dirichlet.num_classes}. Calibrate with predictions of the same classifier."
        )
    if not needs_labels:
        return found
    if found.labels is None:
        raise LaplaceBridgeError(
            f"{path} needs `labels` to calibrate with; it has none. Predict data that have labels."
        )
    rows = (found.labels != IGNORED_LABEL).nonzero().squeeze(-1)
    return Predictions(found.dirichlet[rows], found.labels[rows])


def read_predictions(path: Path) -> Predictions:
    """Predictions from an npz file.

    Args:
        path: A file that `laplacebridge predict` wrote, or another with `log_concentration`.

    Raises:
        LaplaceBridgeError: If it holds no Dirichlets.
    """
    if path.suffix in {".csv", ".jsonl", ".json"}:
        raise LaplaceBridgeError(
            f"{path} is text; predictions are read back with all their digits. Write them with `laplacebridge "
            "predict ... -o predictions.npz`, or pipe JSON lines to standard input."
        )
    return _from_arrays(read_arrays(path), str(path))


def read_predictions_from(content: bytes) -> Predictions:
    """Predictions from a pipe: npz, or JSON lines with all probabilities.

    Args:
        content: All of standard input.

    Raises:
        LaplaceBridgeError: If it holds no Dirichlets.
    """
    source = "standard input"
    if content.startswith(ZIP_START):
        return _from_arrays(read_arrays(BytesIO(content), name=source), source)
    records = []
    try:
        for line in content.decode().splitlines():
            record = json.loads(line)
            logs = [math.log(probability) + record["log_total"] for probability in record["probabilities"]]
            records.append((logs, record.get("label"), record.get("name")))
        log_concentration = torch.tensor([logs for logs, _, _ in records], dtype=torch.float64)
    except (ValueError, KeyError, TypeError) as error:
        raise LaplaceBridgeError(
            f"{source}, line {len(records) + 1}: needs what `laplacebridge predict` writes, an .npz file or JSON lines "
            "with positive `probabilities` of all classes (no --top) and `log_total`. An .npz file has all digits."
        ) from error
    labels = [IGNORED_LABEL if label is None else label for _, label, _ in records]
    names = tuple(name for _, _, name in records if name is not None)
    return Predictions(
        Dirichlet(log_concentration),
        torch.tensor(labels) if set(labels) != {IGNORED_LABEL} else None,
        example_names=names if len(names) == len(records) else (),
    )


def _from_arrays(arrays: Mapping[str, np.ndarray], source: str) -> Predictions:
    log_concentration = arrays.get("log_concentration")
    if log_concentration is None or log_concentration.ndim != 2 or log_concentration.dtype.kind != "f":
        raise LaplaceBridgeError(
            f"{source} needs `log_concentration` of shape (B, K), as `laplacebridge predict -o prediction.npz` "
            f"writes it; it holds {', '.join(arrays) or 'nothing'}."
        )
    rows, num_classes = log_concentration.shape
    labels, class_names = arrays.get("labels"), arrays.get("class_names", np.array([]))
    if labels is not None and (labels.dtype.kind not in "iu" or labels.shape != (rows,)):
        raise LaplaceBridgeError(f"{source} needs one integer in `labels` for each of {rows} rows; got {labels.shape}.")
    if len(class_names) not in {0, num_classes}:
        raise LaplaceBridgeError(f"{source} has {len(class_names)} `class_names` for {num_classes} classes.")
    return Predictions(
        Dirichlet(torch.from_numpy(log_concentration)),
        None if labels is None else torch.from_numpy(labels.astype(np.int64)),
        scores={
            name.removeprefix(SCORE_PREFIX): torch.from_numpy(array)
            for name, array in arrays.items()
            if name.startswith(SCORE_PREFIX)
        },
        class_names=tuple(class_names.tolist()),
        example_names=tuple(arrays["names"].tolist()) if "names" in arrays else (),
    )
