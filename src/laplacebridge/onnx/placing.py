"""Where examples lie in a tensor: told by numbers, because sizes agree by chance."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_NEAR = 1e-2  # of the largest number: far below what other examples differ by


@dataclass(frozen=True)
class Place:
    """Where examples lie in a tensor.

    Attributes:
        axis: The dimension that goes over them.
        is_whole: Whether it goes over nothing else.
        are_first: Whether, where it goes over rows of each example too, it has all rows
            of one example before the next.
    """

    axis: int
    is_whole: bool = True
    are_first: bool = True

    def split(self, value: np.ndarray, count: int) -> np.ndarray:
        """A tensor with three dimensions, of which the second goes over examples.

        Args:
            value: The tensor.
            count: How many examples there are.
        """
        entries = int(np.prod(value.shape[self.axis + 1 :]))
        if self.are_first:
            entries *= value.shape[self.axis] // count
        return value.reshape(-1, count, entries)

    def joined(self, parts: Sequence[np.ndarray], count: int, total: int) -> np.ndarray:
        """The first examples of several batches in one tensor.

        Args:
            parts: Of the same number of examples each.
            count: That number.
            total: How many examples are wanted.
        """
        together = np.concatenate([self.split(part, count) for part in parts], 1)[:, :total]
        shape = list(parts[0].shape)
        shape[self.axis] = shape[self.axis] // count * total
        return together.reshape(shape)


def place_of(value: Any, reversed_value: Any, count: int) -> Place | None:  # noqa: ANN401
    """Where examples lie in a tensor, None if that cannot be told.

    Args:
        value: The tensor.
        reversed_value: What it is of the same examples from the last to the first.
        count: How many examples there are.
    """
    if isinstance(value, list):
        return Place(0) if len(value) == count else None
    if np.shape(value) != np.shape(reversed_value) or value.size == 0:
        return None
    candidates = list(_places(value.shape, count))
    apart = [
        _difference(place.split(value, count)[:, ::-1], place.split(reversed_value, count))
        for place in candidates
    ]
    return candidates[int(np.argmin(apart))] if min(apart, default=1.0) <= _NEAR else None


def _places(shape: Sequence[int], count: int) -> Iterator[Place]:
    """Where examples may lie, the likeliest first."""
    shared = [axis for axis, size in enumerate(shape) if size % count == 0 and size != count]
    yield from (Place(axis) for axis, size in enumerate(shape) if size == count)
    yield from (Place(axis, is_whole=False) for axis in shared)
    yield from (Place(axis, is_whole=False, are_first=False) for axis in shared)


def _difference(first: np.ndarray, second: np.ndarray) -> float:
    """The largest difference relative to the largest number."""
    if first.dtype.kind not in "fiu":
        return float(not np.array_equal(first, second))
    first, second = (value.astype(np.float64) for value in (first, second))
    largest = float(np.abs(first[np.isfinite(first)]).max(initial=0.0)) or 1.0
    # what is not a number, or infinite, has to be so in both
    differ = (first != second) & ~(np.isnan(first) & np.isnan(second))
    with np.errstate(invalid="ignore"):
        apart = np.abs(first[differ] - second[differ])
    return float(np.where(np.isnan(apart), np.inf, apart).max(initial=0.0)) / largest
