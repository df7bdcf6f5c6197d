"""Batches from arrays and tables: `.npz` files, and rows of numbers as CSV or JSON lines, from a file or a pipe."""

import csv
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np
import torch
from torch import Tensor

from laplacebridge.cli.weights import read_arrays
from laplacebridge.errors import LaplaceBridgeError
from laplacebridge.laplace.batch import LABEL_NAMES

INPUT_NAMES = ("inputs", "features")


class Row(NamedTuple):
    """One example of a table."""

    values: list[float]
    label: int | None


class ArrayBatches:
    """Batches of arrays that are in memory.

    Args:
        inputs: Inputs or features, one row for each example.
        labels: Their labels, or None.
        batch_size: Examples in a batch.
    """

    def __init__(self, inputs: Tensor, labels: Tensor | None, batch_size: int) -> None:
        self.inputs, self.labels, self.batch_size = inputs, labels, batch_size

    def __len__(self) -> int:
        return -(-len(self.inputs) // self.batch_size)

    def __iter__(self) -> Iterator[Tensor | tuple[Tensor, Tensor]]:
        for start in range(0, len(self.inputs), self.batch_size):
            rows = slice(start, start + self.batch_size)
            yield self.inputs[rows] if self.labels is None else (self.inputs[rows], self.labels[rows])


def npz_batches(path: Path, *, batch_size: int) -> tuple[ArrayBatches, str]:
    """Batches of an npz file, and whether they are `inputs` or `features`.

    Args:
        path: A file with `inputs` or `features`, and perhaps `labels`.
        batch_size: Examples in a batch.

    Raises:
        LaplaceBridgeError: If it does not hold these.
    """
    arrays = read_arrays(path)
    name = next((name for name in INPUT_NAMES if name in arrays), None)
    held = ", ".join(f"`{key}` {array.shape}" for key, array in arrays.items()) or "nothing"
    if name is None or arrays[name].ndim < 2 or arrays[name].dtype.kind not in "fiu":
        raise LaplaceBridgeError(
            f"{path} needs numbers under `inputs` or `features`, one row for each example; it holds {held}."
        )
    labels = arrays.get("labels")
    if labels is not None and (labels.dtype.kind not in "iu" or labels.shape[:1] != arrays[name].shape[:1]):
        raise LaplaceBridgeError(
            f"{path} needs one integer in `labels` for each row of `{name}`; it holds {held}, labels of type "
            f"{labels.dtype}. Count classes from 0."
        )
    inputs = _as_tensor(arrays[name])
    return ArrayBatches(inputs, None if labels is None else _as_tensor(labels), batch_size), name


class TableBatches:
    """Batches of rows that are read as they are needed.

    Each line is a JSON list of numbers, a JSON object with `features` (or `inputs`) and perhaps `label`, or numbers
    with commas between. A first line of names may call one of the columns `label`.

    Args:
        path: The file, or None for standard input.
        batch_size: Examples in a batch.
    """

    def __init__(self, path: Path | None, batch_size: int) -> None:
        self.path, self.batch_size = path, batch_size
        self.name = "standard input" if path is None else str(path)

    def __iter__(self) -> Iterator[Tensor | tuple[Tensor, Tensor]]:
        with nullcontext(sys.stdin) if self.path is None else open(self.path, encoding="utf-8-sig") as stream:
            rows: list[Row] = []
            for row in self._rows(stream):
                rows.append(row)
                if len(rows) == self.batch_size:
                    yield _batch(rows)
                    rows = []
            if rows:
                yield _batch(rows)

    def _rows(self, stream: TextIO) -> Iterator[Row]:
        lines = ((number, line) for number, line in enumerate(stream, start=1) if line.strip())
        first = next(lines, None)
        if first is None:
            return
        rows = _json_rows if first[1].lstrip()[0] in "[{" else _csv_rows
        expected: Row | None = None
        for number, row in self._explained(rows(chain([first], lines))):
            expected = expected or row
            if len(row.values) != len(expected.values) or (row.label is None) != (expected.label is None):
                raise LaplaceBridgeError(
                    f"{self.name}, line {number}: every row needs {len(expected.values)} numbers "
                    f"{'without' if expected.label is None else 'and'} a label, like the first; this one has "
                    f"{len(row.values)} {'without' if row.label is None else 'and'} a label."
                )
            yield row

    def _explained(self, rows: Iterable[tuple[int, Row]]) -> Iterator[tuple[int, Row]]:
        try:
            yield from rows
        except UnicodeDecodeError as error:
            raise LaplaceBridgeError(f"{self.name} is not text. Give CSV or JSON lines, or an .npz file.") from error
        except _LineError as error:
            raise LaplaceBridgeError(
                f"{self.name}, line {error.number}: needs numbers with commas between, a JSON list of numbers, or a "
                f"JSON object with `features` and perhaps `label`; got {error.line.strip()[:60]!r}."
            ) from error


class _LineError(Exception):
    def __init__(self, number: int, line: str) -> None:
        super().__init__(line)
        self.number, self.line = number, line


def _json_rows(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, Row]]:
    for number, line in lines:
        yield number, _json_row(number, line)


def _json_row(number: int, line: str) -> Row:
    try:
        value, label = json.loads(line), None
        if isinstance(value, dict):
            label = next((int(value[name]) for name in LABEL_NAMES if name in value), None)
            value = next(value[name] for name in INPUT_NAMES if name in value)
        return Row([float(entry) for entry in value], label)
    except (ValueError, TypeError, StopIteration) as error:
        raise _LineError(number, line) from error


def _csv_rows(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, Row]]:
    label_column: int | None = None
    for place, (number, line) in enumerate(lines):
        cells = next(csv.reader([line]))
        if place == 0 and not _are_numbers(cells):
            names = [cell.strip().lower() for cell in cells]
            label_column = next((names.index(name) for name in LABEL_NAMES if name in names), None)
            continue
        try:
            label = None if label_column is None else int(cells.pop(label_column))
            yield number, Row([float(cell) for cell in cells], label)
        except (ValueError, IndexError) as error:
            raise _LineError(number, line) from error


def _are_numbers(cells: list[str]) -> bool:
    try:
        return len([float(cell) for cell in cells]) > 0
    except ValueError:
        return False


def _batch(rows: list[Row]) -> Tensor | tuple[Tensor, Tensor]:
    values = torch.tensor([row.values for row in rows], dtype=torch.float64)
    labels = [row.label for row in rows if row.label is not None]
    return (values, torch.tensor(labels)) if labels else values


def _as_tensor(array: np.ndarray) -> Tensor:
    """A tensor that torch computes with: integers as int64, numbers as float32 or float64."""
    wide = array.astype(np.int64) if array.dtype.kind in "iu" else array.astype(np.float64, copy=False)
    return torch.from_numpy(np.ascontiguousarray(array if array.dtype == np.float32 else wide))
