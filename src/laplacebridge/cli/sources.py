"""Data from the command line: loaders, arrays, tables, folders of images and standard input, as batches."""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import typer
from torch import Tensor, nn
from tqdm import tqdm

from laplacebridge.cli import arrays, images
from laplacebridge.cli.modules import called, imported, require_file
from laplacebridge.cli.outputs import STANDARD_STREAM
from laplacebridge.errors import LaplaceBridgeError
from laplacebridge.laplace.batch import unpack_batch

TABLE_SUFFIXES = (".csv", ".jsonl", ".ndjson")


@dataclass(frozen=True)
class Reading:
    """How data are read.

    Attributes:
        batch_size: Examples in a batch.
        class_names: Names of the classes, if given.
        preparation: What is done to images.
    """

    batch_size: int
    class_names: tuple[str, ...]
    preparation: images.Preparation


@dataclass(frozen=True)
class Data:
    """Batches as they were read.

    Attributes:
        source: What the user wrote.
        batches: The batches.
        holds: ``"inputs"`` or ``"features"`` if the data say so.
        casts: Whether numbers may be converted to the type of the network; a loader's are left alone.
        class_names: Names of subfolders.
        example_names: Names of files, one for each example.
    """

    source: str
    batches: Iterable[Any]
    holds: str = ""
    casts: bool = True
    class_names: tuple[str, ...] = ()
    example_names: tuple[str, ...] = ()


def data_from(source: str, reading: Reading, *, option: str = "DATA") -> Data:
    """Data as the user named them.

    Args:
        source: A file, a folder, ``package.module:name`` or ``-``.
        reading: How to read them.
        option: What the user wrote the source behind.

    Raises:
        BadParameter: If there is nothing of that name.
    """
    path = Path(source)
    if source == STANDARD_STREAM:
        return Data("standard input", arrays.TableBatches(None, reading.batch_size))
    if path.is_dir():
        pictures = images.ImageBatches(
            path,
            class_names=reading.class_names or None,
            preparation=reading.preparation,
            batch_size=reading.batch_size,
        )
        return Data(source, pictures, "inputs", class_names=pictures.class_names, example_names=tuple(pictures.names))
    if path.is_file() and path.suffix == ".npz":
        batches, holds = arrays.npz_batches(path, batch_size=reading.batch_size)
        return Data(source, batches, holds)
    if path.is_file() and path.suffix in TABLE_SUFFIXES:
        return Data(source, arrays.TableBatches(path, reading.batch_size))
    if path.exists():
        raise typer.BadParameter(
            f"{source} is not data: a file must be {', '.join(('.npz', *TABLE_SUFFIXES))}.", param_hint=option
        )
    if ":" not in source:
        raise typer.BadParameter(
            f"there is no file or folder {source}; a loader is written package.module:name.", param_hint=option
        )
    return Data(source, _LoaderBatches(source, _loader(source, option)), casts=False)


def preparation_of(size: int | None, mean: str, deviation: str) -> images.Preparation:
    """What is done to images, from the options of a command.

    Args:
        size: Side of the square.
        mean: One number or three, with commas between.
        deviation: The same.
    """
    return images.Preparation(size, _numbers(mean, "--mean"), _numbers(deviation, "--std"))


def class_names_from(path: Path | None) -> tuple[str, ...]:
    """Names of classes from a file; none without one.

    Args:
        path: One name on each line, or a JSON list.

    Raises:
        LaplaceBridgeError: If it holds something else, or a name twice.
    """
    if path is None:
        return ()
    require_file(path, "--classes")
    try:
        text = path.read_text(encoding="utf-8-sig").strip()
        names = json.loads(text) if text.startswith("[") else text.splitlines()
    except ValueError as error:
        raise LaplaceBridgeError(f"{path} is neither lines of text nor a JSON list: {error}.") from error
    if not all(isinstance(name, str) for name in names):
        raise LaplaceBridgeError(f"{path} needs one text for each class; got {names[:3]} …")
    names = [name.strip() for name in names]
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise LaplaceBridgeError(f"{path} names the class '{repeated[0]}' more than once.")
    return tuple(names)


def require_all_classes(data: Data | None, reading: Reading, num_classes: int) -> None:
    """Makes sure that names, and labels that were made from names of folders, are of the classes of the model.

    Args:
        data: The data, if there are any.
        reading: How they were read.
        num_classes: K of the model.

    Raises:
        LaplaceBridgeError: If there are more or fewer names than classes.
    """
    if reading.class_names and len(reading.class_names) != num_classes:
        raise LaplaceBridgeError(
            f"The model has {num_classes} classes, and --classes names {len(reading.class_names)}. Name each of them."
        )
    if data is not None and data.class_names and not reading.class_names and len(data.class_names) != num_classes:
        raise LaplaceBridgeError(
            f"The model has {num_classes} classes, and {data.source} has {len(data.class_names)} folders, so that it "
            "is not known which is which. Name all classes in the order of the model with --classes."
        )


class Prepared:
    """Batches on the device and in the type of a network, with a progress bar. Keeps the first one.

    Args:
        data: The batches.
        model: The network.
        progress: What to write before the bar; an empty string for no bar.
        labels_for: What labels are needed for; an empty string if they are not.
    """

    def __init__(self, data: Data, model: nn.Module, *, progress: str, labels_for: str = "") -> None:
        self.data, self.progress, self.labels_for = data, progress, labels_for
        parameter = next(model.parameters(), torch.empty(0))
        self.device, self.dtype = parameter.device, parameter.dtype
        self.first: Any = None

    def __iter__(self) -> Iterator[Any]:
        bar = tqdm(self.data.batches, desc=self.progress, unit="batch", disable=not self.progress, file=sys.stderr)
        for index, batch in enumerate(bar):
            ready = self._moved(batch)
            if index == 0:
                self.first = ready
            if self.labels_for and unpack_batch(ready).labels is None:
                raise LaplaceBridgeError(
                    f"{self.data.source} has no labels, which are needed {self.labels_for}: batch {index} (counted "
                    "from 0) has inputs alone."
                )
            yield ready

    def _moved(self, value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, Tensor):
            casts = self.data.casts and value.is_floating_point()
            return value.to(self.device, self.dtype if casts else value.dtype)
        if isinstance(value, Mapping):
            return {key: self._moved(entry) for key, entry in value.items()}
        if isinstance(value, (tuple, list)):
            return tuple(self._moved(entry) for entry in value)
        return value


class _LoaderBatches:
    """A user's loader. What goes wrong in it is reported as such."""

    def __init__(self, source: str, loader: Iterable[Any]) -> None:
        self.source, self.loader = source, loader

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]  # a TypeError says that there is none

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from self.loader
        except Exception as error:
            raise LaplaceBridgeError(f"`{self.source}` failed: {type(error).__name__}: {error}") from error


def _loader(source: str, option: str) -> Iterable[Any]:
    found = imported(source, option)
    if isinstance(found, type) or not hasattr(found, "__iter__"):
        found = called(source, found)
    if not hasattr(found, "__iter__"):
        raise LaplaceBridgeError(f"`{source}` must return batches to iterate over; it returned {type(found).__name__}.")
    return found


def _numbers(text: str, option: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) not in {1, 3} or (option == "--std" and 0 in numbers):
        raise typer.BadParameter(
            f"needs one number or three, as 0.5 or 0.485,0.456,0.406; got '{text}'.", param_hint=option
        )
    return numbers
