"""What a bridge is: a function from Gaussians over logits to Dirichlets, which may
carry others that share its work.
"""

from collections.abc import Callable
from typing import TypeVar

from jaxtyping import Float
from torch import Tensor

from laplacebridge.dirichlet import Dirichlet
from laplacebridge.errors import InputTypeError
from laplacebridge.gaussian import LogitGaussian
from laplacebridge.prediction import Prediction

Bridge = Callable[[LogitGaussian], Dirichlet]
AnyBridge = TypeVar("AnyBridge", bound=Callable[..., Dirichlet])


def carries(
    *, mean: Callable[..., Tensor], prediction: Callable[..., Prediction]
) -> Callable[[AnyBridge], AnyBridge]:
    """Lets a bridge carry functions that share its work.

    Args:
        mean: From the same Gaussians to the mean of the Dirichlets, without the cost of
            the precision.
        prediction: To the Dirichlets with the variances of the log-odds, which the
            bridge computes anyway.
    """

    def carry(bridge: AnyBridge) -> AnyBridge:
        bridge.mean, bridge.prediction = mean, prediction  # type: ignore[attr-defined]
        return bridge

    return carry


def require_bridge(call: str, bridge: object) -> None:
    """Requires something that can be called with a Gaussian, before work is done for
    it.

    Args:
        call: The call being checked.
        bridge: What was given.

    Raises:
        InputTypeError: If it is something else, such as the name of a bridge.
    """
    if not callable(bridge):
        raise InputTypeError(
            f"`{call}` needs a function from a `LogitGaussian` to a `Dirichlet` as `bridge`; got"
            f" {bridge!r}. Give `lb.race_bridge`; by name, `lb.bridges.BRIDGES['race']`."
        )


def mean_of(bridge: Bridge) -> Callable[[LogitGaussian], Float[Tensor, "B K"]]:
    """The function that gives a bridge's mean: the one that it carries, or the mean of
    what it returns.

    Args:
        bridge: Any bridge.

    Example:
        >>> from laplacebridge.bridges import race_bridge, race_mean
        >>> mean_of(race_bridge) is race_mean
        True
    """
    carried: Callable[[LogitGaussian], Tensor] | None = getattr(bridge, "mean", None)
    return carried if carried is not None else lambda gaussian: bridge(gaussian).mean
