"""Bridges that project in information: the KL bridge, and the delta bridge, its limit
for small variances.

KL(p ‖ Dir(α)) is smallest where E log π_k = ψ(α_k) − ψ(α₀). For π = softmax(z), E log
π_k = μ_k − E LSE(z) whatever the law of z. So the projection is fixed by μ and one
number, the Jensen gap J = E LSE(z) − LSE(μ), and with p = softmax(μ)

    ψ(α_k) = log p_k + λ,     G(λ) = ψ(Σ α_k) − λ = J,

which has one solution for every J > 0, because G falls strictly from +∞ to 0.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from laplacebridge._blocks import by_rows
from laplacebridge._special import (
    log_minus_digamma,
    log_minus_digamma_slope,
    logistic_normal_mean,
    softmax,
)
from laplacebridge.bridges.log_odds import log_odds
from laplacebridge.bridges.paper import SMALLEST_VARIANCE
from laplacebridge.bridges.precision import SMALLEST_GAP, SMALLEST_PROBABILITY, jensen_gap
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.gaussian import LogitGaussian

_NEWTON_STEPS = 12
_SMALLEST_VALUE = 1e-16  # of G, which rounding may leave at nothing
# Nats beyond which a class, or a gap, is as far as this: further out float64 cannot
# tell digamma functions of such numbers apart.
_FARTHEST = 1e10
_INVERSE_DIGAMMA_STEPS = 4
# The part of the gap that the largest class explains is at least this share of its own;
# less is cancellation.
_SMALLEST_SHARE_OF_GAP = 0.05


def delta_bridge(gaussian: LogitGaussian) -> Dirichlet:
    r"""Gaussian → Dirichlet for small variances: softmax(μ) with the precision of the
    delta method.

    .. math:: \alpha = p\, \frac{K - 1}{\mathrm{tr}(\Sigma H)}, \quad p = \mathrm{softmax}(\mu), \quad
              H = \mathrm{diag}(p) - pp^T

    The exact inverse of `dirichlet_to_gaussian`, like `laplace_bridge_raw`, and unlike
    that its mean is softmax(μ) for every Σ. Its mean ignores Σ: use it where variances
    are small.

    Args:
        gaussian: The Gaussian over logits.

    Example:
        >>> from laplacebridge.bridges import dirichlet_to_gaussian
        >>> gaussian = dirichlet_to_gaussian(
        ...     Dirichlet.from_concentration(torch.tensor([[4.0, 2.0, 1.0]]))
        ... )
        >>> delta_bridge(gaussian).concentration
        tensor([[4.0000, 2.0000, 1.0000]])
    """

    def log_concentration(rows: LogitGaussian) -> Tensor:
        spread = _spread(rows).clamp_min(SMALLEST_VARIANCE)
        return rows.mean.log_softmax(-1) + (math.log(rows.num_classes - 1) - spread.log())

    return Dirichlet(by_rows(log_concentration, gaussian)).to(gaussian.dtype)


def _spread(gaussian: LogitGaussian) -> Float[Tensor, "B 1"]:
    """tr(ΣH) with every logit counted from the largest, so that nothing cancels when p
    is nearly one-hot.
    """
    covariance = gaussian.covariance.modulo_shift()
    probabilities = softmax(gaussian.mean)
    top = gaussian.mean.argmax(-1, keepdim=True)
    variance = covariance.diagonal()
    from_top = variance + variance.gather(-1, top)
    if not covariance.independent:
        from_top = (from_top - 2 * covariance.column(top)).clamp_min(0)
    others = probabilities.scatter(-1, top, 0.0)
    leaving = others.scatter(-1, top, -others.sum(-1, keepdim=True))  # p − e_top
    quadratic = (leaving * covariance.matvec(leaving)).sum(-1, keepdim=True)
    return (others * from_top).sum(-1, keepdim=True) - quadratic


def kl_bridge(gaussian: LogitGaussian) -> Dirichlet:
    """Gaussian → Dirichlet by information projection: the α with the smallest
    KL(softmax(z) ‖ Dir(α)).

    The projection is exact given E LSE(z), for which the one-vs-rest moments of the
    largest class are used. Right for log-densities: scoring distributions,
    distillation, conjugate updates. For K ≥ 10 it is wrong for means and intervals,
    because every class has an equal vote in log π_k and negligible classes outvote the
    probable ones.

    Note:
        The answer jumps, slightly, where the class with the largest mean logit changes.
        Computed in float64.

    Args:
        gaussian: The Gaussian over logits.

    Example:
        >>> from laplacebridge import Diagonal
        >>> gaussian = LogitGaussian(torch.zeros(1, 3), Diagonal(torch.full((1, 3), 0.1)))
        >>> kl_bridge(gaussian).mean
        tensor([[0.3333, 0.3333, 0.3333]])
    """

    def log_concentration(rows: LogitGaussian) -> Tensor:
        wide = rows.to(torch.float64)  # float32 loses the gap beside logits of 1e7
        gap = expected_log_sum_exp_gap(wide).clamp_max(_FARTHEST)
        below = wide.mean - wide.mean.amax(-1, keepdim=True)
        return information_projection(below.clamp_min(-_FARTHEST), gap)

    return Dirichlet(by_rows(log_concentration, gaussian)).to(gaussian.dtype)


def expected_log_sum_exp_gap(gaussian: LogitGaussian) -> Float[Tensor, " B"]:
    """J = E LSE(z) − LSE(μ) from the one-vs-rest moments of the class with the largest
    mean logit.

    log π_top = −softplus(−x_top), so E LSE(z) follows from the log-odds x_top of that
    class alone.

    Args:
        gaussian: The Gaussian over logits.
    """
    odds = log_odds(gaussian.mean, gaussian.covariance.modulo_shift())
    location, variance = odds.mean.gather(-1, odds.top), odds.variance.gather(-1, odds.top)
    # the gap and KL(Bern(m) ‖ Bern(σ(a))) are the same for (m, a) and (1 − m, −a): take
    # the side below one half
    toward = -location.abs()
    smaller = logistic_normal_mean(toward, variance).clamp_min(SMALLEST_PROBABILITY)
    gap = jensen_gap(torch.minimum(smaller, 1 - smaller), variance)
    divergence = smaller * (smaller.log() - logsigmoid(toward))
    divergence = divergence + (1 - smaller) * (torch.log1p(-smaller) - logsigmoid(-toward))
    own = torch.maximum(gap - divergence, _SMALLEST_SHARE_OF_GAP * gap)
    masked = gaussian.mean.scatter(-1, odds.top, -math.inf)
    odds_at_mean = gaussian.mean.gather(-1, odds.top) - masked.logsumexp(-1, keepdim=True)
    log_rest = logsigmoid(-odds_at_mean)  # log(1 − p_top)
    # log1p((1 − p)(exp(x − a) − 1)) = log(p + exp(x − a + log(1 − p)))
    shifted = torch.where(
        (odds_at_mean - location) < 1,
        torch.log1p(log_rest.exp() * torch.expm1((odds_at_mean - location).clamp_max(1))),
        torch.logaddexp(logsigmoid(odds_at_mean), odds_at_mean - location + log_rest),
    )
    return (own + shifted).clamp_min(SMALLEST_GAP).squeeze(-1)


def information_projection(
    mean: Float[Tensor, "B K"], jensen_gap: Float[Tensor, " B"]
) -> Float[Tensor, "B K"]:
    """log α of the Dirichlet closest to softmax(z), given μ and J = E LSE(z) − LSE(μ) >
    0.

    Exact for any law of z. Newton's method on log G(λ), written so that nothing of the
    size of one is subtracted.

    Args:
        mean: Means of the logits.
        jensen_gap: J, positive.
    """
    log_p, log_gap = mean.log_softmax(-1), jensen_gap.log().unsqueeze(-1)
    num_classes = mean.shape[-1]
    with torch.no_grad():
        gap = log_gap.exp()
        shift = (
            math.log(0.7 * (num_classes - 1)) - log_gap - gap * (num_classes / (num_classes - 1))
        )
        for _ in range(_NEWTON_STEPS):
            value, slope = _projection_gap(log_p, shift, _inverse_digamma(log_p + shift))
            step = (value.log() - log_gap) / slope
            # far below zero λ goes by factors, and by one of e³ at most
            turned = step / (1 + shift * shift).sqrt()
            far = torch.sinh(torch.asinh(shift) - turned.clamp(-3, 3))
            shift = torch.where(shift - step < -2, far, shift - step)
    # the last step of each, with gradients: Newton's method carries those of the
    # implicit function exactly
    value, slope = _projection_gap(log_p, shift, _inverse_digamma(log_p + shift))
    shift = shift - (value.log() - log_gap) / slope.detach()
    return _inverse_digamma(log_p + shift)


def _inverse_digamma(target: Tensor) -> Tensor:
    """log α with ψ(α) = target, by Newton steps in log α, where ψ = log α − δ(α) has
    the slope 1 − dδ/d log α.
    """
    with torch.no_grad():  # ψ(α) is about log(α − 1/2) above −2.2 and −1/α − γ below
        low = -torch.log(-(target.clamp_max(-2.22) + 0.5772156649))
        high = torch.logaddexp(target, torch.full_like(target, math.log(0.5)))
        log_alpha = torch.where(target > -2.22, high, low)
        for _ in range(_INVERSE_DIGAMMA_STEPS - 1):
            log_alpha = _digamma_step(log_alpha, target)
    return _digamma_step(log_alpha, target)


def _digamma_step(log_alpha: Tensor, target: Tensor) -> Tensor:
    alpha = log_alpha.exp()
    return log_alpha - (log_alpha - log_minus_digamma(alpha) - target) / (
        1 - log_minus_digamma_slope(alpha)
    )


def _projection_gap(log_p: Tensor, shift: Tensor, log_alpha: Tensor) -> tuple[Tensor, Tensor]:
    """G(λ) = log Σ p_k exp(δ(α_k)) − δ(α₀) and d log G/dλ, without subtracting ψ(α₀) and
    λ where both are large.
    """
    alpha = log_alpha.exp()
    log_total = log_alpha.logsumexp(-1, keepdim=True)
    total = log_total.exp()
    total_gap = log_minus_digamma(total)
    gaps = log_minus_digamma(alpha)
    # ψ(α₀) − ψ(α_top) + log p_top, of numbers of the size of the result if α_top is small
    top = log_p.argmax(-1, keepdim=True)
    rest = log_alpha.scatter(-1, top, -math.inf).logsumexp(-1, keepdim=True)
    from_top = torch.log1p((rest - log_alpha.gather(-1, top)).exp())
    from_top = from_top + gaps.gather(-1, top) - total_gap + log_p.gather(-1, top)
    p = log_p.exp()
    ratio = torch.exp((log_alpha - shift).clamp_max(60.0)) - p  # only used where α_top ≥ 1
    small = (p * torch.expm1(gaps.clamp_max(1.0)) + (gaps > 1) * (ratio - p * math.expm1(1.0))).sum(
        -1, keepdim=True
    )
    careful = torch.log1p(small) - total_gap
    value = torch.where(alpha.gather(-1, top) < 1, from_top, careful)
    # α ψ'(α) = 1 + ε with ε = −dδ/d log α; G' = ε₀ − (1 + ε₀) Σ (α − 1/ψ'(α))/α₀
    excess, total_excess = -log_minus_digamma_slope(alpha), -log_minus_digamma_slope(total)
    lost = (alpha / (1 + excess)).sum(-1, keepdim=True) / total
    value = value.clamp_min(_SMALLEST_VALUE)
    # d log G/dλ is between −1 and −1/|λ|, or −2/|λ|; beyond is rounding
    flattest = -0.5 / (1 + shift.abs())
    slope = (total_excess * lost - (1 - lost)) / value
    return value, torch.minimum(slope.clamp_min(-3.0), flattest)
