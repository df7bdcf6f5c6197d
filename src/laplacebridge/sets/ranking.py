"""Sets that are prefixes of a ranking, found without ranking all classes."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from laplacebridge.sets.class_sets import ClassSets

# How many classes are ranked at first, how many times more when a set does not end
# among them, and from which share of all classes on it costs less to rank them all.
FIRST_LENGTH = 8
GROWTH = 8
SHARE_TO_RANK_ALL = 0.25

# (rows of the batch, their values in falling order) -> how many of the first belong to
# each set
CountMembers = Callable[[Int[Tensor, " b"], Float[Tensor, "b m"]], Int[Tensor, " b"]]


def top_ranked(
    values: Float[Tensor, "B K"], length: int
) -> tuple[Float[Tensor, "B m"], Int[Tensor, "B m"]]:
    """The largest values in falling order and their classes; among equal values the
    first class comes first.

    Args:
        values: One for each class.
        length: How many to rank.
    """
    if length >= SHARE_TO_RANK_ALL * values.shape[1]:
        everything = values.sort(dim=-1, descending=True, stable=True)
        return everything.values[:, :length], everything.indices[:, :length]
    top = values.topk(length + 1)
    classes = (
        top.indices[:, :length].sort(-1).values
    )  # `topk` leaves open in which order equal values come
    ranked, order = values.gather(-1, classes).sort(dim=-1, descending=True, stable=True)
    classes = classes.gather(-1, order)
    cut_through_ties = top.values[:, length - 1] == top.values[:, length]  # and which of them
    if cut_through_ties.any():
        complete = values[cut_through_ties].sort(dim=-1, descending=True, stable=True).indices
        classes[cut_through_ties] = complete[:, :length]
    return ranked, classes


def ranked_prefixes(
    values: Float[Tensor, "B K"],
    count_members: CountMembers,
    *,
    first_length: int = FIRST_LENGTH,
    max_size: int | None = None,
) -> ClassSets:
    """One set for each row: the first classes of its ranking by value, as many as the
    rule counts.

    The ranking grows eightfold for the rows whose set does not end within it.

    Args:
        values: What to rank by, the largest first.
        count_members: Given rows and the first values of their ranking, how many of
            them belong to the set.
        first_length: How many classes to rank at first.
        max_size: Where to cut every set off.
    """
    num_rows, num_classes = values.shape
    limit = min(max_size or num_classes, num_classes)
    size = torch.zeros(num_rows, dtype=torch.long, device=values.device)
    unfinished = torch.arange(num_rows, device=values.device)
    found: list[tuple[Tensor, Tensor]] = []
    # few classes are all ranked in any case
    length = limit if first_length >= SHARE_TO_RANK_ALL * num_classes else min(first_length, limit)
    while len(unfinished):
        ranked, classes = top_ranked(
            values if len(unfinished) == num_rows else values[unfinished], length
        )
        counts = count_members(unfinished, ranked)
        if length == limit and len(unfinished) == num_rows:
            inside = torch.arange(length, device=values.device) < counts.unsqueeze(-1)
            return ClassSets(classes[inside], counts, num_classes)
        ended = (counts < length) if length < limit else torch.ones_like(counts, dtype=torch.bool)
        size[unfinished[ended]] = counts[ended]
        found.append((unfinished[ended], classes[ended]))
        unfinished = unfinished[~ended]
        length = min(length * GROWTH, limit)
        if length >= SHARE_TO_RANK_ALL * num_classes:
            length = limit
    members = torch.empty(int(size.sum()), dtype=torch.long, device=values.device)
    starts = size.cumsum(0) - size
    for rows, classes in found:
        columns = torch.arange(classes.shape[1], device=values.device)
        inside = columns < size[rows].unsqueeze(-1)
        members[(starts[rows].unsqueeze(-1) + columns)[inside]] = classes[inside]
    return ClassSets(members, size, num_classes)


def ranked_before(values: Float[Tensor, "B K"], labels: Int[Tensor, " B"]) -> Bool[Tensor, "B K"]:
    """Which classes rank before the label: larger values, and equal ones of lower
    classes.

    Args:
        values: What is ranked by.
        labels: One class for each row.
    """
    own = values.gather(-1, labels.unsqueeze(-1))
    lower = torch.arange(values.shape[1], device=values.device) < labels.unsqueeze(-1)
    return (values > own) | ((values == own) & lower)
