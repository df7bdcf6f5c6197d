"""Labels that are classes: one for each prediction, or votes of several people."""

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from laplacebridge.errors import InputError, ShapeError
from laplacebridge.laplace.batch_checks import RIGHT_ORDER

IGNORED_LABEL = -100  # as in torch's cross-entropy and in Hugging Face token batches


# Soft labels may have been averaged in half precision.
ROUNDING_OF_SOFT_LABELS = 1e-2


def require_columns(labels: Any, num_classes: int, index: int) -> None:  # noqa: ANN401
    """Refuses labels in columns, one-hot or soft, that are not one for each class.

    Args:
        labels: As a loader yields them.
        num_classes: K.
        index: Of the batch.

    Raises:
        ShapeError: If there are more or fewer columns.
    """
    given = _as_tensor(labels, f"Batch {index} (counted from 0) has")
    if are_soft(given) and given.shape[-1] != num_classes:
        raise ShapeError(
            f"Batch {index} (counted from 0) has labels in {given.shape[-1]} columns; the model has"
            f" {num_classes} classes. One column for each class is needed, or one integer for each"
            " example."
        )


def flat_labels(labels: Any, rows: int, index: int) -> Int[Tensor, " N"]:  # noqa: ANN401
    """One class for each prediction.

    Args:
        labels: As a loader yields them: classes, one-hot or soft, of examples, tokens
            or pixels.
        rows: How many predictions there are.
        index: Of the batch.

    Raises:
        ShapeError: If there are not as many labels as predictions, or they are not
            classes.
    """
    here = f"Batch {index} (counted from 0) has"
    labels = _as_tensor(labels, here)
    given = f"labels of type {labels.dtype} and shape {tuple(labels.shape)}"
    votes = votes_of(labels, rows)
    if votes is not None:
        return votes.argmax(-1).masked_fill(votes.sum(-1) == 0, IGNORED_LABEL)
    if are_soft(labels):
        near_one = (labels.double().sum(-1) - 1).abs() < ROUNDING_OF_SOFT_LABELS
        if not (near_one.all() and (labels >= 0).all()):
            if ((labels >= 0) & (labels <= 1)).all():
                raise ShapeError(f"{here} {given}, {_SEVERAL_LABELS}")
            raise ShapeError(
                f"{here} {given}, whose rows are not probabilities. Give one class for each"
                f" example, as an integer counted from 0. {RIGHT_ORDER}"
            )
        labels = labels.flatten(0, -2).argmax(-1)
    elif labels.is_floating_point() and not (labels == labels.round()).all():
        raise ShapeError(
            f"{here} {given}, which are not whole numbers. A class is an integer from 0."
            f" {RIGHT_ORDER}"
        )
    if _are_several_at_once(labels, rows):
        raise ShapeError(f"{here} {given}, {_SEVERAL_LABELS}")
    labels = labels.flatten().long()
    if len(labels) != rows:
        raise ShapeError(
            f"{here} {len(labels)} labels for {rows} predictions: {given}. One label per row is"
            " needed, per token or pixel where the model predicts those; of one-hot integers take"
            f" `.argmax(-1)`. {RIGHT_ORDER}"
        )
    return labels


_SEVERAL_LABELS = (
    "ones and zeros that do not add up to one. Are these several labels at once, of which any"
    " number may apply? Then give `fit(..., multi_label=True)`, or --multi-label. If one class is"
    f" right, give it as an integer counted from 0. {RIGHT_ORDER}"
)


def _are_several_at_once(labels: Tensor, rows: int) -> bool:
    """Whether integers are ones and zeros for every class, not one of each row."""
    return (
        labels.dim() > 1
        and labels.shape[-1] > 1
        and labels[..., 0].numel() == rows
        and bool(((labels == 0) | (labels == 1)).all())
        and bool((labels.sum(-1) != 1).any())
    )


def votes_of(labels: Any, rows: int) -> Int[Tensor, "N K"] | None:  # noqa: ANN401
    """How many people chose each class, if labels are votes; else None.

    Votes are whole numbers for every class of every prediction, somewhere two for the
    same. Zeros and ones alone are one-hot, or of several labels at once.

    Args:
        labels: As a loader yields them.
        rows: How many predictions there are.

    Example:
        >>> votes_of(torch.tensor([[3, 1], [0, 4]]), 2)
        tensor([[3, 1],
                [0, 4]])
        >>> votes_of(torch.tensor([0, 1]), 2) is None
        True
    """
    labels = torch.as_tensor(labels)
    if labels.dim() < 2 or labels.shape[-1] < 2 or labels[..., 0].numel() != rows:
        return None
    votes = labels.flatten(0, -2)
    if (
        not len(votes)
        or votes.amin() < 0
        or votes.amax() < 2
        or bool((votes != votes.round()).any())
    ):
        return None
    return votes.long()


def are_soft(labels: Tensor) -> bool:
    """Whether labels are one-hot, or shares of all classes; a column of numbers is
    neither.

    Args:
        labels: As a loader yields them.
    """
    return labels.is_floating_point() and labels.dim() > 1 and labels.shape[-1] > 1


def require_known_classes(labels: Int[Tensor, " N"], num_classes: int, index: int) -> None:
    """Refuses labels of classes that the model does not have.

    Args:
        labels: One class for each prediction, none of them ignored.
        num_classes: K.
        index: Of the batch.

    Raises:
        InputError: If there is no such class.
    """
    if len(labels) and (labels.min() < 0 or labels.max() >= num_classes):
        raise InputError(
            f"Batch {index} (counted from 0) has labels from {int(labels.min())} to"
            f" {int(labels.max())}; the model has {num_classes} classes, counted from 0."
            f" {RIGHT_ORDER}"
        )


def _as_tensor(labels: Any, here: str) -> Tensor:  # noqa: ANN401
    try:
        return torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ShapeError(
            f"{here} labels of type {type(labels).__name__} that make no tensor ({error}). Give"
            " classes as integers counted from 0: number the names first."
        ) from error
