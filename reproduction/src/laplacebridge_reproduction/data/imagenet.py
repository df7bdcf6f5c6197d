"""Small extracts of ImageNet: one photograph of each class, features of them, and
images of Tiny-ImageNet.
"""

import json
from pathlib import Path

import numpy as np
import torch

from laplacebridge_reproduction.data.dataset import DamagedFileError, DataSet, from_bytes, sha256_of
from laplacebridge_reproduction.data.images import read_archive, stacked
from laplacebridge_reproduction.data.npz import read_npz

_ANNOTATIONS = "val_annotations.txt"


def read_sample(path: Path, wordnet_ids: Path, class_names: Path, *, name: str) -> DataSet:
    """Photographs in an archive, named ``<WordNet id>_<class>.JPEG``.

    Args:
        path: The archive.
        wordnet_ids: JSON list of the WordNet ids in the order of the classes.
        class_names: JSON list of names in the same order.
        name: Name of the data set.

    Raises:
        DamagedFileError: If a file is cut short, damaged or of another format, or an
            image belongs to no class.
    """
    contents, ids = read_archive(path), _strings(wordnet_ids)
    labels = np.array([_label(file.split("_")[0], ids, source=path) for file in contents])
    images = stacked(contents, list(contents), source=path)
    return from_bytes(name, images, labels, _strings(class_names), path, wordnet_ids, class_names)


def read_tiny(path: Path, wordnet_ids: Path, class_names: Path, *, name: str) -> DataSet:
    """Validation images of Tiny-ImageNet in an archive with their
    ``val_annotations.txt``; labels as of ImageNet.

    Args:
        path: The archive.
        wordnet_ids: JSON list of the WordNet ids in the order of ImageNet's classes.
        class_names: JSON list of names in the same order.
        name: Name of the data set.

    Raises:
        DamagedFileError: If a file is cut short, damaged or of another format, or an
            image belongs to no class.
    """
    contents, ids = read_archive(path), _strings(wordnet_ids)
    places = {file.rsplit("/", 1)[-1]: file for file in contents}
    if _ANNOTATIONS not in places:
        raise DamagedFileError(
            f"{path} must hold {_ANNOTATIONS}, which says the classes; it does not. Fetch it again."
        )
    lines = [line.split("\t") for line in contents[places[_ANNOTATIONS]].decode().splitlines()]
    known = [
        (places[line[0]], _label(line[1], ids, source=path)) for line in lines if line[0] in places
    ]
    images = stacked(contents, [file for file, _ in known], source=path)
    labels = np.array([label for _, label in known])
    return from_bytes(name, images, labels, _strings(class_names), path, wordnet_ids, class_names)


def read_features(path: Path, class_names: Path, *, name: str) -> DataSet:
    """Features that a network found, and labels, from an npz file.

    Args:
        path: File with ``features`` of shape (N, D) and ``labels``.
        class_names: JSON list.
        name: Name of the data set.

    """
    features, labels = read_npz(path, "features", "labels")
    hashes = {file.name: sha256_of(file) for file in (path, class_names)}
    return DataSet(
        name,
        torch.from_numpy(features.astype(np.float32)),
        torch.from_numpy(labels.astype(np.int64)),
        tuple(_strings(class_names)),
        hashes,
    )


def _strings(path: Path) -> list[str]:
    try:
        strings = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DamagedFileError(
            f"{path} cannot be read as JSON: {error}. Fetch it again."
        ) from error
    if not isinstance(strings, list) or not all(isinstance(string, str) for string in strings):
        raise DamagedFileError(
            f"{path} must be a JSON list of strings; got something else. Fetch it again."
        )
    return strings


def _label(wordnet_id: str, ids: list[str], *, source: Path) -> int:
    if wordnet_id not in ids:
        raise DamagedFileError(
            f"{source} holds an image of '{wordnet_id}', which is none of the {len(ids)} classes."
        )
    return ids.index(wordnet_id)
