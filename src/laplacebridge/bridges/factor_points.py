"""The race averaged over what logits share.

Given the factors ξ the logits are independent, with means m = μ + Aξ and variances D, and
the race's identity holds for them: the chance of class k is the average of its share
φ_k/Φ at the time where Φ = w, w ~ Gamma(2, 1). So

    E π_k = E (φ_k/Φ)(T),     Φ(T; ξ) = w,     ξ ~ N(0, I),

an average over R + 1 numbers, of a smooth function: everything that classes have of
their own is integrated. It is taken over fixed points, the same for all rows and calls,
in two groups that are each a scrambled Sobol sequence with its mirror image, whitened.
How far the groups disagree tells how far they are from the truth, as far as that is the
points' doing.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from laplacebridge._constant import Constant
from laplacebridge.bridges.factors import MOST_FACTORS, Factors
from laplacebridge.bridges.gumbel import Runners, lower_end
from laplacebridge.bridges.precision import SMALLEST_PROBABILITY
from laplacebridge.bridges.race import NUM_NODES, interpolate, node_times

# Points of each of the two groups: few, and many for rows where few disagree.
FEW_POINTS, MANY_POINTS = 64, 256
NUM_GROUPS = 2
# The search for T: steps along secants of the level −log Φ, whose slope lies between these.
NUM_STEPS = 2
SMALLEST_SLOPE, LARGEST_SLOPE = 0.02, 1.2
# Below this variance of its own no logit needs a race: rows of factors alone.
SMALLEST_OWN = 3e-3
# E(−log w), and over how much of a level its slope is taken.
MIDDLE_LEVEL, LEVEL_STEP = -0.42, 0.25
# Below so many classes softmax is faster along the first axis of a matrix.
FEW_CLASSES = 64
# Numbers of a block of rows and points that stay in the cache.
_ELEMENTS = 262_144


class Averages(NamedTuple):
    """The mean probabilities by each of the two groups of points, and how they scatter."""

    groups: Float[Tensor, "G B K"]
    square: Float[Tensor, " B"]  # the mean over points of the sum of squared probabilities

    def of_rows(self, rows: Tensor) -> "Averages":
        """Those of some rows.

        Args:
            rows: Which.
        """
        return Averages(self.groups[:, rows], self.square[rows])


def group_means(mean: Float[Tensor, "B K"], factors: Factors, num_points: int) -> Averages:
    """Averages over each of the two groups of points.

    Args:
        mean: Means of the logits.
        factors: What they share, and what not.
        num_points: Points of a group, `FEW_POINTS` or `MANY_POINTS`.
    """
    bare = factors.own.amax(-1) < SMALLEST_OWN
    if torch.compiler.is_compiling():  # what is asked of a row cannot depend on it
        alone = softmax_means(mean, factors.loadings, num_points)
        raced = _over_blocks(_Race, mean, factors, num_points)
        return Averages(
            torch.where(bare.unsqueeze(-1), alone.groups, raced.groups),
            torch.where(bare, alone.square, raced.square),
        )
    if bare.all():
        return softmax_means(mean, factors.loadings, num_points)
    if not bare.any():
        return _over_blocks(_Race, mean, factors, num_points)
    groups, square = mean.new_zeros(NUM_GROUPS, *mean.shape), mean.new_zeros(len(mean))
    for which, method in ((True, _Softmax), (False, _Race)):
        rows = (bare == which).nonzero().squeeze(-1)
        some = _over_blocks(method, mean[rows], factors.of_rows(rows), num_points)
        groups = groups.index_copy(1, rows, some.groups)
        square = square.index_copy(0, rows, some.square)
    return Averages(groups, square)


def softmax_means(
    mean: Float[Tensor, "B K"], loadings: Float[Tensor, "B K R"], num_points: int
) -> Averages:
    """Averages for logits that are all factors.

    Args:
        mean: Means of the logits.
        loadings: What moves them.
        num_points: Points of a group, `FEW_POINTS` or `MANY_POINTS`.
    """
    factors = Factors(loadings, loadings[..., 0], loadings[:, :1, 0])  # the first is all it asks
    return _over_blocks(_Softmax, mean, factors, num_points)


def _over_blocks(
    method: "type[_Softmax] | type[_Race]",
    mean: Float[Tensor, "B K"],
    factors: Factors,
    num_points: int,
) -> Averages:
    blocks = max(1, num_points // FEW_POINTS)
    rows = max(1, _ELEMENTS // (FEW_POINTS * mean.shape[-1]))
    whole = torch.compiler.is_compiling() or len(mean) <= rows
    parts = []
    points = _POINTS[num_points].like(mean).reshape(NUM_GROUPS, blocks, -1, MOST_FACTORS + 1)
    for start in range(0, 1 if whole else len(mean), rows):
        some = slice(None) if whole else slice(start, start + rows)
        race = method(mean[some], factors.of_rows(some))
        found = [race.mean_over(block) for group in points for block in group]
        means, squares = (torch.stack(part) for part in zip(*found))
        means = means.view(NUM_GROUPS, blocks, *means.shape[1:]).mean(1)
        parts.append((means, squares.mean(0)))
    means, squares = zip(*parts)
    return Averages(torch.cat(means, 1), torch.cat(squares))


class _Softmax:
    """The same for rows that are all factors, as an ensemble's are: shares are softmax."""

    def __init__(self, mean: Float[Tensor, "B K"], factors: Factors) -> None:
        self.mean, self.loadings = mean, factors.loadings

    def mean_over(
        self, points: Float[Tensor, "N C"]
    ) -> tuple[Float[Tensor, "B K"], Float[Tensor, " B"]]:
        """Averages over points, each a level, which does not matter, and values of the
        factors.

        Args:
            points: The points.
        """
        batch, classes, rank = self.loadings.shape
        values = points[:, 1 : 1 + rank]
        if classes >= FEW_CLASSES:
            shares = (self.mean + _moved(points, self.loadings)).softmax(-1)
            square = torch.linalg.vector_norm(shares.detach(), dim=-1).square().mean(0)
            return shares.mean(0), square
        across = self.loadings.permute(1, 0, 2).reshape(-1, rank)
        moved = torch.addmm(self.mean.T.reshape(-1, 1), across, values.T)
        shares = moved.view(classes, -1).softmax(0).view(classes, batch, len(points))
        square = shares.detach().square().sum(0).mean(-1)
        return shares.mean(-1).T, square


def _moved(
    points: Float[Tensor, "N C"], loadings: Float[Tensor, "B K R"]
) -> Float[Tensor, "N B K"]:
    """How far the factors at each point move the logits."""
    batch, classes, rank = loadings.shape
    moved = points[:, 1 : 1 + rank] @ loadings.flatten(0, 1).T
    return moved.view(len(points), batch, classes)


class _Race:
    """The race of some rows, run at many values of their factors."""

    def __init__(self, mean: Float[Tensor, "B K"], factors: Factors) -> None:
        self.mean = mean - mean.amax(-1, keepdim=True).detach()
        self.factors = factors
        self.runners = Runners.of(self.mean, factors.own)
        self.coarse = Runners.of(self.mean.detach(), factors.own.detach(), coarse=True)
        with torch.no_grad():  # where the levels are when all factors are zero
            self.times = node_times(self.runners, factors.own, NUM_NODES)
            self.levels = -self.runners.hazards(self.times).sum(-1).log()
            middle = self._time_of(torch.full_like(self.times[:1], MIDDLE_LEVEL))
            hazards = self.runners.hazards(middle)[0]
            self.shares = hazards / hazards.sum(-1, keepdim=True)

    def mean_over(
        self, points: Float[Tensor, "N C"]
    ) -> tuple[Float[Tensor, "B K"], Float[Tensor, " B"]]:
        """Averages over points, each a level and values of the factors.

        Args:
            points: The points.
        """
        levels = points[:, :1].expand(-1, len(self.mean))
        moved = _moved(points, self.factors.loadings)
        runners = self.runners._replace(mean=self.mean + moved)
        with torch.no_grad():
            times, slope = self._times(runners.mean, levels, moved)
        hazards = runners.hazards(times)
        if hazards.requires_grad:  # times follow what the logits are
            found = -hazards.sum(-1).log()
            hazards = runners.hazards(times - (found - found.detach()) / slope)
        weights = hazards.sum(-1).reciprocal() / len(points)
        with torch.no_grad():
            length = torch.linalg.vector_norm(hazards, dim=-1) * weights
        return torch.einsum("nbk,nb->bk", hazards, weights), length.square().sum(0) * len(points)

    def _times(
        self, moved_mean: Float[Tensor, "N B K"], levels: Tensor, moved: Float[Tensor, "N B K"]
    ) -> tuple[Float[Tensor, "N B"], Float[Tensor, "N B"]]:
        """When all have these levels together, but for what is left after a few steps,
        and how fast levels rise there.
        """
        coarse = self.coarse._replace(mean=moved_mean)
        times, slope = self._first_guess(levels, moved)
        first = (moved_mean + lower_end(self.factors.own)).amax(-1)
        times = torch.maximum(times, first)
        earlier, lower = times, levels
        for step in range(NUM_STEPS):
            found = -coarse.hazards(times).sum(-1).log()
            if step > 0:
                change = times - earlier
                secant = (found - lower) / torch.where(change == 0, 1.0, change)
                slope = torch.where(change == 0, slope, secant)
            slope = slope.clamp(SMALLEST_SLOPE, LARGEST_SLOPE)
            earlier, lower = times, found
            times = torch.maximum(earlier + (levels - found) / slope, first)
        return times, slope

    def _time_of(self, levels: Float[Tensor, "N B"]) -> Float[Tensor, "N B"]:
        """When all factors are zero."""
        return interpolate(levels, self.levels, self.times)

    def _first_guess(
        self, levels: Float[Tensor, "N B"], moved: Float[Tensor, "N B K"]
    ) -> tuple[Float[Tensor, "N B"], Float[Tensor, "N B"]]:
        """Times of the levels, and how fast levels rise there, as if every hazard fell
        like the total: Σ share_k exp(moved_k/s), s times the logarithm of which is how far
        the time moves.
        """
        before, after = self._time_of(levels - LEVEL_STEP), self._time_of(levels + LEVEL_STEP)
        slope = (2 * LEVEL_STEP / (after - before).clamp_min(1e-6)).clamp(
            SMALLEST_SLOPE, LARGEST_SLOPE
        )
        typical = slope.mean(0).unsqueeze(-1)
        log_shares = self.shares.clamp_min(SMALLEST_PROBABILITY).log()
        later = torch.logsumexp(log_shares + moved * typical, -1) / typical.squeeze(-1)
        return self._time_of(levels) + later, slope


def _gamma_quantiles(chances: np.ndarray) -> np.ndarray:
    """w with 1 − (1 + w)e^−w = u, by Newton's method in log w."""
    log = np.log(np.sqrt(2 * chances) + chances)
    for _ in range(50):
        w = np.exp(log)
        log -= np.clip((-np.expm1(-w) - w * np.exp(-w) - chances) / (w * w * np.exp(-w)), -1, 1)
    return np.exp(log)


def _make_points(num_points: int) -> Constant:
    """Groups of points: the levels −log w and the factors, (G, N, 1 + R)."""
    pairs = num_points // 2
    groups = []
    for group in range(NUM_GROUPS):
        engine = torch.quasirandom.SobolEngine(  # type: ignore[no-untyped-call]
            MOST_FACTORS + 1, scramble=True, seed=group
        )
        chances = engine.draw(pairs, dtype=torch.float64).clamp(1e-6, 1 - 1e-6)
        levels = -np.log(_gamma_quantiles(chances[:, 0].numpy()))[:, None]
        normal = (math.sqrt(2) * torch.erfinv(2 * chances[:, 1:] - 1)).numpy()
        # triangular: the first factors, which count most, stay stratified
        root = np.linalg.cholesky(normal.T @ normal / pairs)
        normal = np.linalg.solve(root, normal.T).T
        groups.append(np.block([[levels, normal], [levels, -normal]]))
    return Constant(np.stack(groups))


# at import, because `torch.compile` does not see into caches
_POINTS = {num_points: _make_points(num_points) for num_points in (FEW_POINTS, MANY_POINTS)}
