"""The race for logits that share factors: its average over them, how much of that to
believe, and how far off it may be.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from laplacebridge.bridges.factor_points import (
    averages,
    odds_variances,
    softmax_averages,
    softmax_averages_with_odds,
)
from laplacebridge.bridges.factor_shares import Average
from laplacebridge.bridges.factors import (
    LEAST_USUAL,
    NUM_CONTRASTS,
    Factors,
    contrasts_of,
    principal_loadings,
    shared_factors,
    signs,
    usual_variance,
    weighted_rest,
)
from laplacebridge.bridges.log_odds import LogOdds, log_odds, one_vs_rest_probabilities
from laplacebridge.bridges.precision import SMALLEST_PROBABILITY
from laplacebridge.bridges.support_points import NOISE_OF_PARTS, PARTS
from laplacebridge.covariance import Covariance, LowRank, LowRankPlusDiagonal

# Rows where factors would change the mean by less than this, times √K up to a hundred
# classes and √(v/(1 + v)) for a variance v of the logits, are not searched: about the error
# of 1000 samples, half of it at most. From twice as much on they are answered by their
# factors alone, and in between by both.
SMALLEST_GAIN = 0.0015
MOST_CLASSES_OF_A_GAIN = 100
NUM_GATE_PROBES = 8
# Rows whose noise is above this share of the error of 1000 samples, or of this error if that
# is less, are averaged over twice as many points.
NOISE_SHARE, SMALLEST_NOISE = 0.9, 1e-3
# What noise is taken to be, in units of what is measured by two groups, when it decides
# how much to believe; and the doubt that is none.
NOISE_MARGIN = 1.5
LEAST_DOUBT = 0.02
# What the factors leave out, times this, is about what it does to the mean: between the
# typical and the largest of what was measured. Quadrature and tables are good to the rest.
ERROR_OF_THE_REST = 0.35
QUADRATURE_ERROR = 5e-4
NUM_PROBES = 16


class Averaged(NamedTuple):
    """Mean probabilities, and the estimated total variation from the truth."""

    probabilities: Float[Tensor, "B K"]
    error: Float[Tensor, " B"] | None
    odds: LogOdds | None = None


def average_over_factors(
    mean: Float[Tensor, "B K"],
    covariance: Covariance,
    one_vs_rest: Float[Tensor, "B K"],
    odds: LogOdds,
    without_factors: Callable[[Tensor | slice], Tensor],
    *,
    with_odds: bool,
    with_error: bool,
) -> Averaged:
    """The mean probabilities of logits that may share factors.

    Args:
        mean: Means of the logits.
        covariance: Their covariance, from `Covariance.modulo_shift`.
        one_vs_rest: The mean probabilities by one-vs-rest.
        odds: The log-odds by one-vs-rest.
        without_factors: The mean probabilities of some rows by the race without factors:
            asked for where these are not all of the answer.
        with_odds: Whether to replace the variances of the log-odds too, by the same points.
        with_error: Whether to estimate the error too.
    """
    rest, variance = _unexplained(mean, covariance, None, one_vs_rest, NUM_GATE_PROBES, LEAST_USUAL)
    classes = min(mean.shape[-1], MOST_CLASSES_OF_A_GAIN)
    least = SMALLEST_GAIN * (classes * variance / (1 + variance)).sqrt()
    sought = (ERROR_OF_THE_REST * rest / least.clamp_min(1e-12) - 1).clamp(0, 1)
    if torch.compiler.is_compiling():  # what is asked of a row cannot depend on it
        return _averaged(
            mean,
            covariance,
            one_vs_rest,
            odds,
            without_factors,
            shared_factors(mean, covariance).faded(sought),
            with_odds=with_odds,
            with_error=with_error,
        )
    error = None
    if with_error:  # by what the race says: one-vs-rest gives a very wide class nearly all
        error = error_without_factors(mean, covariance, without_factors(slice(None)))
    rows = (sought > 0).nonzero().squeeze(-1)
    factors: Factors | None = None
    if len(rows):
        some = slice(None) if len(rows) == len(mean) else rows
        factors = shared_factors(mean[some], covariance[some]).faded(sought[some])
        there = factors.presence[:, 0] > 0
        if not there.all():
            factors, rows = factors.of_rows(there), rows[there]
    if factors is None or not len(rows):
        return Averaged(without_factors(slice(None)), error, odds)
    some = slice(None) if len(rows) == len(mean) else rows
    averaged = _averaged(
        mean[some],
        covariance[some],
        one_vs_rest[some],
        odds.of_rows(some),
        lambda doubted: without_factors(rows[doubted]),
        factors,
        with_odds=with_odds,
        with_error=with_error,
    )
    if len(rows) == len(mean):
        return averaged
    others = torch.ones(len(mean), dtype=torch.bool, device=mean.device)
    others = others.index_fill(0, rows, False).nonzero().squeeze(-1)
    both = torch.cat([averaged.probabilities, without_factors(others)])
    probabilities = both[torch.cat([rows, others]).argsort()]
    if error is not None and averaged.error is not None:
        error = error.index_copy(0, rows, averaged.error)
    if averaged.odds is not None:
        odds = odds._replace(variance=odds.variance.index_copy(0, rows, averaged.odds.variance))
    return Averaged(probabilities, error, odds)


def average_of_low_rank(
    mean: Float[Tensor, "B K"], covariance: LowRank, *, with_odds: bool, with_error: bool
) -> Averaged:
    """The mean probabilities of logits that are all factors, and few of them: there is
    nothing to search, to race and to doubt.

    Args:
        mean: Means of the logits.
        covariance: Their covariance, from `Covariance.modulo_shift`.
        with_odds: Whether to give the log-odds too, by the same points: one-vs-rest takes
            logits for less tied than a few factors tie them.
        with_error: Whether to estimate the error too.
    """
    loadings = principal_loadings(mean, covariance)
    odds = None

    def average(rows: Tensor | slice, parts: Sequence[int]) -> list[Average]:
        nonlocal odds
        if odds is not None or not with_odds:
            return softmax_averages(mean[rows], loadings[rows], parts)
        first, location, variance = softmax_averages_with_odds(mean, loadings, parts[:1])
        odds = LogOdds(location, variance, mean.argmax(-1, keepdim=True))
        return first + softmax_averages(mean, loadings, parts[1:])

    halves = _refined(average)
    probabilities = _normal(halves.mean(0))
    error = _error(torch.zeros_like(mean[:, 0]), _noise(halves)) if with_error else None
    return Averaged(probabilities, error, odds)


def _averaged(
    mean: Tensor,
    covariance: Covariance,
    one_vs_rest: Tensor,
    odds: LogOdds,
    without_factors: Callable[[Tensor | slice], Tensor],
    factors: Factors,
    *,
    with_odds: bool,
    with_error: bool,
) -> Averaged:
    """The answers of rows that all share factors: averages times what one-vs-rest says
    that the factors leave out.
    """
    model = LowRankPlusDiagonal(factors.loadings, factors.own)
    left_out = one_vs_rest / one_vs_rest_probabilities(log_odds(mean, model))

    def average(rows: Tensor | slice, parts: Sequence[int]) -> list[Average]:
        found = averages(mean[rows], factors.of_rows(rows), parts)
        return [Average(_normal(part.mean * left_out[rows]), part.square) for part in found]

    halves = _refined(average)
    probabilities = _believed(halves, factors.presence, one_vs_rest, without_factors)
    error = None
    if with_error:
        rest, _ = _unexplained(mean, covariance, factors, halves.mean(0))
        kept, _ = _unexplained(mean, covariance, None, one_vs_rest)
        rest = torch.lerp(kept, rest, factors.presence[:, 0])  # of the answer, as it is mixed
        error = _error(rest, _noise(halves))
    if not with_odds:
        return Averaged(probabilities, error)
    variance = torch.lerp(odds.variance, odds_variances(mean, factors, (0,)), factors.presence)
    return Averaged(probabilities, error, odds._replace(variance=variance))


def _normal(weights: Float[Tensor, "B K"]) -> Float[Tensor, "B K"]:
    probabilities = weights / weights.sum(-1, keepdim=True) + SMALLEST_PROBABILITY
    return probabilities / probabilities.sum(-1, keepdim=True)


def _refined(
    average: Callable[[Tensor | slice, Sequence[int]], list[Average]],
) -> Float[Tensor, "2 B K"]:
    """Averages over two halves of the points, twice as many for rows where these disagree,
    and again.
    """
    first, second = average(slice(None), (0, 1))
    halves = torch.stack([first.mean, second.mean])
    square = (first.square + second.square) / 2
    for part in range(2, len(PARTS)):
        known = halves.mean(0)
        noisy = _noise(halves) > NOISE_SHARE * _error_of_samples(known, square)
        if torch.compiler.is_compiling():
            new = average(slice(None), (part,))[0]
            halves = torch.where(noisy[:, None], torch.stack([known, new.mean]), halves)
            square = torch.where(noisy[:, None], (square + new.square) / 2, square)
            continue
        rows = noisy.nonzero().squeeze(-1)
        if not len(rows):
            break
        new = average(rows, (part,))[0]
        halves = halves.index_copy(1, rows, torch.stack([known[rows], new.mean]))
        square = square.index_copy(0, rows, (square[rows] + new.square) / 2)
    return halves


def _error_of_samples(
    mean: Float[Tensor, "B K"], square: Float[Tensor, "B K"]
) -> Float[Tensor, " B"]:
    """The total variation that the mean of 1000 samples is expected to have."""
    with torch.no_grad():
        deviation = (square - mean.square()).clamp_min(0).sqrt()
        return (deviation.sum(-1) / (2000 * math.pi) ** 0.5).clamp_min(SMALLEST_NOISE)


def _noise(halves: Float[Tensor, "2 B K"]) -> Float[Tensor, " B"]:
    """The total variation of their average, as far as it is the points' doing."""
    apart = 0.5 * (halves[0] - halves[1]).detach().abs().sum(-1)
    return NOISE_OF_PARTS * apart / 2


def _believed(
    halves: Float[Tensor, "2 B K"],
    presence: Float[Tensor, "B 1"],
    one_vs_rest: Float[Tensor, "B K"],
    without_factors: Callable[[Tensor | slice], Tensor],
) -> Float[Tensor, "B K"]:
    """The average as far as it is farther from one-vs-rest's answer than noise would carry
    it, and as far as there are factors; the race without factors for the rest.
    """
    average = halves.mean(0)
    weights = 1 / (one_vs_rest + average + 1e-6)
    apart = (halves[0] - halves[1]) / 2
    noise = (weights * apart.square()).sum(-1, keepdim=True)
    distance = (weights * (average - one_vs_rest).square()).sum(-1, keepdim=True)
    doubt = (NOISE_MARGIN * noise / distance.clamp_min(1e-30)).clamp_max(1).square()
    belief = presence * (1 - ((doubt - LEAST_DOUBT) / (1 - LEAST_DOUBT)).clamp_min(0))
    if torch.compiler.is_compiling():
        return torch.lerp(without_factors(slice(None)), average, belief)
    rows = (belief[:, 0] < 1).nonzero().squeeze(-1)
    if not len(rows):
        return average
    mixed = torch.lerp(without_factors(rows), average[rows], belief[rows])
    return average.index_copy(0, rows, mixed)


def error_without_factors(
    mean: Float[Tensor, "B K"], covariance: Covariance, probabilities: Float[Tensor, "B K"]
) -> Float[Tensor, " B"]:
    """The estimated total variation of the race without factors.

    Args:
        mean: Means of the logits.
        covariance: Their covariance, from `Covariance.modulo_shift`.
        probabilities: The mean probabilities.
    """
    own = covariance.effective_variance()
    if covariance.independent or mean.shape[-1] == 2:
        return torch.full_like(own[:, 0], QUADRATURE_ERROR)
    rest, _ = _unexplained(mean, covariance, None, probabilities)
    return _error(rest, 0.0)


def _error(rest: Tensor, noise: Tensor | float) -> Tensor:
    """A total variation, from what is left unexplained and the noise of the points."""
    known = QUADRATURE_ERROR**2 + (ERROR_OF_THE_REST * rest) ** 2 + noise * noise
    # products beyond the range of the type say that nothing is known
    known = torch.where(known.isfinite(), known, 1.0)
    return known.sqrt().clamp_max(1.0)


def _unexplained(
    mean: Tensor,
    covariance: Covariance,
    factors: Factors | None,
    probabilities: Tensor,
    num_probes: int = NUM_PROBES,
    least_share: float = 0.0,
) -> tuple[Float[Tensor, " B"], Float[Tensor, " B"]]:
    """How large P½C(Σ − AAᵀ − D)CᵀP½ is beside one and the variances, by its products with
    all axes or with a few vectors of signs; classes get theirs in the order of their means.
    And the variance of the logits, weighted by probabilities.
    """
    with torch.no_grad():
        p = probabilities
        num_classes = p.shape[-1]
        if num_classes <= NUM_CONTRASTS:
            probes, share = torch.eye(num_classes).to(p).expand(len(p), -1, -1), 1
        else:
            probes, share = signs(mean, num_probes), num_probes
        contrasts = contrasts_of(probes, p)
        total = covariance.effective_variance()
        rest = covariance.matmat(contrasts)
        rest = rest - (total if factors is None else factors.own).unsqueeze(-1) * contrasts
        if factors is not None:
            rest = rest - factors.loadings @ (factors.loadings.mT @ contrasts)
        size = (weighted_rest(rest, p).square().sum((1, 2)) / share).sqrt()
        variance = _usual(p, total, least_share)
        # classes that share factors compete by what is their own
        own = variance if factors is None else _usual(p, factors.own, least_share)
        return size / (1 + own), variance


def _usual(p: Tensor, variance: Tensor, least_share: float) -> Float[Tensor, " B"]:
    spread = (p * variance).sum(-1, keepdim=True)
    return usual_variance(spread, p, variance, least_share=least_share)[:, 0]
