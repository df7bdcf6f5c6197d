"""Entropy, density and divergence of Dirichlets, from log-concentrations.

Written with log-gamma and digamma these are differences of numbers of the size of α log
α. Here the large parts have been cancelled by hand, so that they are right for
concentrations from 1e-30 to 1e18 and do not overflow beyond.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from laplacebridge._special import (
    log_minus_digamma_slope,
    scaled_log_minus_digamma,
    softmax,
    stirling_remainder,
)


def dirichlet_entropy(log: Float[Tensor, "B K"]) -> Float[Tensor, " B"]:
    """Differential entropy."""
    num_classes, log_total = log.shape[-1], log.logsumexp(-1)
    gaps, gap = scaled_log_minus_digamma(log), scaled_log_minus_digamma(log_total)
    # Σ δ(α_k) − K δ(α₀) class by class, so that two infinities cannot meet
    excess = gaps - gap.unsqueeze(-1) * torch.exp(log - log_total.unsqueeze(-1))
    per_class = 0.5 * log + stirling_remainder(log) + gaps - _times_exp(excess, -log)
    total = (num_classes - 0.5) * log_total + stirling_remainder(log_total) + gap
    return per_class.sum(-1) - total + _log_volume(num_classes)


def dirichlet_log_density(
    log: Float[Tensor, "B K"], log_point: Float[Tensor, "B K"]
) -> Float[Tensor, " B"]:
    """Log-density in the softmax basis, Σ α log π − log B(α), at logarithms of
    probabilities; on the simplex it is that minus Σ log π.
    """
    log_total = log.logsumexp(-1)
    divergence = _categorical_divergence(log.log_softmax(-1), log_point)
    per_class = 0.5 * log - stirling_remainder(log)
    spread = (
        per_class.sum(-1)
        - 0.5 * log_total
        + stirling_remainder(log_total)
        - _log_volume(log.shape[-1])
    )
    return spread - _times_exp(divergence, log_total)


def dirichlet_divergence(
    log: Float[Tensor, "B K"], log_other: Float[Tensor, "B K"]
) -> Float[Tensor, " B"]:
    """KL(first ‖ second)."""
    log_total, other_total = log.logsumexp(-1), log_other.logsumexp(-1)
    divergence = _categorical_divergence(log_other.log_softmax(-1), log.log_softmax(-1))
    log_ratio, excess = log_other - log, _excess_gap(log, log_total)
    # Σ (b_k − a_k)(δ(a_k) − δ(a₀)); a large ratio is multiplied in log space
    near = torch.expm1(log_ratio.clamp_max(1)) * excess
    far = torch.exp(log_ratio + excess.clamp_min(torch.finfo(log.dtype).tiny).log()) - excess
    shapes = torch.where(log_ratio < 1, near, far).sum(-1)
    shapes = (
        shapes + _remainder_ratio(log, log_other).sum(-1) - _remainder_ratio(log_total, other_total)
    )
    return (_times_exp(divergence, other_total) + shapes).clamp_min(0)  # less is rounding


def _log_volume(num_classes: int) -> float:
    return 0.5 * (num_classes - 1) * math.log(2 * math.pi)


def _categorical_divergence(log_first: Tensor, log_second: Tensor) -> Tensor:
    """KL(first ‖ second) as a sum of non-negative terms, exact to second order even if
    rows are not normalised.
    """
    log_ratio, first = log_first - log_second, log_first.exp()
    near = first * (torch.expm1(-log_ratio.clamp(-1, 1)) + log_ratio)
    return torch.where(log_ratio.abs() < 1, near, log_second.exp() - first + first * log_ratio).sum(
        -1
    )


def _times_exp(number: Tensor, log_factor: Tensor) -> Tensor:
    """A non-negative number times exp(log_factor), zero if the number is, whatever the
    factor.
    """
    positive = number > 0
    safe = torch.where(positive, number, torch.ones_like(number))
    return torch.where(positive, torch.exp(safe.log() + log_factor), 0.0)


def _excess_gap(log: Tensor, log_total: Tensor) -> Tensor:
    """a(δ(a) − δ(a₀)) for each class, where a₀ is the total: non-negative, and not
    rounded away for the largest.
    """
    scaled, scaled_total = (
        scaled_log_minus_digamma(log),
        scaled_log_minus_digamma(log_total).unsqueeze(-1),
    )
    mean = softmax(log)
    excess = scaled - mean * scaled_total
    top = mean.argmax(-1, keepdim=True)
    rest = mean.scatter(-1, top, 0).sum(-1, keepdim=True)
    log_gap = -torch.log1p(-rest)  # log(a₀/a)
    middle = log.gather(-1, top) + 0.5 * log_gap
    x = middle.clamp(-42, 60).exp()
    slope = scaled_log_minus_digamma(middle) + x * log_minus_digamma_slope(x)
    close = log_gap < (1e-5 if log.dtype == torch.float64 else 0.1)
    difference = torch.where(close, -slope * log_gap, scaled.gather(-1, top) - scaled_total)
    return excess.scatter(-1, top, difference + rest * scaled_total)


def _remainder_ratio(log_a: Tensor, log_b: Tensor) -> Tensor:
    """s(b) − s(a) − ½ log(b/a) with s what Stirling's formula leaves out."""
    return stirling_remainder(log_b) - stirling_remainder(log_a) - 0.5 * (log_b - log_a)
