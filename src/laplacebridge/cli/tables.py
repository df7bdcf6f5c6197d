"""Batches of rows of a table: CSV or JSON lines, of a file or of standard input."""

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TextIO

import torch
from torch import Tensor

from laplacebridge.cli.readers import INPUT_NAMES
from laplacebridge.errors import InputError
from laplacebridge.laplace.batch import LABEL_NAMES

# Columns of a table that are several labels at once.
LABEL_PREFIX = "label_"
# What is written where a number is missing: no names of classes.
MISSING = {"na", "n/a", "nan", "none", "null", "missing"}


class Row(NamedTuple):
    """One example of a table."""

    line: int
    values: list[float]
    # as it is written: an integer, or the name of a class; several at once as numbers
    label: str | tuple[float, ...] | None


class TableBatches:
    """Batches of rows that are read as they are needed.

    Each line is a JSON list of numbers, a JSON object with `features` (or `inputs`) and
    perhaps `label`, or numbers with commas between. A first line of names may call one
    of the columns `label`; without one, words at the end of rows of numbers are labels
    too. A label is an integer counted from 0, or the name of a class. Several labels at
    once are ones and zeros: a JSON list under `labels`, or columns whose names begin
    with `label_`.

    Args:
        path: The file, or None for standard input.
        batch_size: Examples in a batch.
        class_names: The classes in the order of the network; by default the names among
            the labels of a file, sorted.
    """

    def __init__(self, path: Path | None, batch_size: int, class_names: Sequence[str]) -> None:
        self.path, self.batch_size = path, batch_size
        self.name = "standard input" if path is None else str(path)
        self.class_names = tuple(class_names) or (
            () if path is None else self._names_among_labels()
        )

    def __iter__(self) -> Iterator[Tensor | tuple[Tensor, Tensor]]:
        rows = self._rows()
        while batch := list(islice(rows, self.batch_size)):
            values = torch.tensor([row.values for row in batch], dtype=torch.float64)
            if batch[0].label is None:
                yield values
            elif isinstance(batch[0].label, tuple):
                yield values, torch.tensor([row.label for row in batch], dtype=torch.float64)
            else:
                yield values, torch.tensor([self._class(row) for row in batch])

    def _names_among_labels(self) -> tuple[str, ...]:
        if self.path is not None and (several := _names_of_labels(self.path)):
            return several
        rows = self._rows()
        first = next(rows, None)
        if first is None or not isinstance(first.label, str) or _is_number(first.label):
            return ()
        return tuple(sorted({first.label, *(str(row.label) for row in rows)}))

    def _class(self, row: Row) -> int:
        label = str(row.label or "")
        if label.removeprefix("-").isdecimal():
            return int(label)
        if label not in self.class_names:
            known = (
                f"none of the classes {', '.join(self.class_names)}"
                if self.class_names
                else "not an integer"
            )
            raise InputError(
                f"{self.name}, line {row.line}: the label '{label}' is {known}. Count classes from"
                " 0, or name them in the order of the network with --classes."
            )
        return self.class_names.index(label)

    def _rows(self) -> Iterator[Row]:
        """All rows, which must be alike."""
        with (
            nullcontext(sys.stdin) if self.path is None else open(self.path, encoding="utf-8-sig")
        ) as stream:
            first: Row | None = None
            for row in self._parsed(stream):
                first = first or row
                if len(row.values) != len(first.values) or _kind(row) != _kind(first):
                    raise InputError(
                        f"{self.name}, line {row.line}: every row needs {len(first.values)} numbers"
                        f" {'without' if first.label is None else 'and'} a label, like the first;"
                        f" this one has {len(row.values)}"
                        f" {'without' if row.label is None else 'and'} a label."
                    )
                yield row

    def _parsed(self, stream: TextIO) -> Iterator[Row]:
        is_json: bool | None = None
        label_column: int | None = None
        label_columns: list[int] = []
        has_rows = False
        number, line = 0, ""
        try:
            for number, line in enumerate(stream, start=1):
                if not line.strip():
                    continue
                is_first, is_json = (
                    is_json is None,
                    (line.lstrip()[0] in "[{" if is_json is None else is_json),
                )
                if is_json:
                    yield _json_row(number, line)
                    continue
                cells = [cell.strip() for cell in next(csv.reader([line]))]
                if is_first and _are_names(cells):
                    label_column, label_columns = _label_column(cells), _label_columns(cells)
                    continue
                is_first_row, has_rows = not has_rows, True
                if is_first_row and label_column is None and _ends_in_a_class(cells):
                    label_column = len(cells) - 1
                if label_columns:
                    label: str | tuple[float, ...] | None = tuple(
                        float(cells[place]) for place in label_columns
                    )
                    cells = [cell for place, cell in enumerate(cells) if place not in label_columns]
                else:
                    label = None if label_column is None else cells.pop(label_column)
                yield Row(number, [float(cell) for cell in cells], label)
        except UnicodeDecodeError as error:
            raise InputError(
                f"{self.name} is not text. Give CSV or JSON lines, or an .npz file."
            ) from error
        except (ValueError, TypeError, LookupError, csv.Error) as error:
            raise InputError(
                f"{self.name}, line {number}: needs numbers with commas between, a JSON list of"
                " numbers, or a JSON object with `features` and perhaps `label`; got"
                f" {line.strip()[:60]!r}. A first line may name the columns, one of them `label`."
            ) from error


def _json_row(number: int, line: str) -> Row:
    value, label = json.loads(line), None
    if isinstance(value, dict):
        label = next((value[name] for name in LABEL_NAMES if name in value), None)
        value = value[INPUT_NAMES[0] if INPUT_NAMES[0] in value else INPUT_NAMES[1]]
    written: str | tuple[float, ...] | None
    if isinstance(label, list):
        written = tuple(float(each) for each in label)
    else:
        written = label if label is None or isinstance(label, str) else str(int(label))
    return Row(number, [float(entry) for entry in value], written)


def _kind(row: Row) -> int | None:
    """How many labels a row has: None for none, 0 for a class."""
    if row.label is None:
        return None
    return len(row.label) if isinstance(row.label, tuple) else 0


def _names_of_labels(path: Path) -> tuple[str, ...]:
    """Names of several labels, from the first line of a table that has a column for
    each.
    """
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        line = stream.readline()
    cells = [cell.strip() for cell in next(csv.reader([line]), [])]
    return tuple(cells[place].removeprefix(LABEL_PREFIX) for place in _label_columns(cells))


def column_names(path: Path) -> list[str] | None:
    """Names of the columns of a .csv file, without that of the label; None if it has
    none.
    """
    if not (path.is_file() and path.suffix == ".csv"):
        return None
    with path.open(encoding="utf-8-sig", newline="") as stream:
        lines = csv.reader(stream)
        cells = [cell.strip() for cell in next(lines, [])]
        first = [cell.strip() for cell in next(lines, [])]
    if not cells or not _are_names(cells):
        return None
    labels = {_label_column(cells), *_label_columns(cells)}
    if labels == {None} and _ends_in_a_class(first):
        labels = {len(first) - 1}
    return [cell for place, cell in enumerate(cells) if place not in labels]


def _are_names(cells: Sequence[str]) -> bool:
    """Whether a first line names the columns: no cell is a number, or one is the name
    of the label's column.
    """
    return not any(map(_is_number, cells)) or _label_column(cells) is not None


def _label_column(names: Sequence[str]) -> int | None:
    lower = [name.lower() for name in names]
    return next((lower.index(name) for name in LABEL_NAMES if name in lower), None)


def _label_columns(names: Sequence[str]) -> list[int]:
    """Columns of several labels at once: two and more that begin alike."""
    if _label_column(names) is not None:
        return []
    found = [place for place, name in enumerate(names) if name.startswith(LABEL_PREFIX)]
    return found if len(found) > 1 else []


def _ends_in_a_class(cells: Sequence[str]) -> bool:
    """Whether a row is numbers and a name at the end, as tables of examples often are."""
    *values, last = cells
    is_name = any(map(str.isalpha, last)) and last.lower() not in MISSING
    return bool(values) and all(map(_is_number, values)) and is_name and not _is_number(last)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
