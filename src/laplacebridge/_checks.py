"""Checks of what was given: shapes, types and devices when a value is built, labels and
numbers.
"""

import math
import numbers
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor

from laplacebridge.errors import InputError, InputTypeError, ShapeError

Labels: TypeAlias = Tensor | Sequence[int] | npt.NDArray[Any]


def require_tensor(
    call: str, tensor: object, shape: str, *, hint: str = "", classes: int | None = None
) -> Tensor:
    """Requires a floating-point tensor with as many dimensions as ``shape`` names.

    Args:
        call: The call being checked, as the user wrote it, for instance
            ``Diagonal(variance)``.
        tensor: What was given.
        shape: The dimensions by name, for instance ``"B K"``.
        hint: What to do about it, added to the message.
        classes: The dimension of classes, of which there must be at least two.

    Returns:
        The tensor, now known to be one.

    Raises:
        ShapeError: If it is not a tensor, not floating point, has another number of
            dimensions or fewer than two classes.
    """
    dims = shape.split()
    if isinstance(tensor, Tensor) and tensor.is_floating_point() and tensor.dim() == len(dims):
        if classes is not None and tensor.shape[classes] < 2:
            raise ShapeError(
                f"`{call}` needs at least K = 2 classes; got K = {tensor.shape[classes]}. A binary"
                " classifier with one logit z has the two logits (0, z):"
                " `torch.stack([torch.zeros_like(z), z], -1)`."
            )
        return tensor
    needed = f"`{call}` needs a floating-point tensor of shape ({', '.join(dims)})"
    if not isinstance(tensor, Tensor):
        raise ShapeError(
            f"{needed}; got {type(tensor).__name__}. Convert it with `torch.as_tensor`."
        )
    if not tensor.is_floating_point():
        raise ShapeError(
            f"{needed}; got {tensor.dtype}. Convert it with `.float()` or `.double()`."
        )
    advice = hint or f"Reshape it to {len(dims)} dimensions."
    raise ShapeError(f"{needed}; got shape {tuple(tensor.shape)}. {advice}")


def require_logits(call: str, logits: object) -> Float[Tensor, "B K"]:
    """Requires logits of at least two classes, one row for each example.

    Args:
        call: The call being checked.
        logits: What was given.
    """
    hint = "Logits of tokens or pixels, (B, T, K), are B·T rows: `.flatten(0, -2)`."
    return require_tensor(call, logits, "B K", hint=hint, classes=1)


def require_finite(call: str, name: str, values: Tensor, advice: str) -> None:
    """Requires finite numbers.

    Args:
        call: The call being checked.
        name: What they are.
        values: The numbers, one row for each example.
        advice: What to do about a row that has others.

    Raises:
        InputError: If one is NaN or infinite.
    """
    bad = ~values.isfinite()
    if bad.any():
        found = values[bad][0].item()
        raise InputError(
            f"`{call}` needs finite {name}; row {first_row(bad)} holds {found}. {advice}"
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
    if first.device == second.device and first.dtype == second.dtype:
        return
    for what, one, other, remedy in (
        ("device", first.device, second.device, ".to(device)"),
        ("type", first.dtype, second.dtype, ".to(dtype)"),
    ):
        if one != other:
            raise ShapeError(
                f"`{call}` needs {names[0]} and {names[1]} of the same {what}; got {one} and"
                f" {other}. Move one of them with `{remedy}`."
            )


def rows_of(
    index: "int | slice | Tensor | Sequence[int]", length: int
) -> "slice | Tensor | Sequence[int]":
    """Turns an index of rows into one that keeps the batch dimension (an integer
    becomes a slice of one).

    Args:
        index: The rows asked for.
        length: How many there are.

    Raises:
        IndexError: If there is no such row, which is also what ends a loop over rows.
    """
    if isinstance(index, int):
        if not -length <= index < length:
            raise IndexError(
                f"row {index} is out of range; there are {length} rows. Rows are counted from 0."
            )
        return slice(index, index + 1 or None)
    return index


def is_readable(tensor: Tensor) -> bool:
    """Whether its values can be looked at at once: not on a device that computes on its
    own and would have to be waited for, nor while code is compiled or exported.

    Args:
        tensor: The tensor.
    """
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


# Too narrow to compute in.
HALF_PRECISION = (torch.bfloat16, torch.float16)


def is_half(dtype: torch.dtype) -> bool:
    """Whether a type is too narrow to compute in: bfloat16 or float16."""
    return dtype in HALF_PRECISION


def labels_of(call: str, labels: Labels, num_rows: int, num_classes: int) -> Int[Tensor, " B"]:
    """Labels, one class for each example, as int64.

    Args:
        call: The call being checked.
        labels: Integers from 0 to K − 1.
        num_rows: How many examples there are.
        num_classes: K.

    Raises:
        ShapeError: If there is not one integer for each example.
        InputError: If a label is no class.
        InputTypeError: If labels are names.
    """
    try:
        given = torch.as_tensor(labels)
    except (TypeError, ValueError) as error:
        raise InputTypeError(
            f"`{call}` needs labels that are numbers from 0; got '{labels[0]}'."
            " `np.unique(labels, return_inverse=True)` gives them, in the order of scikit-learn's"
            " `classes_`."
        ) from error
    if (
        given.is_floating_point()
        or given.is_complex()
        or given.dtype == torch.bool
        or given.shape != (num_rows,)
    ):
        of_tokens = given.ndim > 1 and given.numel() == num_rows
        repair = (
            "Tokens of texts are chosen by a mask: `keep = labels != -100`, then `prediction[keep]`"
            " and `labels[keep]`."
            if of_tokens
            else "Labels in columns (one-hot) become numbers with `.argmax(-1)`."
        )
        raise ShapeError(
            f"`{call}` needs one integer label for each of {num_rows} examples; got {given.dtype}"
            f" of shape {tuple(given.shape)}. {repair}"
        )
    outside = (given < 0) | (given >= num_classes)
    if outside.any():
        row = first_row(outside)
        raise InputError(
            f"`{call}` needs labels from 0 to {num_classes - 1}; example {row} has"
            f" {given[row].item()}. Classes are counted from 0; leave out examples without a label."
        )
    return given.long()


def require_rows(call: str, num_rows: int) -> None:
    """Requires at least one example.

    Args:
        call: The call being checked.
        num_rows: How many there are.

    Raises:
        ShapeError: If there are none.
    """
    if num_rows == 0:
        raise ShapeError(
            f"`{call}` needs at least one example; got none. Is the loader empty, or a filter too"
            " strict?"
        )


def require_positive_number(call: str, name: str, value: object) -> None:
    """Requires a positive, finite number: of Python, NumPy or torch.

    Args:
        call: The call being checked.
        name: What the number is.
        value: What was given.

    Raises:
        InputTypeError: If it is no number.
        InputError: If it is zero, negative, NaN or infinite.
    """
    needed = f"`{call}` needs a positive number as `{name}`; got {value!r}"
    is_number = isinstance(value, numbers.Real) or (
        isinstance(value, Tensor) and value.numel() == 1
    )
    if isinstance(value, bool) or not is_number:
        raise InputTypeError(f"{needed}, of type {type(value).__name__}. 1.0 is a start.")
    if not 0 < float(value) < math.inf:  # type: ignore[arg-type]
        raise InputError(
            f"{needed}. Without one the variance along directions that no example reached is"
            " infinite. 1.0 is a start."
        )


def values_of(call: str, values: object) -> Float[Tensor, " B"]:
    """Scores or other numbers, one for each example, in at least float32.

    Args:
        call: The call being checked.
        values: The numbers, shape (B,).

    Raises:
        InputError: If one is NaN.
    """
    numbers = require_tensor(call, values, "B")
    require_rows(call, len(numbers))
    if numbers.isnan().any():
        raise InputError(
            f"`{call}` needs numbers; example {first_row(numbers.isnan())} is NaN. Find the input"
            " that made it: `lb.check(prediction)`."
        )
    return numbers.float() if is_half(numbers.dtype) else numbers


def require_coverage(call: str, coverage: float) -> None:
    """Requires a probability that sets can be asked to hold the label with.

    Args:
        call: The call being checked.
        coverage: What was given.

    Raises:
        InputError: If it is not between 0 and 1.
    """
    if not 0 < coverage < 1:
        raise InputError(
            f"`{call}(coverage)` needs a probability between 0 and 1; got {coverage}. For 1 keep"
            " all classes."
        )


def first_row(bad: Tensor) -> int:
    """The first row that holds something bad.

    Args:
        bad: Whether each number is bad, one row for each example.
    """
    return int(bad.reshape(len(bad), -1).any(1).nonzero()[0])


def require_level(call: str, level: object) -> None:
    """Refuses what is no level of an interval.

    Args:
        call: What was called, for the message.
        level: What was given.

    Raises:
        InputError: If it is not between 0 and 1.
    """
    if not is_share(level):
        raise InputError(f"`{call}` needs a level between 0 and 1; got {level!r}. 0.95 is usual.")


def is_share(number: object) -> bool:
    """Whether something is a number between 0 and 1, both left out."""
    return isinstance(number, numbers.Real) and 0 < float(number) < 1
