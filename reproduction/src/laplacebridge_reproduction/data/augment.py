"""Random changes to training images that leave their class as it is."""

import math

import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.nn import functional

LARGEST_SHIFT, LARGEST_ANGLE = 4, 15  # pixels and degrees, the paper's for CIFAR


def unchanged(images: Tensor, generator: Generator) -> Tensor:
    """No augmentation."""
    return images


def crop_flip_rotate(
    images: Float[Tensor, "B C S S"], generator: Generator
) -> Float[Tensor, "B C S S"]:
    """Moves images by up to 4 pixels, mirrors half of them, and turns them by up to 15
    degrees, in one step.

    What comes in from outside is black. Pixels are copied, not mixed.

    Args:
        images: In [0, 1], square.
        generator: Source of randomness, on the CPU.

    Example:
        >>> crop_flip_rotate(torch.rand(5, 3, 32, 32), torch.Generator().manual_seed(0)).shape
        torch.Size([5, 3, 32, 32])
    """
    count, side = len(images), images.shape[-1]
    shifts = (
        torch.randint(-LARGEST_SHIFT, LARGEST_SHIFT + 1, (count, 2), generator=generator) * 2 / side
    )
    mirrored = 1 - 2 * torch.randint(0, 2, (count,), generator=generator)
    angles = math.radians(LARGEST_ANGLE) * (2 * torch.rand(count, generator=generator) - 1)
    # where a pixel of the new image comes from: turned, mirrored, then moved, in
    # coordinates from −1 to 1
    across = torch.stack([mirrored * angles.cos(), -mirrored * angles.sin(), shifts[:, 0]], -1)
    down = torch.stack([angles.sin(), angles.cos(), shifts[:, 1]], -1)
    maps = torch.stack([across, down], 1).to(images)
    grid = functional.affine_grid(maps, list(images.shape), align_corners=False)
    return functional.grid_sample(
        images, grid, mode="nearest", padding_mode="zeros", align_corners=False
    )
