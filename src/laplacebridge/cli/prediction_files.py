"""Predictions as files: JSON lines, CSV and `.npz`, written batch by batch."""

import codecs
import csv
import json
from collections.abc import Callable, Iterable, Mapping
from io import BufferedIOBase, BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import typer

from laplacebridge.cli.outputs import STANDARD_STREAM
from laplacebridge.cli.predictions import Predictions


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


def write_as(
    chosen_format: str,
    stream: BufferedIOBase,
    records: Iterable[Mapping[str, Any]],
    arrays: Callable[[], Mapping[str, np.ndarray]],
) -> None:
    """Writes records as text, or what they were made of as arrays.

    Args:
        chosen_format: One of `FORMATS`.
        stream: Where to.
        records: For JSON lines; in CSV the entries of lists have semicolons between.
        arrays: Gives them for npz.
    """
    if chosen_format == "npz":
        write_arrays(stream, arrays())
    elif chosen_format == "csv":
        write_table(stream, ({name: _cell(value) for name, value in record.items()} for record in records))
    else:
        write_records(stream, records)


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
        elif name != "top_probabilities":
            flat[name] = _cell(value)
    return flat


def _cell(value: Any) -> Any:  # noqa: ANN401 - whatever JSON holds
    return ";".join(map(str, value)) if isinstance(value, list) else value
