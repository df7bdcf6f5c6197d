"""Whole values: checked when that is asked for, or made without checks."""

from collections.abc import Iterable
from typing import Protocol, TypeVar, runtime_checkable

from jaxtyping import Bool
from torch import Tensor

from laplacebridge.errors import InputError

Value = TypeVar("Value")


def replaced(value: Value, **parts: object) -> Value:
    """`dataclasses.replace` without the checks: for parts that were made, inside the
    library, of parts that were checked.

    Args:
        value: A frozen dataclass.
        parts: What it has in their place, by name.
    """
    other = object.__new__(type(value))
    for name, part in {**vars(value), **parts}.items():
        object.__setattr__(other, name, part)
    return other


def made(kind: type[Value], **parts: object) -> Value:
    """A new value without its checks, for parts as `replaced` takes them.

    Args:
        kind: A frozen dataclass.
        parts: What it consists of, by name; of the others the defaults.
    """
    value = object.__new__(kind)
    for name, part in parts.items():
        object.__setattr__(value, name, part)
    return value


@runtime_checkable
class _Value(Protocol):
    """What can be checked: it knows what could be wrong with it, and in which rows."""

    def problems(self) -> "Iterable[tuple[str, Bool[Tensor, ' B']]]":
        """Each thing that could be wrong, with the rows where it is."""
        ...


Checked = TypeVar("Checked", bound=_Value)


def check(value: Checked) -> Checked:
    """Makes sure that every number is finite and every covariance valid, and names the
    first bad row.

    Args:
        value: A Gaussian, covariance, Dirichlet or Beta.

    Returns:
        The same value, so that a call can be wrapped in place.

    Raises:
        InputError: If a number is NaN or infinite, or a variance, weight or eigenvalue
            negative.

    Example:
        >>> import torch
        >>> from laplacebridge import Diagonal
        >>> check(Diagonal(torch.tensor([[1.0, 1.0], [1.0, -1.0]])))
        Traceback (most recent call last):
        ...
        laplacebridge.errors.InputError: `check(Diagonal)`: in row 1 (1 of 2 rows) a variance is negative; ...
    """
    bad = [
        (int(rows.nonzero()[0]), problem, rows) for problem, rows in value.problems() if rows.any()
    ]
    if bad:
        first, problem, rows = min(bad, key=lambda item: item[0])
        raise InputError(
            f"`check({type(value).__name__})`: in row {first} ({int(rows.sum())} of {len(rows)}"
            f" rows) {problem}; finite numbers and non-negative variances are needed. Look at the"
            " input that produced that row."
        )
    return value


def not_finite(name: str, tensor: Tensor) -> "tuple[str, Bool[Tensor, ' B']]":
    """A problem for `check`: the rows where a tensor holds NaN or infinity.

    Args:
        name: What the tensor is called.
        tensor: One row for each example.
    """
    return f"`{name}` is not finite", (~tensor.isfinite()).reshape(len(tensor), -1).any(1)
