"""What people said about the test images of CIFAR-10 (CIFAR-10H), for evaluation only.

Its licence, CC BY-NC-SA 4.0, lets nobody sell what holds it. So nothing here keeps or
writes votes; tables hold numbers made of all of them.
"""

import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from laplacebridge_reproduction.data.dataset import DamagedFileError, DataSet, sha256_of
from laplacebridge_reproduction.data.folder import Folder, Remote
from laplacebridge_reproduction.data.npz import read_npz

OFFICIAL = Remote(
    "cifar-10h/cifar10h-counts.npy",
    "https://github.com/jcpeterson/cifar-10h/raw/master/data/cifar10h-counts.npy",
    None,
    "Only the table of human votes needs it.",
)
PACKED = "cifar-10h/cifar10h-in-shared-order.npz"
# The most voted class is the label of 99.2 % of the images; in another order of a tenth.
SAME_ORDER = 0.9


def find_votes(
    images: DataSet, folder: str | os.PathLike[str] | None = None, *, download: bool = True
) -> tuple[Tensor, dict[str, str]]:
    """How many people chose each class, for every test image in the order of the
    images; and the SHA-256 of the file.

    Args:
        images: CIFAR-10's test images, in any of the orders that they are stored in.
        folder: The data folder; None is the one that LAPLACEBRIDGE_DATA names, or else
            a folder in the cache.
        download: Whether to fetch what is missing.

    Raises:
        DamagedFileError: If the votes are of other images, or in another order.
    """
    place = Folder.named(folder, download=download)
    path = place.existing(PACKED) or place.file(OFFICIAL)
    orders = _packed_orders(path) if path.suffix == ".npz" else [_official_order(path)]
    for counts in orders:
        if counts.shape == (len(images), images.num_classes):
            votes = torch.from_numpy(counts.astype(np.int64))
            if (votes.argmax(-1) == images.labels).float().mean() > SAME_ORDER:
                return votes, {path.name: sha256_of(path)}
    raise DamagedFileError(
        f"{path} must hold votes on the {len(images)} images of '{images.name}', in their order or"
        " in the official one; its most voted classes are not their labels. Is it the file of"
        " CIFAR-10H, and are the images those of the official binary version?"
    )


def _packed_orders(path: Path) -> list[np.ndarray]:
    counts, official = read_npz(path, "counts", "official_index")
    in_official_order = np.empty_like(counts)
    in_official_order[official] = counts
    return [counts, in_official_order]


def _official_order(path: Path) -> np.ndarray:
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:
        raise DamagedFileError(
            f"{path} cannot be read as an npy file: {error}. Fetch it again."
        ) from error
