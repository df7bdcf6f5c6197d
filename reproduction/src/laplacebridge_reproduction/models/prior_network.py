"""Prior networks: the logits of any network read as a Dirichlet, without a Gaussian or
a bridge (Malinin and Gales).
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from laplacebridge.dirichlet import Dirichlet


class PriorNetwork(nn.Module):
    """A network that answers with a Dirichlet of concentrations exp(logit) + 1.

    An example has a concentration of 1 for each class, and exp(logit) more for the
    evidence that the network sees. It is trained by
    `laplacebridge_reproduction.prior_training`.

    Note:
        Probabilities can be read off in two ways. `Dirichlet.mean` is the usual one,
        and what scores, sets and metrics take. The paper's authors predict
        softmax(logit) instead. That is `Dirichlet.mode`, the evidence without the ones:
        it has the same ranking, but is far surer where there is little evidence. With
        their target, evidence of 1 for the label, the mean at the target is 2/(K + 1).

        How much evidence there is tells unusual inputs only if the network was trained
            on some: without them nothing
        keeps the evidence small there, and on MNIST in the authors' setting it is
        larger for clothes than for digits.

    Args:
        network: Gives logits of shape (B, K).

    Example:
        >>> dirichlet = PriorNetwork(nn.Identity())(torch.tensor([[0.0, -30.0, -30.0]]))
        >>> dirichlet.mean, dirichlet.mode.round(decimals=4)
        (tensor([[0.5000, 0.2500, 0.2500]]), tensor([[1., 0., 0.]]))
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, *arguments: Any, **keywords: Any) -> Dirichlet:  # noqa: ANN401  (whatever the network takes)
        """The network's Dirichlets, one for each input."""
        return dirichlet_from_logits(self.network(*arguments, **keywords))


def dirichlet_from_logits(logits: Float[Tensor, "B K"]) -> Dirichlet:
    """Dirichlets of concentrations exp(logit) + 1, computed without the exponential, so
    that none is too large.

    Args:
        logits: Logarithms of the evidence for each class, shape (B, K).

    Example:
        >>> dirichlet_from_logits(torch.tensor([[0.0, 1000.0]])).log_concentration
        tensor([[6.9315e-01, 1.0000e+03]])
    """
    return Dirichlet(torch.logaddexp(logits, torch.zeros_like(logits)))
