"""How likely classes are at points: what factors do to logits, and the race or softmax of
the rest.

Given the factors ξ the logits are independent, with means m = μ + Aξ and variances D, and
the race's identity holds for them: the chance of class k is the average of its share
φ_k/Φ at the time where Φ = w, w ~ Gamma(2, 1). A point is a level −log w and values of ξ.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from laplacebridge.bridges.factors import Factors
from laplacebridge.bridges.gumbel import Runners, lower_end
from laplacebridge.bridges.one_vs_rest import log_odds
from laplacebridge.bridges.precision import SMALLEST_PROBABILITY
from laplacebridge.bridges.race import NUM_NODES, interpolate, node_times
from laplacebridge.covariance import Diagonal

# The search for T: steps along secants of the level −log Φ, whose slope lies between these.
NUM_STEPS = 3
SMALLEST_SLOPE, LARGEST_SLOPE = 0.02, 1.2
# E(−log w), and over how much of a level its slope is taken.
MIDDLE_LEVEL, LEVEL_STEP = -0.42, 0.25
# Below so many classes softmax is faster along the first axis of a matrix.
FEW_CLASSES = 64


class Average(NamedTuple):
    """Mean probabilities over some points, and the means of their squares."""

    mean: Float[Tensor, "B K"]
    square: Float[Tensor, "B K"]


class AverageWithOdds(NamedTuple):
    """The same, and the moments of the log-odds about those of the means."""

    mean: Float[Tensor, "B K"]
    square: Float[Tensor, "B K"]
    moved: Float[Tensor, "B K"]
    moved_square: Float[Tensor, "B K"]


class Softmax(NamedTuple):
    """Rows that are all factors, as an ensemble's are: shares are softmax."""

    mean: Float[Tensor, "B K"]
    loadings: Float[Tensor, "B K R"]

    def of_rows(self, rows: slice) -> "Softmax":
        """Those of some rows."""
        return Softmax(*[part[rows] for part in self])

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


class SoftmaxWithOdds(NamedTuple):
    """The same, and how far factors move the log-odds of every class from where the means
    have them, which keeps the digits of small variances.
    """

    mean: Float[Tensor, "B K"]
    loadings: Float[Tensor, "B K R"]
    center: Float[Tensor, "B K"]

    @classmethod
    def of(cls, mean: Float[Tensor, "B K"], loadings: Float[Tensor, "B K R"]) -> "SoftmaxWithOdds":
        """Prepares the averages.

        Args:
            mean: Means of the logits.
            loadings: What moves them.
        """
        return cls(mean, loadings, _shares_and_log_odds(mean)[1])

    def of_rows(self, rows: slice) -> "SoftmaxWithOdds":
        """Those of some rows.

        Args:
            rows: Which.
        """
        return SoftmaxWithOdds(*[part[rows] for part in self])

    def over(self, points: Float[Tensor, "N C"]) -> AverageWithOdds:
        """Averages over points.

        Args:
            points: The points.
        """
        shares, odds = _shares_and_log_odds(self.mean + _moved(points, self.loadings))
        moved = odds - self.center
        return AverageWithOdds(
            shares.mean(0),
            shares.detach()[::2].square().mean(0),
            moved.mean(0),
            moved.square().mean(0),
        )


class OddsMoments(NamedTuple):
    """Over some points, the moments of the means of the log-odds about those without
    factors, and the means of their variances.
    """

    moved: Float[Tensor, "B K"]
    moved_square: Float[Tensor, "B K"]
    variance: Float[Tensor, "B K"]


class Odds(NamedTuple):
    """The log-odds of every class given the factors: those of independent logits."""

    mean: Float[Tensor, "B K"]
    factors: Factors
    center: Float[Tensor, "B K"]

    @classmethod
    def of(cls, mean: Float[Tensor, "B K"], factors: Factors) -> "Odds":
        """Prepares the averages.

        Args:
            mean: Means of the logits.
            factors: What they share, and what not.
        """
        return cls(mean, factors, log_odds(mean, Diagonal(factors.own)).mean)

    def of_rows(self, rows: slice) -> "Odds":
        """Those of some rows.

        Args:
            rows: Which.
        """
        return Odds(self.mean[rows], self.factors.of_rows(rows), self.center[rows])

    def over(self, points: Float[Tensor, "N C"]) -> OddsMoments:
        """Averages over points.

        Args:
            points: The points.
        """
        step = _moved(points, self.factors.loadings)
        logits = self.mean + step
        own = self.factors.own.expand_as(logits)
        odds = log_odds(logits.flatten(0, 1), Diagonal(own.flatten(0, 1)))
        # log-odds move by no more than two logits do, and beyond that by rounding
        most = 2 * step.abs().amax(-1, keepdim=True)
        moved = (odds.mean.view_as(logits) - self.center).clamp(-most, most)
        variance = odds.variance.view_as(logits)
        return OddsMoments(moved.mean(0), moved.square().mean(0), variance.mean(0))


def _shares_and_log_odds(
    logits: Float[Tensor, "... K"],
) -> tuple[Float[Tensor, "... K"], Float[Tensor, "... K"]]:
    """softmax, and the log-odds of every class against all others. The largest class, which
    far out need not be that of the means, is left out of its own sum: in the sum of all it
    would swamp them.
    """
    of_top, top = logits.max(-1, keepdim=True)
    others = logits.scatter(-1, top, -math.inf).logsumexp(-1, keepdim=True)
    log_shares = logits - torch.logaddexp(others, of_top)
    shares = log_shares.exp()
    odds = log_shares - torch.log1p(-shares.clamp_max(0.75))  # that of no other class is larger
    return shares, odds.scatter(-1, top, of_top - others)


def _moved(
    points: Float[Tensor, "N C"], loadings: Float[Tensor, "B K R"]
) -> Float[Tensor, "N B K"]:
    """How far the factors at each point move the logits."""
    batch, classes, rank = loadings.shape
    moved = points[:, 1 : 1 + rank] @ loadings.flatten(0, 1).T
    return moved.view(len(points), batch, classes)


class Race(NamedTuple):
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
    def of(cls, mean: Float[Tensor, "B K"], factors: Factors) -> "Race":
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

    def of_rows(self, rows: slice) -> "Race":
        """Those of some rows.

        Args:
            rows: Which.
        """
        return Race(
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

    def _first_guess(
        self, levels: Float[Tensor, "N B"], moved: Float[Tensor, "N B K"]
    ) -> tuple[Float[Tensor, "N B"], Float[Tensor, "N B"]]:
        """Times of the levels, and how fast levels rise there, as if every hazard fell
        like the total: Σ share_k exp(moved_k/s), s times the logarithm of which is how far
        the time moves.
        """
        around = torch.cat([levels - LEVEL_STEP, levels, levels + LEVEL_STEP])
        before, there, after = interpolate(around, self.levels, self.times).chunk(3)
        slope = (2 * LEVEL_STEP / (after - before).clamp_min(1e-6)).clamp(
            SMALLEST_SLOPE, LARGEST_SLOPE
        )
        typical = slope.mean(0)
        scaled = moved * typical.unsqueeze(-1) + self.log_shares
        # log Σ exp by the fused kernel of softmax
        later = (scaled[..., 0] - scaled.log_softmax(-1)[..., 0]) / typical
        return there + later, slope
