"""How often class sets hold the label, and how large they are."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from laplacebridge._arrays import takes_arrays
from laplacebridge._checks import Labels, labels_of, require_rows
from laplacebridge._groups import Group, Groups, groups_of
from laplacebridge.errors import InputError
from laplacebridge.metrics.forms import carries
from laplacebridge.metrics.proper import mean
from laplacebridge.sets import ClassSets

# Up to how many classes each group of sizes reaches, a last one having no end
# (Angelopoulos et al. 2021).
SIZE_GROUPS = (1, 3, 10, 100)


def covered(sets: ClassSets, labels: Labels) -> Bool[Tensor, " B"]:
    """Whether each set holds its label."""
    call = "coverage(sets, labels)"
    require_rows(call, len(sets))
    return sets.contains(labels_of(call, labels, len(sets), sets.num_classes))


def sizes(sets: ClassSets) -> Int[Tensor, " B"]:
    """How many classes each set has."""
    require_rows("mean_set_size(sets)", len(sets))
    return sets.size


@carries(per_example=covered)
@takes_arrays
def coverage(sets: ClassSets, labels: Labels) -> float:
    """Share of sets that hold the label of their example.

    Args:
        sets: The sets.
        labels: The right classes, shape (B,).

    Example:
        >>> coverage(ClassSets.from_lists([[2, 0], [1]], num_classes=3), [0, 0])
        0.5
    """
    return mean(covered(sets, labels))


@carries(per_example=sizes)
@takes_arrays
def mean_set_size(sets: ClassSets) -> float:
    """Average number of classes in a set.

    Args:
        sets: The sets.

    Example:
        >>> mean_set_size(ClassSets.from_lists([[2, 0], [1]], num_classes=3))
        1.5
    """
    return mean(sizes(sets))


@dataclass(frozen=True, eq=False)
class SizeGroups:
    """Coverage of sets by their size, in N groups, without those that hold no set.

    Attributes:
        smallest: Smallest size that belongs to a group, shape (N,).
        largest: Largest size that belongs to it, at most K, shape (N,).
        coverage: Share of its sets that hold the label, shape (N,).
        count: How many sets it has, shape (N,).

    Example:
        >>> groups = coverage_by_size(ClassSets.from_lists([[2, 0], [1]], num_classes=3), [0, 0])
        >>> groups.largest, groups.coverage
        (tensor([1, 3]), tensor([0., 1.], dtype=torch.float64))
    """

    smallest: Int[Tensor, " N"]
    largest: Int[Tensor, " N"]
    coverage: Float[Tensor, " N"]
    count: Int[Tensor, " N"]


@takes_arrays
def coverage_by_size(
    sets: ClassSets, labels: Labels, *, groups: Sequence[int] = SIZE_GROUPS
) -> SizeGroups:
    """Coverage among small, medium and large sets.

    Args:
        sets: The sets.
        labels: The right classes, shape (B,).
        groups: Up to how many classes each group reaches, rising; sets beyond the last
            form one more. By default 0–1, 2–3, 4–10, 11–100 and more than 100 classes.

    Raises:
        InputError: If the groups do not rise.

    Example:
        >>> sets = ClassSets.from_lists([[2, 0], [1], [0]], num_classes=3)
        >>> groups = coverage_by_size(sets, [0, 1, 2])
        >>> groups.smallest, groups.coverage, groups.count
        (tensor([0, 2]), tensor([0.5000, 1.0000], dtype=torch.float64), tensor([2, 1]))
    """
    ends = [int(end) for end in groups]
    if ends != sorted(set(ends)) or (ends and ends[0] < 0):
        raise InputError(
            f"`coverage_by_size(groups)` needs sizes that rise from 0 or more; got {ends}. (1, 3,"
            " 10) makes groups of 0–1, 2–3, 4–10 and more than 10 classes."
        )
    hits, size = covered(sets, labels), sizes(sets)
    index = torch.bucketize(size, torch.tensor(ends, dtype=size.dtype, device=size.device))
    count = torch.bincount(index, minlength=len(ends) + 1)
    held = torch.bincount(index, weights=hits.double(), minlength=len(ends) + 1)
    used = count.nonzero().squeeze(-1)
    smallest = torch.tensor([0, *(end + 1 for end in ends)], device=size.device)
    largest = torch.tensor([*ends, sets.num_classes], device=size.device).clamp_max(
        sets.num_classes
    )
    return SizeGroups(smallest[used], largest[used], held[used] / count[used], count[used])


@dataclass(frozen=True, eq=False)
class GroupCoverage:
    """Coverage of sets by group, in N groups.

    Attributes:
        group: The groups, in order of first appearance.
        coverage: Share of the sets of each that hold the label.
        count: How many sets it has.
        mean_size: How large they are on average.

    Example:
        >>> sets = ClassSets.from_lists([[2, 0], [1]], num_classes=3)
        >>> coverage_by_group(sets, [0, 0], ["day", "night"]).coverage
        (1.0, 0.0)
    """

    group: tuple[Group, ...]
    coverage: tuple[float, ...]
    count: tuple[int, ...]
    mean_size: tuple[float, ...]


@takes_arrays
def coverage_by_group(sets: ClassSets, labels: Labels, groups: Groups) -> GroupCoverage:
    """Coverage in every group; in every class, with the labels as groups.

    Args:
        sets: The sets.
        labels: The right classes, shape (B,).
        groups: The group of each example: numbers or names.

    Example:
        >>> sets = ClassSets.from_lists([[2, 0], [1], [0]], num_classes=3)
        >>> table = coverage_by_group(sets, [0, 1, 2], ["day", "night", "night"])
        >>> table.group, table.coverage, table.count
        (('day', 'night'), (1.0, 0.5), (1, 2))
    """
    hits = covered(sets, labels)
    found = groups_of("coverage_by_group(sets, labels, groups)", groups, len(sets))
    return GroupCoverage(
        tuple(found),
        tuple(mean(hits[rows]) for rows in found.values()),
        tuple(len(rows) for rows in found.values()),
        tuple(mean(sets.size[rows]) for rows in found.values()),
    )


@takes_arrays
def size_stratified_coverage(
    sets: ClassSets, labels: Labels, *, groups: Sequence[int] = SIZE_GROUPS, min_count: int = 1
) -> float:
    """Smallest coverage among groups of set size: whether small sets are as trustworthy
    as large ones.

    Args:
        sets: The sets.
        labels: The right classes, shape (B,).
        groups: As for `coverage_by_size`, which gives the coverage of every group.
        min_count: Groups with fewer sets are left out, because their coverage is mostly
            chance.

    Raises:
        InputError: If every group has fewer.

    Example:
        >>> size_stratified_coverage(
        ...     ClassSets.from_lists([[2, 0], [1], [0]], num_classes=3), [0, 1, 2]
        ... )
        0.5
    """
    table = coverage_by_size(sets, labels, groups=groups)
    enough = table.count >= min_count
    if not enough.any():
        raise InputError(
            f"`size_stratified_coverage(min_count)` needs a group of at least {min_count} sets; the"
            f" largest has {int(table.count.max())}. Ask for fewer, or for fewer groups."
        )
    return table.coverage[enough].min().item()
