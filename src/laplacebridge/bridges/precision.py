"""How sure: the total concentration that fits the Beta marginals of a given mean.

A Dirichlet has one precision for all classes. It is chosen so that the Beta marginals of the probable classes are
the closest, in Kullback–Leibler divergence, to the logistic-normal marginals with the same means:

    Σ_k w_k [ m_k δ(c m_k) + (1 − m_k) δ(c(1 − m_k)) − δ(c) ] = Σ_k w_k g_k,     w = m³/Σm³,   δ(x) = log x − ψ(x)

Each bracket falls from ∞ to 0 in c, so the root is unique.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from laplacebridge.special import complement, log_minus_digamma, log_minus_digamma_slope

# The gap of marginals without any spread; it bounds the total concentration at about 5e9.
SMALLEST_GAP = 1e-10
SMALLEST_PROBABILITY = 1e-30  # added to every class, so that each keeps a positive concentration
# δ(c m) of classes below this is not asked for; their weight m³ is nothing.
SMALLEST_SHARE = 1e-12
_SECANT_EVALUATIONS = 3


def jensen_gap(smaller: Float[Tensor, "*shape"], variance: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """g = E KL(Bern(m) ‖ Bern(σ(x))) for x normal with this variance and E σ(x) = m, in closed form.

    g = I B/(√(κ² + B) + κ) with I the normal density at its quantile m and κ = I/(m(1 − m)): exact to first order in B,
    to leading order for B → ∞ and in the log-normal tail.

    Args:
        smaller: The smaller of m and 1 − m: the gap is the same for both.
        variance: Variance B of the log-odds.
    """
    chance = smaller.clamp(SMALLEST_PROBABILITY, 0.5)
    quantile = torch.special.ndtri(chance)
    density = torch.exp(-0.5 * quantile.square()) / math.sqrt(2 * math.pi)
    kappa = density / (chance * (1 - chance))
    return density * variance / (torch.sqrt(kappa.square() + variance) + kappa)


def log_precision(
    probabilities: Float[Tensor, "B K"], variance: Float[Tensor, "B K"], *, num_largest: int | None = None
) -> Float[Tensor, "B 1"]:
    """Logarithm of the total concentration that fits the marginals of the probable classes.

    Args:
        probabilities: Means m, rows that sum to one.
        variance: Variances B of the log-odds log(π/(1 − π)) of each class.
        num_largest: Visit only so many of the largest classes. Visiting 64 moves the answer by up to 0.03, 16 by up
            to 0.2 for K ≥ 100; all of them is the definition.
    """
    others = complement(probabilities)
    if num_largest is not None and num_largest < probabilities.shape[-1]:
        probabilities, largest = probabilities.topk(num_largest, dim=-1)
        others, variance = others.gather(-1, largest), variance.gather(-1, largest)
    cubes = probabilities * probabilities * probabilities
    weights = cubes / cubes.sum(-1, keepdim=True)
    gaps = jensen_gap(torch.minimum(probabilities, others), variance)
    gap = (weights * gaps).sum(-1, keepdim=True).clamp_min(SMALLEST_GAP)
    shares = torch.cat([probabilities, others], -1).clamp_min(SMALLEST_SHARE)
    return _fit(shares, shares * torch.cat([weights, weights], -1), gap.log())


def _fit(shares: Tensor, weights: Tensor, log_gap: Tensor) -> Tensor:
    """Solves log F(log c) = log gap by secants; when a gradient is wanted, one exact Newton step carries it."""
    wanted = torch.is_grad_enabled() and (shares.requires_grad or log_gap.requires_grad)
    with torch.no_grad():
        log_c = math.log(0.7) - log_gap
        excess = _log_divergence(log_c, shares, weights) - log_gap
        step = excess.clamp(-1.4, 1.4)  # the slope is between −1 and about −1/2
        for _ in range(_SECANT_EVALUATIONS - 1):
            previous, log_c = excess, log_c + step
            excess = _log_divergence(log_c, shares, weights) - log_gap
            slope = (excess - previous) / torch.where(step == 0, torch.ones_like(step), step)
            reliable = step.abs() > 1e-4  # below, rounding makes the slope, and its exact value hardly matters
            step = -excess / torch.where(reliable, slope.clamp(-1.3, -0.5), -torch.ones_like(slope))
        log_c = log_c + step.clamp(-2, 2)
    if not wanted:
        return log_c
    value = _divergence(log_c, shares, weights)
    scaled = (weights * log_minus_digamma_slope(log_c.exp() * shares)).sum(-1, keepdim=True)
    slope = ((scaled - log_minus_digamma_slope(log_c.exp())) / value).detach()
    return log_c - (value.log() - log_gap) / slope


def _divergence(log_c: Tensor, shares: Tensor, weights: Tensor) -> Tensor:
    c = log_c.exp()
    return (weights * log_minus_digamma(c * shares)).sum(-1, keepdim=True) - log_minus_digamma(c)


def _log_divergence(log_c: Tensor, shares: Tensor, weights: Tensor) -> Tensor:
    return _divergence(log_c, shares, weights).log()
