"""Data from the command line: loaders, arrays, tables, folders of images and standard
input, as batches.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import typer
from torch import Tensor, nn

from laplacebridge.cli.models import call_factory, import_object
from laplacebridge.cli.options import STANDARD_STREAM
from laplacebridge.cli.readers import ArrayBatches, ImageBatches, Preparation
from laplacebridge.cli.tables import TableBatches
from laplacebridge.errors import InputError, LaplaceBridgeError
from laplacebridge.laplace.batch import unpack_batch

TABLE_SUFFIXES = (".csv", ".jsonl", ".ndjson")


class Batches:
    """Batches that the user named, as a network takes them.

    Args:
        source: What the user wrote.
        batches: The batches as they were read.
        holds: ``"inputs"`` or ``"features"`` if the data say so.
        is_loader: Whether they come from the user's own code: numbers keep their type,
            and failures name it.
        class_names: The classes that labels were made from, which are names of folders
            or in a table.
        example_names: Names of files, one for each example.
    """

    def __init__(
        self,
        source: str,
        batches: Iterable[Any],
        *,
        holds: str = "",
        is_loader: bool = False,
        class_names: Sequence[str] = (),
        example_names: Sequence[str] = (),
    ) -> None:
        self.source, self.batches, self.holds, self.is_loader = source, batches, holds, is_loader
        self.class_names, self.example_names = tuple(class_names), tuple(example_names)
        self._device, self._dtype, self._labels_for = torch.device("cpu"), torch.float32, ""

    def prepared_for(self, network: nn.Module, *, labels_for: str = "") -> "Batches":
        """These batches, from now on in the type of a network and on its device.

        Args:
            network: The network.
            labels_for: What labels are needed for; an empty string if they are not.
        """
        parameter = next(network.parameters(), torch.empty(0))
        self._device, self._dtype, self._labels_for = parameter.device, parameter.dtype, labels_for
        return self

    def shard(self, number: int, count: int) -> None:
        """Keeps every so many-th batch alone.

        Args:
            number: Of the shard, from 1.
            count: How many shards there are.
        """
        whole, every = self.batches, slice(number - 1, None, count)
        if isinstance(whole, (list, tuple, ArrayBatches, ImageBatches)):
            self.batches = whole[every]
        else:  # read in order, since nothing is known about it
            self.batches = _Shard(whole, every)

    def __len__(self) -> int:
        return len(self.batches)  # type: ignore[arg-type]  # a TypeError says that it is not known

    def __iter__(self) -> Iterator[Any]:
        for index, batch in enumerate(self._read()):
            ready = self._moved(batch)
            if self._labels_for and unpack_batch(ready).labels is None:
                raise InputError(
                    f"{self.source} has no labels, which are needed {self._labels_for}: batch"
                    f" {index} (counted from 0) has inputs alone."
                )
            yield ready

    def _read(self) -> Iterator[Any]:
        try:
            yield from self.batches
        except Exception as error:
            if not self.is_loader:
                raise
            raise LaplaceBridgeError(
                f"`{self.source}` failed: {type(error).__name__}: {error}"
            ) from error

    def _moved(self, value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, Tensor):
            casts = value.is_floating_point() and not self.is_loader
            return value.to(self._device, self._dtype if casts else value.dtype)
        if isinstance(value, Mapping):
            return {key: self._moved(entry) for key, entry in value.items()}
        if isinstance(value, (tuple, list)):
            return tuple(self._moved(entry) for entry in value)
        return value

    def require_classes(self, num_classes: int, *, were_given: bool) -> None:
        """Makes sure that class names are those of the model, all of them.

        Args:
            num_classes: K of the model.
            were_given: Whether the user named the classes; otherwise they were found in
                the data.

        Raises:
            InputError: If there are more or fewer names than classes.
        """
        if not self.class_names or len(self.class_names) == num_classes:
            return
        if were_given:
            raise InputError(
                f"The model has {num_classes} classes, and --classes names {len(self.class_names)}."
                " Name each of them."
            )
        raise InputError(
            f"The model has {num_classes} classes, and {self.source} names {len(self.class_names)},"
            " so that it is not known which is which. Name all classes in the order of the model"
            " with --classes."
        )

    def require_same_classes(self, other: "Batches") -> None:
        """Makes sure that two sources mean the same classes by the same numbers.

        Args:
            other: Another source, such as the training data.

        Raises:
            InputError: If both found names of classes, and not the same.
        """
        if self.class_names and other.class_names and self.class_names != other.class_names:
            unlike = sorted(set(self.class_names) ^ set(other.class_names))
            raise InputError(
                f"{self.source} and {other.source} name different classes"
                f" ({', '.join(unlike[:5]) or 'in another order'}), so that it is not known which"
                " is which. Name all classes in the order of the model with --classes."
            )


class _Shard:
    """Every so many-th batch of a loader."""

    def __init__(self, batches: Iterable[Any], every: slice) -> None:
        self.batches, self.every = batches, every

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self.batches), self.every.start, None, self.every.step)


def open_data(
    source: str,
    *,
    batch_size: int,
    class_names: Sequence[str] = (),
    preparation: Preparation = Preparation(),
    option: str = "DATA",
) -> Batches:
    """Data as the user named them.

    Args:
        source: A file, a folder, ``package.module:name`` or ``-``.
        batch_size: Examples in a batch.
        class_names: Names of the classes, if given.
        preparation: What is done to images.
        option: The option that they were given with.

    Raises:
        BadParameter: If there is nothing of that name.
    """
    path = Path(source)
    if source == STANDARD_STREAM:
        table = TableBatches(None, batch_size, class_names)
        return Batches(table.name, table, class_names=table.class_names)
    if path.is_dir():
        images = ImageBatches(
            path, class_names=class_names, preparation=preparation, batch_size=batch_size
        )
        return Batches(
            source,
            images,
            holds="inputs",
            class_names=images.class_names,
            example_names=images.example_names,
        )
    if path.is_file() and path.suffix == ".npz":
        arrays = ArrayBatches(
            path, class_names=class_names, preparation=preparation, batch_size=batch_size
        )
        return Batches(source, arrays, holds=arrays.holds, class_names=arrays.class_names)
    if path.is_file() and path.suffix in TABLE_SUFFIXES:
        table = TableBatches(path, batch_size, class_names)
        return Batches(source, table, class_names=table.class_names)
    if path.exists():
        raise typer.BadParameter(
            f"{source} is not data: a file must be {', '.join(('.npz', *TABLE_SUFFIXES))}.",
            param_hint=option,
        )
    if ":" not in source:
        raise typer.BadParameter(
            f"there is no file or folder {source}; a loader is written package.module:name.",
            param_hint=option,
        )
    return Batches(source, _loader(source, option), is_loader=True, class_names=class_names)


def read_class_names(path: Path | None) -> tuple[str, ...]:
    """Names of classes from a file, one on each line or a JSON list; none without a
    file.
    """
    if path is None:
        return ()
    try:
        text = path.read_text(encoding="utf-8-sig").strip()
        names = json.loads(text) if text.startswith("[") else text.splitlines()
    except ValueError as error:
        raise InputError(f"{path} is neither lines of text nor a JSON list: {error}.") from error
    if not all(isinstance(name, str) for name in names):
        raise InputError(f"{path} needs one text for each class; got {names[:3]} …")
    names = [name.strip() for name in names]
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InputError(f"{path} names the class '{repeated[0]}' more than once.")
    return tuple(names)


def _loader(source: str, option: str) -> Iterable[Any]:
    loader = import_object(source, option)
    if isinstance(loader, type) or not hasattr(loader, "__iter__"):
        loader = call_factory(source, loader)
    if not hasattr(loader, "__iter__"):
        raise InputError(
            f"`{source}` must return batches to iterate over; it returned {type(loader).__name__}."
        )
    return loader
