"""Batches from a folder of images, one subfolder for each class. Needs pillow, which is read when it is used."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from laplacebridge.errors import LaplaceBridgeError

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"})


@dataclass(frozen=True)
class Preparation:
    """What is done to an image before the network sees it.

    Attributes:
        size: Side of the square that the middle of every image is scaled to; None leaves images as they are.
        mean: Subtracted from each channel after scaling to [0, 1].
        deviation: What each channel is then divided by.
    """

    size: int | None = None
    mean: tuple[float, ...] = (0.0,)
    deviation: tuple[float, ...] = (1.0,)


class ImageBatches:
    """Batches of the images in a folder, read as they are needed, in the order of their names.

    Args:
        folder: With one subfolder of images for each class, or images alone.
        class_names: The classes in the order of the network; by default the names of the subfolders, sorted.
        preparation: What is done to every image.
        batch_size: Images in a batch.

    Raises:
        LaplaceBridgeError: If there are no images, a subfolder is no class, or pillow is not installed.
    """

    def __init__(
        self, folder: Path, *, class_names: Sequence[str] | None, preparation: Preparation, batch_size: int
    ) -> None:
        self.preparation, self.batch_size, self._pillow = preparation, batch_size, _pillow(folder)
        subfolders = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and _images(entry))
        self.class_names = tuple(subfolders)
        known = list(class_names or subfolders)
        unknown = [name for name in subfolders if name not in known]
        if unknown:
            raise LaplaceBridgeError(
                f"{folder} needs subfolders that are classes; '{unknown[0]}' is none of the {len(known)} given. Rename "
                "it, or add it to the classes."
            )
        examples = [(path, known.index(name)) for name in subfolders for path in _images(folder / name)]
        self.paths = [path for path, _ in examples] or _images(folder)
        self.labels = torch.tensor([label for _, label in examples]) if examples else None
        if not self.paths:
            raise LaplaceBridgeError(
                f"{folder} needs images ({', '.join(sorted(SUFFIXES))}), in one subfolder for each class; found none."
            )
        self.names = [str(path.relative_to(folder)) for path in self.paths]

    def __len__(self) -> int:
        return -(-len(self.paths) // self.batch_size)

    def __iter__(self) -> Iterator[Tensor | tuple[Tensor, Tensor]]:
        for start in range(0, len(self.paths), self.batch_size):
            rows = slice(start, start + self.batch_size)
            images = torch.stack(self._read_alike(self.paths[rows]))
            yield images if self.labels is None else (images, self.labels[rows])

    def _read_alike(self, paths: Sequence[Path]) -> list[Tensor]:
        images = [self._read(path) for path in paths]
        for path, image in zip(paths, images):
            if image.shape != images[0].shape:
                raise LaplaceBridgeError(
                    f"Images of a batch need one size; {path} has {image.shape[2]} x {image.shape[1]} pixels and "
                    f"{paths[0]} {images[0].shape[2]} x {images[0].shape[1]}. Scale them: --size 224."
                )
        return images

    def _read(self, path: Path) -> Tensor:
        image_module, operations = self._pillow
        try:
            with image_module.open(path) as opened:
                image = opened.convert("RGB")
        except (OSError, ValueError, SyntaxError) as error:
            raise LaplaceBridgeError(
                f"{path} cannot be read as an image: it is damaged or of another format."
            ) from error
        prepared = self.preparation
        if prepared.size is not None:
            image = operations.fit(image, (prepared.size, prepared.size), image_module.Resampling.BILINEAR)
        channels = torch.from_numpy(np.array(image)).movedim(-1, 0).float() / 255
        mean, deviation = (torch.tensor(values).view(-1, 1, 1) for values in (prepared.mean, prepared.deviation))
        return (channels - mean) / deviation


def _images(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and path.is_file())


def _pillow(folder: Path) -> tuple[Any, Any]:
    try:
        from PIL import Image, ImageOps  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise LaplaceBridgeError(
            f"Images, as in {folder}, are read with pillow, which is not installed. Install it: "
            "`pip install 'laplacebridge[images]'`."
        ) from error
    return Image, ImageOps
