"""Examples as a posterior sees them: a loader, run through the network once."""

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.functional import one_hot
from tqdm import tqdm

from laplacebridge.errors import InputError, ShapeError
from laplacebridge.laplace.batch import unpack_batch
from laplacebridge.laplace.batch_checks import explain_failure, require_finite
from laplacebridge.laplace.label_checks import IGNORED_LABEL, flat_labels, require_columns, votes_of
from laplacebridge.laplace.network import Network


@dataclass(frozen=True, eq=False)
class Examples:
    """Examples as the posterior sees them.

    Attributes:
        features: What the network makes of them, which a posterior takes: inputs of the
            head; or, for several layers, the network linearised there.
        labels: Their classes, of several votes the commonest; None if some have none.
        votes: How many people chose each class, where labels came as such numbers.
        inputs: The inputs themselves, if they were asked for and can be shown: images,
            or rows of a table.
    """

    features: Any
    labels: Int[Tensor, " N"] | None
    inputs: Tensor | None = None
    votes: Int[Tensor, "N K"] | None = None

    def __len__(self) -> int:
        return len(self.features)


def examples_of(
    network: Network,
    loader: Iterable[Any],
    *,
    purpose: str,
    needs_labels: bool = False,
    ignore_labels: bool = False,
    keep_inputs: bool = False,
    num_classes: int | None = None,
    progress: str = "",
) -> Examples:
    """Runs the network over a loader, once. Examples whose label is −100 are left out.

    Args:
        network: The network.
        loader: Batches: (inputs, labels), mappings, or inputs alone.
        purpose: What they are for, as the beginning of a message: "Validation", "A
            report".
        needs_labels: Whether labels must be there.
        ignore_labels: Whether labels are to be left unread, as those of examples that
            belong to no class.
        keep_inputs: Whether to keep the inputs if they are images or rows of a table.
        num_classes: K, which labels in columns must have; None not to look.
        progress: What to write before a progress bar; an empty string for no bar.

    Raises:
        InputError: If labels are missing that are needed.
        ShapeError: If there are no batches, or no example is left.
    """
    features, labels, inputs, votes = [], [], [], []
    with torch.no_grad():
        for index, batch in enumerate(
            tqdm(loader, desc=progress, unit="batch", disable=not progress)
        ):
            parts = unpack_batch(batch)
            if ignore_labels:
                parts = parts._replace(labels=None)
            if parts.labels is None and needs_labels:
                raise InputError(
                    f"{purpose} needs labels; batch {index} (counted from 0) has inputs alone."
                )
            with explain_failure(network.model, batch) if index == 0 else nullcontext():
                rows = network(*parts.arguments, **parts.keywords)
            if isinstance(rows, Tensor):
                require_finite(rows, "features", index, parts)
            shown = _to_show(parts.arguments, len(rows)) if keep_inputs else None
            if parts.labels is not None:
                flat = flat_labels(network.aligned(parts), len(rows), index)
                if num_classes is not None:
                    require_columns(parts.labels, num_classes, index)
                kept = (flat != IGNORED_LABEL).nonzero().flatten()
                rows, shown = rows[kept], None if shown is None else shown[kept.cpu()]
                labels.append(flat[kept])
                counted = votes_of(parts.labels, len(flat))
                votes.append(None if counted is None else counted[kept])
            features.append(rows)
            inputs.append(shown)
    if not features:
        raise ShapeError(
            f"{purpose} needs at least one batch; the loader yielded none. Is it used up, or empty?"
        )
    if not any(map(len, features)):
        raise ShapeError(
            f"{purpose} needs at least one example with a label; all labels are {IGNORED_LABEL},"
            " which means that an example is left out."
        )
    return Examples(
        network.join(features),
        torch.cat(labels) if len(labels) == len(features) else None,
        (
            torch.cat([part for part in inputs if part is not None])
            if all(part is not None for part in inputs)
            else None
        ),
        _joined_votes(votes, labels),
    )


def _joined_votes(votes: list[Tensor | None], labels: list[Tensor]) -> Tensor | None:
    """Votes of all batches, where a label by itself is one vote; None if no batch had
    more.
    """
    columns = next((part.shape[-1] for part in votes if part is not None), None)
    if columns is None:
        return None
    return torch.cat(
        [one_hot(alone, columns) if part is None else part for part, alone in zip(votes, labels)]
    )


def _to_show(arguments: tuple[Any, ...], num_rows: int) -> Tensor | None:
    """The inputs, if they are images, (B, C, H, W) with one or three channels or
    (B, H, W); or rows of a table, (B, D).
    """
    first = arguments[0] if arguments else None
    if not isinstance(first, Tensor) or len(first) != num_rows or not first.is_floating_point():
        return None
    is_image = first.dim() == 4 and first.shape[1] in {1, 3}
    is_plane = first.dim() == 3 and min(first.shape[1:]) >= 8
    return first.cpu() if is_image or is_plane or first.dim() == 2 else None
