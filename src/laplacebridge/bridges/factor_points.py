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
NUM_STEPS = 3
SMALLEST_SLOPE, LARGEST_SLOPE = 0.02, 1.2
# Below this variance of its own no logit needs a race: rows of factors alone.
SMALLEST_OWN = 3e-3
# E(−log w), and over how much of a level its slope is taken.
MIDDLE_LEVEL, LEVEL_STEP = -0.42, 0.25
# Numbers of a block of rows and points that stay in the cache.
_ELEMENTS = 262_144


def group_means(
    mean: Float[Tensor, "B K"], factors: Factors, num_points: int
) -> Float[Tensor, "G B K"]:
    """The mean probabilities by each of the two groups of points.

    Args:
        mean: Means of the logits.
        factors: What they share, and what not.
        num_points: Points of a group, `FEW_POINTS` or `MANY_POINTS`.
    """
    bare = factors.own.amax(-1) < SMALLEST_OWN
    if torch.compiler.is_compiling():  # what is asked of a row cannot depend on it
        alone = _group_means(mean, factors, num_points, bare=True)
        raced = _group_means(mean, factors, num_points, bare=False)
        return torch.where(bare.unsqueeze(-1), alone, raced)
    if bare.all() or not bare.any():
        return _group_means(mean, factors, num_points, bare=bool(bare.any()))
    means = mean.new_zeros(NUM_GROUPS, *mean.shape)
    for which in (True, False):
        rows = (bare == which).nonzero().squeeze(-1)
        some = factors.of_rows(rows)
        means = means.index_copy(1, rows, _group_means(mean[rows], some, num_points, bare=which))
    return means


def _group_means(
    mean: Float[Tensor, "B K"], factors: Factors, num_points: int, *, bare: bool
) -> Float[Tensor, "G B K"]:
    blocks = max(1, num_points // FEW_POINTS)
    rows = max(1, _ELEMENTS // (FEW_POINTS * mean.shape[-1]))
    whole = torch.compiler.is_compiling() or len(mean) <= rows
    parts = []
    for start in range(0, 1 if whole else len(mean), rows):
        some = slice(None) if whole else slice(start, start + rows)
        chosen = factors.of_rows(some)
        race = _Softmax(mean[some], chosen) if bare else _Race(mean[some], chosen)
        groups = _POINTS[num_points].like(mean).reshape(NUM_GROUPS, blocks, -1, MOST_FACTORS + 1)
        means = [torch.stack([race.mean_over(block) for block in group]) for group in groups]
        parts.append(torch.stack(means).mean(1))
    return torch.cat(parts, 1)


class _Softmax:
    """The same for rows that are all factors, as an ensemble's are: shares are softmax."""

    def __init__(self, mean: Float[Tensor, "B K"], factors: Factors) -> None:
        self.mean, self.loadings = mean, factors.loadings

    def mean_over(self, points: Float[Tensor, "N C"]) -> Float[Tensor, "B K"]:
        """Averages over points, each a level, which does not matter, and values of the
        factors.

        Args:
            points: The points.
        """
        return (self.mean + _moved(points, self.loadings)).softmax(-1).mean(0)


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
        with torch.no_grad():  # where the levels are when all factors are zero
            self.times = node_times(self.runners, factors.own, NUM_NODES)
            self.levels = -self.runners.hazards(self.times).sum(-1).log()
            middle = self._time_of(torch.full_like(self.times[:1], MIDDLE_LEVEL))
            hazards = self.runners.hazards(middle)[0]
            self.shares = hazards / hazards.sum(-1, keepdim=True)

    def mean_over(self, points: Float[Tensor, "N C"]) -> Float[Tensor, "B K"]:
        """Averages over points, each a level and values of the factors.

        Args:
            points: The points.
        """
        levels = points[:, :1].expand(-1, len(self.mean))
        moved = _moved(points, self.factors.loadings)
        runners = self.runners._replace(mean=self.mean + moved)
        with torch.no_grad():
            times, slope = self._first_guess(levels, moved)
            first = (runners.mean + lower_end(self.factors.own)).amax(-1)
            times = torch.maximum(times, first)
        earlier, lower = times, levels
        for step in range(NUM_STEPS):
            found = -runners.hazards(times).sum(-1).log()
            with torch.no_grad():
                if step > 0:
                    change = times - earlier
                    secant = (found - lower) / torch.where(change == 0, 1.0, change)
                    slope = torch.where(change == 0, slope, secant)
                slope = slope.clamp(SMALLEST_SLOPE, LARGEST_SLOPE)
                earlier, lower = times.detach(), found.detach()
            times = torch.maximum(earlier + (levels - found) / slope, first)
        hazards = runners.hazards(times)
        return (hazards / hazards.sum(-1, keepdim=True)).mean(0)

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
