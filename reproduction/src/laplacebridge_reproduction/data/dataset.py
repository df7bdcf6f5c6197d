"""A labelled data set in memory, with the hashes of the files that it was read from."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from laplacebridge._checks import rows_of
from laplacebridge.errors import LaplaceBridgeError, ShapeError

WHITE = 255


class DamagedFileError(LaplaceBridgeError, ValueError):
    """A data file is cut short, damaged or of another format."""


@dataclass(frozen=True, eq=False)
class DataSet:
    """Inputs and labels.

    Attributes:
        name: What it is, for people.
        inputs: Images as bytes, shape (N, C, H, W), or features as floating-point
            numbers, shape (N, D).
        labels: From 0, shape (N,).
        class_names: Names of the classes, in the order of the labels.
        sha256: Hash of every file that it was read from, by the file's name.

    Example:
        >>> data = DataSet(
        ...     "dots",
        ...     torch.tensor([[0.5], [2.0], [7.0]]),
        ...     torch.tensor([1, 0, 1]),
        ...     ("left", "right"),
        ... )
        >>> len(data), data[1:].labels
        (3, tensor([0, 1]))
    """

    name: str
    inputs: Tensor
    labels: Int64[Tensor, " N"]
    class_names: tuple[str, ...]
    sha256: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.labels):
            raise ShapeError(
                f"`DataSet(inputs, labels)` needs one label for each input; got {len(self.inputs)}"
                f" inputs and {len(self.labels)} labels. Do they come from the same split?"
            )
        if len(self) and not 0 <= int(self.labels.min()) <= int(self.labels.max()) < len(
            self.class_names
        ):
            raise ValueError(
                "`DataSet(labels, class_names)` needs labels from 0 to"
                f" {len(self.class_names) - 1}; got {int(self.labels.min())} to"
                f" {int(self.labels.max())}. Count them from 0, or name every class."
            )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: int | slice | Tensor | Sequence[int]) -> "DataSet":
        """Some of the examples: a slice, or indices."""
        chosen = rows_of(rows, len(self))
        return replace(self, inputs=self.inputs[chosen], labels=self.labels[chosen])

    @property
    def num_classes(self) -> int:
        """K."""
        return len(self.class_names)

    @property
    def scaled(self) -> Float[Tensor, " N *shape"]:
        """Inputs for a network: images as float32 in [0, 1], features as they are."""
        return scaled(self.inputs)

    def digest(self) -> str:
        """SHA-256 of inputs and labels themselves: two sets with the same examples in
        the same order share it.
        """
        digest = hashlib.sha256()
        for tensor in (self.inputs, self.labels):
            digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()


def scaled(inputs: Tensor) -> Float[Tensor, " N *shape"]:
    """Images as float32 in [0, 1]; other inputs as they are.

    Args:
        inputs: Bytes, or floating-point numbers.

    Example:
        >>> scaled(torch.tensor([[0, 51, 255]], dtype=torch.uint8))
        tensor([[0.0000, 0.2000, 1.0000]])
    """
    return inputs.float() / WHITE if inputs.dtype == torch.uint8 else inputs


def joined(name: str, parts: Sequence[DataSet]) -> DataSet:
    """Several data sets with the same classes as one.

    Args:
        name: Name of the whole.
        parts: The parts, in order.

    Raises:
        ValueError: If there are none, or their classes differ.

    Example:
        >>> dot = DataSet("dot", torch.ones(1, 1), torch.tensor([0]), ("left", "right"))
        >>> len(joined("dots", [dot, dot, dot]))
        3
    """
    classes = {part.class_names for part in parts}
    if len(classes) != 1:
        raise ValueError(
            f"`joined(name, parts)` needs parts with the same classes; got {len(parts)} parts with"
            f" {len(classes)} lists of classes. Join the parts of one data set only."
        )
    return DataSet(
        name,
        torch.cat([part.inputs for part in parts]),
        torch.cat([part.labels for part in parts]),
        parts[0].class_names,
        {file: digest for part in parts for file, digest in part.sha256.items()},
    )


def from_bytes(
    name: str, images: np.ndarray, labels: np.ndarray, class_names: Sequence[str], *files: Path
) -> DataSet:
    """A data set from what a reader found in files.

    Args:
        name: Name of the data set.
        images: uint8, shape (N, C, H, W).
        labels: Integers of any type, shape (N,).
        class_names: Names of the classes, in the order of the labels.
        files: That it was read from.

    Raises:
        DamagedFileError: If images and labels do not belong together.
    """
    hashes = {file.name: sha256_of(file) for file in files}
    # copied, because what is read from a file cannot be written to, of which torch
    # warns
    pair = torch.from_numpy(images.copy()), torch.from_numpy(labels.astype(np.int64))
    try:
        return DataSet(name, *pair, tuple(class_names), hashes)
    except (ShapeError, ValueError) as error:
        raise DamagedFileError(
            f"{' and '.join(map(str, files))} do not hold one data set: {error}"
        ) from error


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        digest = hashlib.sha256()
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()
