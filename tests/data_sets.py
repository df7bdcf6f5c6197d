"""Readers of the real data sets that some tests need, from the folder that LAPLACEBRIDGE_DATA names. NumPy only.

The folder holds, under these names:

    mnist, kmnist, fashion-mnist, notmnist    idx files compressed with gzip, as published; train-… of mnist only
    cifar-10, cifar-100                       images packed without loss, see `_unpacked`: train-<part>.npz, test.npz
    imagenet                                  features of EfficientNet-Lite0, npz
"""

import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_IDX_HEADERS = {"images-idx3": 16, "labels-idx1": 8}
_IDX_PREFIXES = {"train": "train", "test": "t10k"}
CIFAR_SIDE = 32


@dataclass(frozen=True)
class Examples:
    """Inputs, one per row, and their labels."""

    inputs: np.ndarray
    labels: np.ndarray

    def __getitem__(self, rows):  # a slice, or indices
        return Examples(self.inputs[rows], self.labels[rows])

    def __len__(self):
        return len(self.labels)


def joined(parts):
    """Several sets of examples as one."""
    parts = list(parts)
    return Examples(np.concatenate([part.inputs for part in parts]), np.concatenate([part.labels for part in parts]))


def mnist(folder, *, name="mnist", split="test"):
    """MNIST or one of its relatives: float32 images in [0, 1] of shape (N, 1, 28, 28), int64 labels."""
    images = _idx(folder, name, split, "images-idx3").reshape(-1, 1, 28, 28)
    return _scaled(images, _idx(folder, name, split, "labels-idx1"))


def cifar(folder, *, classes=10, part="test"):
    """CIFAR-10 or CIFAR-100: float32 RGB images in [0, 1] of shape (N, 3, 32, 32), int64 labels.

    Examples are in a fixed random order, so that any part and any prefix is a fair sample.
    """
    with np.load(_existing(folder, f"cifar-{classes}", f"{part}.npz"), allow_pickle=False) as file:
        return _scaled(_unpacked(file["residual"]), file["labels"])


def efficientnet_features(folder):
    """Penultimate features of EfficientNet-Lite0 on one photograph per class: float32 (1000, 1280), labels 0 to 999."""
    path = _existing(folder, "imagenet", "sample-1000-efficientnet-lite0-features.npz")
    with np.load(path, allow_pickle=False) as file:
        return Examples(file["features"].astype(np.float32), file["labels"].astype(np.int64))


def _scaled(images, labels):
    assert len(images) == len(labels)
    return Examples(images.astype(np.float32) / 255, labels.astype(np.int64))


def _idx(folder, name, split, kind):
    with gzip.open(_existing(folder, name, f"{_IDX_PREFIXES[split]}-{kind}-ubyte.gz")) as file:
        return np.frombuffer(file.read(), np.uint8, offset=_IDX_HEADERS[kind])


def _existing(folder, *names):
    path = Path(folder, *names)
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing; LAPLACEBRIDGE_DATA must name the folder that holds the real data.")
    return path


def _unpacked(residual):
    """Undoes the lossless packing: planes G, R − G + 128, B − G + 128, each as the error of the median predictor.

    Args:
        residual: uint8 (3, N, 32, 32).

    Returns:
        uint8 RGB (N, 3, 32, 32).
    """
    errors = np.ascontiguousarray(residual.transpose(2, 3, 0, 1)).astype(np.int16)
    planes = np.zeros_like(errors)
    for row in range(CIFAR_SIDE):
        for column in range(CIFAR_SIDE):
            left, above, corner = _neighbours(planes, row, column)
            guess = np.clip(left + above - corner, np.minimum(left, above), np.maximum(left, above))
            planes[row, column] = (errors[row, column] + guess) & 255
    green = planes[:, :, 0]
    red, blue = (planes[:, :, 1] + green - 128) & 255, (planes[:, :, 2] + green - 128) & 255
    return np.stack([red, green, blue]).astype(np.uint8).transpose(3, 0, 1, 2)


def _neighbours(planes, row, column):
    """The pixels to the left, above, and above to the left; those outside are as their nearest inside, or zero."""
    zero = np.zeros_like(planes[0, 0])
    above = planes[row - 1, column] if row else None
    left = planes[row, column - 1] if column else above if row else zero
    above = left if above is None else above
    corner = planes[row - 1, column - 1] if row and column else above if row else left
    return left, above, corner
