"""NumPy in, NumPy out: one decorator for everything that decides, scores and judges."""

import copy
import dataclasses
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
import torch
from torch import Tensor

P = ParamSpec("P")
T = TypeVar("T")


def array_of(tensor: Tensor) -> np.ndarray:
    """A tensor as an array, bfloat16, which NumPy has not, as float32.

    Args:
        tensor: On any device, with a gradient or not.
    """
    values = tensor.detach().cpu()
    array: np.ndarray = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    return array


def takes_arrays(function: Callable[P, T]) -> Callable[P, T]:
    """Lets a function of tensors take arrays and frames too, and answer in kind.

    Arrays among the arguments become tensors. If there was no tensor and no prediction
    among them, tensors in the answer become arrays, also inside the library's own
    values, such as `ClassSets`; these may then be the arguments of other calls.

    Args:
        function: A function or method of tensors.

    Example:
        >>> double = takes_arrays(lambda values: 2 * values)
        >>> double(np.array([1.0, 2.0])), double(torch.tensor([1.0, 2.0]))
        (array([2., 4.]), tensor([2., 4.]))
    """

    @wraps(function)
    def wrapped(*arguments: P.args, **keywords: P.kwargs) -> T:
        given = (*arguments, *keywords.values())
        if not any(map(_holds_arrays, given)):
            return function(*arguments, **keywords)
        answer = function(
            *map(to_tensors, arguments),
            **{name: to_tensors(value) for name, value in keywords.items()},
        )
        return answer if any(map(_holds_tensors, given)) else to_arrays(answer)

    return wrapped


def to_tensors(value: Any) -> Any:  # noqa: ANN401
    """The same with tensors in place of arrays and frames.

    Args:
        value: An array, a frame, a list or a value of the library that holds some, or
            anything else, which stays as it is.
    """
    if is_array(value) or _is_rows_of_floats(value):
        return _tensor(value)
    return _mapped(value, to_tensors) if _holds_arrays(value) else value


def to_arrays(value: Any) -> Any:  # noqa: ANN401
    """The same with arrays in place of tensors.

    Args:
        value: A tensor, a list or a value of the library that holds some, or anything
            else, which stays as it is.
    """
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    return _mapped(value, to_arrays) if _holds_tensors(value) else value


def _tensor(value: Any) -> Any:  # noqa: ANN401
    """A tensor of an array or frame of numbers; names, such as groups, stay an array."""
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        return array
    kind = array.dtype.newbyteorder("=") if array.dtype.kind != "u" else np.dtype(np.int64)
    return torch.from_numpy(np.array(array, dtype=kind))  # a copy: torch shares no read-only ones


def is_array(value: object) -> bool:
    """Whether something is an array or a frame.

    Args:
        value: Anything.
    """
    return isinstance(value, np.ndarray) or (
        hasattr(value, "to_numpy") and not isinstance(value, (Tensor, type))
    )


def _is_rows_of_floats(value: object) -> bool:
    """Whether something is rows of floating-point numbers, each a list."""
    return (
        isinstance(value, list)
        and len(value) > 0
        and all(isinstance(row, (list, tuple)) and len(row) > 0 for row in value)
        and all(isinstance(number, float) for row in value for number in row)
        and len({len(row) for row in value}) == 1
    )


def _parts(value: object) -> list[Any]:
    """What a list, a tuple, a mapping or one of the library's values is made of."""
    if isinstance(value, (list, tuple)):
        return list(value) if value and not isinstance(value[0], (int, float, str)) else []
    if isinstance(value, Mapping):
        return list(value.values())
    if _is_value(value):
        return [getattr(value, each.name) for each in dataclasses.fields(value)]  # type: ignore[arg-type]
    return []


def _is_value(value: object) -> bool:
    return (
        dataclasses.is_dataclass(value)
        and not isinstance(value, type)
        and type(value).__module__.startswith("laplacebridge.")
    )


def _holds_arrays(value: object) -> bool:
    return is_array(value) or _is_rows_of_floats(value) or any(map(_holds_arrays, _parts(value)))


def _holds_tensors(value: object) -> bool:
    return isinstance(value, Tensor) or any(map(_holds_tensors, _parts(value)))


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:  # noqa: ANN401
    """A copy in which every part is changed."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(change, value))
    if isinstance(value, (list, tuple)):
        return type(value)(map(change, value))
    if isinstance(value, Mapping):
        return {name: change(part) for name, part in value.items()}
    other = copy.copy(value)
    for each in dataclasses.fields(value):
        object.__setattr__(other, each.name, change(getattr(value, each.name)))
    return other
