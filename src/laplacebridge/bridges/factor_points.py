"""The race averaged over what logits share.

    E π_k = E (φ_k/Φ)(T),     Φ(T; ξ) = w,     ξ ~ N(0, I), w ~ Gamma(2, 1)

is an average over R + 1 numbers, of a smooth function: everything that classes have of
their own is integrated (`factor_shares`). It is taken over fixed points
(`support_points`).
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from laplacebridge.bridges.factor_shares import (
    GROUP,
    Average,
    Odds,
    Race,
    Softmax,
    SoftmaxWithOdds,
)
from laplacebridge.bridges.factors import Factors
from laplacebridge.bridges.support_points import PARTS, POINTS

# Below this variance of its own no logit needs a race: rows of factors alone.
SMALLEST_OWN = 3e-3
# Numbers of a block of rows and points that stay in the cache.
_ELEMENTS, _POINTS_OF_A_BLOCK = 262_144, 64


def averages(mean: Float[Tensor, "B K"], factors: Factors, parts: Sequence[int]) -> list[Average]:
    """The average over each of some parts of the points.

    Args:
        mean: Means of the logits.
        factors: What they share, and what not.
        parts: Which, of `PARTS`.
    """
    bare = factors.own.amax(-1) < SMALLEST_OWN
    if torch.compiler.is_compiling():  # what is asked of a row cannot depend on it
        alone = softmax_averages(mean, factors.loadings, parts)
        raced = _over_blocks(Race.of(mean, factors, _points(mean, parts)), parts)
        return [
            Average(*[torch.where(bare.unsqueeze(-1), *both) for both in zip(*pair)])
            for pair in zip(alone, raced)
        ]
    if bare.all():
        return softmax_averages(mean, factors.loadings, parts)
    if not bare.any():
        return _over_blocks(Race.of(mean, factors, _points(mean, parts)), parts)
    found = [Average(torch.zeros_like(mean), torch.zeros_like(mean)) for _ in parts]
    for rows in (bare.nonzero().squeeze(-1), (~bare).nonzero().squeeze(-1)):
        some = averages(mean[rows], factors.of_rows(rows), parts)
        found = [
            Average(*[whole.index_copy(0, rows, part) for whole, part in zip(*pair)])
            for pair in zip(found, some)
        ]
    return found


def softmax_averages(
    mean: Float[Tensor, "B K"], loadings: Float[Tensor, "B K R"], parts: Sequence[int]
) -> list[Average]:
    """The same for logits that are all factors.

    Args:
        mean: Means of the logits.
        loadings: What moves them.
        parts: Which, of `PARTS`.
    """
    return _over_blocks(Softmax(mean, loadings, _points(mean, parts)), parts)


def softmax_averages_with_odds(
    mean: Float[Tensor, "B K"], loadings: Float[Tensor, "B K R"], parts: Sequence[int]
) -> tuple[list[Average], Float[Tensor, "B K"], Float[Tensor, "B K"]]:
    """`softmax_averages`, and over all of these points the means and variances of the
    log-odds of every class.

    Args:
        mean: Means of the logits.
        loadings: What moves them.
        parts: Which, of `PARTS`; all of one size.
    """
    shares = SoftmaxWithOdds.of(mean, loadings, _points(mean, parts))
    found = _over_blocks(shares, parts)
    moved = torch.stack([part.moved for part in found]).mean(0)
    square = torch.stack([part.moved_square for part in found]).mean(0)
    variance = (square - moved.square()).clamp_min(0)  # less is rounding
    averages = [Average(part.mean, part.square) for part in found]
    return averages, shares.center + moved, variance


def odds_variances(
    mean: Float[Tensor, "B K"], factors: Factors, parts: Sequence[int]
) -> Float[Tensor, "B K"]:
    """Variances of the log-odds of every class: of their means given the factors, over all
    of these points, plus what their variances given the factors are on average.

    Args:
        mean: Means of the logits.
        factors: What they share, and what not.
        parts: Which, of `PARTS`; all of one size.
    """
    found = _over_blocks(Odds.of(mean, factors, _points(mean, parts)), parts)
    moved, square, own = (torch.stack(part).mean(0) for part in zip(*found))
    return (square - moved.square()).clamp_min(0) + own  # less is rounding


def _over_blocks(
    shares: Softmax | SoftmaxWithOdds | Race | Odds, parts: Sequence[int]
) -> list[Any]:
    """Over blocks of rows and of points that stay in the cache."""
    batch, classes = shares.mean.shape
    number = sum(PARTS[part] for part in parts)
    rows = max(1, _ELEMENTS // (_POINTS_OF_A_BLOCK * classes))
    whole = torch.compiler.is_compiling() or batch <= rows
    found: list[list[Any]] = []
    for start in range(0, 1 if whole else batch, rows):
        here = shares if whole else shares.of_rows(slice(start, start + rows))
        found.append(
            [
                here.over(slice(first, first + _POINTS_OF_A_BLOCK))
                for first in range(0, number, _POINTS_OF_A_BLOCK)
            ]
        )
    kind = type(found[0][0])
    # fields of all rows, by groups of points
    fields = [
        torch.cat([torch.cat([block[place] for block in blocks]) for blocks in found], 1)
        for place in range(len(kind._fields))
    ]
    sizes = [PARTS[part] // GROUP for part in parts]
    of_parts = zip(*[[some.mean(0) for some in torch.split(field, sizes)] for field in fields])
    return [kind(*fields_of_part) for fields_of_part in of_parts]


def _points(like: Tensor, parts: Sequence[int]) -> Float[Tensor, "N C"]:
    return torch.cat([POINTS[part].like(like) for part in parts])
