"""What can be scored: tables, arrays and images, in batches, with what tells that they
have not changed since.
"""

import hashlib
import inspect
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import torch

from laplacebridge._extras import needs_extra
from laplacebridge._files import read_arrays
from laplacebridge._images import (
    IMAGE_SUFFIXES,
    ImagePreparation,
    Prepare,
    are_images_of_bytes,
    images_in,
    read_images,
)
from laplacebridge.errors import InputError

SUFFIXES = (".parquet", ".csv", ".npz")
INPUT_COLUMNS, LABEL_COLUMNS = ("features", "inputs"), ("label", "labels")
IMAGE_COLUMN = "file"
Batch = tuple[np.ndarray, dict[str, Any]]  # inputs, and columns that are copied


class Source(ABC):
    """Examples, in an order that stays."""

    path: Path

    @abstractmethod
    def about(self) -> dict[str, Any]:
        """What changes when they do."""

    @abstractmethod
    def batches(self, keep: Sequence[str], batch_size: int) -> Iterator[Batch]:
        """Inputs, and columns that are copied.

        Args:
            keep: Names of these columns.
            batch_size: Examples in a batch.
        """


def open_source(path: Path, prepare: Prepare | None = None) -> Source:
    """What a path stands for.

    Args:
        path: A file, or a folder of images.
        prepare: What is done to images.

    Raises:
        InputError: If it cannot be scored.
    """
    if path.is_dir():
        return ImageFiles(path, images_in(path), prepare)
    if path.suffix not in SUFFIXES:
        raise InputError(
            f"{path} cannot be scored: it is none of {', '.join(SUFFIXES)}, and no folder of"
            " images."
        )
    return _File(path, prepare)


class ImageFiles(Source):
    """Some images of a folder.

    Args:
        folder: The folder.
        paths: Which images.
        prepare: From an image of pillow to what the network takes; by default numbers
            from 0 to 1.

    Raises:
        InputError: If there are none.
    """

    def __init__(self, folder: Path, paths: Sequence[Path], prepare: Prepare | None = None) -> None:
        if not paths:
            raise InputError(
                f"{folder} needs images; found none that end in"
                f" {', '.join(sorted(IMAGE_SUFFIXES))}."
            )
        self.path, self.paths, self.prepare = folder, paths, prepare or ImagePreparation()

    def about(self) -> dict[str, Any]:
        """The names, sizes and times of the files, and how they are prepared."""
        facts = []
        for path in self.paths:
            status = path.stat()
            facts.append(f"{path.name} {status.st_size} {status.st_mtime_ns}")
        digest = hashlib.sha256("\n".join(facts).encode(errors="surrogateescape")).hexdigest()
        prepared = f"{_shown(self.prepare)}{_code_digest(self.prepare)}"
        return {"source": self.path.name, "images": digest, "prepared": prepared}

    def batches(self, keep: Sequence[str], batch_size: int) -> Iterator[Batch]:
        """Images and the names of their files.

        Args:
            keep: Nothing: images have no columns.
            batch_size: Images in a batch.

        Raises:
            InputError: If columns are to be kept.
        """
        if keep:
            raise InputError(f"Images have no column '{keep[0]}' to keep; their names are kept.")
        for start in range(0, len(self.paths), batch_size):
            paths = self.paths[start : start + batch_size]
            names = [path.name for path in paths]
            yield read_images(paths, self.prepare).numpy(), {IMAGE_COLUMN: names}


def _shown(value: object) -> str:
    """A value in words, without where it lies in memory, which says nothing about it."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def _code_digest(function: object) -> str:
    """What tells two functions apart that may have the same name, as lambdas have:
    code, constants, defaults and variables that they close over. Nothing of other
    objects.
    """
    if not isinstance(function, FunctionType):
        return ""
    closed_over = inspect.getclosurevars(function).nonlocals
    facts = (_code_facts(function.__code__), _shown(function.__defaults__), _shown(closed_over))
    return f" {hashlib.sha256(repr(facts).encode(errors='surrogateescape')).hexdigest()}"


def _code_facts(code: CodeType) -> tuple[object, ...]:
    constants = [
        _code_facts(each)
        if isinstance(each, CodeType)
        # the order of a set differs from process to process
        else sorted(map(repr, each))
        if isinstance(each, frozenset)
        else repr(each)
        for each in code.co_consts
    ]
    return code.co_code, code.co_names, constants


class _File(Source):
    """A parquet, csv or npz file."""

    def __init__(self, path: Path, prepare: Prepare | None = None) -> None:
        self.path = path
        self.prepare: ImagePreparation | None = None  # of images of bytes
        if path.suffix == ".npz" and isinstance(prepare, ImagePreparation):
            self.prepare = prepare

    def about(self) -> dict[str, Any]:
        status = os.stat(self.path)
        prepared = {} if self.prepare is None else {"prepared": _shown(self.prepare)}
        return {
            "source": self.path.name,
            "bytes": status.st_size,
            "modified": status.st_mtime_ns,
            **prepared,
        }

    def batches(self, keep: Sequence[str], batch_size: int) -> Iterator[Batch]:
        if self.path.suffix == ".npz":
            yield from self._arrays(keep, batch_size)
            return
        pyarrow, _ = arrow()
        try:
            for batch in self._tables(batch_size):
                yield self._of_table(batch, keep)
        except pyarrow.ArrowInvalid as error:
            raise InputError(
                f"{self.path} cannot be read: it is empty, damaged or of another format ({error})."
            ) from error

    def _tables(self, batch_size: int) -> Iterator[Any]:
        _, parquet = arrow()
        if self.path.suffix == ".parquet":
            with parquet.ParquetFile(self.path) as file:
                yield from file.iter_batches(batch_size=batch_size)
        else:
            from pyarrow import csv

            yield from csv.read_csv(self.path).to_batches(max_chunksize=batch_size)

    def _arrays(self, keep: Sequence[str], batch_size: int) -> Iterator[Batch]:
        arrays = read_arrays(self.path)
        name = next((each for each in INPUT_COLUMNS if each in arrays), None)
        if name is None or not set(keep) <= arrays.keys():
            raise InputError(
                f"{self.path} needs `features` or `inputs`, and {list(keep)} to keep; it holds"
                f" {', '.join(arrays) or 'nothing'}."
            )
        inputs = arrays[name]
        prepare = self.prepare if are_images_of_bytes(inputs) else None
        for start in range(0, len(inputs), batch_size):
            rows = slice(start, start + batch_size)
            some = inputs[rows]
            if prepare is not None:
                some = prepare.of_bytes(torch.from_numpy(some)).numpy()
            yield some, {each: arrays[each][rows] for each in keep}

    def _of_table(self, batch: Any, keep: Sequence[str]) -> Batch:  # noqa: ANN401
        names = batch.schema.names
        missing = [name for name in keep if name not in names]
        if missing:
            raise InputError(
                f"{self.path} has no column '{missing[0]}' to keep: {', '.join(names)}."
            )
        kept = {name: batch.column(name) for name in keep}
        lists = next((name for name in INPUT_COLUMNS if name in names), None)
        try:
            if lists is not None:
                return np.array(batch.column(lists).to_pylist(), np.float64), kept
            others = [name for name in names if name not in {*keep, *LABEL_COLUMNS}]
            columns = [
                np.asarray(batch.column(name).to_numpy(zero_copy_only=False), np.float64)
                for name in others
            ]
            return np.stack(columns, -1), kept
        except (ValueError, TypeError) as error:
            raise InputError(
                f"{self.path} needs a column `features` of lists of numbers, of equal length, or"
                f" columns of numbers beside those to keep; it has {', '.join(names)}: {error}."
            ) from error


def arrow() -> tuple[Any, Any]:
    """pyarrow, and its module for parquet.

    Raises:
        LaplaceBridgeError: If it is not installed.
    """
    with needs_extra("score", "Scoring files"):
        import pyarrow
        from pyarrow import parquet
    return pyarrow, parquet
