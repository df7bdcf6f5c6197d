"""Batches from files: arrays of an `.npz` file, and images of a folder."""

from collections.abc import Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer
from torch import Tensor

from laplacebridge._files import read_arrays
from laplacebridge._images import (
    IMAGE_SUFFIXES,
    ImagePreparation,
    are_images_of_bytes,
    images_in,
    pillow,
    read_images,
)
from laplacebridge.errors import InputError

INPUT_NAMES = ("inputs", "features")


def _as_tensor(array: np.ndarray) -> Tensor:
    """A tensor that torch computes with: integers as int64, numbers as float32 or
    float64.
    """
    wide = (
        array.astype(np.int64)
        if array.dtype.kind in "iub"
        else array.astype(np.float64, copy=False)
    )
    return torch.from_numpy(np.ascontiguousarray(array if array.dtype == np.float32 else wide))


class Preparation(ImagePreparation):
    """What the options of a command do to images."""

    @classmethod
    def of_options(cls, size: int | None, mean: str, std: str) -> "Preparation":
        """From the options of a command: one number or three, with commas between."""
        return cls(size, _channels(mean, "--mean"), _channels(std, "--std"))


class ArrayBatches:
    """Batches of the arrays in an `.npz` file.

    Args:
        path: A file with `inputs` or `features`, and perhaps `labels`: numbers counted
            from 0, names of classes, or several labels at once as ones and zeros.
            Images of bytes are scaled as those of a folder are.
        class_names: The classes in the order of the network; by default the names among
            labels, sorted.
        preparation: What is done to images; their size stays.
        batch_size: Examples in a batch.

    Raises:
        InputError: If the file does not hold these.
    """

    def __init__(
        self, path: Path, *, class_names: Sequence[str], preparation: Preparation, batch_size: int
    ) -> None:
        arrays = read_arrays(path)
        name = next((name for name in INPUT_NAMES if name in arrays), None)
        held = ", ".join(f"`{key}` {array.shape}" for key, array in arrays.items()) or "nothing"
        if name is None or arrays[name].ndim < 2 or arrays[name].dtype.kind not in "fiu":
            raise InputError(
                f"{path} needs numbers under `inputs` or `features`, one row for each example; it"
                f" holds {held}."
            )
        inputs, labels = arrays[name], arrays.get("labels")
        self.holds, self.class_names = name, tuple(class_names)
        if labels is not None and labels.dtype.kind in "US" and labels.ndim == 1:
            labels = self._numbered(path, _as_texts(path, labels))
        if labels is not None and (
            labels.dtype.kind not in ("iu" if labels.ndim == 1 else "iubf")
            or labels.shape[:1] != inputs.shape[:1]
        ):
            raise InputError(
                f"{path} needs one integer or name in `labels` for each row of `{name}`; it holds"
                f" {held}, labels of type {labels.dtype}. Count classes from 0; several labels at"
                " once are ones and zeros, a column for each."
            )
        if len(inputs) == 0:
            raise InputError(f"{path} needs at least one example; it has none.")
        is_image = are_images_of_bytes(inputs)
        self.preparation = preparation if is_image else None
        parts = torch.split(
            torch.from_numpy(inputs) if is_image else _as_tensor(inputs), batch_size
        )
        self.batches: Sequence[Any] = (
            parts
            if labels is None
            else list(zip(parts, torch.split(_as_tensor(labels), batch_size)))
        )

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, batches: slice) -> "ArrayBatches":
        chosen = copy(self)
        chosen.batches = self.batches[batches]
        return chosen

    def __iter__(self) -> Iterator[Tensor | tuple[Tensor, Tensor]]:
        for batch in self.batches:
            if self.preparation is None:
                yield batch
            elif isinstance(batch, tuple):
                yield self.preparation.of_bytes(batch[0]), batch[1]
            else:
                yield self.preparation.of_bytes(batch)

    def _numbered(self, path: Path, labels: np.ndarray) -> np.ndarray:
        """Names of classes as their numbers."""
        if all(label.isdecimal() for label in labels.tolist()):
            return labels.astype(np.int64)  # as tables are read
        names, codes = np.unique(labels, return_inverse=True)
        known = self.class_names or tuple(names.tolist())
        unknown = [name for name in names if name not in known]
        if unknown:
            raise InputError(
                f"{path}: the label '{unknown[0]}' is none of the classes {', '.join(known)}. Name"
                " them in the order of the network with --classes, or count classes from 0."
            )
        self.class_names = known
        return np.array([known.index(name) for name in names])[codes]


def _as_texts(path: Path, labels: np.ndarray) -> np.ndarray:
    try:
        return np.char.decode(labels, "utf-8") if labels.dtype.kind == "S" else labels
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} needs names in UTF-8, if its labels are bytes; {error}. Store them as text."
        ) from error


class ImageBatches:
    """Batches of the images in a folder, read as they are needed, in the order of their
    names.

    Args:
        folder: With one subfolder of images for each class, or images alone.
        class_names: The classes in the order of the network; by default the names of
            the subfolders, sorted.
        preparation: What is done to every image.
        batch_size: Images in a batch.

    Raises:
        InputError: If there are no images, or a subfolder is no class.
    """

    def __init__(
        self, folder: Path, *, class_names: Sequence[str], preparation: Preparation, batch_size: int
    ) -> None:
        self.preparation, self.batch_size = preparation, batch_size
        pillow()  # refused before anything is computed
        subfolders = sorted(
            entry.name for entry in folder.iterdir() if entry.is_dir() and images_in(entry)
        )
        self.class_names = tuple(class_names or subfolders)
        unknown = [name for name in subfolders if name not in self.class_names]
        if unknown:
            raise InputError(
                f"{folder} needs subfolders that are classes; '{unknown[0]}' is none of the"
                f" {len(self.class_names)} given. Rename it, or add it to the classes."
            )
        examples = [
            (path, self.class_names.index(name))
            for name in subfolders
            for path in images_in(folder / name)
        ]
        self.paths = [path for path, _ in examples] or images_in(folder)
        self.labels = torch.tensor([label for _, label in examples]) if examples else None
        if not self.paths:
            raise InputError(
                f"{folder} needs images, in one subfolder for each class; found none that end in "
                f"{', '.join(sorted(IMAGE_SUFFIXES))}."
            )
        self.example_names = tuple(str(path.relative_to(folder)) for path in self.paths)
        self._starts = range(0, len(self.paths), batch_size)

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, batches: slice) -> "ImageBatches":
        """Some of the batches; images of others are never read."""
        chosen = copy(self)
        chosen._starts = self._starts[batches]
        return chosen

    def __iter__(self) -> Iterator[Tensor | tuple[Tensor, Tensor]]:
        for start in self._starts:
            rows = slice(start, start + self.batch_size)
            images = read_images(self.paths[rows], self.preparation)
            yield images if self.labels is None else (images, self.labels[rows])


def _channels(text: str, option: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) not in {1, 3} or (option == "--std" and 0 in numbers):
        raise typer.BadParameter(
            f"needs one number or three, as 0.5 or 0.485,0.456,0.406; got '{text}'.",
            param_hint=option,
        )
    return numbers
