"""Variational last layers: a Gaussian over the weights of the head gives one over
logits in closed form (Eq. 8).
"""

from torch import Tensor
from torch.nn import functional

from laplacebridge._checks import require_alike, require_tensor
from laplacebridge.covariance import Diagonal
from laplacebridge.errors import ShapeError
from laplacebridge.gaussian import LogitGaussian


def mean_field_gaussian(
    features: Tensor,
    mean: Tensor,
    variance: Tensor,
    *,
    bias_mean: Tensor | None = None,
    bias_variance: Tensor | None = None,
) -> LogitGaussian:
    r"""The exact Gaussian over logits of a linear head with independent Gaussian
    weights.

    .. math:: \mu = M\varphi + m_b, \quad \Sigma = \mathrm{diag}(V\varphi^2 + v_b)

    That is what mean-field variational inference learns (Bayes by backprop), and any
    other method that gives each weight a mean and a variance. Nothing is sampled.

    Args:
        features: Inputs φ of the head, shape (B, D).
        mean: Means M of its weights, shape (K, D).
        variance: Their variances V, shape (K, D): not standard deviations, nor the
            numbers before a softplus.
        bias_mean: Means of the biases, shape (K,); None is no bias.
        bias_variance: Their variances, shape (K,); None is a bias that is known.

    Raises:
        ShapeError: If shapes do not belong together.

    Example:
        >>> import torch
        >>> mean_field_gaussian(
        ...     torch.ones(1, 2), torch.ones(3, 2), torch.full((3, 2), 0.5)
        ... ).variance
        tensor([[1., 1., 1.]])
    """
    call = "mean_field_gaussian(features, mean, variance)"
    require_tensor(
        call, features, "B D", hint="Features of tokens or pixels are rows: `.flatten(0, -2)`."
    )
    require_tensor(call, mean, "K D")
    require_tensor(call, variance, "K D")
    if mean.shape != variance.shape or features.shape[1] != mean.shape[1]:
        raise ShapeError(
            f"`{call}` needs features (B, D), and means and variances (K, D) of the head's weights;"
            f" got {tuple(features.shape)}, {tuple(mean.shape)} and {tuple(variance.shape)}."
            " Weights of `nn.Linear` have that shape; features are its input."
        )
    require_alike(call, features, mean, ("features", "means"))
    require_alike(call, mean, variance, ("means", "variances"))
    for name, bias in (("bias_mean", bias_mean), ("bias_variance", bias_variance)):
        if bias is not None and bias.shape != mean.shape[:1]:
            raise ShapeError(
                f"`{call}` needs `{name}` of shape ({len(mean)},), one for each class; got"
                f" {tuple(bias.shape)}. The bias of `nn.Linear` has that shape."
            )
    return LogitGaussian(
        functional.linear(features, mean, bias_mean),
        Diagonal(functional.linear(features.square(), variance, bias_variance)),
    )
