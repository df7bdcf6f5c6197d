"""The last-layer results behind Tables 1, 2 and 6: every experiment, posterior, method,
data set and metric.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy import stats
from torch import Tensor

from laplacebridge.laplace.head_search import find_head
from laplacebridge_reproduction import evaluate
from laplacebridge_reproduction.artifact import Result, Run
from laplacebridge_reproduction.data import DataMissingError, DataSet
from laplacebridge_reproduction.experiments import EXPERIMENTS, Experiment, Trained, generated
from laplacebridge_reproduction.stored import Cell, stored

NOT_AVAILABLE = "data not available here"
REFERENCES = ("MAP", "MC")  # what the other methods' detection is compared with
CONFIDENCE = 0.95


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
    network = find_head(trained.network, experiment.inside[:2].scaled)
    tests = {experiment.name: experiment.inside, **experiment.outside}
    # in float64: many probabilities are one in float32, and detection cannot order them
    head = copy.deepcopy(network.head).double()
    featured = {
        name: in_double(evaluate.with_features(network, data, progress=run.progress))
        for name, data in {"": experiment.training, **tests}.items()
        if data is not None
    }
    training = featured.pop("")
    labels = {name: data.labels for name, data in featured.items()}
    values: Result = {}
    variances: Result = {}
    for title, wanted in experiment.fits.items():
        posterior = evaluate.last_layer_posterior(
            head, training, wanted.structure, wanted.prior_precision, wanted.num_examples
        )
        predictions = {
            name: evaluate.predicted(
                evaluate.last_layer_gaussians(posterior, data.inputs), seed=trained.seed
            )
            for name, data in featured.items()
        }
        values[title] = values_by_test(predictions, labels)
        variances[title] = {
            name: evaluate.mean_variances(evaluate.last_layer_gaussians(posterior, data.inputs))
            for name, data in featured.items()
        }
    return {"values": values, "variances": variances}


def in_double(data: DataSet) -> DataSet:
    """Features in float64."""
    return replace(data, inputs=data.inputs.double())


def values_by_test(predictions: dict[str, dict[str, Tensor]], labels: dict[str, Tensor]) -> Result:
    """Metrics by test and method.

    Args:
        predictions: Probabilities by test and method; the first test is the data of the
            network.
        labels: Labels by test.
    """
    usual = next(iter(predictions))
    found: Result = {}
    for test, methods in predictions.items():
        inside = None if test == usual else predictions[usual]
        found[test] = {
            method: evaluate.judged(
                probabilities, labels[test], None if inside is None else inside[method]
            )
            for method, probabilities in methods.items()
        }
        if inside is not None:
            for other in (name for name in REFERENCES if name in methods):
                errors = evaluate.detection_errors(inside, methods, other)
                for method, error in errors.items():
                    found[test][method][f"auroc error against {other}"] = error
    return found


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


class Difference(NamedTuple):
    """A mean difference and its 95 % interval.

    Attributes:
        mean: The difference.
        low: Lower end.
        high: Upper end.
    """

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        """As a cell."""
        return f"{self.mean:+.4f} ({self.low:+.4f} to {self.high:+.4f})"


def paired(first: list[float], second: list[float], error: float | None = None) -> Difference:
    """How much larger the first is, network by network.

    Args:
        first: Values of one method, for each network.
        second: Values of another on the same networks.
        error: Standard error over examples, which is used where there is one network;
            else the interval is Student's, over networks.

    Example:
        >>> str(paired([0.9, 0.8, 0.7], [0.8, 0.7, 0.5]))
        '+0.1333 (-0.0101 to +0.2768)'
        >>> str(paired([0.9], [0.8], error=0.01))
        '+0.1000 (+0.0804 to +0.1196)'
    """
    differences = np.subtract(first, second)
    mean, number = float(differences.mean()), len(differences)
    tail = (1 + CONFIDENCE) / 2
    if number > 1:
        half = stats.t.ppf(tail, number - 1) * differences.std(ddof=1) / number**0.5
    else:
        half = np.inf if error is None else stats.norm.ppf(tail) * error
    return Difference(mean, mean - float(half), mean + float(half))


def detection_gain(methods: Result, method: str, other: str) -> Difference:
    """How much higher the AUROC of one method is than that of another.

    Args:
        methods: Values by method, of one test.
        method: As ``race``.
        other: As ``MC``. Where there is one network it must be one of `REFERENCES`.
    """
    errors = methods[method].get(f"auroc error against {other}")
    return paired(
        methods[method]["auroc"],
        methods[other]["auroc"],
        error=errors[0] if errors and len(errors) == 1 else None,
    )


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
