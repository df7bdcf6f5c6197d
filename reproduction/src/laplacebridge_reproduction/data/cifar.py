"""CIFAR-10 and CIFAR-100, from the official binary version or packed without loss.

The official Python version is pickled, and unpickling runs what a file says; it is not
read. The binary version holds the same bytes in the same order: a record is one label
(CIFAR-100: a coarse one before it), then 3072 bytes of colour.
"""

import tarfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from laplacebridge_reproduction.data.dataset import DamagedFileError, DataSet, from_bytes
from laplacebridge_reproduction.data.npz import read_npz

SIDE = 32
_PIXELS = 3 * SIDE * SIDE


@dataclass(frozen=True)
class Binary:
    """Where the official binary version keeps what.

    Attributes:
        folder: Inside the archive.
        files: Files of each split.
        names: The file of class names.
        num_labels: Labels in front of each image; the last is the one used.
    """

    folder: str
    files: dict[str, tuple[str, ...]]
    names: str
    num_labels: int


CIFAR_10 = Binary(
    "cifar-10-batches-bin",
    {"train": tuple(f"data_batch_{part}.bin" for part in range(1, 6)), "test": ("test_batch.bin",)},
    "batches.meta.txt",
    1,
)
CIFAR_100 = Binary(
    "cifar-100-binary",
    {"train": ("train.bin",), "test": ("test.bin",)},
    "fine_label_names.txt",
    num_labels=2,
)


def read_binary(path: Path, layout: Binary, split: str, *, name: str) -> DataSet:
    """One split of the official binary version.

    Args:
        path: The archive as published, or the folder inside it.
        layout: `CIFAR_10` or `CIFAR_100`.
        split: ``train`` or ``test``.
        name: Name of the data set.

    Raises:
        DamagedFileError: If a file is missing, cut short or damaged.
    """
    wanted = (layout.names, *layout.files[split])
    contents = (
        _from_folder(path, wanted) if path.is_dir() else _from_archive(path, layout.folder, wanted)
    )
    size = layout.num_labels + _PIXELS
    records = []
    for file in layout.files[split]:
        content = contents[file]
        if not content or len(content) % size:
            raise DamagedFileError(
                f"{file} of {path} must hold records of {size} bytes; it has {len(content)} bytes."
                " Fetch it again."
            )
        records.append(np.frombuffer(content, np.uint8).reshape(-1, size))
    together = np.concatenate(records)
    images = together[:, layout.num_labels :].reshape(-1, 3, SIDE, SIDE)
    names = contents[layout.names].decode().split()
    files = [path / file for file in wanted] if path.is_dir() else [path]
    return from_bytes(name, images, together[:, layout.num_labels - 1], names, *files)


def _from_folder(path: Path, names: Sequence[str]) -> dict[str, bytes]:
    missing = [name for name in names if not (path / name).is_file()]
    if missing:
        raise DamagedFileError(
            f"{path} must hold {', '.join(names)}; {missing[0]} is not there. Unpack it again."
        )
    return {name: (path / name).read_bytes() for name in names}


def _from_archive(path: Path, folder: str, names: Sequence[str]) -> dict[str, bytes]:
    contents = {}
    try:
        with tarfile.open(
            path
        ) as archive:  # in the order of the archive: going back would decompress it again
            for member in archive:
                inside = member.name.removeprefix("./").removeprefix(f"{folder}/")
                if inside in names and (file := archive.extractfile(member)) is not None:
                    contents[inside] = file.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise DamagedFileError(
            f"{path} cannot be read as an archive: {error}. Fetch it again."
        ) from error
    missing = [name for name in names if name not in contents]
    if missing:
        raise DamagedFileError(
            f"{path} must hold {folder}/{missing[0]}, which it does not. Is it the binary version?"
        )
    return contents


def read_packed(path: Path, *, name: str) -> DataSet:
    """Images that were packed without loss into an npz file, in a fixed random order:
    any prefix is a fair sample.

    Args:
        path: The file, with ``residual``, ``labels`` and ``class_names``.
        name: Name of the data set.

    Raises:
        DamagedFileError: If it is cut short, damaged or of another format.
    """
    residual, labels, names = read_npz(path, "residual", "labels", "class_names")
    expected = (3, len(labels), SIDE, SIDE)
    if residual.dtype != np.uint8 or residual.shape != expected:
        raise DamagedFileError(
            f"{path} must hold `residual` as bytes of shape {expected}, for its {len(labels)}"
            f" labels; got {residual.dtype} {residual.shape}. Pack the images again."
        )
    return from_bytes(
        name, unpacked(residual), labels, [str(known, "ascii") for known in names], path
    )


def unpacked(residual: np.ndarray) -> np.ndarray:
    """RGB images, uint8 (N, 3, 32, 32), from what the median predictor of lossless JPEG
    leaves over.

    The planes are G, R − G + 128 and B − G + 128; each pixel is stored as the error of
    a guess from its neighbours to the left (a), above (b) and between (c): a + b − c,
    limited to the range from a to b. All of it modulo 256.

    Args:
        residual: uint8 (3, N, 32, 32).
    """
    errors = np.ascontiguousarray(residual.transpose(2, 3, 0, 1)).astype(np.int16)
    planes = np.zeros_like(errors)
    for row in range(SIDE):
        for column in range(SIDE):
            left, above, corner = _neighbours(planes, row, column)
            guess = np.clip(left + above - corner, np.minimum(left, above), np.maximum(left, above))
            planes[row, column] = (errors[row, column] + guess) & 255
    green = planes[:, :, 0]
    red, blue = (planes[:, :, 1] + green - 128) & 255, (planes[:, :, 2] + green - 128) & 255
    return np.stack([red, green, blue]).astype(np.uint8).transpose(3, 0, 1, 2)


def _neighbours(
    planes: np.ndarray, row: int, column: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The pixels to the left, above, and above to the left; those outside are as their
    nearest inside, or zero.
    """
    zero = np.zeros_like(planes[0, 0])
    above = planes[row - 1, column] if row else None
    left = planes[row, column - 1] if column else zero if above is None else above
    above = left if above is None else above
    corner = planes[row - 1, column - 1] if row and column else above if row else left
    return left, above, corner
