"""The last-layer results behind Tables 1, 2 and 6: every experiment, posterior, method,
data set and metric.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from torch import Tensor

from laplacebridge.laplace.head import HeadNetwork
from laplacebridge_reproduction import evaluate
from laplacebridge_reproduction.artifact import Result, Run
from laplacebridge_reproduction.data import DataMissingError
from laplacebridge_reproduction.experiments import EXPERIMENTS, Experiment, Trained, generated
from laplacebridge_reproduction.stored import Cell, stored

NOT_AVAILABLE = "data not available here"


def result_of(run: Run, name: str) -> Result:
    """Results of one experiment; the tables of one run share them.

    Args:
        name: One of `names`.
    """
    found, used = _result(
        name, run.profile, run.seed, None if run.data is None else str(run.data), run.progress
    )
    run.used.update(used)
    return found


def names(run: Run) -> list[str]:
    """The experiments of a run: the paper's, or one with generated data."""
    return ["half-moons"] if run.profile == "smoke" else list(EXPERIMENTS)


@cache
def _result(
    name: str, profile: str, seed: int, data: str | None, progress: bool
) -> tuple[Result, dict[str, str]]:
    run = Run(profile, seed, progress, data)
    return _result_or_missing(EXPERIMENTS.get(name, generated), run), run.used


def _result_or_missing(build: Callable[[Run], Experiment], run: Run) -> Result:
    try:
        experiment = build(run)
    except DataMissingError:
        return {"missing": True}
    networks = [judge(experiment, trained, run) for trained in experiment.networks]
    return {
        "note": experiment.note,
        "seeds": [trained.seed for trained in experiment.networks],
        "left_out": {str(seed): accuracy for seed, accuracy in experiment.left_out.items()},
        "missing_tests": [name for name, data in experiment.outside.items() if data is None],
        **gathered(networks),
    }


def judge(experiment: Experiment, trained: Trained, run: Run) -> Result:
    """Values by posterior, test, method and metric; variances of the logits by
    posterior, test and kind.

    Args:
        experiment: What to fit on and to judge by.
        trained: One of its networks.
    """
    network = HeadNetwork.find(trained.network, experiment.inside[:2].scaled)
    tests = {experiment.name: experiment.inside, **experiment.outside}
    featured = {
        name: evaluate.with_features(network, data, progress=run.progress)
        for name, data in {"": experiment.training, **tests}.items()
        if data is not None
    }
    training = featured.pop("")
    values: Result = {}
    variances: Result = {}
    precisions: Result = {}
    for title, wanted in experiment.fits.items():
        posterior = evaluate.last_layer_posterior(
            network.head, training, wanted.structure, wanted.prior_precision or 1.0
        )
        if wanted.confidence_kept is not None:
            usual = featured[experiment.name].inputs
            posterior = evaluate.keeping_confidence(posterior, usual, share=wanted.confidence_kept)
        precisions[title] = float(posterior.prior_precision)
        predictions = {
            name: evaluate.predicted(
                evaluate.last_layer_gaussians(posterior, data.inputs), seed=trained.seed
            )
            for name, data in featured.items()
        }
        values[title] = values_by_test(
            predictions, {name: data.labels for name, data in featured.items()}
        )
        variances[title] = {
            name: evaluate.mean_variances(evaluate.last_layer_gaussians(posterior, data.inputs))
            for name, data in featured.items()
        }
    return {"values": values, "variances": variances, "prior_precisions": precisions}


def values_by_test(predictions: dict[str, dict[str, Tensor]], labels: dict[str, Tensor]) -> Result:
    """Metrics by test and method.

    Args:
        predictions: Probabilities by test and method; the first test is the data of the
            network.
        labels: Labels by test.
    """
    usual = next(iter(predictions))
    return {
        test: {
            method: evaluate.judged(
                probabilities, labels[test], None if test == usual else predictions[usual][method]
            )
            for method, probabilities in methods.items()
        }
        for test, methods in predictions.items()
    }


def gathered(networks: list[Any]) -> Any:  # noqa: ANN401 - nested dicts, numbers at last
    """The same nesting, with a list over networks in place of each number.

    Example:
        >>> gathered([{"LB": {"auroc": 0.9}}, {"LB": {"auroc": 0.8}}])
        {'LB': {'auroc': [0.9, 0.8]}}
    """
    if isinstance(networks[0], dict):
        return {key: gathered([network[key] for network in networks]) for key in networks[0]}
    return networks


# reading


def shown(values: list[float]) -> str:
    """Mean and standard deviation over networks, as a cell.

    Example:
        >>> shown([0.5]), shown([0.5, 0.7])
        ('0.500', '0.600 ± 0.141')
    """
    mean = f"{np.mean(values):.3f}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values, ddof=1):.3f}"


def shown_stored(cell: Cell) -> str:
    """What the authors stored, as a cell.

    Example:
        >>> shown_stored(Cell("MNIST", "diagonal", "LB", "KMNIST", "auroc"))
        '*0.949*'
    """
    value = stored(cell)
    return "-" if value is None else f"*{value:.3f}*"
