"""The logistic-normal mean to all its digits, and the bridge that has it.

E σ(x) for x ~ N(m, v) has no closed form, but trapezoidal rules on two forms of it
converge faster than any power: for small v over x itself, where σ is smooth beside the
normal density; for large v over the logistic density, P(logistic < x), where the normal
distribution function is. All in logarithms, so that tails have their digits too.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from laplacebridge import _blocks
from laplacebridge.bridges.bridge import carries
from laplacebridge.bridges.precision import log_precision
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.errors import ShapeError
from laplacebridge.gaussian import LogitGaussian
from laplacebridge.prediction import Prediction

# Up to this variance the nodes are those of x: poles of σ lie π/√v from the real line.
_SMALL_VARIANCE = 4.0
_NORMAL_STEP, _NORMAL_END = 0.25, 11.0
# Beyond, those of the logistic density; its product with a deep normal tail falls as
# exp(−|u|/2).
_LOGISTIC_STEP, _LOGISTIC_END = 0.5, 90.0


def logistic_normal_mean(
    mean: Float[Tensor, "*shape"], variance: Float[Tensor, "*shape"]
) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"]]:
    """log E σ(x) and log E σ(−x) for x ~ N(mean, variance), in float64, within 1e-12 of
    each.

    Args:
        mean: m.
        variance: v ≥ 0, of the same shape.

    Example:
        >>> yes, no = logistic_normal_mean(torch.tensor([2.0, -50.0]), torch.tensor([4.0, 4.0]))
        >>> yes.exp()
        tensor([7.7520e-01, 1.4252e-21], dtype=torch.float64)
    """
    flat, spread = mean.double().flatten(), variance.double().flatten()
    nodes = max(_NORMAL_END / _NORMAL_STEP, _LOGISTIC_END / _LOGISTIC_STEP)
    size = max(1, int(_blocks.NODES_AT_ONCE / (2 * nodes)))
    if torch.compiler.is_compiling():
        parts = [_log_smaller(-flat.abs(), spread)]
    else:
        parts = [
            _log_smaller(-part.abs(), of_part)
            for part, of_part in zip(torch.split(flat, size), torch.split(spread, size))
        ]
    smaller = torch.cat(parts or [flat]).view(mean.shape)
    larger = torch.log1p(-smaller.exp())
    is_positive = mean > 0
    return torch.where(is_positive, larger, smaller), torch.where(is_positive, smaller, larger)


def _log_smaller(mean: Tensor, variance: Tensor) -> Tensor:
    """log E σ(x) for mean ≤ 0."""
    narrow = variance <= _SMALL_VARIANCE
    if torch.compiler.is_compiling():  # how many there are of each is not known there
        return torch.where(
            narrow,
            _over_normal(mean, variance.clamp_max(_SMALL_VARIANCE)),
            _over_logistic(mean, variance.clamp_min(_SMALL_VARIANCE)),
        )
    answer = torch.empty_like(mean)
    answer[narrow] = _over_normal(mean[narrow], variance[narrow])
    answer[~narrow] = _over_logistic(mean[~narrow], variance[~narrow])
    return answer


def _over_normal(mean: Tensor, variance: Tensor) -> Tensor:
    nodes = torch.arange(-_NORMAL_END, _NORMAL_END + _NORMAL_STEP / 2, _NORMAL_STEP).to(mean)
    points = mean.unsqueeze(-1) + variance.sqrt().unsqueeze(-1) * nodes
    terms = logsigmoid(points) - nodes.square() / 2
    return terms.logsumexp(-1) + math.log(_NORMAL_STEP / math.sqrt(2 * math.pi))


def _over_logistic(mean: Tensor, variance: Tensor) -> Tensor:
    nodes = torch.arange(-_LOGISTIC_END, _LOGISTIC_END + _LOGISTIC_STEP / 2, _LOGISTIC_STEP)
    nodes = nodes.to(mean)
    # e^{m + v/2} E σ(x'), x' ~ N(−(m + v), v): far in the tail it is that which has digits
    tilted = mean + variance / 2 < 0
    center = torch.where(tilted, -(mean + variance), mean)
    points = (center.unsqueeze(-1) - nodes) / variance.sqrt().unsqueeze(-1)
    terms = torch.special.log_ndtr(points) - nodes - 2 * softplus(-nodes)
    found = terms.logsumexp(-1) + math.log(_LOGISTIC_STEP)
    return found + torch.where(tilted, mean + variance / 2, 0.0)


def _log_odds(gaussian: LogitGaussian) -> tuple[Tensor, Tensor]:
    """Mean and variance of the second logit minus the first.

    Raises:
        ShapeError: If there are not two logits.
    """
    if gaussian.mean.shape[-1] != 2:
        raise ShapeError(
            "`logistic_bridge` is for two logits, of no and yes; got"
            f" {gaussian.mean.shape[-1]}. `lb.race_bridge` takes any number."
        )
    mean = gaussian.mean.double()
    covariance = gaussian.covariance
    difference = gaussian.mean.new_tensor([-1.0, 1.0]).expand_as(gaussian.mean)
    variance = (difference * covariance.matvec(difference)).sum(-1).double()
    return mean[:, 1] - mean[:, 0], variance.clamp_min(0)


def _log_means(gaussian: LogitGaussian) -> tuple[Float[Tensor, "B 2"], Float[Tensor, " B"]]:
    mean, variance = _log_odds(gaussian)
    yes, no = logistic_normal_mean(mean, variance)
    return torch.stack([no, yes], -1), variance


def _means(gaussian: LogitGaussian) -> Float[Tensor, "B 2"]:
    return _log_means(gaussian)[0].exp().to(gaussian.dtype)


def _prediction(gaussian: LogitGaussian) -> Prediction:
    log_mean, variance = _log_means(gaussian)
    both = variance.unsqueeze(-1).expand(-1, 2)
    dirichlet = Dirichlet(log_mean + log_precision(log_mean.exp(), both)).to(gaussian.dtype)
    return Prediction(dirichlet, both.to(gaussian.dtype).contiguous())


@carries(mean=_means, prediction=_prediction)
def logistic_bridge(gaussian: LogitGaussian) -> Dirichlet:
    """From Gaussians over two logits, of no and yes, to Betas with the exact mean E
    σ(z), and the precision that fits the logit-normal best.

    Args:
        gaussian: Of two logits.

    Example:
        >>> from laplacebridge import Diagonal
        >>> gaussian = LogitGaussian(torch.tensor([[-1.0, 1.0]]), Diagonal(torch.full((1, 2), 2.0)))
        >>> logistic_bridge(gaussian).mean
        tensor([[0.2248, 0.7752]])
    """
    return _prediction(gaussian).dirichlet
