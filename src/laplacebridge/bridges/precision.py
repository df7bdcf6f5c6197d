"""How sure: the total concentration that fits the Beta marginals of a given mean.

A Dirichlet has one precision for all classes. It is chosen so that the Beta marginals
of the probable classes are the closest, in Kullback–Leibler divergence, to the
logistic-normal marginals with the same means:

    Σ_k w_k [ m_k δ(c m_k) + (1 − m_k) δ(c(1 − m_k)) − δ(c) ] = Σ_k w_k g_k
    w = m³/Σm³,   δ(x) = log x − ψ(x)

Each bracket falls from ∞ to 0 in c, so the root is unique.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from laplacebridge._special import (
    inverse_mills_ratio,
    log_minus_digamma,
    log_minus_digamma_slope,
    nested,
    sum_of_others,
)

# The gap of marginals without any spread; it bounds the total concentration at about
# 5e9.
SMALLEST_GAP = 1e-10
SMALLEST_PROBABILITY = 1e-30  # added to every class, so that each keeps a positive concentration
# Smaller means count as this much: their weight m³ is nothing, and would be a denormal
# number, which are slow.
SMALLEST_PROBABLE = 1e-9
# From this many classes on, so many of them are visited, and the others as two whose
# weights m³ have the same mean and deviation; those below this share of the last visited
# count as that much.
MANY_CLASSES, NUM_VISITED, SMALLEST_SHARE = 1000, 16, 1e-6
# Smaller 1 − m count as this much: c(1 − m) is then below 1/100 for every c.
SMALLEST_OTHERS = 1e-12
# c F(c) at the root is about ½ + ½ σ(START + START_SLOPE log(gap/(m(1 − m)))), within a
# twentieth; made by scripts/fit_special.py.
START, START_SLOPE = -1.26, 0.8432
SLOPES = (-1.3, -0.5)  # of log F over log c: between −1 and about −1/2
SMALLEST_STEP = 1e-4  # below, rounding makes the slope
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
            definition. By default all, and from a thousand classes on 16 with two that
            stand for the others, which moves it by up to 0.02, and where variances are large
            and differ by orders of magnitude by about 0.1.
    """
    others = sum_of_others(probabilities)
    if num_largest is None and probabilities.shape[-1] >= MANY_CLASSES:
        return _log_precision_of_many(probabilities, others, variance)
    if num_largest is not None and num_largest < probabilities.shape[-1]:
        probabilities, largest = probabilities.topk(num_largest, dim=-1)
        others, variance = others.gather(-1, largest), variance.gather(-1, largest)
    gaps = jensen_gap(torch.minimum(probabilities, others), variance)
    probable, others = probabilities.clamp_min(SMALLEST_PROBABLE), others.clamp_min(SMALLEST_OTHERS)
    cubes = probable * probable * probable
    weights = cubes / cubes.sum(-1, keepdim=True)
    gap = (weights * gaps).sum(-1, keepdim=True).clamp_min(SMALLEST_GAP)
    return _fit(probable, others, weights, gap)


def _log_precision_of_many(
    probabilities: Tensor, others: Tensor, variance: Tensor
) -> Float[Tensor, "B 1"]:
    """`log_precision` of the largest classes, and of two that stand for all others."""
    largest, places = probabilities.topk(NUM_VISITED, -1)
    last = largest[:, -1:].clamp_min(SMALLEST_PROBABLE)
    share = (probabilities / last).clamp_min(SMALLEST_SHARE).scatter(-1, places, 0.0)
    cubes = share * share * share
    fourths = cubes * share
    weight, first = cubes.sum(-1, keepdim=True), fourths.sum(-1, keepdim=True)
    middle = first / weight
    square = (fourths * share).sum(-1, keepdim=True) / weight - middle * middle
    # without a spread there is no slope of its root
    spread = torch.maximum(square, SMALLEST_SHARE * middle * middle).sqrt()
    # gaps are about m(1 − m)B/2: what counts is the average of B over m⁴
    common = (fourths * variance).sum(-1, keepdim=True) / first
    low, high = torch.maximum(middle - spread, middle / 10), middle + spread
    two = torch.cat([low, high], -1) * last
    half = weight * (0.5 * last * last * last)
    means = torch.cat([largest, two], -1)
    others = torch.cat([others.gather(-1, places), 1 - two], -1)
    variance = torch.cat([variance.gather(-1, places), common, common], -1)
    gaps = jensen_gap(torch.minimum(means, others), variance)
    means, others = means.clamp_min(SMALLEST_PROBABLE), others.clamp_min(SMALLEST_OTHERS)
    visited = means[:, :NUM_VISITED]
    weights = torch.cat([visited * visited * visited, half, half], -1)
    weights = weights / weights.sum(-1, keepdim=True)
    gap = (weights * gaps).sum(-1, keepdim=True).clamp_min(SMALLEST_GAP)
    return _fit(means, others, weights, gap)


def _fit(means: Tensor, others: Tensor, weights: Tensor, gap: Tensor) -> Float[Tensor, "B 1"]:
    """Solves log F(log c) = log gap for the left-hand side F of the equation above.

    Two steps of a secant, from a formula for both the root and the slope there. When a
    gradient is wanted, one exact Newton step carries it.
    """
    wanted = torch.is_grad_enabled() and (means.requires_grad or gap.requires_grad)
    # δ is asked for at m, 1 − m and 1, times c: at once, since for few classes it is the
    # calls of torch that take the time
    num_classes = means.shape[-1]
    shares = torch.cat([means, others, torch.ones_like(gap)], -1)
    with torch.no_grad():
        log_gap = gap.log()

        def excess(log_c: Tensor) -> Tensor:
            below = _below_one(log_c.exp() * shares)
            both = below[:, :num_classes] + below[:, num_classes:-1]
            below_one = (weights * both).sum(-1, keepdim=True) - below[:, -1:]
            return torch.log1p(-below_one) - log_c - log_gap  # c F(c) is between 1/2 and 1

        product = (weights * means).sum(-1, keepdim=True) * (weights * others).sum(-1, keepdim=True)
        share = (START + START_SLOPE * (gap / product).log()).sigmoid()
        level = 0.5 + 0.5 * share
        slope = 1 / (0.5 * START_SLOPE * share * (1 - share) / level - 1)
        log_c = level.log() - log_gap
        first = excess(log_c)
        step = -first / slope
        second = excess(log_c + step)
        far = step.abs() > SMALLEST_STEP
        secant = (second - first) / torch.where(far, step, 1.0)
        slope = torch.where(far, secant.clamp(*SLOPES), slope)
        log_c = log_c + step - second / slope
    if not wanted:
        return log_c
    signed = torch.cat([weights * means, weights * others, -torch.ones_like(gap)], -1)
    places = log_c.exp() * shares
    value = (signed * log_minus_digamma(places)).sum(-1, keepdim=True)
    slope = (signed * log_minus_digamma_slope(places)).sum(-1, keepdim=True)
    return log_c - (value.log() - gap.log()) * (value / slope).detach()


def _below_one(x: Tensor) -> Tensor:
    """1 − x δ(x), from 0 to 1/2, within 3e-8: one step of the recurrence, then a
    polynomial in 1/(1 + x).
    """
    series = nested((x + 1).reciprocal(), _SERIES)
    return torch.sub(x * torch.log1p(x.reciprocal()), series, alpha=_SERIES_CONSTANT)
