"""Bridges: functions from a `LogitGaussian` to a `Dirichlet`, one file each. `BRIDGES` has all of them by name."""

from laplacebridge.bridges.bridge import Bridge as Bridge
from laplacebridge.bridges.bridge import mean_of as mean_of
from laplacebridge.bridges.information import delta_bridge as delta_bridge
from laplacebridge.bridges.information import kl_bridge as kl_bridge
from laplacebridge.bridges.one_vs_rest import one_vs_rest_bridge as one_vs_rest_bridge
from laplacebridge.bridges.one_vs_rest import one_vs_rest_mean as one_vs_rest_mean
from laplacebridge.bridges.paper import Marginals as Marginals
from laplacebridge.bridges.paper import ZeroSum as ZeroSum
from laplacebridge.bridges.paper import as_given as as_given
from laplacebridge.bridges.paper import center as center
from laplacebridge.bridges.paper import condition as condition
from laplacebridge.bridges.paper import dirichlet_to_gaussian as dirichlet_to_gaussian
from laplacebridge.bridges.paper import laplace_bridge as laplace_bridge
from laplacebridge.bridges.paper import laplace_bridge_norm as laplace_bridge_norm
from laplacebridge.bridges.paper import laplace_bridge_raw as laplace_bridge_raw
from laplacebridge.bridges.paper import pull_back as pull_back
from laplacebridge.bridges.race import race_bridge as race_bridge
from laplacebridge.bridges.race import race_mean as race_mean

# The default first. These names stand in files, in options of the command line, in reports and in benchmarks.
BRIDGES: dict[str, Bridge] = {
    "race": race_bridge,
    "one-vs-rest": one_vs_rest_bridge,
    "kl": kl_bridge,
    "delta": delta_bridge,
    "laplace": laplace_bridge,
    "laplace-norm": laplace_bridge_norm,
    "laplace-raw": laplace_bridge_raw,
}


def name_of(bridge: Bridge) -> str | None:
    """The name of a bridge in `BRIDGES`; None if it is not one of the library's.

    Args:
        bridge: Any bridge.

    Example:
        >>> name_of(race_bridge)
        'race'
    """
    return next((name for name, known in BRIDGES.items() if known is bridge), None)
