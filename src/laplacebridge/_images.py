"""Images of a folder as tensors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from laplacebridge._extras import needs_extra
from laplacebridge.errors import InputError

IMAGE_SUFFIXES = frozenset(
    {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"}
)
# From an image of pillow, in RGB, to what a network takes.
Prepare = Callable[[Any], Tensor]


@dataclass(frozen=True)
class ImagePreparation:
    """What is done to an image before the network sees it.

    Attributes:
        size: Images are cropped around their center and resized to a square of this
            side; None leaves them as they are.
        mean: Subtracted from each channel after scaling to [0, 1].
        std: What each channel is then divided by.
    """

    size: int | None = None
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def __call__(self, image: Any) -> Tensor:  # noqa: ANN401 - an image of pillow
        """The image as the network takes it, shape (3, H, W)."""
        if self.size is not None:
            image_module, operations = pillow()
            image = operations.fit(image, (self.size, self.size), image_module.Resampling.BILINEAR)
        channels = torch.from_numpy(np.array(image)).movedim(-1, 0).float() / 255
        mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (self.mean, self.std))
        return (channels - mean) / std

    def of_bytes(self, images: Tensor) -> Tensor:
        """Images of an array as those of a folder: scaled to [0, 1], and each channel
        by its mean and deviation.

        Args:
            images: Of bytes: (B, H, W), or with channels before or after.

        Raises:
            InputError: If there are more or fewer means than channels.
        """
        if images.dim() == 4 and images.shape[-1] in {1, 3} and images.shape[1] not in {1, 3}:
            images = images.movedim(-1, 1)
        channels = images.shape[1] if images.dim() == 4 else 1
        if not {len(self.mean), len(self.std)} <= {1, channels}:
            raise InputError(
                f"--mean and --std need one number, or one for each channel; got {len(self.mean)}"
                f" and {len(self.std)} for images with {channels}."
            )
        shape = (-1, 1, 1) if images.dim() == 4 else ()
        mean, std = (torch.tensor(values).reshape(shape) for values in (self.mean, self.std))
        return (images.float() / 255 - mean) / std


def are_images_of_bytes(inputs: np.ndarray) -> bool:
    """Whether an array holds images of bytes; a row of numbers may be one of words.

    Args:
        inputs: One entry for each example.
    """
    return inputs.dtype == np.uint8 and inputs.ndim > 2


def images_in(folder: Path) -> list[Path]:
    """The images in a folder, not below it, in the order of their names.

    Args:
        folder: The folder.
    """
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file()
    )


def read_images(paths: Sequence[Path], prepare: Prepare) -> Tensor:
    """Images of one size as a batch.

    Args:
        paths: The files.
        prepare: What is done to each.

    Raises:
        InputError: If one is damaged, or their shapes differ.
    """
    images = [_read(path, prepare) for path in paths]
    for path, image in zip(paths, images):
        if image.shape != images[0].shape:
            raise InputError(
                f"Images of a batch need one shape; {path} has {tuple(image.shape)} and"
                f" {paths[0]} {tuple(images[0].shape)}. Resize them in `prepare` (`--size 224`"
                " on the command line)."
            )
    return torch.stack(images)


def _read(path: Path, prepare: Prepare) -> Tensor:
    image_module, _ = pillow()
    try:
        with image_module.open(path) as opened:
            image = opened.convert("RGB")
    except (OSError, ValueError, SyntaxError) as error:
        raise InputError(
            f"{path} cannot be read as an image: it is damaged or of another format."
        ) from error
    return prepare(image)


def pillow() -> tuple[Any, Any]:
    """Pillow's modules.

    Raises:
        LaplaceBridgeError: If it is not installed.
    """
    with needs_extra("images", "Reading images with pillow"):
        from PIL import Image, ImageOps  # type: ignore[import-not-found,unused-ignore]
    return Image, ImageOps
