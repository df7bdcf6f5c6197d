"""What the authors' runs stored: means over five runs, to three digits, from the CSV
files beside their code.
"""

import csv
from dataclasses import dataclass
from functools import cache
from importlib import resources

METRICS = ("mmc", "auroc", "nll", "ece", "brier")


@dataclass(frozen=True)
class Cell:
    """Where a number of the tables stands.

    Attributes:
        train: Data set of the network, as ``MNIST``.
        structure: Structure of the curvature: ``diagonal``, ``Kronecker``, or nothing
            for the network itself.
        method: As ``LB-norm``.
        test: Data set that is judged.
        metric: One of `METRICS`.
        layers: ``last layer``, ``all layers``, or nothing for the prior network.
    """

    train: str
    structure: str
    method: str
    test: str
    metric: str
    layers: str = "last layer"


def stored(cell: Cell) -> float | None:
    """The number that the authors stored; None if there is none, or if a slip in their
    code made it another one.

    Example:
        >>> stored(Cell("MNIST", "diagonal", "LB", "KMNIST", "auroc"))
        0.949
    """
    return _numbers().get(cell)


@cache
def _numbers() -> dict[Cell, float]:
    found = {}
    with (
        resources.files(__package__)
        .joinpath("reference/stored_means.csv")
        .open(encoding="utf-8") as file
    ):
        for row in csv.DictReader(file):
            for metric in METRICS:
                if row[metric] and metric not in row["wrong"].split():
                    place = Cell(
                        row["train"],
                        row["structure"],
                        row["method"],
                        row["test"],
                        metric,
                        row["layers"],
                    )
                    found[place] = float(row[metric])
    return found
