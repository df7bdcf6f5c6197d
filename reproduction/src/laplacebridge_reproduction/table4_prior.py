"""Table 4: prior networks, which are trained to answer with a Dirichlet, against
LB-norm on MNIST.

The authors train without unusual data and read probabilities as softmax of the logits.
The mean of the Dirichlet, the other divergence, and training with unusual data (half of
Fashion-MNIST's test set, which is then not judged by) stand beside.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from laplacebridge import metrics, scores
from laplacebridge.dirichlet import Dirichlet
from laplacebridge_reproduction import evaluate
from laplacebridge_reproduction.artifact import Artifact, Result, Run
from laplacebridge_reproduction.data.dataset import DataSet, scaled
from laplacebridge_reproduction.experiments import generated
from laplacebridge_reproduction.last_layer import (
    NOT_AVAILABLE,
    gathered,
    result_of,
    shown,
    shown_stored,
    values_by_test,
)
from laplacebridge_reproduction.models import initialised, mnist_cnn, moons_mlp
from laplacebridge_reproduction.models.prior_network import PriorNetwork
from laplacebridge_reproduction.prior_training import (
    forward_kl,
    reverse_kl,
    split_outside,
    train_prior_network,
)
from laplacebridge_reproduction.stored import Cell
from laplacebridge_reproduction.table import Table
from laplacebridge_reproduction.table2_probit import METRICS
from laplacebridge_reproduction.train import HALF_MOONS, MNIST

READINGS = ("softmax", "mean")
AUTHORS = "reverse KL"
LAPLACE = ("LB-norm", "race")  # from the same network trained as usual, with a diagonal posterior


@dataclass(frozen=True)
class _Variant:
    loss: Callable[[Tensor, Tensor], Tensor]
    unusual: bool
    num_networks: int


VARIANTS = {
    AUTHORS: _Variant(reverse_kl, False, 5),  # as many as the authors ran
    "forward KL": _Variant(forward_kl, False, 1),
    "reverse KL, unusual data": _Variant(reverse_kl, True, 1),
    "forward KL, unusual data": _Variant(forward_kl, True, 1),
}


def compute(run: Run) -> Result:
    """Values of every variant, by test, reading and metric; and of the bridges, from
    Table 1's run.
    """
    name = "half-moons" if run.profile == "smoke" else "MNIST"
    usual = result_of(run, name)
    if usual.get("missing"):
        return {"train": name, "missing": True}
    training, tests = _data(run)
    unusual = next((test for test in ("Fashion-MNIST", "far points") if test in tests), None)
    found = {}
    for title, variant in VARIANTS.items():
        if variant.unusual and unusual is None:
            continue
        judged, outside = dict(tests), None
        if variant.unusual and unusual is not None:
            split = split_outside(tests[unusual], num_training=len(tests[unusual]) // 2)
            judged[unusual], outside = split.evaluation, split.training
        seeds = range(run.seed, run.seed + (1 if run.profile == "smoke" else variant.num_networks))
        bar = tqdm(seeds, desc=f"table 4, {title}", disable=not run.progress)
        found[title] = gathered(
            [_judged(_trained(run, seed, training, variant, outside), name, judged) for seed in bar]
        )
    return {
        "train": name,
        "missing_tests": usual["missing_tests"],
        "variants": found,
        "laplace": usual["values"]["diagonal"],
    }


def _data(run: Run) -> tuple[DataSet, dict[str, DataSet]]:
    if run.profile == "smoke":
        experiment = generated(run)
        tests = {"half-moons": experiment.inside, **experiment.outside}
        return experiment.training, {name: data for name, data in tests.items() if data is not None}
    names = {
        "MNIST": "mnist",
        "Fashion-MNIST": "fashion-mnist",
        "notMNIST": "notmnist",
        "KMNIST": "kmnist",
    }
    known = result_of(run, "MNIST")["values"]["diagonal"]
    return run.find("mnist", "train"), {
        title: run.find(name) for title, name in names.items() if title in known
    }


def _trained(
    run: Run, seed: int, training: DataSet, variant: _Variant, outside: DataSet | None
) -> PriorNetwork:
    build, settings = (mnist_cnn, MNIST)
    if run.profile == "smoke":
        build, settings = moons_mlp, replace(HALF_MOONS, epochs=50, learning_rate=0.02)
    return train_prior_network(
        initialised(build, seed=seed),
        training,
        replace(settings, seed=seed),
        loss=variant.loss,
        outside=outside,
        progress=run.progress,
    )


def _judged(network: PriorNetwork, train: str, tests: dict[str, DataSet]) -> Result:
    dirichlets = {name: _predicted(network, data) for name, data in tests.items()}
    readings = {
        name: {"softmax": found.mode, "mean": found.mean} for name, found in dirichlets.items()
    }
    values = values_by_test(readings, {name: data.labels for name, data in tests.items()})
    usual = scores.mutual_information(dirichlets[train])
    for name, found in dirichlets.items():
        if name != train:  # what only a Dirichlet can tell; the same for both readings
            unusual = scores.mutual_information(found)
            values[name]["mean"]["auroc_information"] = metrics.auroc(usual, unusual)
    return values


def _predicted(network: PriorNetwork, data: DataSet) -> Dirichlet:
    with torch.no_grad():
        parts = [
            network(scaled(part)) for part in torch.split(data.inputs, evaluate.IMAGES_AT_ONCE)
        ]
    return Dirichlet(torch.cat([part.log_concentration for part in parts]))


def tables(result: Result) -> list[Table]:
    """All metrics beside the printed ones."""
    train = result["train"]
    if result.get("missing"):
        return [Table([train, ""], [["any", NOT_AVAILABLE]])]
    rows = []
    for test, bridges in result["laplace"].items():
        for title, values in result["variants"].items():
            for reading in READINGS:
                found = values[test][reading]
                cells = [
                    shown(found[metric]) if metric in found else "-"
                    for metric in (*METRICS, "auroc_information")
                ]
                rows.append([f"{train} → {test}", f"prior network, {title}, {reading}", *cells])
                if title == AUTHORS and reading == "softmax":
                    known = [
                        shown_stored(Cell(train, "", "prior network", test, metric, ""))
                        for metric in METRICS
                    ]
                    if any(cell != "-" for cell in known):
                        rows.append(["", "*prior network, printed*", *known, ""])
        for name in LAPLACE:
            cells = [
                shown(bridges[name][metric]) if metric in bridges[name] else "-"
                for metric in METRICS
            ]
            rows.append([f"{train} → {test}", f"{name}, diagonal", *cells, ""])
    return [Table(["data", "method", *METRICS.values(), "AUROC by mutual information"], rows)]


def finding(result: Result) -> str:
    """What agrees and what does not."""
    if result["train"] != "MNIST" or result.get("missing"):
        return (
            "Generated data, or data that is not available here: nothing to compare with the paper."
        )
    authors = result["variants"][AUTHORS]
    unusual = [test for test in authors if test != "MNIST"]
    told, better = [], 0
    for test in unusual:
        ours = float(np.mean(authors[test]["softmax"]["auroc"]))
        better += ours > np.mean(result["laplace"][test]["LB-norm"]["auroc"])
        told.append(
            f"{test} {ours:.3f}"
            f" ({shown_stored(Cell('MNIST', '', 'prior network', test, 'auroc', ''))})"
        )
    accuracy = float(np.mean(authors["MNIST"]["softmax"]["accuracy"]))
    return (
        f"In the authors' setting the prior networks reach {accuracy:.2%} (*98.5 %*) and AUROCs of"
        f" {', '.join(told)}, higher than LB-norm of a diagonal posterior on {better} of"
        f" {len(unusual)} data sets; the paper's are higher on 2 of 3. {_readings(result, unusual)}"
    )


def _readings(result: Result, unusual: list[str]) -> str:
    """What the mean of the Dirichlet detects, without and with unusual data in
    training.
    """
    known, found = result["variants"], {}
    for title in (AUTHORS, f"{AUTHORS}, unusual data"):
        if title in known:
            found[title] = ", ".join(
                f"{np.mean(known[title][test]['mean']['auroc']):.3f}" for test in unusual
            )
    if len(found) < 2:
        return ""
    without, trained = found.values()
    return (
        f"By the mean of the Dirichlet, the other reading, these networks detect less: {without}."
        " Trained with half of Fashion-MNIST's test set as unusual data they detect by the mean"
        f" {trained}, on clothes they have not seen and on kinds of data they were not trained on."
    )


TABLE_4 = Artifact("table4", "Prior networks against LB-norm", compute, tables, finding)
