"""What happens to inputs on their way: noise, blur, contrast, brightness, JPEG,
rotation of images; erased columns and wrong units of tables. Severities from 1 to 5.

Noise, blur, contrast and brightness of coloured images have the constants of
CIFAR-10-C. Images are (B, C, H, W) in [0, 1] and stay there; tables are (B, D), in
units of their deviations. The same seed corrupts in the same way.
"""

import math
from collections.abc import Callable

import torch
from scipy import fft
from torch import Tensor
from torch.nn import functional

SEVERITIES = (1, 2, 3, 4, 5)
NOISE = (0.04, 0.06, 0.08, 0.09, 0.10)
BLUR = (0.4, 0.6, 0.7, 0.8, 1.0)
CONTRAST = (0.75, 0.5, 0.4, 0.3, 0.15)
BRIGHTNESS = (0.05, 0.1, 0.15, 0.2, 0.3)
QUALITY = (80, 65, 58, 50, 40)
DEGREES = (10.0, 20.0, 30.0, 45.0, 60.0)
ERASED = (0.1, 0.2, 0.3, 0.4, 0.5)
UNITS = (1.5, 2.0, 3.0, 10.0, 100.0)
TABLE_NOISE = (0.2, 0.4, 0.6, 0.8, 1.0)
# of luminance, from the standard (Annex K)
QUANTISATION = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
BLOCK = 8
Corruption = Callable[[Tensor, int], Tensor]


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def noise(images: Tensor, severity: int) -> Tensor:
    """Gaussian noise on every pixel."""
    drawn = torch.randn(images.shape, generator=_generator())
    return (images + NOISE[severity - 1] * drawn).clamp(0, 1)


def blur(images: Tensor, severity: int) -> Tensor:
    """A Gaussian blur, deviations in pixels."""
    width = BLUR[severity - 1]
    reach = math.ceil(4 * width)
    places = torch.arange(-reach, reach + 1, dtype=images.dtype)
    kernel = torch.exp(-places.square() / (2 * width**2))
    kernel = kernel / kernel.sum()
    flat = images.flatten(0, 1).unsqueeze(1)
    padded = functional.pad(flat, (reach,) * 4, mode="reflect")
    across = functional.conv2d(padded, kernel.reshape(1, 1, 1, -1))
    return functional.conv2d(across, kernel.reshape(1, 1, -1, 1)).reshape(images.shape)


def contrast(images: Tensor, severity: int) -> Tensor:
    """Less contrast around the mean of each channel."""
    mean = images.mean((-2, -1), keepdim=True)
    return (mean + CONTRAST[severity - 1] * (images - mean)).clamp(0, 1)


def brightness(images: Tensor, severity: int) -> Tensor:
    """The same light added to every pixel."""
    return (images + BRIGHTNESS[severity - 1]).clamp(0, 1)


def jpeg(images: Tensor, severity: int) -> Tensor:
    """Cosine transforms of blocks, rounded as JPEG rounds luminance; each channel by
    itself.
    """
    quality = QUALITY[severity - 1]
    scale = 50 / quality if quality < 50 else 2 - quality / 50
    steps = (torch.tensor(QUANTISATION) * scale).round().clamp_min(1).numpy()
    height, width = images.shape[-2:]
    missing = (-width % BLOCK, -height % BLOCK)
    padded = functional.pad(images, (0, missing[0], 0, missing[1]), mode="replicate")
    blocks = padded.unfold(-2, BLOCK, BLOCK).unfold(-2, BLOCK, BLOCK)
    waves = fft.dctn((255 * blocks - 128).numpy(), axes=(-2, -1), norm="ortho")
    back = fft.idctn((waves / steps).round() * steps, axes=(-2, -1), norm="ortho")
    joined = torch.from_numpy(back).to(images.dtype).transpose(-3, -2).reshape(padded.shape)
    return ((joined[..., :height, :width] + 128) / 255).clamp(0, 1)


def rotation(images: Tensor, severity: int) -> Tensor:
    """A turn around the middle; what comes from outside is black."""
    angle = math.radians(DEGREES[severity - 1])
    turn = torch.tensor(
        [[math.cos(angle), -math.sin(angle), 0.0], [math.sin(angle), math.cos(angle), 0.0]]
    )
    size = list(images.shape)
    grid = functional.affine_grid(turn.expand(len(images), 2, 3), size, align_corners=False)
    return functional.grid_sample(images, grid, align_corners=False)


def table_noise(rows: Tensor, severity: int) -> Tensor:
    """Gaussian noise on every number."""
    return rows + TABLE_NOISE[severity - 1] * torch.randn(rows.shape, generator=_generator())


def erased_columns(rows: Tensor, severity: int) -> Tensor:
    """Some columns of each row are missing, and filled with their mean, 0."""
    kept = torch.rand(rows.shape, generator=_generator()) >= ERASED[severity - 1]
    return rows * kept


def wrong_units(rows: Tensor, severity: int) -> Tensor:
    """All numbers in a unit that makes them larger."""
    return UNITS[severity - 1] * rows


IMAGES: dict[str, Corruption] = {
    "noise": noise,
    "blur": blur,
    "contrast": contrast,
    "brightness": brightness,
    "jpeg": jpeg,
    "rotation": rotation,
}
TABLES: dict[str, Corruption] = {
    "noise": table_noise,
    "erased columns": erased_columns,
    "wrong units": wrong_units,
}
