"""Table 3: a posterior over the last layer against one over all layers, on MNIST.

The paper says that all layers are slightly better. Here that is a difference for each
network, and an interval for its mean.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

from laplacebridge import Classifier, fit
from laplacebridge.gaussian import LogitGaussian
from laplacebridge_reproduction import evaluate
from laplacebridge_reproduction.artifact import Artifact, Result, Run
from laplacebridge_reproduction.data import DataMissingError
from laplacebridge_reproduction.data.dataset import DataSet, scaled
from laplacebridge_reproduction.experiments import (
    Experiment,
    Trained,
    generated,
    mnist,
)
from laplacebridge_reproduction.last_layer import (
    NOT_AVAILABLE,
    Difference,
    gathered,
    paired,
    result_of,
    shown,
    shown_stored,
    values_by_test,
)
from laplacebridge_reproduction.stored import Cell, stored
from laplacebridge_reproduction.table import Table
from laplacebridge_reproduction.table1_ood import CLOSE, METRICS, PAPER_METHODS
from laplacebridge_reproduction.table1_ood import METHODS as OF_LAST_LAYER

LAYERS = ("last layer", "all layers")
METHODS = tuple(name for name in OF_LAST_LAYER if name != "MAP")  # it has no posterior


def compute(run: Run) -> Result:
    """Values of both posteriors, by layers, structure, test, method and metric."""
    name = "half-moons" if run.profile == "smoke" else "MNIST"
    last = result_of(run, name)
    if last.get("missing"):
        return {"train": name, "missing": True}
    try:
        experiment = generated(run) if run.profile == "smoke" else mnist(run)
    except DataMissingError:
        return {"train": name, "missing": True}
    bar = tqdm(experiment.networks, desc="table 3, networks", disable=not run.progress)
    everything = gathered([_judge(experiment, trained, run) for trained in bar])
    return {
        "train": name,
        "seeds": last["seeds"],
        "missing_tests": last["missing_tests"],
        "values": {"last layer": last["values"], "all layers": everything},
    }


def _judge(experiment: Experiment, trained: Trained, run: Run) -> Result:
    tests = {experiment.name: experiment.inside, **experiment.outside}
    known = {name: data for name, data in tests.items() if data is not None}
    found: Result = {}
    for structure, wanted in experiment.fits.items():
        training = TensorDataset(experiment.training.scaled, experiment.training.labels)
        classifier = fit(
            trained.network,
            DataLoader(training, batch_size=evaluate.IMAGES_AT_ONCE),
            curvature=evaluate.STRUCTURES[structure],
            prior_precision=wanted.prior_precision,
            layers="*",
            progress=run.progress,
        )
        predictions = {
            name: evaluate.predicted(_gaussians(classifier, data, run), seed=trained.seed)
            for name, data in known.items()
        }
        found[structure] = values_by_test(
            predictions, {name: data.labels for name, data in known.items()}
        )
    return found


def _gaussians(classifier: Classifier, data: DataSet, run: Run) -> Iterator[LogitGaussian]:
    parts = torch.split(data.inputs, evaluate.IMAGES_AT_ONCE)
    for part in tqdm(
        parts, desc=f"predicting {data.name}", unit="batch", disable=not run.progress, leave=False
    ):
        yield classifier.logits(scaled(part))


def tables(result: Result) -> list[Table]:
    """AUROC and ECE of both posteriors beside the stored ones; then what all layers
    gain.
    """
    if result.get("missing"):
        return [Table([result["train"], ""], [["any", NOT_AVAILABLE]])]
    return [*(_table(result, metric, title) for metric, title in METRICS.items()), _gains(result)]


def _table(result: Result, metric: str, title: str) -> Table:
    rows, train = [], result["train"]
    for layers in LAYERS:
        for structure, tests in result["values"][layers].items():
            for test in [name for name in tests if name != train]:
                found = [shown(tests[test][name][metric]) for name in METHODS]
                rows.append([f"{train} → {test}, {structure}, {layers}", *found])
                cells = [
                    shown_stored(Cell(train, structure, name, test, metric, layers))
                    for name in METHODS
                ]
                if any(cell != "-" for cell in cells):
                    rows.append(["*stored by the authors*", *cells])
    rows += [
        [f"{train} → {test}", NOT_AVAILABLE, *[""] * (len(METHODS) - 1)]
        for test in result["missing_tests"]
    ]
    return Table([title, *METHODS], rows)


def gain(result: Result, structure: str, test: str, method: str) -> Difference:
    """Mean gain in AUROC of all layers over the last, over networks, and its 95 %
    interval by Student's t.

    Args:
        structure: ``diagonal`` or ``Kronecker``.
        test: Unusual data.
        method: As ``LB``.
    """
    last, every = (result["values"][layers][structure][test][method]["auroc"] for layers in LAYERS)
    return paired(every, last)


def _gains(result: Result) -> Table:
    rows = []
    for structure, tests in result["values"]["all layers"].items():
        for test in [name for name in tests if name != result["train"]]:
            found = [gain(result, structure, test, name) for name in METHODS]
            cells = [f"{mean:+.3f} ({low:+.3f} to {high:+.3f})" for mean, low, high in found]
            rows.append([f"{test}, {structure}", *cells])
    return Table(["gain in AUROC by all layers, with 95 % interval", *METHODS], rows)


def comparisons(result: Result) -> list[tuple[Cell, list[float], float]]:
    """Where the authors stored an AUROC for all layers: the place, our numbers, and
    theirs.
    """
    found = []
    for structure, tests in result["values"]["all layers"].items():
        for test, methods in tests.items():
            for name in PAPER_METHODS:
                cell = Cell(result["train"], structure, name, test, "auroc", "all layers")
                known = stored(cell)
                if known is not None:
                    found.append((cell, methods[name]["auroc"], known))
    return found


def finding(result: Result) -> str:
    """What agrees and what does not."""
    if result["train"] != "MNIST" or result.get("missing"):
        return (
            "Generated data, or data that is not available here: nothing to compare with the paper."
        )
    compared = comparisons(result)
    close = [1 for _, values, known in compared if abs(np.mean(values) - known) <= CLOSE]
    inside = [1 for _, values, known in compared if min(values) <= known <= max(values)]
    gains = [gain(result, cell.structure, cell.test, cell.method) for cell, _, _ in compared]
    better, worse = sum(low > 0 for _, low, _ in gains), sum(high < 0 for _, _, high in gains)
    far = [
        f" {_explained(result, cell)}"
        for cell, values, known in compared
        if abs(np.mean(values) - known) > CLOSE
    ]
    return (
        f"Networks of the seeds {', '.join(map(str, result['seeds']))}, as in Table 1. All layers:"
        f" {len(close)} of {len(compared)} mean AUROCs are within {CLOSE} of the stored ones, and"
        f" {len(inside)} stored ones lie within the range of our networks.{''.join(far)} The"
        f" paper's claim that all layers are slightly better holds, with an"
        f" interval above zero, in {better} of {len(gains)} combinations of posterior, data and"
        f" method; in {worse} they are worse, and in the others {len(result['seeds'])} networks do not"
        " tell."
    )


def _explained(result: Result, cell: Cell) -> str:
    """A cell that is not close, with the experiment of Table 1: centring in place of
    conditioning on a zero sum.
    """
    methods = result["values"]["all layers"][cell.structure][cell.test]
    found, centred = (
        float(np.mean(methods[name]["auroc"])) for name in (cell.method, "LB, centred")
    )
    return (
        f"{cell.method} on {cell.test}, {cell.structure}, is {found:.3f} ({shown_stored(cell)});"
        " with centring instead of conditioning, which depends on the arbitrary level of the"
        f" logits, LB is {centred:.3f}."
    )


TABLE_3 = Artifact("table3", "Last layer against all layers", compute, tables, finding)
