"""What a bridge is: a function from Gaussians over logits to Dirichlets, which may carry a cheaper way to its mean."""

from collections.abc import Callable
from typing import TypeVar

from jaxtyping import Float
from torch import Tensor

from laplacebridge.dirichlet import Dirichlet
from laplacebridge.gaussian import LogitGaussian

Bridge = Callable[[LogitGaussian], Dirichlet]
Mean = Callable[[LogitGaussian], Float[Tensor, "B K"]]
AnyBridge = TypeVar("AnyBridge", bound=Callable[..., Dirichlet])


def with_mean(mean: Callable[..., Tensor]) -> Callable[[AnyBridge], AnyBridge]:
    """Lets a bridge carry a function that gives its mean alone, without the cost of the precision.

    Args:
        mean: From the same Gaussians to the mean of the bridge's Dirichlets.
    """

    def carry(bridge: AnyBridge) -> AnyBridge:
        bridge.mean = mean  # type: ignore[attr-defined]
        return bridge

    return carry


def mean_of(bridge: Bridge) -> Mean:
    """The function that gives a bridge's mean: the one that it carries, or the mean of what it returns.

    Args:
        bridge: Any bridge.

    Example:
        >>> from laplacebridge.bridges import race_bridge, race_mean
        >>> mean_of(race_bridge) is race_mean
        True
    """
    carried: Mean | None = getattr(bridge, "mean", None)
    return carried if carried is not None else lambda gaussian: bridge(gaussian).mean
