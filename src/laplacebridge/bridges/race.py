"""The race: E softmax of independent logits by one integral, exact up to its
quadrature. `race_bridge` runs it.

softmax(z)_k is the chance that runner k wins a race with finishing times z_l + Gumbel
noise. With φ_l = −log F_l(x) the hazard of runner l and Φ their sum, integration by
parts and the substitution w = Φ(x) give

    E π_k = ∫ (φ_k/Φ) w e^(−w) dw,

the average share φ_k/Φ at the level Φ = w, w ~ Gamma(2, 1).

Shares sum to one at every node and vary slowly in −log w, so twelve nodes are enough.
Derivation in docs/bridges.md.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from laplacebridge._constant import Constant
from laplacebridge.bridges.gumbel import Runners, lower_end
from laplacebridge.bridges.precision import SMALLEST_PROBABILITY
from laplacebridge.errors import InputError

# Levels y = −log Φ of the nodes; outside lies 3e-5 of the weight w² e^(−w).
LOWEST_LEVEL, HIGHEST_LEVEL = -2.6, 5.0
# Ten nodes and six for the search take .85 to .9 of the time and are as good on ordinary
# logits, but ten times as far off where one class is much wider than all others.
NUM_NODES = 12
NUM_SEARCH_NODES = 8
# Times are graded: x = start + 1.5 (e^g − 1). Nodes are even in the level plus this
# much of the grade, each in units of its range. Levels alone crowd the nodes left of
# where a wide runner takes over from narrow ones; grades see it coming.
GRADE_UNIT = 1.5
GRADE_SHARE = 0.5
_DIFFERENCE_POINTS = 7
# One runner whose variance is so many times that of all others, and the squared distance
# to them, is as good as infinitely wide: it wins half of the races. Left wider it falls
# between the nodes.
WIDEST = 1e5


def race_probabilities(
    mean: Float[Tensor, "B K"], variance: Float[Tensor, "B K"], *, num_nodes: int = NUM_NODES
) -> Float[Tensor, "B K"]:
    """E softmax(z) for independent logits z_k ~ N(mean, variance).

    The nodes carry no gradient: what that leaves out is of the size of the quadrature
    error.

    Args:
        mean: Means of the logits.
        variance: Their variances.
        num_nodes: Nodes of the quadrature. Twelve are within 4e-4 on ordinary inputs
            and 1e-2 on the worst tried.

    Raises:
        InputError: If there are fewer than two nodes.
    """
    require_nodes(num_nodes)
    mean = mean - mean.amax(-1, keepdim=True).detach()
    variance = torch.minimum(variance, largest_variance(mean.detach(), variance.detach()))
    runners = Runners.of(mean, variance)
    with torch.no_grad():
        times = node_times(runners, variance, num_nodes)
    hazards = runners.hazards(times)
    weights = level_weights(-hazards.sum(-1).log())
    expected = torch.einsum("jbk,jb->bk", hazards, weights)
    expected = expected / expected.sum(-1, keepdim=True) + SMALLEST_PROBABILITY
    return expected / expected.sum(-1, keepdim=True)


def largest_variance(
    mean: Float[Tensor, "B K"], variance: Float[Tensor, "B K"]
) -> Float[Tensor, "B 1"]:
    """What bounds the widest runner, by the others. Means are at most zero: the best of
    the others is the second of all, or the widest is farther off than that.

    Args:
        mean: Means of the logits.
        variance: Their variances.
    """
    largest, places = variance.topk(2, -1)
    distance = torch.minimum(mean.topk(2, -1)[0][:, 1:], mean.gather(-1, places[:, :1]))
    return WIDEST * (1 + distance.square() + largest[:, 1:])


def require_nodes(num_nodes: int) -> None:
    """Refuses a quadrature of fewer than two nodes.

    Args:
        num_nodes: How many.

    Raises:
        InputError: If they are fewer.
    """
    if num_nodes < 2:
        raise InputError(
            f"`num_nodes` needs at least two nodes to integrate over; got {num_nodes}. Leave it"
            f" out for {NUM_NODES}."
        )


def level_weights(levels: Float[Tensor, "J B"]) -> Float[Tensor, "J B"]:
    """What hazards at the nodes are multiplied by, so that their sum is the integral: its
    weight, times how much of the levels' range each node stands for, the derivative along
    the nodes, of sixth order.

    Args:
        levels: Of the nodes, ascending.
    """
    num_nodes = len(levels)
    if num_nodes not in _DIFFERENCES:
        _DIFFERENCES[num_nodes] = _difference_matrix(num_nodes)
    # levels increase; less is a kink between nodes
    spacings = (_DIFFERENCES[num_nodes].like(levels) @ levels).clamp_min(0)
    return torch.exp(-levels - torch.exp(-levels)) * spacings


def _difference_matrix(num_nodes: int) -> Constant:
    """Derivatives at even nodes of the polynomial through the nearest seven."""
    points = min(num_nodes, _DIFFERENCE_POINTS)
    matrix = np.zeros((num_nodes, num_nodes))
    for node in range(num_nodes):
        first = min(max(node - points // 2, 0), num_nodes - points)
        nearest = np.arange(first, first + points)
        powers = np.vander(nearest - node, increasing=True).T.astype(float)
        matrix[node, nearest] = np.linalg.solve(powers, np.eye(points)[1])
    return Constant(matrix)


# A dictionary with the default at import, because `torch.compile` does not see into
# caches.
_DIFFERENCES = {NUM_NODES: _difference_matrix(NUM_NODES)}


def node_times(
    runners: Runners,
    variance: Float[Tensor, "B K"],
    num_nodes: int,
    *,
    others: Callable[[Tensor], Tensor] | None = None,
    num_classes: int | None = None,
) -> Float[Tensor, "J B"]:
    """Times of the nodes, by two rounds of inverse interpolation.

    The search runs from where some runner has surely not finished to where all surely
    have.

    Args:
        runners: The runners.
        variance: Variances of their logits.
        num_nodes: How many nodes.
        others: The sum of the hazards of further runners at some times (J, B).
        num_classes: How many runners there are with these.
    """
    start, widest = _grades(runners.mean, variance, num_classes or runners.mean.shape[-1])

    def levels_at(grades: Tensor) -> Tensor:
        times = start + GRADE_UNIT * torch.expm1(grades)
        hazards = runners.hazards(times).sum(-1)
        return -(hazards if others is None else hazards + others(times)).log()

    grades = torch.linspace(0.0, 1.0, NUM_SEARCH_NODES).to(widest).unsqueeze(-1) * widest
    levels = levels_at(grades)
    refined = _place(NUM_SEARCH_NODES, levels, grades)
    grades, order = torch.cat([grades, refined]).sort(0)
    levels = torch.cat([levels, levels_at(refined)]).gather(0, order)
    return start + GRADE_UNIT * torch.expm1(_place(num_nodes, levels, grades))


def graded_times(
    mean: Float[Tensor, "B K"], variance: Float[Tensor, "B K"], number: int
) -> Float[Tensor, "N B"]:
    """Times from where some runner has surely not finished to where all surely have,
    evenly graded.

    Args:
        mean: Means of the logits.
        variance: Their variances.
        number: How many times.
    """
    start, widest = _grades(mean, variance, mean.shape[-1])
    even = torch.linspace(0.0, 1.0, number).to(widest).unsqueeze(-1)
    return start + GRADE_UNIT * torch.expm1(even * widest)


def _grades(mean: Tensor, variance: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """The first of these times, and the grade of the last."""
    reach = HIGHEST_LEVEL + math.log(num_classes)
    start = (mean + lower_end(variance)).amax(-1)
    end = (mean + torch.sqrt(reach * reach + 2 * reach * variance)).amax(-1)
    return start, torch.log1p((end - start) / GRADE_UNIT)


def _place(
    num_nodes: int, levels: Float[Tensor, "N B"], grades: Float[Tensor, "N B"]
) -> Float[Tensor, "J B"]:
    """Grades of nodes that are even in a mixture of level and grade, between the lowest
    and the highest level.
    """
    like: dict[str, Any] = {"dtype": levels.dtype, "device": levels.device}
    ends = torch.linspace(LOWEST_LEVEL, HIGHEST_LEVEL, 2, **like)
    first, last = interpolate(ends, levels, grades)
    by_grade = (grades - first) / (last - first).clamp_min(1e-6)
    by_level = (levels - LOWEST_LEVEL) / (HIGHEST_LEVEL - LOWEST_LEVEL)
    even = torch.linspace(0.0, 1 + GRADE_SHARE, num_nodes, **like)
    return interpolate(even, by_level + GRADE_SHARE * by_grade, grades)


def interpolate(
    wanted: Float[Tensor, "J B"] | Float[Tensor, " J"],
    places: Float[Tensor, "N B"],
    values: Float[Tensor, "N B"],
) -> Float[Tensor, "J B"]:
    """Monotone cubic interpolation (Fritsch and Carlson) of values as a function of
    places, column by column.

    Args:
        wanted: Where; one dimension if that is the same in every column.
        places: Where values are known, ascending.
        values: These values.
    """
    if wanted.dim() == 1:
        wanted = wanted.unsqueeze(-1).expand(-1, places.shape[1])
    width = places.diff(dim=0).clamp_min(1e-6)  # equal places, by rounding, must not divide by zero
    secant = values.diff(dim=0) / width
    before, after = 2 * width[1:] + width[:-1], width[1:] + 2 * width[:-1]
    both = secant[:-1] * secant[1:]
    harmonic = (before + after) * both / (before * secant[1:] + after * secant[:-1])
    slope = torch.cat(
        [secant[:1], torch.where(both > 0, harmonic, torch.zeros_like(both)), secant[-1:]]
    )
    # searchsorted wants the points of each search last and contiguous
    index = torch.searchsorted(places.T.contiguous(), wanted.T.contiguous()).T - 1
    index = index.clamp(0, len(places) - 2)
    step = width.gather(0, index)
    t = ((wanted - places.gather(0, index)) / step).clamp(0, 1)
    start, rise = values.gather(0, index), values.gather(0, index + 1) - values.gather(0, index)
    leave, arrive = slope.gather(0, index) * step, slope.gather(0, index + 1) * step
    return start + t * (
        leave + t * (3 * rise - 2 * leave - arrive + t * (leave + arrive - 2 * rise))
    )
