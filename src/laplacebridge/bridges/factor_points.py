"""The race averaged over what logits share.

Given the factors ξ the logits are independent, with means m = μ + Aξ and variances D, and
the race's identity holds for them: the chance of class k is the average of its share
φ_k/Φ at the time where Φ = w, w ~ Gamma(2, 1). So

    E π_k = E (φ_k/Φ)(T),     Φ(T; ξ) = w,     ξ ~ N(0, I),

an average over R + 1 numbers, of a smooth function: everything that classes have of
their own is integrated. It is taken over fixed points, the same for all rows and calls:
one scrambled Sobol sequence, in parts that are each centred and whitened.
"""

import math
from collections.abc import Sequence
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

# Points: all rows are averaged over the first two parts, and where the last part disagrees
# with all before it, over the next.
PARTS = (32, 32, 64, 128, 256)
# The parts that moments of log-odds are taken over.
PARTS_OF_LOG_ODDS = (0, 1, 2)
# The search for T: steps along secants of the level −log Φ, whose slope lies between these.
NUM_STEPS = 3
SMALLEST_SLOPE, LARGEST_SLOPE = 0.02, 1.2
# Below this variance of its own no logit needs a race: rows of factors alone.
SMALLEST_OWN = 3e-3
# E(−log w), and over how much of a level its slope is taken.
MIDDLE_LEVEL, LEVEL_STEP = -0.42, 0.25
# Below so many classes softmax is faster along the first axis of a matrix.
FEW_CLASSES = 64
# Numbers of a block of rows and points that stay in the cache.
_ELEMENTS, _POINTS_OF_A_BLOCK = 262_144, 64


class Average(NamedTuple):
    """Mean probabilities over some points, and the means of their squares."""

    mean: Float[Tensor, "B K"]
    square: Float[Tensor, "B K"]


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
        raced = _over_blocks(_Race.of(mean, factors), parts)
        return [
            Average(*[torch.where(bare.unsqueeze(-1), *both) for both in zip(*pair)])
            for pair in zip(alone, raced)
        ]
    if bare.all():
        return softmax_averages(mean, factors.loadings, parts)
    if not bare.any():
        return _over_blocks(_Race.of(mean, factors), parts)
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
    return _over_blocks(_Softmax(mean, loadings), parts)


def log_odds_over_points(
    mean: Float[Tensor, "B K"], loadings: Float[Tensor, "B K R"]
) -> tuple[Float[Tensor, "B K"], Float[Tensor, "B K"]]:
    """Means and variances of the log-odds of every class, of logits that are all factors.

    Args:
        mean: Means of the logits.
        loadings: What moves them.
    """
    center = _log_odds(mean)
    parts = _over_blocks(_LogOdds(mean, loadings, center), PARTS_OF_LOG_ODDS)
    sizes = [PARTS[part] for part in PARTS_OF_LOG_ODDS]
    moved, square = (
        torch.stack([size / sum(sizes) * moment for size, moment in zip(sizes, moments)]).sum(0)
        for moments in zip(*parts)
    )
    return center + moved, (square - moved.square()).clamp_min(0)  # less is rounding


def _over_blocks(shares: "_Softmax | _LogOdds | _Race", parts: Sequence[int]) -> list[Average]:
    """Over blocks of rows and of points that stay in the cache."""
    mean = shares.mean
    rows = max(1, _ELEMENTS // (_POINTS_OF_A_BLOCK * mean.shape[-1]))
    whole = torch.compiler.is_compiling() or len(mean) <= rows
    points = [torch.split(_POINTS[part].like(mean), _POINTS_OF_A_BLOCK) for part in parts]
    found: list[list[Average]] = [[] for _ in parts]
    for start in range(0, 1 if whole else len(mean), rows):
        some = slice(None) if whole else slice(start, start + rows)
        here = shares if whole else shares.of_rows(some)
        for of_part, blocks in zip(found, points):
            over = [here.over(block) for block in blocks]
            of_part.append(Average(*[sum(part) / len(blocks) for part in zip(*over)]))
    return [Average(*[torch.cat(part) for part in zip(*of_part)]) for of_part in found]


class _Softmax(NamedTuple):
    """The same for rows that are all factors, as an ensemble's are: shares are softmax."""

    mean: Float[Tensor, "B K"]
    loadings: Float[Tensor, "B K R"]

    def of_rows(self, rows: slice) -> "_Softmax":
        """Those of some rows."""
        return _Softmax(*[part[rows] for part in self])

    def over(self, points: Float[Tensor, "N C"]) -> Average:
        """Averages over points, each a level, which does not matter, and values of the
        factors.

        Args:
            points: The points.
        """
        batch, classes, rank = self.loadings.shape
        values = points[:, 1 : 1 + rank]
        if classes >= FEW_CLASSES:
            shares = (self.mean + _moved(points, self.loadings)).softmax(-1)
            return Average(shares.mean(0), shares.detach()[::2].square().mean(0))
        across = self.loadings.permute(1, 0, 2).reshape(-1, rank)
        moved = torch.addmm(self.mean.T.reshape(-1, 1), across, values.T)
        shares = moved.view(classes, -1).softmax(0).view(classes, batch, len(points))
        return Average(shares.mean(-1).T, shares.detach()[..., ::2].square().mean(-1).T)


class _LogOdds(NamedTuple):
    """How far factors move the log-odds of every class from where the means have them,
    which keeps the digits of small variances.
    """

    mean: Float[Tensor, "B K"]
    loadings: Float[Tensor, "B K R"]
    center: Float[Tensor, "B K"]

    def of_rows(self, rows: slice) -> "_LogOdds":
        """Those of some rows."""
        return _LogOdds(*[part[rows] for part in self])

    def over(self, points: Float[Tensor, "N C"]) -> Average:
        """Averages over points.

        Args:
            points: The points.
        """
        moved = _log_odds(self.mean + _moved(points, self.loadings)) - self.center
        return Average(moved.mean(0), moved.square().mean(0))


def _log_odds(logits: Float[Tensor, "... K"]) -> Float[Tensor, "... K"]:
    """Of every class against all others. The largest class is left out of its own sum: in
    the sum of all it would swamp them.
    """
    top = logits.argmax(-1, keepdim=True)
    others = logits.scatter(-1, top, -math.inf).logsumexp(-1, keepdim=True)
    shares = logits.log_softmax(-1)
    odds = shares - torch.log1p(-shares.exp().clamp_max(0.75))  # that of no other class is larger
    return odds.scatter(-1, top, logits.gather(-1, top) - others)


def _moved(
    points: Float[Tensor, "N C"], loadings: Float[Tensor, "B K R"]
) -> Float[Tensor, "N B K"]:
    """How far the factors at each point move the logits."""
    batch, classes, rank = loadings.shape
    moved = points[:, 1 : 1 + rank] @ loadings.flatten(0, 1).T
    return moved.view(len(points), batch, classes)


class _Race(NamedTuple):
    """The race of some rows, run at many values of their factors."""

    mean: Float[Tensor, "B K"]
    factors: Factors
    runners: Runners
    coarse: Runners
    # where the levels are when all factors are zero, and who has which share of the hazard
    times: Float[Tensor, "J B"]
    levels: Float[Tensor, "J B"]
    log_shares: Float[Tensor, "B K"]

    @classmethod
    def of(cls, mean: Float[Tensor, "B K"], factors: Factors) -> "_Race":
        """Prepares the race.

        Args:
            mean: Means of the logits.
            factors: What they share, and what not.
        """
        mean = mean - mean.amax(-1, keepdim=True).detach()
        with torch.no_grad():
            coarse = Runners.of(mean.detach(), factors.own.detach(), coarse=True)
            times = node_times(coarse, factors.own, NUM_NODES)
            levels = -coarse.hazards(times).sum(-1).log()
            middle = interpolate(torch.full_like(times[:1], MIDDLE_LEVEL), levels, times)
            hazards = coarse.hazards(middle)[0]
            shares = hazards / hazards.sum(-1, keepdim=True)
            log_shares = shares.clamp_min(SMALLEST_PROBABILITY).log()
        runners = Runners.of(mean, factors.own)
        return cls(mean, factors, runners, coarse, times, levels, log_shares)

    def of_rows(self, rows: slice) -> "_Race":
        """Those of some rows.

        Args:
            rows: Which.
        """
        return _Race(
            self.mean[rows],
            self.factors.of_rows(rows),
            self.runners.of_rows(rows),
            self.coarse.of_rows(rows),
            self.times[:, rows],
            self.levels[:, rows],
            self.log_shares[rows],
        )

    def over(self, points: Float[Tensor, "N C"]) -> Average:
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
        shares = hazards / hazards.sum(-1, keepdim=True)
        return Average(shares.mean(0), shares.detach()[::2].square().mean(0))

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
        typical = slope.mean(0)
        scaled = moved * typical.unsqueeze(-1) + self.log_shares
        # log Σ exp by the fused kernel of softmax
        later = (scaled[..., 0] - scaled.log_softmax(-1)[..., 0]) / typical
        return self._time_of(levels) + later, slope


def _gamma_quantiles(chances: np.ndarray) -> np.ndarray:
    """w with 1 − (1 + w)e^−w = u, by Newton's method in log w."""
    log = np.log(np.sqrt(2 * chances) + chances)
    for _ in range(50):
        w = np.exp(log)
        log -= np.clip((-np.expm1(-w) - w * np.exp(-w) - chances) / (w * w * np.exp(-w)), -1, 1)
    return np.exp(log)


def _make_points() -> list[Constant]:
    """The parts: levels −log w and factors of every point, (N, 1 + R)."""
    engine = torch.quasirandom.SobolEngine(  # type: ignore[no-untyped-call]
        MOST_FACTORS + 1, scramble=True, seed=0
    )
    chances = engine.draw(sum(PARTS), dtype=torch.float64).clamp(1e-6, 1 - 1e-6)
    levels = -np.log(_gamma_quantiles(chances[:, :1].numpy()))
    normal = (math.sqrt(2) * torch.erfinv(2 * chances[:, 1:] - 1)).numpy()
    points = []
    for start, number in zip(np.cumsum([0, *PARTS]), PARTS):
        part = normal[start : start + number]
        part = part - part.mean(0)
        # triangular: the first factors, which count most, stay stratified
        root = np.linalg.cholesky(part.T @ part / number)
        white = np.linalg.solve(root, part.T).T
        points.append(Constant(np.hstack([levels[start : start + number], white])))
    return points


# at import, because `torch.compile` does not see into caches
_POINTS = _make_points()
