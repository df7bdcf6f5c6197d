"""What sets, scores and metrics accept as a prediction, checked: a `Dirichlet`, or class probabilities."""

from collections.abc import Sequence
from typing import TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from laplacebridge._checks import is_half, require_classes, require_tensor
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.errors import ShapeError

Prediction: TypeAlias = Dirichlet | Tensor
Labels: TypeAlias = Tensor | Sequence[int]

# How far from one a row of probabilities may add up: what softmax over 100 000 classes leaves, and what rounding to
# half precision does to it.
SUM_TOLERANCE = 1e-3
HALF_SUM_TOLERANCE = 2e-2


def probabilities_of(call: str, prediction: Prediction) -> Float[Tensor, "B K"]:
    """Class probabilities of a prediction, in at least float32.

    Args:
        call: The call being checked, as the user wrote it.
        prediction: A Dirichlet, whose mean is taken, or probabilities of shape (B, K).

    Raises:
        ShapeError: If the prediction is empty, of another shape or has fewer than two classes.
        ValueError: If rows are not probabilities.
    """
    if isinstance(prediction, Dirichlet):
        require_rows(call, len(prediction))
        log = prediction.log_concentration
        probabilities = Dirichlet(log.float()).mean if is_half(log.dtype) else prediction.mean
        if not probabilities.isfinite().all():
            raise ValueError(
                f"`{call}` needs finite concentrations; row {_first(~probabilities.isfinite())} has NaN. Find the "
                "input that made it: `lb.check(dirichlet)`."
            )
        return probabilities
    require_tensor(call, prediction, "B K")
    require_rows(call, len(prediction))
    require_classes(call, prediction.shape[1])
    tolerance = HALF_SUM_TOLERANCE if is_half(prediction.dtype) else SUM_TOLERANCE
    wide = prediction.float() if is_half(prediction.dtype) else prediction
    bad = ~(wide >= 0) | ~wide.isfinite()
    if bad.any():
        row, found = _first(bad), wide[bad][0].item()
        raise ValueError(
            f"`{call}` needs probabilities from 0 to 1; row {row} holds {found:.4g}. If these are logits, give "
            "`logits.softmax(-1)`."
        )
    off = (wide.sum(-1) - 1).abs() > tolerance
    if off.any():
        row = _first(off)
        raise ValueError(
            f"`{call}` needs rows that add up to 1; row {row} adds up to {wide[row].sum().item():.4g}. If these are "
            "logits, give `logits.softmax(-1)`; if they are independent scores, divide by their sum."
        )
    return wide


def labels_of(call: str, labels: Labels, num_rows: int, num_classes: int) -> Int[Tensor, " B"]:
    """Labels, one class for each example, as int64.

    Args:
        call: The call being checked.
        labels: Integers from 0 to K − 1.
        num_rows: How many examples there are.
        num_classes: K.

    Raises:
        ShapeError: If there is not one integer for each example.
        ValueError: If a label is no class.
    """
    given = torch.as_tensor(labels)
    if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool or given.shape != (num_rows,):
        raise ShapeError(
            f"`{call}` needs one integer label for each of {num_rows} examples; got {given.dtype} of shape "
            f"{tuple(given.shape)}. Labels in columns (one-hot) become numbers with `.argmax(-1)`."
        )
    outside = (given < 0) | (given >= num_classes)
    if outside.any():
        row = _first(outside)
        raise ValueError(
            f"`{call}` needs labels from 0 to {num_classes - 1}; example {row} has {given[row].item()}. Classes are "
            "counted from 0; leave out examples without a label."
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
        raise ShapeError(f"`{call}` needs at least one example; got none. Is the loader empty, or a filter too strict?")


def values_of(call: str, values: object) -> Float[Tensor, " B"]:
    """Scores or other numbers, one for each example, in at least float32.

    Args:
        call: The call being checked.
        values: The numbers, shape (B,).

    Raises:
        ValueError: If one is NaN.
    """
    numbers = require_tensor(call, values, "B")
    require_rows(call, len(numbers))
    if numbers.isnan().any():
        raise ValueError(
            f"`{call}` needs numbers; example {_first(numbers.isnan())} is NaN. Find the input that made it: "
            "`lb.check(prediction)`."
        )
    return numbers.float() if is_half(numbers.dtype) else numbers


def _first(bad: Tensor) -> int:
    """The first row that holds something bad."""
    return int(bad.reshape(len(bad), -1).any(1).nonzero()[0])
