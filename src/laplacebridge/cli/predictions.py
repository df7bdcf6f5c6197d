"""Predictions as commands hand them on: as records and as arrays, and read back."""

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer
from torch import Tensor

import laplacebridge as lb
from laplacebridge._files import read_arrays
from laplacebridge.cli.options import STANDARD_STREAM
from laplacebridge.errors import InputError
from laplacebridge.laplace.label_checks import IGNORED_LABEL
from laplacebridge.sets import ClassSets

DIGITS = 7  # of numbers in text; an .npz file holds all of them
SCORE_PREFIX = "score_"  # before the names of scores in an .npz file
ZIP_START = b"PK"  # an .npz file is a zip file


@dataclass(frozen=True, eq=False)
class Predictions:
    """What is known about some examples.

    Attributes:
        dirichlet: The prediction.
        labels: Known labels, −100 where there is none; None if there are none at all.
        scores: Scores by name.
        interval: Lower and upper ends for the probability of the predicted class, if
            asked for.
        sets: Class sets, if asked for.
        class_names: Names of the classes, if known.
        example_names: Names of the examples, if they have any.
        first_row: How many examples came before.
    """

    dirichlet: lb.Dirichlet
    labels: Tensor | None = None
    scores: Mapping[str, Tensor] = field(default_factory=dict)
    interval: tuple[Tensor, Tensor] | None = None
    sets: ClassSets | None = None
    class_names: tuple[str, ...] = ()
    example_names: tuple[str, ...] = ()
    first_row: int = 0

    def records(self, *, top: int | None = None) -> Iterator[dict[str, Any]]:
        """One dictionary for each example, as in JSON lines; `top` and `set` hold names
        where they are known.

        Args:
            top: How many classes to name, the most probable first; all probabilities in
                order if not given.
        """
        wide = lb.Dirichlet(self.dirichlet.log_concentration.double())
        means, totals, log_totals = wide.mean, wide.total.tolist(), wide.log_total.tolist()
        ranked = means.topk(min(top or 1, wide.num_classes))
        sets = None if self.sets is None else self.sets.to_lists()
        for row in range(len(wide)):
            record = self.identity(row)
            label, best = self.label(row), int(ranked.indices[row, 0])
            if self.labels is not None:
                record["label"] = label
                if self.class_names:
                    record["label_name"] = None if label is None else self.class_names[label]
            record["predicted"] = best
            if self.class_names:
                record["predicted_name"] = self.class_names[best]
            if top is None:
                record["probabilities"] = [rounded(value) for value in means[row].tolist()]
            else:
                record["top"] = [self.named(index) for index in ranked.indices[row].tolist()]
                record["top_probabilities"] = [
                    rounded(value) for value in ranked.values[row].tolist()
                ]
            if self.interval is not None:
                low, high = (rounded(float(end[row])) for end in self.interval)
                record |= {"interval_low": low, "interval_high": high}
            record |= {"total": rounded(totals[row]), "log_total": rounded(log_totals[row])}
            record |= {name: rounded(float(score[row])) for name, score in self.scores.items()}
            if sets is not None:
                record["set"] = [self.named(index) for index in sets[row]]
            yield record

    def arrays(self) -> dict[str, np.ndarray]:
        """What an npz file holds of these examples."""
        wide = lb.Dirichlet(self.dirichlet.log_concentration.double())
        tensors = {
            "log_concentration": self.dirichlet.log_concentration,
            "probabilities": self.dirichlet.mean,
            "total": wide.total,  # infinite beyond 1e308; its logarithm, in the first entry, is not
            "predicted": self.dirichlet.log_concentration.argmax(-1),
            **{f"{SCORE_PREFIX}{name}": score for name, score in self.scores.items()},
        }
        if self.interval is not None:
            tensors |= {"interval_low": self.interval[0], "interval_high": self.interval[1]}
        if self.labels is not None:
            tensors["labels"] = self.labels
        if self.sets is not None:
            tensors |= {"set_classes": self.sets.classes, "set_sizes": self.sets.size}
        arrays = {name: tensor.cpu().numpy() for name, tensor in tensors.items()}
        return arrays | ({"names": np.array(self.example_names)} if self.example_names else {})

    def identity(self, row: int) -> dict[str, Any]:
        """What the record of an example begins with: its row and, if it has one, its
        name.
        """
        name = {"name": self.example_names[row]} if self.example_names else {}
        return {"row": self.first_row + row, **name}

    def label(self, row: int) -> int | None:
        """The known label of an example, if it has one."""
        label = IGNORED_LABEL if self.labels is None else int(self.labels[row])
        return None if label == IGNORED_LABEL else label

    def named(self, index: int) -> int | str:
        """The name of a class, or its number if it has none."""
        return self.class_names[index] if self.class_names else index

    def outcome(self, row: int, classes: Sequence[int] | None) -> dict[str, Any]:
        """The label of an example by name, and whether it is among some classes: it
        is not among none, and where None are given nothing was said about it. Nothing
        where no labels are known.
        """
        if self.labels is None:
            return {}
        label = self.label(row)
        if label is None:
            return {"label": None, "covered": None}
        return {
            "label": self.named(label),
            "covered": None if classes is None else label in classes,
        }


def read_predictions(
    source: str, class_names: tuple[str, ...] = (), *, option: str = "PREDICTION"
) -> Predictions:
    """Predictions that `laplacebridge predict` wrote, checked: an .npz file, or ``-``
    for .npz or JSON lines.

    Args:
        source: The file, or ``-``.
        class_names: Names of the classes, if given.
        option: The option that it was given with.
    """
    path = Path(source)
    if source == STANDARD_STREAM:
        predictions = _from_pipe(sys.stdin.buffer.read())
    elif not path.is_file():
        raise typer.BadParameter(f"there is no file {source}.", param_hint=option)
    elif path.suffix in {".csv", ".jsonl", ".json"}:
        raise InputError(
            f"{path} is text; predictions are read back with all their digits. Write them with"
            " `laplacebridge predict ... -o predictions.npz`, or pipe JSON lines to standard"
            " input."
        )
    else:
        predictions = _from_arrays(read_arrays(path), source)
    num_classes = lb.check(predictions.dirichlet).num_classes
    if class_names and len(class_names) != num_classes:
        raise InputError(
            f"The predictions have {num_classes} classes; got {len(class_names)} names. Name each."
        )
    return replace(predictions, class_names=class_names) if class_names else predictions


def rounded(value: float) -> float | None:
    """A number with few enough digits for text; None if it is beyond the range, which
    JSON cannot say.
    """
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None


def _from_pipe(content: bytes) -> Predictions:
    source = "standard input"
    if content.startswith(ZIP_START):
        return _from_arrays(read_arrays(BytesIO(content), name=source), source)
    records = []
    try:
        for line in content.decode().splitlines():
            record = json.loads(line)
            logs = [
                math.log(probability) + record["log_total"]
                for probability in record["probabilities"]
            ]
            records.append((logs, record.get("label"), record.get("name")))
        log_concentration = torch.tensor([logs for logs, _, _ in records], dtype=torch.float64)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{source}, line {len(records) + 1}: needs what `laplacebridge predict` writes, an .npz"
            " file or JSON lines with positive `probabilities` of all classes (no --top) and"
            " `log_total`. An .npz file has all digits."
        ) from error
    labels = [IGNORED_LABEL if label is None else label for _, label, _ in records]
    names = tuple(name for _, _, name in records if name is not None)
    return Predictions(
        lb.Dirichlet(log_concentration),
        torch.tensor(labels) if set(labels) != {IGNORED_LABEL} else None,
        example_names=names if len(names) == len(records) else (),
    )


def _from_arrays(arrays: Mapping[str, np.ndarray], source: str) -> Predictions:
    log_concentration = arrays.get("log_concentration")
    if (
        log_concentration is None
        or log_concentration.ndim != 2
        or log_concentration.dtype.kind != "f"
    ):
        if "applies" in arrays:
            raise InputError(
                f"{source} has several labels at once, each with its own probability; this command"
                " is for one class out of K. `lb.multi_label.calibrate` gives sets of labels."
            )
        raise InputError(
            f"{source} needs `log_concentration` of shape (B, K), as `laplacebridge predict -o"
            f" prediction.npz` writes it; it holds {', '.join(arrays) or 'nothing'}."
        )
    rows, num_classes = log_concentration.shape
    labels, class_names = arrays.get("labels"), arrays.get("class_names", np.array([]))
    if labels is not None and (labels.dtype.kind not in "iu" or labels.shape != (rows,)):
        raise InputError(
            f"{source} needs one integer in `labels` for each of {rows} rows; got {labels.shape}."
        )
    if len(class_names) not in {0, num_classes}:
        raise InputError(
            f"{source} has {len(class_names)} `class_names` for {num_classes} classes."
        )
    return Predictions(
        lb.Dirichlet(torch.from_numpy(log_concentration)),
        None if labels is None else torch.from_numpy(labels.astype(np.int64)),
        scores={
            name.removeprefix(SCORE_PREFIX): torch.from_numpy(array)
            for name, array in arrays.items()
            if name.startswith(SCORE_PREFIX)
        },
        class_names=tuple(class_names.tolist()),
        example_names=tuple(arrays["names"].tolist()) if "names" in arrays else (),
    )
