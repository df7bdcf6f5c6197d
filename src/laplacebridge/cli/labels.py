"""Predictions of several labels at once, as `laplacebridge predict` writes them, and
how good each label is.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import typer
from torch import Tensor
from tqdm import tqdm

import laplacebridge as lb
from laplacebridge.cli.data import Batches
from laplacebridge.cli.predictions import rounded
from laplacebridge.errors import InputError
from laplacebridge.laplace.batch import unpack_batch
from laplacebridge.multi_label import MultiLabelClassifier, MultiLabelPrediction
from laplacebridge.multi_label.fitting import multi_hot_labels

FIGURES = {
    "accuracy": lb.metrics.accuracy,
    "nll": lb.metrics.nll,
    "brier": lb.metrics.brier,
    "ece": lb.metrics.ece,
}


@dataclass(frozen=True, eq=False)
class LabelRows:
    """Some examples with what is known of each of their labels.

    Attributes:
        prediction: The prediction.
        labels: Ones and zeros; None if they are not known.
        level: Of the intervals; 0 for none.
        names: Of the labels; their numbers where there are none.
        example_names: Names of the examples, if they have any.
        first_row: How many examples came before.
    """

    prediction: MultiLabelPrediction
    labels: Tensor | None
    level: float
    names: tuple[str, ...]
    example_names: tuple[str, ...]
    first_row: int

    def records(self) -> Iterator[dict[str, Any]]:
        """One dictionary for each example, as in JSON lines."""
        arrays = self.arrays()
        for row in range(len(self.prediction)):
            record: dict[str, Any] = {"row": self.first_row + row}
            if self.example_names:
                record["name"] = self.example_names[row]
            if self.labels is not None and bool((self.labels[row] >= 0).any()):
                record["labels"] = self._named(self.labels[row] > 0.5)
            record["applies"] = self._named(self.prediction.applies[row])
            for name, of_labels in arrays.items():
                if name in {"labels", "applies", "names"}:
                    continue
                values = of_labels[row]
                record[name] = (
                    [rounded(float(each)) for each in values]
                    if values.ndim
                    else rounded(float(values))
                )
            yield record

    def arrays(self) -> dict[str, np.ndarray]:
        """What an npz file holds of these examples: shape (B, K), scores of inputs
        (B,).
        """
        known = self.prediction.numpy(self.level or 0.95)
        arrays = {"probabilities": known["mean"], "applies": known["applies"]}
        if self.level:
            arrays |= {"interval_low": known["lower"], "interval_high": known["upper"]}
        arrays["epistemic"] = known["epistemic"]
        arrays |= {name: known[name] for name in ("ood_score", "ood_quantile") if name in known}
        if self.labels is not None:
            arrays["labels"] = self.labels.numpy()
        if self.example_names:
            arrays["names"] = np.array(self.example_names)
        return arrays

    def _named(self, mask: Tensor) -> list[int | str]:
        chosen = mask.nonzero().flatten().tolist()
        return [self.names[place] for place in chosen] if self.names else chosen


def require_none_of_one_class(**given: object) -> None:
    """Refuses what is for one class out of K.

    Args:
        given: Values of options, by name.

    Raises:
        typer.BadParameter: If one was given.
    """
    for name, value in given.items():
        if value:
            raise typer.BadParameter(
                "is for one class out of K; this classifier has several labels at once, each of"
                " which is answered and judged by itself.",
                param_hint=f"--{name.replace('_', '-')}",
            )


def label_rows(
    classifier: MultiLabelClassifier, batches: Batches, level: float, show: bool
) -> Iterator[LabelRows]:
    """Predictions, batch by batch.

    Args:
        classifier: Of several labels at once.
        batches: The data.
        level: Of the intervals; 0 for none.
        show: Show a progress bar.

    Raises:
        InputError: If a batch cannot be predicted; it says which.
    """
    first_row = 0
    for index, batch in enumerate(tqdm(batches, desc="predicting", unit="batch", disable=not show)):
        parts = unpack_batch(batch)
        try:
            with torch.no_grad():
                prediction = classifier(*parts.arguments, **parts.keywords).to("cpu")
        except InputError as error:
            raise InputError(f"In batch {index} (counted from 0): {error}") from error
        number = len(prediction)
        if not number:
            continue
        labels = parts.labels
        if labels is not None:
            labels = multi_hot_labels(labels, number, classifier.num_classes, index).cpu()
        names = batches.example_names[first_row : first_row + number]
        yield LabelRows(prediction, labels, level, batches.class_names, names, first_row)
        first_row += number


class LabelFigures:
    """How good each label is, over all rows that have labels."""

    def __init__(self) -> None:
        self._means: list[Tensor] = []
        self._truths: list[Tensor] = []
        self.num_rows = 0

    def counting(self, parts: Iterator[LabelRows]) -> Iterator[LabelRows]:
        """The same rows, noted on their way.

        Args:
            parts: Rows.
        """
        for part in parts:
            self.num_rows += len(part.prediction)
            if part.labels is not None:
                known = part.labels[:, 0] >= 0  # a row of −100 has none
                self._means.append(part.prediction.mean[known].double())
                self._truths.append((part.labels[known] > 0.5).long())
            yield part

    @property
    def num_labelled(self) -> int:
        """How many rows have labels."""
        return sum(map(len, self._truths))

    def by_label(self, names: tuple[str, ...]) -> list[dict[str, Any]]:
        """For each label: how often it applies, and the figures of its predictions.

        Args:
            names: Of the labels, if known.
        """
        if not self.num_labelled:
            return []
        means, truths = torch.cat(self._means), torch.cat(self._truths)
        rows = []
        for place in range(means.shape[1]):
            chance, truth = means[:, place], truths[:, place]
            both = torch.stack([1 - chance, chance], -1)
            rows.append(
                {
                    "label": names[place] if names else place,
                    "applies": rounded(float(truth.double().mean())),
                    **{name: rounded(float(of(both, truth))) for name, of in FIGURES.items()},
                }
            )
        return rows


def figures_in_words(rows: list[dict[str, Any]]) -> str:
    """A line for each label, under a line of names.

    Args:
        rows: As `LabelFigures.by_label` gives them.
    """
    if not rows:
        return ""
    names = list(rows[0])
    width = max(len("label"), *(len(str(row["label"])) for row in rows))
    lines = [f"{'label':<{width}}" + "".join(f"{name:>10}" for name in names[1:])]
    for row in rows:
        cells = "".join(
            f"{'inf' if row[name] is None else format(row[name], '.4f'):>10}" for name in names[1:]
        )
        lines.append(f"{row['label']!s:<{width}}{cells}")
    return "\n" + "\n".join(lines)
