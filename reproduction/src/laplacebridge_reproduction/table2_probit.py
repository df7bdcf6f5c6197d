"""Tables 2 and 6: the probit approximation against LB-norm, with diagonal and with
Kronecker posteriors.

The probit approximation as published takes the variances of the logits as they are.
With a Kronecker posterior most of that variance is common to all logits: softmax cannot
see it, but the approximation divides by it, and every prediction becomes nearly
uniform. Without the common part the collapse is gone, which shows the cause.
"""

from functools import partial

import numpy as np

from laplacebridge_reproduction.artifact import Artifact, Result, Run
from laplacebridge_reproduction.last_layer import (
    NOT_AVAILABLE,
    names,
    result_of,
    shown,
    shown_stored,
)
from laplacebridge_reproduction.stored import Cell, stored
from laplacebridge_reproduction.table import Table

TRAINED_ON = ("MNIST", "CIFAR-10", "half-moons")  # what the tables show, and the generated data
METHODS = ("probit", "probit, centred", "LB-norm", "race")
METRICS = {"mmc": "MMC", "auroc": "AUROC", "nll": "NLL", "ece": "ECE", "brier": "Brier"}


def compute(run: Run, structure: str) -> Result:
    """The experiments of the table.

    Args:
        structure: ``diagonal`` or ``Kronecker``.
    """
    return {name: _of(result_of(run, name), structure) for name in names(run) if name in TRAINED_ON}


def _of(experiment: Result, structure: str) -> Result:
    if experiment.get("missing"):
        return experiment
    kept = {name: {structure: experiment[name][structure]} for name in ("values", "variances")}
    return {**experiment, **kept}


def tables(result: Result, structure: str) -> list[Table]:
    """All metrics of each method beside the stored ones; then the variances that
    explain them.

    Args:
        structure: ``diagonal`` or ``Kronecker``.
    """
    rows, spread = [], []
    for train, experiment in result.items():
        if experiment.get("missing"):
            rows.append([train, NOT_AVAILABLE, *[""] * len(METRICS)])
            continue
        for test, methods in experiment["values"][structure].items():
            for name in METHODS:
                found = [
                    shown(methods[name][metric]) if metric in methods[name] else "-"
                    for metric in METRICS
                ]
                rows.append([f"{train} → {test}", name, *found])
                known = [
                    shown_stored(Cell(train, structure, name, test, metric)) for metric in METRICS
                ]
                if any(cell != "-" for cell in known):
                    rows.append(["", f"*{name}, stored*", *known])
            variances = experiment["variances"][structure][test]
            spread.append(
                [f"{train} → {test}", *(f"{np.mean(values):.3g}" for values in variances.values())]
            )
        rows += [
            [f"{train} → {test}", NOT_AVAILABLE, *[""] * len(METRICS)]
            for test in experiment["missing_tests"]
        ]
    headings = ["data", "method", *METRICS.values()]
    return [
        Table(headings, rows),
        Table(["mean variance of the logits", "as they are", "centred"], spread),
    ]


def finding(result: Result, structure: str) -> str:
    """What agrees and what does not.

    Args:
        structure: ``diagonal`` or ``Kronecker``.
    """
    if "MNIST" not in result or result["MNIST"].get("missing"):
        return (
            "Generated data, or data that is not available here: nothing to compare with the paper."
        )
    values = result["MNIST"]["values"][structure]
    variances = result["MNIST"]["variances"][structure]["MNIST"]
    mmc = {name: float(np.mean(values["MNIST"][name]["mmc"])) for name in METHODS}
    share = 1 - np.mean(variances["centred"]) / np.mean(variances["as they are"])
    compared = (
        f"LB-norm against the probit approximation on {len(values) - 1} unusual data sets beside"
        f" MNIST (in the authors' run in italics): {_counted(values, structure)}. On MNIST itself"
        f" its NLL is {_both(values, 'nll')}, its ECE {_both(values, 'ece')}."
    )
    if structure == "Kronecker":
        return (
            "The collapse is reproduced: on MNIST itself the probit approximation is"
            f" {mmc['probit']:.3f} sure on average. Its cause: {share:.2%} of the variance of the"
            f" logits is common to all; without that part it is {mmc['probit, centred']:.3f} sure,"
            f" LB-norm {mmc['LB-norm']:.3f}, the race {mmc['race']:.3f}. {compared} In the printed"
            " table the headings ECE and NLL are exchanged."
        )
    return (
        "As in the paper, the probit approximation is the surer one on MNIST itself"
        f" ({mmc['probit']:.3f} against {mmc['LB-norm']:.3f}). {compared} Here {share:.1%} of the"
        " variance is common to all logits, so centring changes little."
    )


def _counted(values: Result, structure: str) -> str:
    """On how many unusual data sets LB-norm is the better by each metric."""
    told = []
    for metric, title in METRICS.items():
        sign = 1 if metric == "auroc" else -1
        tests = [test for test in values if test != "MNIST"]
        ours = sum(
            sign * np.mean(values[test]["LB-norm"][metric])
            > sign * np.mean(values[test]["probit"][metric])
            for test in tests
        )
        pairs = [
            [stored(Cell("MNIST", structure, name, test, metric)) for name in ("LB-norm", "probit")]
            for test in tests
        ]
        theirs = sum(
            sign * norm > sign * probit
            for norm, probit in pairs
            if norm is not None and probit is not None
        )
        word = "higher" if sign > 0 else "lower"
        told.append(f"{title} {word} on {ours} (*{theirs}*)")
    return ", ".join(told)


def _both(values: Result, metric: str) -> str:
    norm, probit = (np.mean(values["MNIST"][name][metric]) for name in ("LB-norm", "probit"))
    return f"{norm:.3f} against {probit:.3f}"


def _artifact(name: str, structure: str) -> Artifact:
    parts = [partial(part, structure=structure) for part in (compute, tables, finding)]
    title = f"The probit approximation against LB-norm, {structure} posterior"
    return Artifact(name, title, *parts)  # type: ignore[arg-type]


TABLE_2 = _artifact("table2", "diagonal")
TABLE_6 = _artifact("table6", "Kronecker")
