"""Functions that torch has only in a form that loses digits where bridges need them.

Entropies and divergences of Dirichlets are small numbers. Written with log-gamma and
digamma they are differences of numbers of size α log α, and for α = 1e18 nothing of
them is left. Written with the functions here, all of the size of the result, they are
right for every concentration.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from laplacebridge._checks import is_half

# Digamma is moved up by this many recurrence steps, beyond which seven terms of its
# asymptotic series leave 1e-11.
_STEPS = 6
_LOG_MINUS_DIGAMMA_SERIES = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760)
_STIRLING_SERIES = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)
_STIRLING_FROM = 10.0
# Beyond these x·(log x − ψ(x)) is 1/2 or 1 to the last digit, while x or 1/x may leave
# the range of float32.
_LOG_RANGE = 80.0
# Below this x·(log x − ψ(x)) is 1 to the last digit of float64, and 1/x², which its
# gradient needs, still a float32.
_LOG_SMALLEST = -42.0


def saturated(values: Float[Tensor, "*shape"], dtype: torch.dtype) -> Float[Tensor, "*shape"]:
    """Numbers in another type, whose largest stands for those that it cannot hold.

    float16 ends at 65,504, a variance of log-odds that cannot be told from a larger
    one.

    Args:
        values: Not negative.
        dtype: The type.
    """
    if torch.finfo(dtype).max < torch.finfo(values.dtype).max:
        values = values.clamp_max(torch.finfo(dtype).max)
    return values.to(dtype)


def softmax(logits: Float[Tensor, "*shape K"]) -> Float[Tensor, "*shape K"]:
    """Softmax over the last dimension whose rows sum to one within 1e-6 for any number
    of classes.

    torch adds up the terms one after another; at K = 100 000 in float32 its rows miss
    one by up to 1e-4. Half precision is computed in float32.
    """
    wide = logits.float() if is_half(logits.dtype) else logits
    probabilities = wide.softmax(-1)
    return (probabilities / probabilities.sum(-1, keepdim=True)).to(logits.dtype)


def sum_of_others(values: Float[Tensor, "B K"]) -> Float[Tensor, "B K"]:
    """Σ_{l≠k} x_l of non-negative x, with all its digits also where one entry has
    nearly everything.
    """
    largest, total = values.amax(-1, keepdim=True), values.sum(-1, keepdim=True)
    below = largest - values
    smaller = (values * below.sign()).sum(
        -1, keepdim=True
    )  # without the largest; if it is tied, without its equals
    return below.add_(torch.where(total > 1.5 * largest, total - largest, smaller))


def complement(probabilities: Float[Tensor, "B K"]) -> Float[Tensor, "B K"]:
    """1 − p as the sum of the others, so that it does not round to zero where p is
    nearly one.
    """
    return sum_of_others(probabilities)


def log_minus_digamma(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """δ(x) = log x − ψ(x) for x > 0: about 1/(2x) for large x and 1/x for small.

    The recurrence's terms are of the size of the result, so nothing cancels: relative
    error 1e-11 in float64 and a few roundings in float32.

    Example:
        >>> log_minus_digamma(torch.tensor([1.0, 1e12], dtype=torch.float64))
        tensor([5.7722e-01, 5.0000e-13], dtype=torch.float64)
    """
    # log(x/(x+n)) needs log1p for large x, where it cancels against the reciprocals;
    # for tiny x, where its argument would round to −1, it is lost beside 1/x and the
    # bound on x changes nothing.
    bounded = x.clamp_min(1e-6 if x.dtype == torch.float32 else 1e-12)
    gap = torch.log1p(-_STEPS / (bounded + _STEPS))
    for step in range(_STEPS):
        gap = gap + (x + step).reciprocal()
    inverse = (x + _STEPS).reciprocal()
    square = inverse * inverse
    series = torch.full_like(square, _LOG_MINUS_DIGAMMA_SERIES[-1])
    for coefficient in reversed(_LOG_MINUS_DIGAMMA_SERIES[:-1]):
        series = series * square + coefficient
    return gap + inverse * 0.5 + square * series


def log_minus_digamma_slope(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """dδ/d log x = 1 − x ψ'(x), negative: about −1/(2x) for large x and −1/x for small."""
    inverse = (x + _STEPS).reciprocal()
    square = inverse * inverse
    series = torch.zeros_like(square)
    for order, coefficient in reversed(list(enumerate(_LOG_MINUS_DIGAMMA_SERIES))):
        series = (series - 2 * (order + 1) * coefficient) * square
    slope = (x * inverse) * (
        series - 0.5 * inverse
    )  # in this order, because x⁻² leaves float32 long before 1/x does
    for step in range(1, _STEPS):
        shifted = (x + step).reciprocal()
        slope = slope - (x * shifted) * shifted
    return _STEPS * inverse - x.reciprocal() + slope


def scaled_log_minus_digamma(log_x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """x δ(x) from log x: falls from 1 (x → 0) to 1/2 (x → ∞), also where x itself
    overflows.
    """
    x = log_x.clamp(_LOG_SMALLEST, _LOG_RANGE).exp()
    return x * log_minus_digamma(x)


def stirling_remainder(log_x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """log Γ(x) − (x − 1/2) log x + x − log √(2π) from log x: what Stirling's formula
    leaves out.
    """
    x = log_x.clamp(-_LOG_RANGE, _LOG_RANGE).exp()
    small = x.clamp_max(_STIRLING_FROM)
    exact = small.lgamma() - (small - 0.5) * small.log() + small - 0.5 * math.log(2 * math.pi)
    inverse = x.clamp_min(_STIRLING_FROM).reciprocal()
    square = inverse * inverse
    series = torch.full_like(square, _STIRLING_SERIES[-1])
    for coefficient in reversed(_STIRLING_SERIES[:-1]):
        series = series * square + coefficient
    below = log_x - log_x.clamp_min(
        -_LOG_RANGE
    )  # the remainder is −(log x)/2 − log √(2π) down there
    return torch.where(x < _STIRLING_FROM, exact, inverse * series) - 0.5 * below


def digamma_next_minus_log(log_x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """η(x) = ψ(x + 1) − log x from log x: about 1/(2x) for large x and −log x − γ for
    small.
    """
    x = log_x.clamp(-_LOG_RANGE, _LOG_RANGE).exp()
    large = (1 - scaled_log_minus_digamma(log_x)) * torch.exp(-log_x.clamp_min(0))
    return torch.where(log_x > 0, large, torch.digamma(1 + x.clamp_max(1)) - log_x)


# Two normal distribution functions whose mixture is nearly the logistic one (after
# Monahan and Stefanski).
_MIXTURE = ((0.56442, 0.76862**-2), (0.43558, 0.43525**-2))


def logistic_normal_mean(
    mean: Float[Tensor, "*shape"], variance: Float[Tensor, "*shape"]
) -> Float[Tensor, "*shape"]:
    """E σ(x) for x ~ N(mean, variance) with mean ≤ 0; for a positive mean it is 1 − E
    σ(−x).

    E σ(x) = exp(a + B/2) E σ(−x') with x' ~ N(a + B, B) moves the mean to where nothing
    underflows; the two forms meet at a = −B/2. Then σ is a mixture of normal
    distribution functions, plus what that misses at zero variance, which fades like (1
    + B)⁻². Absolute error at most 1.2e-4, relative 2e-2 where E σ > 1e-12; exact for B
    → 0.
    """
    mixed, log_factor = _logistic_normal_parts(mean, variance)
    return mixed * log_factor.exp()


def log_logistic_normal_mean_and_slope(
    mean: Float[Tensor, "*shape"], variance: Float[Tensor, "*shape"]
) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"]]:
    """log E σ(x) for x ~ N(mean, variance) with mean ≤ 0, also where E σ itself is too
    small for its type, and its slope in the mean.

    The slope leaves out what the mixture misses, and is right to a percent.
    """
    mixed, log_factor = _logistic_normal_parts(mean, variance)
    middle = torch.add(mean, variance, alpha=0.5)
    # not by the middle, in which a large variance leaves nothing of the mean
    moved = torch.maximum(-(mean + variance), mean)
    density = torch.zeros_like(moved)
    for share, scale in _MIXTURE:
        inverse = (variance + scale).rsqrt()
        density = density + (-0.5 * (moved * inverse).square()).exp() * (inverse * share)
    slope = density * (2 * math.pi) ** -0.5 / mixed
    return mixed.log() + log_factor, torch.where(middle < 0, 1 - slope, slope)


def _logistic_normal_parts(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """A number of ordinary size, and the logarithm of its factor."""
    if torch.is_grad_enabled() and (mean.requires_grad or variance.requires_grad):
        tilted = (
            mean + 0.5 * variance < 0
        )  # `maximum` would halve and mix the gradients where both sides are equal
        moved = torch.where(tilted, -(mean + variance), mean)
        log_factor = torch.where(tilted, mean + 0.5 * variance, 0.0)
    else:
        moved, log_factor = (
            torch.maximum(-(mean + variance), mean),
            torch.add(mean, variance, alpha=0.5).clamp_max(0),
        )
    (first, first_scale), (second, second_scale) = _MIXTURE
    # erfc, because torch's normal distribution function has no lower tail
    argument = moved * -math.sqrt(0.5)
    mixed = torch.erfc(argument * (variance + first_scale).rsqrt()) * (0.5 * first)
    mixed = torch.add(
        mixed, torch.erfc(argument * (variance + second_scale).rsqrt()), alpha=0.5 * second
    )
    missing = torch.sub(
        moved.sigmoid(), torch.erfc(argument * first_scale**-0.5), alpha=0.5 * first
    )
    missing = torch.sub(missing, torch.erfc(argument * second_scale**-0.5), alpha=0.5 * second)
    return torch.addcdiv(mixed, missing, (variance + 1).square()), log_factor


def nested(x: Float[Tensor, "*shape"], ratios: Sequence[float]) -> Float[Tensor, "*shape"]:
    """1 + r₁x(1 + r₂x(1 + …)): a polynomial from the ratios of its coefficients, in one
    pass for each.
    """
    one = x.new_ones(())
    value = torch.add(one, x, alpha=ratios[-1])
    in_place = None if value.requires_grad else value
    for ratio in reversed(ratios[:-1]):
        value = torch.addcmul(one, x, value, value=ratio, out=in_place)
    return value


# Minimax fits, made by scripts/fit_special.py.
_MILLS_CONSTANT = -0.00375709833544
_MILLS_NUMERATOR = (-15.1969375987, 23.3128209869, 0.936915383256, 0.345852143316, 0.0710900466998)
_MILLS_DENOMINATOR = (2.05702519278, 0.660358954512, 0.318109771808, 0.0709442977426)


def inverse_mills_ratio(chance: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """φ(q)/p at the normal quantile q of a chance p from 1e-30 to 1/2, with a relative
    error of 2e-9.

    A fit in √(−2 log p), because torch's quantile takes longer than everything else
    that the precision needs.
    """
    radius = (chance.log() * -2).sqrt()
    return nested(radius, _MILLS_NUMERATOR) / nested(radius, _MILLS_DENOMINATOR) * _MILLS_CONSTANT
