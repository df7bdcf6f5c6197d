"""The methods that a report compares: from Gaussians over logits to a prediction."""

from collections.abc import Callable
from functools import partial

from torch import Generator

from laplacebridge import links
from laplacebridge._predictions import AnyPrediction
from laplacebridge.bridges import kl_bridge, laplace_bridge, laplace_bridge_norm, one_vs_rest_bridge, race_bridge
from laplacebridge.gaussian import LogitGaussian
from laplacebridge.temperature import TemperatureScaling

Method = Callable[[LogitGaussian], AnyPrediction]

NETWORK, TEMPERATURE, DEFAULT = "MAP", "temperature", "race"
SAMPLE_SIZES = (10, 100, 1000)


def methods(temperature: TemperatureScaling | None, *, seed: int) -> dict[str, Method]:
    """What stands in a report's table, by name.

    Args:
        temperature: Temperature scaling fitted on validation data, if there is any.
        seed: Of the sampled methods, which begin anew on every call.
    """
    scaled: dict[str, Method] = {}
    if temperature is not None:
        scaled[TEMPERATURE] = lambda gaussian: temperature(gaussian.mean)
    return {
        NETWORK: links.map_estimate,
        **scaled,
        "probit": partial(links.probit, centered=True),
        **{f"MC-{count}": partial(_sampled, count, seed) for count in SAMPLE_SIZES},
        "LB": laplace_bridge,
        "LB-norm": laplace_bridge_norm,
        "KL": kl_bridge,
        "one-vs-rest": one_vs_rest_bridge,
        DEFAULT: race_bridge,
    }


def _sampled(num_samples: int, seed: int, gaussian: LogitGaussian) -> AnyPrediction:
    return links.monte_carlo(gaussian, num_samples=num_samples, generator=Generator().manual_seed(seed))
