"""Photographs: folders with one subfolder for each class, read as they are needed, and
archives.
"""

import io
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from PIL import Image
from torch import Generator, Tensor

from laplacebridge_reproduction.data.dataset import DamagedFileError

SUFFIXES = frozenset({".jpeg", ".jpg", ".png"})
SHORT_SIDE, CROP = 256, 224  # what networks for ImageNet are tested on


def read_image(
    source: Path | io.BytesIO, *, name: str, short_side: int | None = None
) -> UInt8[np.ndarray, "3 H W"]:
    """An image in RGB.

    Args:
        source: A file.
        name: What to call it in errors.
        short_side: Length that the shorter side is scaled to; then the middle is cut
            out, as a square with a side of 7/8 of it. None leaves the image as it is.

    Raises:
        DamagedFileError: If it cannot be read as an image.
    """
    try:
        with Image.open(source) as opened:
            image = opened.convert("RGB")
    except (OSError, ValueError, SyntaxError) as error:
        raise DamagedFileError(
            f"{name} cannot be read as an image: {error}. Fetch it again."
        ) from error
    if short_side is not None:
        scale = short_side / min(image.size)
        width, height = (max(short_side, round(scale * side)) for side in image.size)
        image = image.resize((width, height), Image.Resampling.BILINEAR)
        crop = short_side * CROP // SHORT_SIDE
        left, upper = (width - crop) // 2, (height - crop) // 2
        image = image.crop((left, upper, left + crop, upper + crop))
    return np.asarray(image).transpose(2, 0, 1)


@dataclass(frozen=True, eq=False)
class ImageFolder:
    """Images in one subfolder for each class, too many to hold in memory.

    Attributes:
        name: What they are, for people.
        paths: The files, sorted by class and name.
        labels: Place of each one's subfolder in alphabetical order, shape (N,).
        class_names: Names of the subfolders.
    """

    name: str
    paths: tuple[Path, ...]
    labels: Int64[Tensor, " N"]
    class_names: tuple[str, ...]

    @classmethod
    def at(cls, folder: Path, *, name: str) -> "ImageFolder":
        """The images below a folder.

        Args:
            folder: A folder with subfolders.
            name: What the images are.

        Raises:
            DamagedFileError: If there are none, or some are in no subfolder.
        """
        subfolders = sorted(entry for entry in folder.iterdir() if entry.is_dir())
        found = [
            sorted(file for file in entry.iterdir() if file.suffix.lower() in SUFFIXES)
            for entry in subfolders
        ]
        if not any(found):
            raise DamagedFileError(
                f"{folder} must hold one subfolder of images for each class; got {len(subfolders)}"
                " subfolders without images. Sort the images into folders named after their"
                " classes."
            )
        labels = torch.arange(len(found)).repeat_interleave(
            torch.tensor([len(files) for files in found])
        )
        paths = tuple(file for files in found for file in files)
        return cls(name, paths, labels, tuple(entry.name for entry in subfolders))

    def __len__(self) -> int:
        return len(self.paths)

    def sample(self, count: int, generator: Generator) -> "ImageFolder":
        """Some of the images, drawn without replacement, in random order.

        Args:
            count: How many; all, if there are not as many.
            generator: Source of randomness.
        """
        rows = torch.randperm(len(self), generator=generator)[:count]
        return replace(
            self, paths=tuple(self.paths[row] for row in rows.tolist()), labels=self.labels[rows]
        )

    def batches(
        self, batch_size: int
    ) -> Iterator[tuple[UInt8[Tensor, "B 3 224 224"], Int64[Tensor, " B"]]]:
        """Images with a short side of 256 pixels, of which the middle 224 x 224 are
        kept, and their labels.

        Args:
            batch_size: Size of all batches but the last.

        Yields:
            Images as bytes, and labels.
        """
        for start in range(0, len(self), batch_size):
            paths = self.paths[start : start + batch_size]
            images = np.stack(
                [read_image(path, name=str(path), short_side=SHORT_SIDE) for path in paths]
            )
            yield torch.from_numpy(images), self.labels[start : start + batch_size]


def read_archive(path: Path) -> dict[str, bytes]:
    """The files in a tar archive, in its order; nothing is unpacked to disk.

    Raises:
        DamagedFileError: If it is cut short, damaged or of another format.
    """
    try:
        with tarfile.open(path) as archive:
            members = [member for member in archive if member.isfile()]
            contents = {
                member.name: opened.read()
                for member in members
                if (opened := archive.extractfile(member))
            }
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DamagedFileError(
            f"{path} cannot be read as an archive: {error}. Fetch it again."
        ) from error
    if not contents:
        raise DamagedFileError(
            f"{path} must hold images; it is empty or cut short. Fetch it again."
        )
    return contents


def stacked(
    contents: dict[str, bytes], names: Sequence[str], *, source: Path
) -> UInt8[np.ndarray, "N 3 H W"]:
    """Images of one size from the files of an archive.

    Args:
        contents: Files of the archive by name.
        names: Names of the images, in the order wanted.
        source: The archive, for errors.

    Raises:
        DamagedFileError: If one is missing, cannot be read or has another size.
    """
    images = []
    for name in names:
        if name not in contents:
            raise DamagedFileError(f"{source} must hold {name}, which it does not. Fetch it again.")
        images.append(read_image(io.BytesIO(contents[name]), name=f"{name} in {source}"))
        if images[-1].shape != images[0].shape:
            sizes = [f"{image.shape[2]} x {image.shape[1]}" for image in (images[0], images[-1])]
            raise DamagedFileError(
                f"{source} must hold images of one size; got {sizes[0]} and {sizes[1]} ({name})."
            )
    return np.stack(images)
