"""The paper's bridge: Gaussian over logits → zero sum → (variance correction) →
Dirichlet, and back.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from laplacebridge._blocks import by_rows
from laplacebridge.covariance import CenteredDiagonal
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.gaussian import LogitGaussian

# What a variance of zero is read as in Eq. 7: the smallest normal float32, in every
# type.
SMALLEST_VARIANCE = torch.finfo(torch.float32).tiny
# exp(−μ) is not computed further below its largest value than this: it is lost beside
# the other term of Eq. 7, and denormal numbers are slow.
LOG_SMALLEST = -80.0


class Marginals(NamedTuple):
    """Mean and variance of every logit: all that Eq. 7 reads of a Gaussian.

    Attributes:
        mean: Means μ, shape (B, K).
        variance: Variances Σ_kk, shape (B, K).

    Example:
        >>> Marginals(torch.tensor([[1.0, -1.0]]), torch.tensor([[0.5, 0.5]])).variance
        tensor([[0.5000, 0.5000]])
    """

    mean: Float[Tensor, "B K"]
    variance: Float[Tensor, "B K"]


ZeroSum = Callable[[LogitGaussian], Marginals]


def as_given(gaussian: LogitGaussian) -> Marginals:
    """No zero-sum step: mean and variances as they are, for `laplace_bridge(gaussian,
    zero_sum=as_given)`.

    Args:
        gaussian: The Gaussian over logits.

    Example:
        >>> from laplacebridge import Diagonal
        >>> as_given(
        ...     LogitGaussian(torch.tensor([[3.0, 1.0]]), Diagonal(torch.tensor([[1.0, 1.0]])))
        ... )
        Marginals(mean=tensor([[3., 1.]]), variance=tensor([[1., 1.]]))
    """
    return Marginals(gaussian.mean, gaussian.covariance.diagonal())


def condition(gaussian: LogitGaussian) -> Marginals:
    r"""Conditions the logits on having sum zero (Eq. 11), as the paper does.

    .. math:: \mu' = \mu - \Sigma 1 \frac{1^T\mu}{1^T\Sigma 1}, \quad
              \Sigma' = \Sigma - \frac{\Sigma 1 1^T \Sigma}{1^T\Sigma 1}

    Equal to `center` exactly when Σ1 ∝ 1, as for Kronecker and full posteriors of a
    softmax head. Otherwise the answer changes when a constant is added to all logits,
    which softmax ignores: `center` does not.

    Note:
        Where 1ᵀΣ1 = 0 the logits have zero-sum noise already and only the mean is
        centred.

    Args:
        gaussian: The Gaussian over logits.

    Returns:
        Mean and variances after conditioning.

    Example:
        >>> from laplacebridge import Diagonal
        >>> condition(
        ...     LogitGaussian(torch.tensor([[3.0, 1.0]]), Diagonal(torch.tensor([[1.0, 1.0]])))
        ... )
        Marginals(mean=tensor([[ 1., -1.]]), variance=tensor([[0.5000, 0.5000]]))
    """
    total = gaussian.mean.sum(-1, keepdim=True)
    follows, variance = gaussian.covariance.given_zero_sum()
    return Marginals(torch.addcmul(gaussian.mean, follows, total, value=-1), variance)


def center(gaussian: LogitGaussian) -> Marginals:
    r"""Subtracts from the logits their mean over classes: the sound form of the step to
    zero sum.

    .. math:: \mu' = C\mu, \quad \Sigma' = C\Sigma C, \quad C = I - 11^T/K

    The law of softmax is the same before and after, for every Gaussian. The published
    step is `condition`.

    Args:
        gaussian: The Gaussian over logits.

    Returns:
        Mean and variances after centring.

    Example:
        >>> from laplacebridge import Diagonal
        >>> center(LogitGaussian(torch.tensor([[3.0, 1.0]]), Diagonal(torch.tensor([[1.0, 3.0]]))))
        Marginals(mean=tensor([[ 1., -1.]]), variance=tensor([[1., 1.]]))
    """
    mean = gaussian.mean - gaussian.mean.mean(-1, keepdim=True)
    return Marginals(mean, gaussian.covariance.centered_diagonal())


def pull_back(marginals: Marginals, *, average: bool = True, only_large: bool = False) -> Marginals:
    r"""Rescales a zero-sum Gaussian into the region where the bridge is accurate (Eqs.
    12–14).

    .. math:: c = \bar v / \sqrt{K/2}, \quad \mu' = \mu / \sqrt{c}, \quad v' = v / c

    The result depends on the mean only relative to the standard deviation: scaling (μ,
    Σ) to (√s μ, sΣ) changes nothing. Where all variances are zero there is nothing to
    rescale.

    Note:
        The paper calls v̄ the mean variance but prints the sum. The authors' code uses
        the mean, which is the default; ``average=False`` gives the printed formula. It
        also rescales always, although the text speaks of large variances;
        ``only_large=True`` does so only where c > 1.

    Args:
        marginals: Zero-sum Gaussian, mean and variance of shape (B, K).
        average: Take the mean of the variances instead of their sum.
        only_large: Leave rows with c < 1 as they are.

    Returns:
        The rescaled mean and variance.

    Example:
        >>> pull_back(Marginals(torch.tensor([[1.0, -1.0]]), torch.tensor([[4.0, 4.0]])))
        Marginals(mean=tensor([[ 0.5000, -0.5000]]), variance=tensor([[1., 1.]]))
    """
    mean, variance = marginals
    summed = variance.sum(-1, keepdim=True)
    scale = summed / math.sqrt(mean.shape[-1] / 2) / (mean.shape[-1] if average else 1)
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    if only_large:
        scale = scale.clamp_min(1)
    return Marginals(mean / scale.sqrt(), variance / scale)


def _log_concentration(marginals: Marginals) -> Float[Tensor, "B K"]:
    """Eq. 7 in log space; see `laplace_bridge_raw` for the limit at zero variance."""
    mean, variance = marginals
    num_classes = mean.shape[-1]
    smallest = mean.amin(-1, keepdim=True)
    below = smallest - mean
    inverse = below.clamp_min(LOG_SMALLEST).exp()  # exp(−μ), the largest one
    uncertain = (variance.amax(-1, keepdim=True) > 0).to(mean.dtype)
    factor, constant = (
        (1 - 2 / num_classes) * uncertain,
        inverse.sum(-1, keepdim=True) / num_classes**2,
    )
    positive = variance.clamp_min(SMALLEST_VARIANCE)
    if torch.is_grad_enabled() and (mean.requires_grad or variance.requires_grad):
        # two logarithms: the gradient of the quotient overflows in float32
        return (inverse * factor + constant).log() - positive.log() - below
    return inverse.mul_(factor).add_(constant).div_(positive).log_().sub_(below)


def laplace_bridge_raw(gaussian: LogitGaussian) -> Dirichlet:
    r"""Gaussian → Dirichlet by Eq. 7 alone, without a zero-sum step.

    .. math:: \alpha_k = \frac{1}{\Sigma_{kk}} \Bigl(1 - \frac 2K + \frac{e^{\mu_k}}{K^2} \sum_l e^{-\mu_l}\Bigr)

    Evaluated in log space, so no logit overflows. The exact inverse of
    `dirichlet_to_gaussian`. The mean may be far from E softmax unless the variances
    have the shape that a Dirichlet would have given them: for K ≥ 3 it does not even
    become softmax(μ) as Σ → 0.

    Note:
        A variance of zero makes Eq. 7 infinite. Its limit is taken: such a class has
            the concentration of a variance
        of 1e-38, practically all the mass if others vary. If no class of a row varies,
        the answer is known, and it is softmax(μ) with that concentration.

    Args:
        gaussian: The Gaussian over logits.

    Example:
        >>> from laplacebridge import Diagonal
        >>> gaussian = LogitGaussian(torch.zeros(1, 3), Diagonal(torch.full((1, 3), 0.1)))
        >>> laplace_bridge_raw(gaussian).concentration
        tensor([[6.6667, 6.6667, 6.6667]])
    """
    return _bridged(gaussian, as_given)


def laplace_bridge(gaussian: LogitGaussian, *, zero_sum: ZeroSum = condition) -> Dirichlet:
    """The Laplace Bridge (LB) of the paper: zero sum by Eq. 11, then Eq. 7 as in
    `laplace_bridge_raw`.

    Args:
        gaussian: The Gaussian over logits.
        zero_sum: `condition`, as published, or `center`, which does not change when a
            constant is added to all logits.

    Example:
        >>> from laplacebridge import Diagonal
        >>> gaussian = LogitGaussian(torch.tensor([[2.0, 0.0]]), Diagonal(torch.ones(1, 2)))
        >>> laplace_bridge(gaussian).mean
        tensor([[0.8808, 0.1192]])
    """
    return _bridged(gaussian, zero_sum)


def laplace_bridge_norm(
    gaussian: LogitGaussian,
    *,
    zero_sum: ZeroSum = condition,
    average: bool = True,
    only_large: bool = False,
) -> Dirichlet:
    """LB-norm of the paper: zero sum by Eq. 11, variance correction by Eqs. 12–14, then
    Eq. 7.

    Equal to `laplace_bridge` where the mean variance at zero sum is √(K/2). Where
    variances are smaller it makes predictions surer than the network: as Σ → 0 the mean
    becomes one-hot. ``only_large=True`` leaves such rows alone.

    Args:
        gaussian: The Gaussian over logits.
        zero_sum: `condition`, as published, or `center`.
        average: See `pull_back`.
        only_large: See `pull_back`.

    Example:
        >>> from laplacebridge import Diagonal
        >>> gaussian = LogitGaussian(torch.tensor([[2.0, 0.0]]), Diagonal(torch.full((1, 2), 8.0)))
        >>> laplace_bridge_norm(gaussian).mean
        tensor([[0.7311, 0.2689]])
    """
    rescale = partial(pull_back, average=average, only_large=only_large)
    return _bridged(gaussian, lambda rows: rescale(zero_sum(rows)))


def _bridged(gaussian: LogitGaussian, marginals: ZeroSum) -> Dirichlet:
    log_concentration = by_rows(lambda rows: _log_concentration(marginals(rows)), gaussian)
    return Dirichlet(log_concentration).to(gaussian.dtype)


def dirichlet_to_gaussian(dirichlet: Dirichlet) -> LogitGaussian:
    r"""Dirichlet → Gaussian: the Laplace approximation in the softmax basis (Eqs. 5–6).

    .. math:: \mu_k = \log\alpha_k - \frac 1K \sum_l \log\alpha_l, \quad
              \Sigma = C\,\mathrm{diag}(1/\alpha)\,C

    `laplace_bridge_raw` brings the Dirichlet back exactly. The other round trip, from a
    Gaussian, is exact only for Gaussians that came from a Dirichlet: 2K numbers become
    K.

    Args:
        dirichlet: The Dirichlets.

    Example:
        >>> gaussian = dirichlet_to_gaussian(
        ...     Dirichlet.from_concentration(torch.tensor([[4.0, 1.0]]))
        ... )
        >>> gaussian.mean, laplace_bridge_raw(gaussian).concentration
        (tensor([[ 0.6931, -0.6931]]), tensor([[4., 1.]]))
    """
    log = dirichlet.log_concentration
    return LogitGaussian(log - log.mean(-1, keepdim=True), CenteredDiagonal(torch.exp(-log)))
