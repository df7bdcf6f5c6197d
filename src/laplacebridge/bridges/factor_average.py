"""The race for logits that share factors: its average over them, how much of that to
believe, and how far off it may be.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from laplacebridge.bridges.factor_points import FEW_POINTS, MANY_POINTS, NUM_GROUPS, group_means
from laplacebridge.bridges.factors import (
    NUM_CONTRASTS,
    Factors,
    contrasts_of,
    shared_factors,
    weighted_rest,
)
from laplacebridge.bridges.one_vs_rest import log_odds, one_vs_rest_probabilities
from laplacebridge.bridges.precision import SMALLEST_PROBABILITY
from laplacebridge.covariance import Covariance, LowRankPlusDiagonal

# Rows whose two groups of few points are farther apart than this get many.
LARGEST_NOISE = 0.015
# What noise is taken to be, in units of what is measured by two groups, when it decides
# how much to believe.
NOISE_MARGIN = 1.5
# What the factors leave out, times this, is about what it does to the mean: between the
# typical and the largest of what was measured. Quadrature and tables are good to the rest.
ERROR_OF_THE_REST = 0.35
QUADRATURE_ERROR = 5e-4
_NUM_PROBES = 16


class Averaged(NamedTuple):
    """Mean probabilities, and the estimated total variation from the truth."""

    probabilities: Float[Tensor, "B K"]
    error: Float[Tensor, " B"] | None


def average_over_factors(
    mean: Float[Tensor, "B K"],
    covariance: Covariance,
    plain: Float[Tensor, "B K"],
    one_vs_rest: Float[Tensor, "B K"],
    *,
    with_error: bool,
) -> Averaged:
    """Replaces the mean probabilities of rows whose logits share factors.

    Args:
        mean: Means of the logits.
        covariance: Their covariance, from `Covariance.modulo_shift`.
        plain: The mean probabilities without factors, kept for all other rows.
        one_vs_rest: Those by one-vs-rest.
        with_error: Whether to estimate the error too.
    """
    factors = shared_factors(mean, covariance)
    if torch.compiler.is_compiling():  # what is asked of a row cannot depend on it
        few = _corrected(mean, covariance, factors, one_vs_rest, FEW_POINTS)
        many = _corrected(mean, covariance, factors, one_vs_rest, MANY_POINTS)
        groups = torch.where((_noise(few) > LARGEST_NOISE)[:, None], many, few)
        return _finished(plain, groups, factors, mean, covariance, with_error=with_error)
    rows = (factors.presence[:, 0] > 0).nonzero().squeeze(-1)
    if len(rows) == len(mean):
        return _averaged(mean, covariance, plain, one_vs_rest, factors, with_error=with_error)
    probabilities = plain
    error = error_without_factors(mean, covariance, plain) if with_error else None
    if len(rows):
        some = _averaged(
            mean[rows],
            covariance[rows],
            plain[rows],
            one_vs_rest[rows],
            factors.of_rows(rows),
            with_error=with_error,
        )
        probabilities = plain.index_copy(0, rows, some.probabilities)
        if error is not None and some.error is not None:
            error = error.index_copy(0, rows, some.error)
    return Averaged(probabilities, error)


def _averaged(
    mean: Tensor,
    covariance: Covariance,
    plain: Tensor,
    one_vs_rest: Tensor,
    factors: Factors,
    *,
    with_error: bool,
) -> Averaged:
    """The answers of rows that all share factors: by few points, and by many where these
    disagree.
    """
    groups = _corrected(mean, covariance, factors, one_vs_rest, FEW_POINTS)
    noisy = (_noise(groups) > LARGEST_NOISE).nonzero().squeeze(-1)
    if len(noisy):
        some = factors.of_rows(noisy)
        many = _corrected(mean[noisy], covariance[noisy], some, one_vs_rest[noisy], MANY_POINTS)
        groups = groups.index_copy(1, noisy, many)
    return _finished(plain, groups, factors, mean, covariance, with_error=with_error)


def _corrected(
    mean: Tensor, covariance: Covariance, factors: Factors, one_vs_rest: Tensor, num_points: int
) -> Float[Tensor, "G B K"]:
    """The averages over two groups of points, times what one-vs-rest says that the
    factors leave out.
    """
    model = LowRankPlusDiagonal(factors.loadings, factors.own)
    of_model = one_vs_rest_probabilities(log_odds(mean, model))
    groups = group_means(mean, factors, num_points) * (one_vs_rest / of_model)
    groups = groups / groups.sum(-1, keepdim=True) + SMALLEST_PROBABILITY
    return groups / groups.sum(-1, keepdim=True)


def _noise(groups: Float[Tensor, "G B K"]) -> Float[Tensor, " B"]:
    """The total variation of their average, as far as it is the points' doing."""
    return 0.5 * (groups[0] - groups[1]).detach().abs().sum(-1) / NUM_GROUPS


def _finished(
    plain: Tensor,
    groups: Tensor,
    factors: Factors,
    mean: Tensor,
    covariance: Covariance,
    *,
    with_error: bool,
) -> Averaged:
    """Believes the average as far as it is farther from the plain answer than noise
    would carry it, and as far as there are factors.
    """
    average = groups.mean(0)
    weights = 1 / (plain + average + 1e-6)
    noise = (weights * groups.var(0) / NUM_GROUPS).sum(-1, keepdim=True)
    distance = (weights * (average - plain).square()).sum(-1, keepdim=True)
    doubt = (NOISE_MARGIN * noise / distance.clamp_min(1e-30)).clamp_max(1).square()
    belief = factors.presence * (1 - doubt)
    probabilities = (1 - belief) * plain + belief * average
    if not with_error:
        return Averaged(probabilities, None)
    rest = _unexplained(mean, covariance, factors, average)
    return Averaged(probabilities, _error(rest, _noise(groups)))


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
    none = Factors(own[:, :, None] * 0, own, own[:, :1] * 0)
    return _error(_unexplained(mean, covariance, none, probabilities), 0.0)


def _error(rest: Tensor, noise: Tensor | float) -> Tensor:
    return (QUADRATURE_ERROR**2 + (ERROR_OF_THE_REST * rest).square() + noise * noise).sqrt()


def _unexplained(
    mean: Tensor, covariance: Covariance, factors: Factors, probabilities: Tensor
) -> Float[Tensor, " B"]:
    """How large P½C(Σ − AAᵀ − D)CᵀP½ is beside one and the variances, by its products with
    all axes or with a few vectors of signs; classes get theirs in the order of their means.
    """
    with torch.no_grad():
        p = probabilities.double()
        num_classes = p.shape[-1]
        if num_classes <= NUM_CONTRASTS:
            probes, share = torch.eye(num_classes).to(p).expand(len(p), -1, -1), 1
        else:
            place = mean.argsort(-1, descending=True).argsort(-1).to(p)
            columns = torch.arange(2, 2 + _NUM_PROBES).to(p).sqrt()
            probes = torch.where(
                torch.sin((1 + place[:, :, None]).square() * columns) < 0, -1.0, 1.0
            )
            share = _NUM_PROBES
        contrasts = contrasts_of(probes.to(p), p)
        loadings = factors.loadings.double()
        rest = covariance.matmat(contrasts.to(mean)).double() - loadings @ (loadings.mT @ contrasts)
        rest = weighted_rest(rest - factors.own.double().unsqueeze(-1) * contrasts, p)
        size = (rest.square().sum((1, 2)) / share).sqrt()
        variance = (p * covariance.effective_variance().double()).sum(-1)
        return (size / (1 + variance)).to(mean)
