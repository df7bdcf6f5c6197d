"""Cheap checks of shape, type and device, made once when a value is built."""

from collections.abc import Sequence

import torch
from torch import Tensor

from laplacebridge.errors import ShapeError


def require_tensor(call: str, tensor: object, shape: str, *, hint: str = "") -> Tensor:
    """Requires a floating-point tensor with as many dimensions as ``shape`` names.

    Args:
        call: The call being checked, as the user wrote it, for instance ``Diagonal(variance)``.
        tensor: What was given.
        shape: The dimensions by name, for instance ``"B K"``.
        hint: What to do about it, added to the message.

    Returns:
        The tensor, now known to be one.

    Raises:
        ShapeError: If it is not a tensor, not floating point or has another number of dimensions.
    """
    dims = shape.split()
    needed = f"`{call}` needs a floating-point tensor of shape ({', '.join(dims)})"
    if not isinstance(tensor, Tensor):
        raise ShapeError(f"{needed}; got {type(tensor).__name__}. Convert it with `torch.as_tensor`.")
    if not tensor.is_floating_point():
        raise ShapeError(f"{needed}; got {tensor.dtype}. Convert it with `.float()` or `.double()`.")
    if tensor.dim() != len(dims):
        advice = hint or f"Reshape it to {len(dims)} dimensions."
        raise ShapeError(f"{needed}; got shape {tuple(tensor.shape)}. {advice}")
    return tensor


def require_classes(call: str, num_classes: int) -> None:
    """Requires at least two classes.

    Args:
        call: The call being checked.
        num_classes: The size K of the last dimension.

    Raises:
        ShapeError: If there are fewer than two.
    """
    if num_classes < 2:
        raise ShapeError(
            f"`{call}` needs at least K = 2 classes; got K = {num_classes}. A binary classifier with one "
            "logit z has the two logits (0, z): `torch.stack([torch.zeros_like(z), z], -1)`."
        )


def require_alike(call: str, first: Tensor, second: Tensor, names: Sequence[str]) -> None:
    """Requires two tensors of the same type on the same device.

    Args:
        call: The call being checked.
        first: One tensor.
        second: The other.
        names: What to call them in the message.

    Raises:
        ShapeError: If types or devices differ.
    """
    for what, one, other, remedy in (
        ("device", first.device, second.device, ".to(device)"),
        ("type", first.dtype, second.dtype, ".to(dtype)"),
    ):
        if one != other:
            raise ShapeError(
                f"`{call}` needs {names[0]} and {names[1]} of the same {what}; got {one} and {other}. "
                f"Move one of them with `{remedy}`."
            )


def rows_of(index: "int | slice | Tensor | Sequence[int]", length: int) -> "slice | Tensor | Sequence[int]":
    """Turns an index of rows into one that keeps the batch dimension (an integer becomes a slice of one).

    Args:
        index: The rows asked for.
        length: How many there are.

    Raises:
        IndexError: If there is no such row, which is also what ends a loop over rows.
    """
    if isinstance(index, int):
        if not -length <= index < length:
            raise IndexError(f"row {index} is out of range; there are {length} rows. Rows are counted from 0.")
        return slice(index, index + 1 or None)
    return index


def is_half(dtype: torch.dtype) -> bool:
    """Whether a type is too narrow to compute in: bfloat16 or float16."""
    return dtype in {torch.bfloat16, torch.float16}
