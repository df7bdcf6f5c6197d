"""How likely classes are at points: what factors do to logits, and the race or softmax of
the rest.

Given the factors ξ the logits are independent, with means m = μ + Aξ and variances D, and
the race's identity holds for them: the chance of class k is the average of its share
φ_k/Φ at the time where Φ = w, w ~ Gamma(2, 1). A point is a level −log w and values of ξ.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from laplacebridge.bridges.factors import Factors
from laplacebridge.bridges.gumbel import Runners
from laplacebridge.bridges.log_odds import log_odds
from laplacebridge.bridges.precision import SMALLEST_PROBABILITY
from laplacebridge.bridges.race import NUM_NODES, graded_times, interpolate
from laplacebridge.covariance import Diagonal

# The search for T: steps along secants of the level −log Φ, whose slope lies between these.
NUM_STEPS = 3
FEW_STEPS = 2
SMALLEST_SLOPE, LARGEST_SLOPE = 0.02, 1.2
# E(−log w), and over how much of a level its slope is taken.
MIDDLE_LEVEL, LEVEL_STEP = -0.42, 0.25
# Of a larger share it is not told from one what is left.
LARGEST_SHARE = 0.75
FAR_BELOW = -1e30
# Below so many classes softmax is faster along the first axis of a matrix.
FEW_CLASSES = 64


# Every part of the points is made of groups of so many.
GROUP = 32


class Average(NamedTuple):
    """Mean probabilities over groups of points or parts of them, and the means of their
    squares.
    """

    mean: Float[Tensor, "*G B K"]
    square: Float[Tensor, "*G B K"]


class AverageWithOdds(NamedTuple):
    """The same, and the moments of the log-odds about those of the means."""

    mean: Float[Tensor, "*G B K"]
    square: Float[Tensor, "*G B K"]
    moved: Float[Tensor, "*G B K"]
    moved_square: Float[Tensor, "*G B K"]


class Softmax(NamedTuple):
    """Rows that are all factors, as an ensemble's are: shares are softmax."""

    mean: Float[Tensor, "B K"]
    loadings: Float[Tensor, "B K R"]
    points: Float[Tensor, "N C"]  # each a level, which does not matter, and factors

    def of_rows(self, rows: slice) -> "Softmax":
        """Those of some rows."""
        return Softmax(self.mean[rows], self.loadings[rows], self.points)

    def over(self, some: slice) -> Average:
        """Averages over groups of points.

        Args:
            some: Which points.
        """
        lines = torch.cat([self.mean.unsqueeze(-1), self.loadings], -1)
        if self.mean.shape[-1] >= FEW_CLASSES:
            return _average(_at(self.points[some], lines).softmax(-1))
        batch, classes, rank = lines.shape
        places = _places(self.points[some], rank)
        across = lines.permute(1, 0, 2).reshape(-1, rank)
        shares = (across @ places.T).view(classes, -1).softmax(0)
        groups = shares.view(classes, batch, len(places) // GROUP, GROUP)
        mean, square = groups.mean(-1), groups.detach()[..., ::2].square().mean(-1)
        return Average(mean.permute(2, 1, 0), square.permute(2, 1, 0))


class SoftmaxWithOdds(NamedTuple):
    """The same, and how far factors move the log-odds of every class from where the means
    have them, which keeps the digits of small variances.
    """

    mean: Float[Tensor, "B K"]
    loadings: Float[Tensor, "B K R"]
    center: Float[Tensor, "B K"]
    points: Float[Tensor, "N C"]

    @classmethod
    def of(
        cls,
        mean: Float[Tensor, "B K"],
        loadings: Float[Tensor, "B K R"],
        points: Float[Tensor, "N C"],
    ) -> "SoftmaxWithOdds":
        """Prepares the averages.

        Args:
            mean: Means of the logits.
            loadings: What moves them.
            points: The points, each a level, which does not matter, and factors.
        """
        return cls(mean, loadings, _shares_and_log_odds(mean)[1], points)

    def of_rows(self, rows: slice) -> "SoftmaxWithOdds":
        """Those of some rows.

        Args:
            rows: Which.
        """
        mean, loadings, center, points = self
        return SoftmaxWithOdds(mean[rows], loadings[rows], center[rows], points)

    def over(self, some: slice) -> AverageWithOdds:
        """Averages over groups of points.

        Args:
            some: Which points.
        """
        lines = torch.cat([self.mean.unsqueeze(-1), self.loadings], -1)
        shares, odds = _shares_and_log_odds(_at(self.points[some], lines))
        moved = _grouped(odds - self.center)
        return AverageWithOdds(*_average(shares), moved.mean(1), moved.square().mean(1))


class OddsMoments(NamedTuple):
    """Over some points, the moments of the means of the log-odds about those without
    factors, and the means of their variances.
    """

    moved: Float[Tensor, "*G B K"]
    moved_square: Float[Tensor, "*G B K"]
    variance: Float[Tensor, "*G B K"]


class Odds(NamedTuple):
    """The log-odds of every class given the factors: those of independent logits."""

    mean: Float[Tensor, "B K"]
    factors: Factors
    center: Float[Tensor, "B K"]
    points: Float[Tensor, "N C"]

    @classmethod
    def of(
        cls, mean: Float[Tensor, "B K"], factors: Factors, points: Float[Tensor, "N C"]
    ) -> "Odds":
        """Prepares the averages.

        Args:
            mean: Means of the logits.
            factors: What they share, and what not.
            points: The points, each a level, which does not matter, and factors.
        """
        return cls(mean, factors, log_odds(mean, Diagonal(factors.own)).mean, points)

    def of_rows(self, rows: slice) -> "Odds":
        """Those of some rows.

        Args:
            rows: Which.
        """
        factors = self.factors.of_rows(rows)
        return Odds(self.mean[rows], factors, self.center[rows], self.points)

    def over(self, some: slice) -> OddsMoments:
        """Averages over groups of points.

        Args:
            some: Which points.
        """
        step = _moved(self.points[some], self.factors.loadings)
        logits = self.mean + step
        own = self.factors.own.expand_as(logits)
        odds = log_odds(logits.flatten(0, 1), Diagonal(own.flatten(0, 1)))
        # log-odds move by no more than two logits do, and beyond that by rounding
        most = 2 * step.abs().amax(-1, keepdim=True)
        moved = odds.mean.view_as(logits) - self.center
        moved = _grouped(torch.maximum(torch.minimum(moved, most), -most))
        variance = _grouped(odds.variance.view_as(logits))
        return OddsMoments(moved.mean(1), moved.square().mean(1), variance.mean(1))


def _shares_and_log_odds(
    logits: Float[Tensor, "... K"],
) -> tuple[Float[Tensor, "... K"], Float[Tensor, "... K"]]:
    """softmax, and the log-odds of every class against all others. A class that has nearly
    everything is left out of its own sum: in the sum of all it would swamp them.
    """
    shares = logits.softmax(-1)
    total = logits.amax(-1, keepdim=True) - shares.amax(-1, keepdim=True).log()
    swamps = (shares - LARGEST_SHARE).clamp_min(0).sign()  # one or zero: `where` takes longer
    others = torch.add(logits, swamps, alpha=FAR_BELOW).logsumexp(-1, keepdim=True)
    odds = logits - total - torch.log1p(-shares.clamp_max(LARGEST_SHARE))
    return shares, torch.lerp(odds, logits - others, swamps)


def _moved(
    points: Float[Tensor, "N C"], loadings: Float[Tensor, "B K R"]
) -> Float[Tensor, "N B K"]:
    """How far the factors at each point move the logits."""
    batch, classes, rank = loadings.shape
    moved = points[:, 1 : 1 + rank] @ loadings.flatten(0, 1).T
    return moved.view(len(points), batch, classes)


class Race(NamedTuple):
    """The race of some rows, run at many values of their factors."""

    runners: Runners
    coarse: Runners
    # τ = scale · T plus these lines at (1, ξ); and the logarithms of the shares of the
    # hazard near the middle level, as if all fell alike, at that point
    lines: Float[Tensor, "B K R"]
    guess: Float[Tensor, "B K R"]
    typical: Float[Tensor, " B"]  # how fast levels rise there
    points: Float[Tensor, "N C"]  # each a level −log w and values of the factors
    times: Float[Tensor, "N B"]  # of the points' levels when all factors are zero

    @property
    def mean(self) -> Float[Tensor, "B K"]:
        """Means of the logits, from that of the largest."""
        return self.runners.mean

    @classmethod
    def of(
        cls, mean: Float[Tensor, "B K"], factors: Factors, points: Float[Tensor, "N C"]
    ) -> "Race":
        """Prepares the race.

        Args:
            mean: Means of the logits.
            factors: What they share, and what not.
            points: The points.
        """
        mean = mean - mean.amax(-1, keepdim=True).detach()
        runners, coarse = Runners.of_both(mean, factors.own)
        scale = runners.scale.unsqueeze(-1)
        start = torch.addcmul(runners.offset, runners.scale, mean, value=-1).unsqueeze(-1)
        lines = torch.cat([start, -scale * factors.loadings], -1)
        with torch.no_grad():
            times = graded_times(mean, factors.own, NUM_NODES)
            levels = -coarse.hazards(times).sum(-1).log()
            around = torch.tensor([-LEVEL_STEP, 0.0, LEVEL_STEP]).to(times) + MIDDLE_LEVEL
            before, middle, after = interpolate(around, levels, times)
            typical = 2 * LEVEL_STEP / (after - before).clamp_min(1e-6)
            typical = typical.clamp(SMALLEST_SLOPE, LARGEST_SLOPE)
            shares = coarse.hazards(middle.unsqueeze(0))[0]
            shares = shares / shares.sum(-1, keepdim=True)
            log_shares = shares.clamp_min(SMALLEST_PROBABILITY).log().unsqueeze(-1)
            moved = factors.loadings.detach() * typical[:, None, None]
            guess = torch.cat([log_shares, moved], -1)
            times = interpolate(points[:, 0], levels, times)
        return cls(runners, coarse, lines, guess, typical, points, times)

    def of_rows(self, rows: slice) -> "Race":
        """Those of some rows.

        Args:
            rows: Which.
        """
        return Race(
            self.runners.of_rows(rows),
            self.coarse.of_rows(rows),
            self.lines[rows],
            self.guess[rows],
            self.typical[rows],
            self.points,
            self.times[:, rows],
        )

    def over(self, some: slice) -> Average:
        """Averages over groups of points.

        Args:
            some: Which points.
        """
        lines = _at(self.points[some], self.lines)
        with torch.no_grad():
            times, slope = self._times(some, lines)
        log_hazards = self.runners.log_hazards(self._tau(times, lines))
        if log_hazards.requires_grad:  # times follow what the logits are
            found = -log_hazards.logsumexp(-1)
            times = times - (found - found.detach()) / slope
            log_hazards = self.runners.log_hazards(self._tau(times, lines))
        return _average(log_hazards.softmax(-1))

    def _tau(self, times: Float[Tensor, "N B"], lines: Tensor) -> Float[Tensor, "N B K"]:
        return torch.addcmul(lines, times.unsqueeze(-1), self.runners.scale)

    def _times(
        self, some: slice, lines: Float[Tensor, "N B K"]
    ) -> tuple[Float[Tensor, "N B"], Float[Tensor, "N B"]]:
        """When all have these levels together, but for what is left after a few steps,
        and how fast levels rise there.

        First as if every hazard fell like the total: Σ share_k exp(s moved_k), the
        logarithm of which, over s, is how far the time moves.
        """
        points = self.points[some]
        levels = points[:, :1]
        times = self.times[some] + _log_sum(_at(points, self.guess)) / self.typical
        slope = self.typical.expand_as(times)
        earlier, lower = times, levels.expand_as(times)
        for step in range(FEW_STEPS if self.mean.shape[-1] >= FEW_CLASSES else NUM_STEPS):
            found = -_log_sum(self.coarse.log_hazards(self._tau(times, lines)))
            if step > 0:
                change = times - earlier
                secant = (found - lower) / torch.where(change == 0, 1.0, change)
                slope = torch.where(change == 0, slope, secant)
                slope = slope.clamp(SMALLEST_SLOPE, LARGEST_SLOPE)
            earlier, lower = times, found
            times = earlier + (levels - found) / slope
        return times, slope


def _places(points: Float[Tensor, "N C"], rank: int) -> Float[Tensor, "N R"]:
    """One and the values of the factors of each point."""
    return torch.cat([torch.ones_like(points[:, :1]), points[:, 1:rank]], -1)


def _at(points: Float[Tensor, "N C"], lines: Float[Tensor, "B K R"]) -> Float[Tensor, "N B K"]:
    """Lines at these."""
    batch, classes, rank = lines.shape
    at = _places(points, rank) @ lines.flatten(0, 1).T
    return at.view(len(points), batch, classes)


def _grouped(values: Float[Tensor, "N B K"]) -> Float[Tensor, "G P B K"]:
    """By groups of points."""
    return values.view(len(values) // GROUP, GROUP, *values.shape[1:])


def _average(shares: Float[Tensor, "N B K"]) -> Average:
    """By groups of points; squares over every second one."""
    groups = _grouped(shares)
    return Average(groups.mean(1), groups.detach()[:, ::2].square().mean(1))


def _log_sum(values: Float[Tensor, "N B K"]) -> Float[Tensor, "N B"]:
    """log Σ exp, by the fused kernel of softmax; from the largest, which keeps its digits."""
    return values.amax(-1) - values.log_softmax(-1).amax(-1)
