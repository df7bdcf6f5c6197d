"""The last-layer results behind Tables 1, 2 and 6: every experiment, posterior, method, data set and metric."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from laplacebridge.errors import DataMissingError
from laplacebridge.laplace.features import SplitNetwork
from laplacebridge.paper import evaluate
from laplacebridge.paper.artifact import Result, Run
from laplacebridge.paper.experiments import EXPERIMENTS, Experiment, Trained, generated
from laplacebridge.paper.stored import Cell, stored

NOT_AVAILABLE = "data not available here"


def results(run: Run) -> dict[str, Result]:
    """Results of each experiment; the tables of one run share them.

    Args:
        run: How.
    """
    found, used = _results(run.profile, run.seed, None if run.data is None else str(run.data), run.progress)
    run.used.update(used)
    return found


@cache
def _results(profile: str, seed: int, data: str | None, progress: bool) -> tuple[dict[str, Result], dict[str, str]]:
    run = Run(profile, seed, progress, data)
    experiments = {"half-moons": generated} if profile == "smoke" else EXPERIMENTS
    return {name: _result_or_missing(build, run) for name, build in experiments.items()}, run.used


def _result_or_missing(build: Callable[[Run], Experiment], run: Run) -> Result:
    try:
        experiment = build(run)
    except DataMissingError:
        return {"missing": True}
    networks = [_judge(experiment, trained, run) for trained in experiment.networks]
    return {
        "note": experiment.note,
        "seeds": [trained.seed for trained in experiment.networks],
        "left_out": {str(seed): accuracy for seed, accuracy in experiment.left_out.items()},
        "missing_tests": [name for name, data in experiment.outside.items() if data is None],
        **_gathered(networks),
    }


def _judge(experiment: Experiment, trained: Trained, run: Run) -> Result:
    """Values by structure, test, method and metric; variances of the logits by structure, test and kind."""
    network = SplitNetwork.find(trained.network, experiment.inside[:2].scaled)
    tests = {experiment.name: experiment.inside, **experiment.outside}
    featured = {
        name: evaluate.with_features(network, data, progress=run.progress)
        for name, data in {"": experiment.training, **tests}.items()
        if data is not None
    }
    training = featured.pop("")
    values: Result = {}
    variances: Result = {}
    for structure, prior_precision in zip(evaluate.STRUCTURES, experiment.prior_precisions):
        posterior = evaluate.last_layer_posterior(network.head, training, structure, prior_precision)
        predictions = {
            name: evaluate.predicted(evaluate.last_layer_gaussians(posterior, data.inputs), seed=trained.seed)
            for name, data in featured.items()
        }
        inside = predictions[experiment.name]
        values[structure] = {
            name: {
                method: evaluate.judged(
                    probabilities, featured[name].labels, None if name == experiment.name else inside[method]
                )
                for method, probabilities in predictions[name].items()
            }
            for name in featured
        }
        variances[structure] = {
            name: evaluate.mean_variances(evaluate.last_layer_gaussians(posterior, data.inputs))
            for name, data in featured.items()
        }
    return {"values": values, "variances": variances}


def _gathered(networks: list[Any]) -> Any:  # noqa: ANN401 - nested dicts, numbers at last
    """The same nesting, with a list over networks in place of each number."""
    if isinstance(networks[0], dict):
        return {key: _gathered([network[key] for network in networks]) for key in networks[0]}
    return networks


# reading


def shown(values: list[float]) -> str:
    """Mean and standard deviation over networks, as a cell.

    Args:
        values: One for each network.

    Example:
        >>> shown([0.5]), shown([0.5, 0.7])
        ('0.500', '0.600 ± 0.141')
    """
    mean = f"{np.mean(values):.3f}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values, ddof=1):.3f}"


def shown_stored(cell: Cell) -> str:
    """What the authors stored, as a cell.

    Args:
        cell: Where it stands.

    Example:
        >>> shown_stored(Cell("MNIST", "diagonal", "LB", "KMNIST", "auroc"))
        '*0.949*'
    """
    value = stored(cell)
    return "-" if value is None else f"*{value:.3f}*"
