"""Table 1: detecting unusual data with last-layer posteriors, by sampling, by the
paper's bridges and by ours.
"""

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

PAPER_METHODS = ("MC", "LB", "LB-norm")
METHODS = ("MC", "LB", "LB, centred", "LB-norm", "race", "one-vs-rest")
METRICS = {
    "auroc": "AUROC (higher is better)",
    "ece": "ECE against the labels of unusual data (lower is better)",
}
CLOSE = 0.02  # difference of AUROC that counts as agreement


def compute(run: Run) -> Result:
    """Every experiment."""
    return {name: result_of(run, name) for name in names(run)}


def tables(result: Result) -> list[Table]:
    """AUROC and ECE beside the stored ones, then the networks behind them."""
    return [
        *(_table(result, metric, title) for metric, title in METRICS.items()),
        networks_table(result),
    ]


def _table(result: Result, metric: str, title: str) -> Table:
    rows = []
    for train, experiment in result.items():
        if experiment.get("missing"):
            rows.append([f"{train} → any", NOT_AVAILABLE, *[""] * (len(METHODS) - 1)])
            continue
        for structure, tests in experiment["values"].items():
            for test in [name for name in tests if name != train]:
                found = tests[test]
                rows.append(
                    [
                        f"{train} → {test}, {structure}",
                        *(shown(found[name][metric]) for name in METHODS),
                    ]
                )
                plain = structure.split(",")[0]  # also of a posterior whose prior was matched
                cells = [shown_stored(Cell(train, plain, name, test, metric)) for name in METHODS]
                if any(cell != "-" for cell in cells):
                    rows.append(["*stored by the authors*", *cells])
        rows += [
            [f"{train} → {test}", NOT_AVAILABLE, *[""] * (len(METHODS) - 1)]
            for test in experiment["missing_tests"]
        ]
    return Table([title, *METHODS], rows)


def networks_table(result: Result) -> Table:
    """Accuracy of the networks, and of those that were left out."""
    rows = []
    for train, experiment in result.items():
        if experiment.get("missing"):
            continue
        accuracies = experiment["values"]["diagonal"][train]["MAP"]["accuracy"]
        used = ", ".join(
            f"{seed}: {value:.2%}" for seed, value in zip(experiment["seeds"], accuracies)
        )
        left = ", ".join(f"{seed}: {value:.2%}" for seed, value in experiment["left_out"].items())
        rows.append([train, used, left or "none", experiment["note"]])
    return Table(["networks", "accuracy by seed", "left out, below 98.7 %", "note"], rows)


def comparisons(
    result: Result, train: str = "MNIST", metric: str = "auroc"
) -> list[tuple[Cell, list[float], float]]:
    """Where the authors stored a number of one of the paper's methods: the place, our
    numbers, and theirs.
    """
    found = []
    for structure, tests in result[train]["values"].items():
        for test, methods in tests.items():
            for name in PAPER_METHODS:
                cell = Cell(train, structure, name, test, metric)
                known = stored(cell)
                if known is not None and metric in methods[name]:
                    found.append((cell, methods[name][metric], known))
    return found


def finding(result: Result) -> str:
    """What agrees and what does not."""
    if "MNIST" not in result or result["MNIST"].get("missing"):
        return (
            "Generated data, or data that is not available here: nothing to compare with the paper."
        )
    compared = comparisons(result)
    apart = [(cell, float(np.mean(values)) - known) for cell, values, known in compared]
    close = [difference for _, difference in apart if abs(difference) <= CLOSE]
    inside = [known for _, values, known in compared if min(values) <= known <= max(values)]
    agreement = (
        f"MNIST: {len(close)} of {len(compared)} mean AUROCs are within {CLOSE} of the stored ones;"
        f" {len(inside)} stored ones lie within the range of our networks."
    )
    far = [
        f"{cell.method} on {cell.test}, {cell.structure}: {difference:+.3f}."
        for cell, difference in apart
        if abs(difference) > CLOSE
    ]
    return " ".join([agreement, *far, _cause(result), _effect(result)])


def _cause(result: Result) -> str:
    """Why LB differs so much between networks: an experiment with the other reading of
    zero sum.
    """
    values = result["MNIST"]["values"]["diagonal"]
    widest = max(
        (test for test in values if test != "MNIST"),
        key=lambda test: np.ptp(values[test]["LB"]["auroc"]),
    )
    spread = {name: np.ptp(values[widest][name]["auroc"]) for name in ("LB", "LB, centred", "MAP")}
    return (
        f"LB with a diagonal posterior varies most between networks, on {widest} by"
        f" {spread['LB']:.3f}. The cause is that Eq. 11 conditions on a zero sum of the logits, so"
        " that their common level counts, which is arbitrary: with centring instead the same"
        f" networks vary by {spread['LB, centred']:.3f}, by themselves (MAP) by"
        f" {spread['MAP']:.3f}."
    )


def _effect(result: Result) -> str:
    """CIFAR: the order of the methods, under the authors' precisions and under those
    that have the same effect.
    """
    told = []
    for train, test in (("CIFAR-10", "CIFAR-100"), ("CIFAR-100", "CIFAR-10")):
        if result[train].get("missing") or test in result[train]["missing_tests"]:
            continue
        for structure in ("diagonal", "Kronecker"):
            values = result[train]["values"].get(
                f"{structure}, prior matched", result[train]["values"][structure]
            )
            ours = ", ".join(
                f"{name} {np.mean(values[test][name]['auroc']):.3f}" for name in PAPER_METHODS
            )
            theirs = ", ".join(
                shown_stored(Cell(train, structure, name, test, "auroc")) for name in PAPER_METHODS
            )
            kept = np.mean(values[train]["MC"]["mmc"]) / np.mean(values[train]["MAP"]["mmc"])
            wanted = [
                stored(Cell(train, *place, train, "mmc"))
                for place in ((structure, "MC"), ("", "MAP"))
            ]
            theirs_kept = f"*{wanted[0] / wanted[1]:.0%}*" if wanted[0] and wanted[1] else "-"
            told.append(
                f"{train} → {test}, {structure}: {ours} ({theirs}), sampling keeps {kept:.0%}"
                f" ({theirs_kept}) of the network's confidence"
            )
    return (
        "CIFAR: other networks than the paper's, to which the same precision means another thing,"
        f" so a prior was matched to the loss of confidence in the authors' run. {'; '.join(told)}."
        " Where more confidence is kept than in the authors' run the head is small and the data is"
        " much: no prior, however wide, takes more away, and all methods stay closer to the"
        " network than in the paper."
    )


TABLE_1 = Artifact("table1", "Detecting unusual data, last layer", compute, tables, finding)
