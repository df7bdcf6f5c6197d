"""How sure: the total concentration that fits the Beta marginals of a given mean.

A Dirichlet has one precision for all classes. It is chosen so that the Beta marginals
of the probable classes are the closest, in Kullback–Leibler divergence, to the
logistic-normal marginals with the same means:

    Σ_k w_k [ m_k δ(c m_k) + (1 − m_k) δ(c(1 − m_k)) − δ(c) ] = Σ_k w_k g_k,     w =
    m³/Σm³,   δ(x) = log x − ψ(x)

Each bracket falls from ∞ to 0 in c, so the root is unique.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from laplacebridge._special import (
    complement,
    inverse_mills_ratio,
    log_minus_digamma,
    log_minus_digamma_slope,
    nested,
)

# The gap of marginals without any spread; it bounds the total concentration at about
# 5e9.
SMALLEST_GAP = 1e-10
SMALLEST_PROBABILITY = 1e-30  # added to every class, so that each keeps a positive concentration
# Smaller means count as this much: their weight m³ is nothing, and would be a denormal
# number, which are slow.
SMALLEST_PROBABLE = 1e-9
# Smaller 1 − m count as this much: c(1 − m) is then below 1/100 for every c.
SMALLEST_OTHERS = 1e-12
# x δ(x + 1) as a polynomial in 1/(1 + x) for x ≥ 0, within 3e-8; made by
# scripts/fit_special.py.
_SERIES_CONSTANT = 0.500000028
_SERIES = (
    -0.8333405487,
    0.1998138783,
    0.1073848009,
    -1.182167079,
    0.01672492709,
    -15.74049335,
    -0.3248232941,
)


def jensen_gap(
    smaller: Float[Tensor, "*shape"], variance: Float[Tensor, "*shape"]
) -> Float[Tensor, "*shape"]:
    """g = E KL(Bern(m) ‖ Bern(σ(x))) for x normal with this variance and E σ(x) = m, in
    closed form.

    g = I B/(√(κ² + B) + κ) with I the normal density at its quantile m and κ = I/(m(1 −
    m)): exact to first order in B, to leading order for B → ∞ and in the log-normal
    tail.

    Args:
        smaller: The smaller of m and 1 − m: the gap is the same for both.
        variance: Variance B of the log-odds.
    """
    chance = smaller.clamp(SMALLEST_PROBABILITY, 0.5)
    ratio = inverse_mills_ratio(chance)
    kappa = ratio / (1 - chance)
    return ratio * chance * variance / (torch.addcmul(variance, kappa, kappa).sqrt() + kappa)


def log_precision(
    probabilities: Float[Tensor, "B K"],
    variance: Float[Tensor, "B K"],
    *,
    num_largest: int | None = None,
) -> Float[Tensor, "B 1"]:
    """Logarithm of the total concentration that fits the marginals of the probable
    classes.

    Args:
        probabilities: Means m, rows that sum to one.
        variance: Variances B of the log-odds log(π/(1 − π)) of each class.
        num_largest: Visit only so many of the largest classes. Visiting 64 moves the
            answer by up to 0.03, 16 by up to 0.2 for K ≥ 100; all of them is the
            definition.
    """
    others = complement(probabilities)
    if num_largest is not None and num_largest < probabilities.shape[-1]:
        probabilities, largest = probabilities.topk(num_largest, dim=-1)
        others, variance = others.gather(-1, largest), variance.gather(-1, largest)
    gaps = jensen_gap(torch.minimum(probabilities, others), variance)
    probable, others = probabilities.clamp_min(SMALLEST_PROBABLE), others.clamp_min(SMALLEST_OTHERS)
    cubes = probable * probable * probable
    weights = cubes / cubes.sum(-1, keepdim=True)
    gap = (weights * gaps).sum(-1, keepdim=True).clamp_min(SMALLEST_GAP)
    return _fit(probable, others, weights, gap.log())


def _fit(means: Tensor, others: Tensor, weights: Tensor, log_gap: Tensor) -> Float[Tensor, "B 1"]:
    """Solves log F(log c) = log gap for the left-hand side F of the equation above.

    Two secant steps, from the root for a single class with the average mean. When a
    gradient is wanted, one exact Newton step carries it.
    """
    wanted = torch.is_grad_enabled() and (means.requires_grad or log_gap.requires_grad)
    with torch.no_grad():
        one = torch.ones_like(log_gap)
        single = torch.cat(
            [(weights * part).sum(-1, keepdim=True) for part in (means, others)] + [one], -1
        )

        def single_class(c: Tensor) -> Tensor:
            first, second, both = torch.split(_below_one(c * single), 1, -1)
            return first + second - both

        def every_class(c: Tensor) -> Tensor:
            below = _below_one(c * means) + _below_one(c * others)
            return (weights * below).sum(-1, keepdim=True) - _below_one(c)

        # the slope of log F is between −1 and about −1/2
        log_c, slope = _secants(single_class, log_gap, math.log(0.7) - log_gap, -one, 3)
        log_c, _ = _secants(every_class, log_gap, log_c, slope, 2)
    if not wanted:
        return log_c
    c = log_c.exp()
    values, slopes = (
        (weights * (means * function(c * means) + others * function(c * others))).sum(
            -1, keepdim=True
        )
        - function(c)
        for function in (log_minus_digamma, log_minus_digamma_slope)
    )
    return log_c - (values.log() - log_gap) * (values / slopes).detach()


def _secants(
    below_one: Callable[[Tensor], Tensor],
    log_gap: Tensor,
    log_c: Tensor,
    slope: Tensor,
    evaluations: int,
) -> tuple[Tensor, Tensor]:
    """Root and slope of log F, given 1 − c F(c) as a function of c, by secants from a
    first guess of both.
    """
    step = previous = torch.zeros_like(log_c)
    for evaluation in range(evaluations):
        excess = (
            torch.log1p(-below_one(log_c.exp())) - log_c - log_gap
        )  # c F(c) is between 1/2 and 1
        if evaluation > 0:
            far = step.abs() > 1e-4  # below, rounding makes the slope
            secant = (excess - previous) / torch.where(far, step, 1.0)
            slope = torch.where(far, secant.clamp(-1.3, -0.5), slope)
        step, previous = (-excess / slope).clamp(-2, 2), excess
        log_c = log_c + step
    return log_c, slope


def _below_one(x: Tensor) -> Tensor:
    """1 − x δ(x), from 0 to 1/2, within 3e-8: one step of the recurrence, then a
    polynomial in 1/(1 + x).
    """
    series = nested((x + 1).reciprocal(), _SERIES)
    return torch.sub(x * torch.log1p(x.reciprocal()), series, alpha=_SERIES_CONSTANT)
