"""Test examples as a report needs them: run through the network once."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from tqdm import tqdm

from laplacebridge.classifier import Classifier
from laplacebridge.errors import ShapeError
from laplacebridge.laplace.batch import unpack_batch


@dataclass(frozen=True, eq=False)
class Examples:
    """Examples as the posterior sees them.

    Attributes:
        features: Inputs of the head.
        labels: Their classes; None if there are none.
        images: The inputs themselves, if they are images.
    """

    features: Float[Tensor, "N D"]
    labels: Int[Tensor, " N"] | None
    images: Tensor | None

    def __len__(self) -> int:
        return len(self.features)


def examples_of(classifier: Classifier, batches: Iterable[Any], *, progress: str = "") -> Examples:
    """Runs the network over a loader, once.

    Args:
        classifier: The fitted classifier.
        batches: (inputs, labels), mappings, or inputs alone.
        progress: What to write before a progress bar; an empty string for no bar.

    Raises:
        ShapeError: If there are no batches.
    """
    features, labels, images = [], [], []
    with torch.no_grad():
        for batch in tqdm(batches, desc=progress, unit="batch", disable=not progress):
            parts = unpack_batch(batch)
            rows = classifier.network.run(parts).features
            features.append(rows)
            labels.append(None if parts.labels is None else torch.as_tensor(parts.labels).reshape(-1).cpu())
            images.append(_images(parts.arguments, len(rows)))
    if not features:
        raise ShapeError("A report needs at least one batch; the loader yielded none. Is it used up, or empty?")
    together = torch.cat(features)
    known = [part for part in labels if part is not None]
    seen = [part for part in images if part is not None]
    return Examples(
        together,
        torch.cat(known).long() if sum(len(part) for part in known) == len(together) else None,
        torch.cat(seen) if sum(len(part) for part in seen) == len(together) else None,
    )


def _images(arguments: Sequence[Any], num_rows: int) -> Tensor | None:
    """The inputs as images, if that is what they are: (B, C, H, W) with one or three channels, or (B, H, W)."""
    first = arguments[0] if arguments else None
    if not isinstance(first, Tensor) or len(first) != num_rows or not first.is_floating_point():
        return None
    if first.dim() == 4 and first.shape[1] in {1, 3}:
        return first.cpu()
    return first.cpu() if first.dim() == 3 and min(first.shape[1:]) >= 8 else None
