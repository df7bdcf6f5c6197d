r"""Slow references, exact to rounding, for the mean of softmax under independent
logits.

Softmax is a race: class k wins with probability softmax(z)_k if every logit gets
standard Gumbel noise. `bridges/race.py` runs it with a fitted table and a dozen nodes;
the direct integrals here judge both.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from numpy.polynomial import chebyshev
from torch import Tensor

from laplacebridge import _blocks

# Integrands are cut where they have fallen to exp(-42) = 6e-19 of their peak; 140 nodes
# then reach rounding.
_DROP, _EXPECTATION_NODES = 42.0, 140
# Levels computed at once by `gumbel_level`, and pairs of class and node held by
# `exact_independent_mean`. The race is run from total phi = 40 (weight before that:
# 2e-16) to exp(-15) (weight after: 5e-14).
_FIRST_LEVEL, _LAST_LEVEL = -math.log(40.0), 15.0
# Chebyshev nodes in distance and deviation, and the deviation in the middle:
# interpolation error below 1e-8.
_DISTANCE_NODES, _DEVIATION_NODES, _MIDDLE_DEVIATION = 96, 150, 6.0


@torch.no_grad()
def gumbel_level(distance: Tensor, variance: Tensor) -> Tensor:
    r"""Level y = -log(-log F) of a standard Gumbel variable plus a normal one, by
    direct quadrature.

    .. math:: F(u; v) = E \exp(-e^{\sqrt v \xi - u}), \quad \xi \sim N(0, 1)

    Increasing in the distance, and equal to it for zero variance. The error is of the
    order of rounding: left of the median F is integrated, right of it 1 - F, both in
    log space, so neither tail loses digits.

    Args:
        distance: Distance u of the finishing time from the mean of the logit, any
            shape.
        variance: Variance v of the logit, not negative, broadcast against the distance.

    Returns:
        The levels in float64, of the broadcast shape.

    Example:
        >>> gumbel_level(torch.tensor([-1.0, 2.0]), torch.tensor(0.0))
        tensor([-1.,  2.], dtype=torch.float64)
    """
    variance = variance.double() + torch.zeros_like(distance)
    distance = distance.double() + torch.zeros_like(variance)
    chunks = torch.split(
        torch.stack([distance.flatten(), variance.flatten()]), _blocks.LEVELS_AT_ONCE, 1
    )
    return torch.cat([_level_of_chunk(*chunk) for chunk in chunks]).view(distance.shape)


@torch.no_grad()
def exact_independent_mean(mean: Tensor, variance: Tensor, *, num_nodes: int = 300) -> Tensor:
    r"""Mean of softmax for independent normal logits, for any mixture of means and
    variances.

    .. math:: E \pi_k = \int \varphi_k \, d e^{-\Phi}, \quad \Phi = \sum_l \varphi_l,
        \quad \varphi_l(x) = -\log F(x - \mu_l; v_l)

    Equals softmax(mean) for zero variance and the uniform distribution for exchangeable
    logits. The finishing times x are graded exponentially from the left end, where
    anything sharp is: further right, classes that still matter are about as wide as
    their distance from it, so the trapezoidal rule converges exponentially.

    Args:
        mean: Means of the logits, shape (B, K).
        variance: Variances of the logits, not negative, shape (B, K).
        num_nodes: Nodes of the integral over the finishing time.

    Returns:
        Mean probabilities in float64, shape (B, K).

    Example:
        >>> exact_independent_mean(torch.zeros(1, 2), torch.tensor([[4.0, 4.0]]))
        tensor([[0.5000, 0.5000]], dtype=torch.float64)
    """
    rows = max(1, _blocks.PAIRS_AT_ONCE // (num_nodes * mean.shape[-1]))
    chunks = torch.split(torch.stack([mean, variance])[..., None].double().cpu(), rows, 1)
    return torch.cat([_mean_of_rows(chunk[0], chunk[1], num_nodes) for chunk in chunks]).to(
        mean.device
    )


def _mean_of_rows(mean: Tensor, variance: Tensor, num_nodes: int) -> Tensor:
    curve, mean = (
        _level_curve(variance),
        mean - mean.amax(-2, keepdim=True),
    )  # both of shape (B, K, 1)
    # Left of `first` some phi exceeds 40; right of `last` their total is below
    # exp(-15).
    first = (mean + _interval(variance)[0]).amax(-2, keepdim=True)
    height = _LAST_LEVEL + math.log(mean.shape[-2])
    last = (mean + torch.sqrt(height**2 + 2 * height * variance)).amax(-2, keepdim=True)

    def time_at(level: float) -> Tensor:
        return _bisect(
            lambda time: torch.logsumexp(-curve(time - mean)[0], -2, True) > -level, first, last
        )

    start, stop = time_at(_FIRST_LEVEL), time_at(_LAST_LEVEL)
    grade = torch.log1p(stop - start) * torch.linspace(0, 1, num_nodes, dtype=torch.float64)
    level, slope = curve(start + torch.expm1(grade) - mean)
    phi = torch.exp(-level)
    # The weight of a node is d exp(-Phi) / d grade; the step of the grade is constant.
    weight = (phi * slope).sum(-2, keepdim=True) * torch.exp(grade - phi.sum(-2, keepdim=True))
    return torch.nn.functional.normalize((phi * weight).sum(-1), p=1)


def _interval(variance: Tensor) -> tuple[Tensor, Tensor]:
    # Left of it phi is above 40. Right of it phi is below exp(-45), nothing beside a
    # total of exp(-15).
    return 0.577 - torch.sqrt(20 + 117 * variance), torch.sqrt(45.0**2 + 90 * variance)


@cache
def _level_table() -> np.ndarray:
    """Chebyshev coefficients of `gumbel_level` on `_interval`, shape (_DISTANCE_NODES,
    _DEVIATION_NODES).
    """
    across, along = chebyshev.chebpts1(_DEVIATION_NODES), chebyshev.chebpts1(_DISTANCE_NODES)
    variance = torch.from_numpy(_MIDDLE_DEVIATION * (1 + across) / (1 - across)).square()
    start, stop = _interval(variance)
    level = gumbel_level(
        start + (stop - start) * torch.from_numpy(1 + along)[:, None] / 2, variance
    )
    columns = np.linalg.solve(chebyshev.chebvander(along, _DISTANCE_NODES - 1), level.numpy())
    return np.linalg.solve(chebyshev.chebvander(across, _DEVIATION_NODES - 1), columns.T).T


def _level_curve(variance: Tensor) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Levels and slopes as functions of the distance, continued by tangents on the
    right of `_interval`.
    """
    place = 1 - 2 * _MIDDLE_DEVIATION / (variance.sqrt().numpy() + _MIDDLE_DEVIATION)
    coefficients = np.moveaxis(
        chebyshev.chebvander(place, _DEVIATION_NODES - 1) @ _level_table().T, -1, 0
    )
    derivative = chebyshev.chebder(coefficients)
    start, stop = _interval(variance)

    def curve(distance: Tensor) -> tuple[Tensor, Tensor]:
        inside, half_width = distance.minimum(stop), (stop - start) / 2
        place = ((inside - start) / half_width - 1).numpy()
        slope = torch.from_numpy(chebyshev.chebval(place, derivative, tensor=False)) / half_width
        level = torch.from_numpy(chebyshev.chebval(place, coefficients, tensor=False))
        return level + slope * (distance - inside), slope

    return curve


def _level_of_chunk(distance: Tensor, variance: Tensor) -> Tensor:
    # Below a deviation of 1e-8 the level is the distance up to rounding; the bound
    # keeps divisions finite.
    deviation, level = variance.sqrt().clamp(min=1e-8), torch.empty_like(distance)
    # The median of F is 0.37 for zero variance and 0.5 for a large one; around it both
    # sides are accurate.
    left = distance < 0.4
    level[left] = -torch.log(-_log_expectation(lambda x: -x.exp(), distance[left], deviation[left]))
    log_after = _log_expectation(_log_after, distance[~left], deviation[~left])
    # phi = -log(1 - after) is nearly `after` itself; their ratio stays accurate where
    # `after` underflows.
    after = log_after.exp().clamp(min=1e-300)
    level[~left] = -log_after - torch.log(-torch.log1p(-after) / after)
    return torch.where(variance > 0, level, distance)


def _log_after(log_rate: Tensor) -> Tensor:
    rate = torch.exp(log_rate.clamp(min=-30))
    return torch.where(log_rate < -30, log_rate, torch.log(-torch.expm1(-rate)))


def _log_expectation(
    log_factor: Callable[[Tensor], Tensor], distance: Tensor, deviation: Tensor
) -> Tensor:
    """Log of E exp(log_factor(deviation * normal - distance)), shape (N,), for a
    concave log_factor.
    """

    def log_integrand(normal: Tensor) -> Tensor:
        return log_factor(deviation * normal - distance) - normal.square() / 2

    # The peak lies between 0 and the edge of the factor, where log_rate = 0, but for a
    # margin.
    edge, step = distance / deviation, 1e-5 / (1 + deviation)
    low, high = (
        edge.clamp(max=0) - deviation.clamp(max=1),
        (edge.clamp(min=0) + 1).minimum(deviation),
    )
    peak = _bisect(lambda x: log_integrand(x + step) > log_integrand(x - step), low, high)
    # Concavity: the integrand falls at least as fast as the normal density, so sqrt(2
    # drop) is far enough.
    cut, far = log_integrand(peak) - _DROP, math.sqrt(2 * _DROP)
    first = _bisect(lambda x: log_integrand(x) < cut, peak - far, peak)
    last = _bisect(lambda x: log_integrand(x) > cut, peak, peak + far)
    # log_rate = sinh(place) resolves the unit-wide edge of the factor and a much wider
    # normal density alike.
    place = torch.asinh(log_rate := deviation * peak - distance)
    start, stop = (torch.asinh(deviation * end - distance) - place for end in (first, last))
    step = (stop - start) / (_EXPECTATION_NODES - 1)
    offset = start + step * torch.arange(_EXPECTATION_NODES, device=step.device)[:, None]
    shift = (
        2 * torch.cosh(place + offset / 2) * torch.sinh(offset / 2)
    )  # sinh(place + offset) - sinh(place)
    log_terms = log_factor(log_rate + shift) - (peak + shift / deviation).square() / 2
    weight = step * torch.cosh(place + offset) / (deviation * math.sqrt(2 * math.pi))
    return torch.logsumexp(log_terms + torch.log(weight), 0)


def _bisect(is_left: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> Tensor:
    for _ in range(60):
        left = is_left(middle := (low + high) / 2)
        low, high = torch.where(left, middle, low), torch.where(left, high, middle)
    return middle
