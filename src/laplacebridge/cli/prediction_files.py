"""Predictions as files: JSON lines, CSV and `.npz`, written batch by batch and read back."""

import codecs
import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from io import BufferedIOBase, BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import typer
from torch import Tensor

from laplacebridge.cli.outputs import STANDARD_STREAM
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.errors import LaplaceBridgeError
from laplacebridge.laplace.fitting import IGNORED_LABEL
from laplacebridge.sets import ClassSets

DIGITS = 7  # of numbers in text; an .npz file holds all of them
SCORE_PREFIX = "score_"  # before the names of scores in an .npz file


@dataclass(frozen=True, eq=False)
class Predictions:
    """What is known about a batch of examples.

    Attributes:
        dirichlet: The prediction.
        labels: Known labels, −100 where there is none; None if there are none at all.
        scores: Scores by name.
        sets: Class sets, if asked for.
        class_names: Names of the classes, if known.
        example_names: Names of the examples, if they have any.
        first_row: How many examples came before.
    """

    dirichlet: Dirichlet
    labels: Tensor | None = None
    scores: Mapping[str, Tensor] = field(default_factory=dict)
    sets: ClassSets | None = None
    class_names: tuple[str, ...] = ()
    example_names: tuple[str, ...] = ()
    first_row: int = 0

    def records(self, *, top: int | None = None) -> Iterator[dict[str, Any]]:
        """One dictionary for each example, as in JSON lines; `top` and `set` hold names where they are known.

        Args:
            top: How many classes to name, the most probable first; all probabilities in order if not given.
        """
        wide = Dirichlet(self.dirichlet.log_concentration.double())
        means, totals, log_totals = wide.mean, wide.total.tolist(), wide.log_total.tolist()
        ranked = means.topk(min(top or 1, wide.num_classes))
        sets = None if self.sets is None else self.sets.to_lists()
        for row in range(len(wide)):
            record: dict[str, Any] = {"row": self.first_row + row}
            if self.example_names:
                record["name"] = self.example_names[row]
            if self.labels is not None:
                record["label"] = known(int(self.labels[row]))
            record["predicted"] = best = int(ranked.indices[row, 0])
            if self.class_names:
                record["predicted_name"] = self.class_names[best]
            if top is None:
                record["probabilities"] = [rounded(value) for value in means[row].tolist()]
            else:
                record["top"] = [self.named(index) for index in ranked.indices[row].tolist()]
                record["top_probabilities"] = [rounded(value) for value in ranked.values[row].tolist()]
            record |= {"total": rounded(totals[row]), "log_total": rounded(log_totals[row])}
            record |= {name: rounded(float(score[row])) for name, score in self.scores.items()}
            if sets is not None:
                record["set"] = [self.named(index) for index in sets[row]]
            yield record

    def named(self, index: int) -> int | str:
        """The name of a class, or its number if it has none.

        Args:
            index: The class.
        """
        return self.class_names[index] if self.class_names else index

    def with_class_names(self, class_names: tuple[str, ...]) -> "Predictions":
        """The same with other names of classes, if there are any.

        Args:
            class_names: The names.

        Raises:
            LaplaceBridgeError: If there are more or fewer than classes.
        """
        if not class_names:
            return self
        if len(class_names) != self.dirichlet.num_classes:
            raise LaplaceBridgeError(
                f"The predictions have {self.dirichlet.num_classes} classes; got {len(class_names)} names. Name each."
            )
        return replace(self, class_names=class_names)

    def arrays(self) -> dict[str, np.ndarray]:
        """What an npz file holds of these examples."""
        wide = Dirichlet(self.dirichlet.log_concentration.double())
        found = {
            "log_concentration": self.dirichlet.log_concentration,
            "probabilities": self.dirichlet.mean,
            "total": wide.total,  # infinite beyond 1e308; its logarithm, in the first entry, is not
            "predicted": self.dirichlet.log_concentration.argmax(-1),
            **{f"{SCORE_PREFIX}{name}": score for name, score in self.scores.items()},
        }
        if self.labels is not None:
            found["labels"] = self.labels
        if self.sets is not None:
            found |= {"set_classes": self.sets.classes, "set_sizes": self.sets.size}
        arrays = {name: tensor.cpu().numpy() for name, tensor in found.items()}
        if self.example_names:
            arrays["names"] = np.array(self.example_names)
        return arrays


def known(label: int) -> int | None:
    """A label, or None for the number that stands for none.

    Args:
        label: A class, or −100.
    """
    return None if label == IGNORED_LABEL else label


def rounded(value: float) -> float | None:
    """A number with few enough digits for text; None if it is beyond the range, which JSON cannot say.

    Args:
        value: The number.
    """
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None


def write_json_lines(stream: BufferedIOBase, batches: Iterable[Predictions], *, top: int | None) -> None:
    """Writes one JSON object for each example.

    Args:
        stream: Where to.
        batches: The predictions.
        top: How many classes to name, or None for all probabilities.
    """
    for batch in batches:
        write_records(stream, batch.records(top=top))


def write_records(stream: BufferedIOBase, records: Iterable[Mapping[str, Any]]) -> None:
    """Writes JSON objects, one on each line.

    Args:
        stream: Where to.
        records: What to write.
    """
    lines = (json.dumps(record, ensure_ascii=False, allow_nan=False) for record in records)
    stream.writelines(f"{line}\n".encode() for line in lines)


def write_csv(stream: BufferedIOBase, batches: Iterable[Predictions], *, top: int | None) -> None:
    """Writes one line for each example under a line of names; the classes of a set have semicolons between.

    Args:
        stream: Where to.
        batches: The predictions.
        top: How many classes to name, or None for all probabilities.
    """
    write_table(stream, (_flat(record, batch) for batch in batches for record in batch.records(top=top)))


def write_table(stream: BufferedIOBase, rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes CSV with the names of the first row as the first line.

    Args:
        stream: Where to.
        rows: What to write.
    """
    writer = csv.writer(codecs.getwriter("utf-8")(stream), lineterminator="\n")
    for place, row in enumerate(rows):
        if place == 0:
            writer.writerow(row.keys())
        writer.writerow(row.values())


def write_npz(stream: BufferedIOBase, batches: Iterable[Predictions], *, top: int | None) -> None:
    """Writes arrays, one row for each example, with every digit.

    Args:
        stream: Where to.
        batches: The predictions; all of them are kept until the end.
        top: Not used: the arrays hold all classes.
    """
    parts: list[dict[str, np.ndarray]] = []
    class_names: tuple[str, ...] = ()
    for batch in batches:
        parts.append(batch.arrays())
        class_names = batch.class_names
    arrays = {name: np.concatenate([part[name] for part in parts]) for name in (parts[0] if parts else ())}
    if class_names:
        arrays["class_names"] = np.array(class_names)
    write_arrays(stream, arrays)


def write_arrays(stream: BufferedIOBase, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes an npz file, also to a pipe, which cannot be written to out of order.

    Args:
        stream: Where to.
        arrays: By name.
    """
    buffer = BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    stream.write(buffer.getbuffer())


FORMATS: dict[str, Callable[..., None]] = {"jsonl": write_json_lines, "csv": write_csv, "npz": write_npz}
SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".npz": "npz"}


def format_of(output: str, chosen: str | None) -> str:
    """The format that was asked for, or that the name of a file ends in.

    Args:
        output: A path, or ``-`` for standard output.
        chosen: The name of a format, if given.

    Raises:
        BadParameter: If there is no such format.
    """
    if chosen is not None and chosen not in FORMATS:
        raise typer.BadParameter(f"'{chosen}' is not one of {', '.join(FORMATS)}.", param_hint="--format")
    found = chosen or ("jsonl" if output == STANDARD_STREAM else SUFFIXES.get(Path(output).suffix.lower()))
    if found is None:
        raise typer.BadParameter(
            f"{output} does not say what to write: end it in {', '.join(SUFFIXES)}, or give --format.",
            param_hint="--output",
        )
    return found


def _flat(record: Mapping[str, Any], batch: Predictions) -> dict[str, Any]:
    """A record with one value in each column."""
    flat: dict[str, Any] = {}
    for name, value in record.items():
        if name == "probabilities":
            flat |= {f"p_{batch.named(index)}": probability for index, probability in enumerate(value)}
        elif name == "top":
            for place, (member, probability) in enumerate(zip(value, record["top_probabilities"]), start=1):
                flat |= {f"top_{place}": member, f"top_{place}_probability": probability}
        elif name == "set":
            flat[name] = ";".join(str(member) for member in value)
        elif name != "top_probabilities":
            flat[name] = value
    return flat
