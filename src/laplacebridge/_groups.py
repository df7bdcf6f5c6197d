"""Groups of examples, by number or by name."""

from collections.abc import Collection, Sequence
from typing import Any, TypeAlias

import numpy.typing as npt
import torch
from torch import Tensor

from laplacebridge.errors import InputError, ShapeError

Group: TypeAlias = int | str
Groups: TypeAlias = Tensor | Sequence[Group] | npt.NDArray[Any]


def require_known(call: str, group: Group, known: Collection[Group]) -> None:
    """Refuses a group that was not there at the calibration.

    Args:
        call: The call being checked.
        group: The group.
        known: Those that were.

    Raises:
        InputError: If it is none of them.
    """
    if group not in known:
        raise InputError(
            f"`{call}` knows the groups {', '.join(map(repr, known))}; got {group!r}. Calibrate"
            " with examples of it."
        )


def groups_of(call: str, groups: Groups, num_rows: int) -> dict[Group, Tensor]:
    """The rows of each group, in order of first appearance.

    Args:
        call: The call being checked.
        groups: The group of each example.
        num_rows: How many examples there are.

    Raises:
        ShapeError: If there is not one group for each example.

    Example:
        >>> groups_of("calibrate_by_group(groups)", ["day", "night", "day"], 3)
        {'day': tensor([0, 2]), 'night': tensor([1])}
    """
    given = groups.tolist() if hasattr(groups, "tolist") else list(groups)
    if len(given) != num_rows or any(isinstance(group, (list, tuple)) for group in given):
        raise ShapeError(
            f"`{call}` needs one group for each of {num_rows} examples, a number or a name; got"
            f" {len(given)}."
        )
    rows: dict[Group, list[int]] = {}
    for row, group in enumerate(given):
        rows.setdefault(group, []).append(row)
    return {group: torch.tensor(members) for group, members in rows.items()}
