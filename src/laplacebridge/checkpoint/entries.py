"""What a fit counted and chose, as entries of a file's metadata, and back."""

import json
from dataclasses import asdict

import torch

from laplacebridge.laplace.label_statistics import LabelStatistics
from laplacebridge.laplace.posterior import Widening
from laplacebridge.laplace.width import Width


def described_labels(labels: LabelStatistics | None) -> dict[str, object] | None:
    """What the labels of a fit said, as a file holds it; see `labels_from`.

    Args:
        labels: The statistics.
    """
    return (
        None if labels is None else asdict(labels) | {"class_counts": labels.class_counts.tolist()}
    )


def labels_from(text: str) -> LabelStatistics | None:
    """What the labels of the fit said, from the metadata of a file.

    Args:
        text: JSON.
    """
    held = json.loads(text)
    if held is None:
        return None
    return LabelStatistics(**held | {"class_counts": torch.tensor(held["class_counts"])})


def width_from(text: str) -> Width | None:
    """How the width was chosen, from the metadata of a file.

    Args:
        text: JSON.
    """
    held = json.loads(text)
    return None if held is None else Width(Widening(*held[0]), *held[1:])
