"""Links: from a Gaussian over logits straight to class probabilities. The baselines
that bridges are compared with.
"""

import math

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from laplacebridge import _blocks, _checks, _special
from laplacebridge.errors import InputError
from laplacebridge.gaussian import LogitGaussian


def map_estimate(gaussian: LogitGaussian) -> Float[Tensor, "B K"]:
    """softmax(μ): what the network says without any uncertainty.

    Args:
        gaussian: The Gaussian over logits.

    Example:
        >>> from laplacebridge import Diagonal
        >>> map_estimate(LogitGaussian(torch.zeros(1, 2), Diagonal(torch.ones(1, 2))))
        tensor([[0.5000, 0.5000]])
    """
    return _blocks.by_rows(lambda rows: _special.softmax(rows.mean), gaussian).to(gaussian.dtype)


def monte_carlo(
    gaussian: LogitGaussian, *, num_samples: int = 100, generator: Generator | None = None
) -> Float[Tensor, "B K"]:
    """Average of softmax over sampled logits: unbiased, with an error that falls like
    1/√S.

    Memory does not grow with the number of samples.

    Args:
        gaussian: The Gaussian over logits.
        num_samples: How many samples, S.
        generator: Source of randomness.

    Raises:
        InputError: If no samples are asked for.

    Example:
        >>> from laplacebridge import Diagonal
        >>> gaussian = LogitGaussian(torch.tensor([[2.0, 0.0]]), Diagonal(torch.ones(1, 2)))
        >>> monte_carlo(gaussian, num_samples=1000, generator=torch.Generator().manual_seed(0)).sum(
        ...     -1
        ... )
        tensor([1.])
    """
    if num_samples < 1:
        raise InputError(
            f"`monte_carlo` needs num_samples ≥ 1; got {num_samples}. 100 is the paper's choice."
        )
    working = gaussian.to(torch.float32) if _checks.is_half(gaussian.dtype) else gaussian
    covariance = working.covariance.factored()
    block = max(1, _blocks.ELEMENTS_AT_ONCE // max(1, working.mean.numel()))
    total = torch.zeros_like(working.mean)
    for start in range(0, num_samples, block):
        draws = covariance.sample(min(block, num_samples - start), generator)
        total = total + _special.softmax(working.mean + draws).sum(0)
    return (total / num_samples).to(gaussian.dtype)


def probit(gaussian: LogitGaussian, *, centered: bool = False) -> Float[Tensor, "B K"]:
    r"""The multi-class probit approximation, "extended MacKay".

    .. math:: \mathrm{softmax}\bigl(\mu_k / \sqrt{1 + \pi\Sigma_{kk}/8}\bigr)

    As published it uses the variances as they are, common to all logits or not, and
    changes when a constant is added to all logits. For Kronecker posteriors, where the
    common variance dominates, that makes every row nearly uniform; ``centered=True``
    repairs both.

    Args:
        gaussian: The Gaussian over logits.
        centered: Subtract from the logits their mean over classes first.

    Example:
        >>> from laplacebridge import Diagonal
        >>> probit(LogitGaussian(torch.tensor([[2.0, 0.0]]), Diagonal(torch.ones(1, 2))))
        tensor([[0.8448, 0.1552]])
    """

    def tempered(rows: LogitGaussian) -> Tensor:
        used = rows.centered() if centered else rows
        return _special.softmax(used.mean / torch.sqrt(1 + math.pi / 8 * used.variance))

    return _blocks.by_rows(tempered, gaussian).to(gaussian.dtype)


def second_order(gaussian: LogitGaussian) -> Float[Tensor, "B K"]:
    r"""The delta method: softmax expanded to second order around the mean.

    .. math:: p_k \bigl(1 + \tfrac12 (u_k - \textstyle\sum_l p_l u_l)\bigr), \quad
              p = \mathrm{softmax}(\mu), \quad u_k = \mathrm{Var}(z_k - p^T z)

    Exact to first order in Σ. For large variances the expansion leaves the simplex; by
    definition negative values are then cut and the row is normalised.

    Args:
        gaussian: The Gaussian over logits.

    Example:
        >>> from laplacebridge import Diagonal
        >>> second_order(
        ...     LogitGaussian(torch.tensor([[2.0, 0.0]]), Diagonal(torch.full((1, 2), 0.1)))
        ... )
        tensor([[0.8728, 0.1272]])
    """
    return _blocks.by_rows(_second_order, gaussian).to(gaussian.dtype)


def _second_order(gaussian: LogitGaussian) -> Tensor:
    covariance = gaussian.covariance.centered()
    probabilities = _special.softmax(gaussian.mean)
    product = covariance.matvec(probabilities)
    quadratic = (probabilities * product).sum(-1, keepdim=True)
    spread = (covariance.diagonal() - 2 * product + quadratic).clamp_min(
        0
    )  # a variance; less is rounding
    # Spreads are counted from that of the most uncertain possible class. So its factor
    # is at least 1 whatever the rounding of the others, and a row cannot be cut to
    # nothing.
    possible = torch.where(probabilities > 0, spread, torch.zeros_like(spread))
    relative = spread - possible.amax(-1, keepdim=True)
    average = (probabilities * relative).sum(-1, keepdim=True)
    expanded = probabilities * (1 + 0.5 * (relative - average)).clamp_min(0)
    return expanded / expanded.sum(-1, keepdim=True)
