"""What the measurements of `bench_scaling.py` say about growth: exponents, memory for
each example, targets.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from timing import Row, chosen, digits, target

import laplacebridge as lb
from laplacebridge.laplace import Curvature

STRUCTURES: dict[str, type[Curvature]] = {
    "Diag": lb.laplace.Diag,
    "DiagKron": lb.laplace.DiagKron,
    "Kron": lb.laplace.Kron,
}
BRIDGES = {
    lb.bridges.BRIDGES[name].__name__: lb.bridges.BRIDGES[name]
    for name in ("laplace", "one-vs-rest", "race")
}
NOISE = 0.05  # of an exponent
BEYOND = "rows of logits for each example, beyond those of the network and of the answer"


@dataclass(frozen=True)
class Sizes:
    """What is measured. The last three of each sequence make the exponents."""

    classes: Sequence[int]  # for the structures whose cost is that of the head
    kron_classes: Sequence[int]
    batch: int  # at which classes are varied
    batches: Sequence[int]
    batch_classes: int  # at which batches are varied
    memory_batches: Sequence[int]
    examples: Sequence[int]
    fit_classes: Sequence[int]
    features: int
    budget: float  # seconds for each method


def slope(rows: Sequence[Row], size: str, figure: str, *, logarithmic: bool) -> float:
    """Least squares of a figure against a size."""
    x, y = ([float(row[name]) for row in rows] for name in (size, figure))
    return float(np.polyfit(np.log(x), np.log(y), 1)[0] if logarithmic else np.polyfit(x, y, 1)[0])


def growth(rows: Sequence[Row], sizes: Sizes) -> list[Row]:
    """Exponents of time over the last three sizes, and memory above the output against
    the batch.
    """
    predictions = [row for row in rows if "processor min, ms" in row]
    found = []

    def add(some: list[Row], size: str, most: float, **labels: object) -> None:
        used = sorted(some, key=lambda row: row[size])[-3:]
        exponent = digits(slope(used, size, "processor min, ms", logarithmic=True), 3)
        span = f"{used[0][size]} to {used[-1][size]}"
        found.append(
            {
                "what": "exponent",
                **labels,
                "against": size,
                "over": span,
                "figure": exponent,
                "most": most,
            }
        )

    for structure, bridge in itertools.product(STRUCTURES, BRIDGES):
        labels = {"structure": structure, "bridge": bridge}
        some = chosen(predictions, batch=sizes.batch, **labels)
        add(some, "classes", (2 if structure == "Kron" else 1) + NOISE, **labels)
        if structure != "DiagKron":
            some = chosen(predictions, classes=sizes.batch_classes, **labels)
            add(
                [row for row in some if row["batch"] in sizes.batches], "batch", 1 + NOISE, **labels
            )
        weighed = [
            row | {"beyond": row["peak, MB"] * 1e6 / (sizes.batch_classes * 4) - 2 * row["batch"]}
            for row in chosen(rows, what="predict", classes=sizes.batch_classes, **labels)
            if row["batch"] in sizes.memory_batches
        ]
        weighed.sort(key=lambda row: row["batch"])
        figure = digits(
            slope(weighed[-2:], "batch", "beyond", logarithmic=False), 3
        )  # the first may be one block
        found.append({"what": BEYOND, **labels, "figure": figure})
    for structure, classes in itertools.product(("Diag", "Kron"), sizes.fit_classes):
        labels = {"structure": structure, "classes": classes, "part": "sums"}
        add(chosen(rows, what="fit", **labels), "examples", 1 + NOISE, **labels)
    return found


def targets(rows: Sequence[Row], sizes: Sizes) -> list[dict[str, object]]:
    """What was wanted."""
    lines = []
    for row in chosen(rows, what="exponent", against="classes"):
        name = f"exponent of time in K, {row['structure']}, {row['bridge']}"
        lines.append(target(name, row["figure"], most=row["most"]))
    places = [(s, sizes.batch_classes, max(sizes.batches)) for s in STRUCTURES]
    places += [(s, max(sizes.classes), sizes.batch) for s in ("Diag", "DiagKron")]
    for structure, classes, batch in places:
        some = chosen(rows, what="predict", structure=structure, classes=classes, batch=batch)
        name = (
            f"peak memory over that of the answer, {structure}, K = {classes:,}, B = {batch:,},"
            " worst bridge"
        )
        lines.append(target(name, max(row["peak / output"] for row in some), most=12.0))
    for structure in STRUCTURES:
        worst = max(row["figure"] for row in chosen(rows, what=BEYOND, structure=structure))
        lines.append(target(f"{BEYOND}, {structure}, worst bridge", worst, most=0.1))
    for row in chosen(rows, what="load and predict"):
        name = (
            f"MB of a process that loads and predicts, {row['structure']}, K = {row['classes']:,},"
            f" B = {row['batch']}"
        )
        lines.append(target(name, row["whole process, MB"], most=1500.0))
    return lines
