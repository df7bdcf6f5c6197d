"""Rules for sets of classes compared at equal mean length: as many classes in all,
spread differently over images.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from laplacebridge.sets.ranking import ranked_before, top_ranked
from laplacebridge_reproduction.conventions import MAX_SET_SIZE


class Ranking(NamedTuple):
    """What rules for sets need of the predictions for N images.

    Attributes:
        place: Place of the label among all classes, counted from 1, shape (N,).
        mass_before: Probability of the classes before each of the first ten, shape (N,
            10).
        confidence: The largest probability, shape (N,).
    """

    place: Int[Tensor, " N"]
    mass_before: Float[Tensor, "N m"]
    confidence: Float[Tensor, " N"]


def ranking(log_probability: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> Ranking:
    """Ranks classes by falling probability."""
    first = top_ranked(log_probability.double(), min(MAX_SET_SIZE, log_probability.shape[1]))[
        0
    ].exp()
    return Ranking(
        ranked_before(log_probability, labels).sum(-1) + 1, first.cumsum(-1) - first, first[:, 0]
    )


def joined(parts: Sequence[Ranking]) -> Ranking:
    """The rankings of several batches as one.

    Args:
        parts: In order.
    """
    return Ranking(*(torch.cat(columns) for columns in zip(*parts)))


def held_by_top_k(ranked: Ranking, length: float) -> Float[Tensor, " N"]:
    """Whether the label is among the first classes, the same number for every image.

    Between two whole numbers it is the chance when each image gets one of them at
    random, so that the mean is right.

    Example:
        >>> held_by_top_k(Ranking(torch.tensor([1, 2, 3]), torch.zeros(3, 10), torch.ones(3)), 1.25)
        tensor([1.0000, 0.2500, 0.0000], dtype=torch.float64)
    """
    whole = int(length)
    share = length - whole
    return (1 - share) * (ranked.place <= whole).double() + share * (
        ranked.place <= whole + 1
    ).double()


def held_by_mass(ranked: Ranking, members: int) -> Float[Tensor, " N"]:
    """Whether the label is in the set of cumulative mass, at the level at which all
    sets together hold these members.

    A class is in a set while the classes before it hold less than the level. So the
    members are those with the least mass before them; no set has more than ten.

    Example:
        >>> mass_before = torch.tensor([[0.0, 0.9], [0.0, 0.4]])
        >>> held_by_mass(Ranking(torch.tensor([2, 2]), mass_before, torch.tensor([0.9, 0.4])), 3)
        tensor([0., 1.], dtype=torch.float64)
    """
    members_first = ranked.mass_before.flatten().argsort(stable=True)
    is_member = torch.zeros(ranked.mass_before.numel(), dtype=torch.bool)
    is_member[members_first[:members]] = True
    is_label = torch.arange(1, ranked.mass_before.shape[1] + 1) == ranked.place.unsqueeze(-1)
    return (is_member.view_as(ranked.mass_before) & is_label).any(-1).double()


def compared(own: Tensor, other: Tensor) -> dict[str, float]:
    """How often another rule's sets hold the label, and by how much one's own do so
    more often.

    Args:
        own: Whether one's own sets do, for each image.
        other: Whether the others do, or the chance of it.

    Returns:
        ``covered`` by the other rule, how much ``more`` by one's own, and the standard
        ``error`` of that, over images.
    """
    difference = own.double() - other.double()
    return {
        "covered": other.double().mean().item(),
        "more": difference.mean().item(),
        "error": (difference.std() / len(difference) ** 0.5).item(),
    }
