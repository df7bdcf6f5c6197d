"""Time of every bridge and link relative to softmax and to sampling of the same logits,
in one run.

    python benchmarks/bench_bridge.py            # writes results/bridge.json, prints tables
    python benchmarks/bench_bridge.py --quick    # a fraction of the work, prints only

Single thread, float32, independent logits and, up to K = 1000, a shared basis; against
sampling also matrices, eight factors and matrices with factors, of correlated logits.
Ratios are of the smallest processor times of several rounds, in which all methods take
turns: machines are shared, and ratios inside one process are what can be compared. The
targets that the figures are held against are in `TARGETS`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from timing import digits, run, target, timed
from torch import Generator
from tqdm import tqdm

import laplacebridge as lb
from laplacebridge.bridges.factors import shared_factors

CLASSES = (10, 100, 1000, 10_000, 100_000)
LARGEST_BASIS = 1000  # a basis of K columns for more classes is a matrix product benchmark

COMPARED_CLASSES = (
    10,
    100,
    1000,
)  # with sampling, on smaller batches: 1000 samples take their time
COMPARED_FRACTION = 5
SAMPLES = (10, 100, 1000)
LATENCY_CLASSES = (10, 1000)

Method = Callable[[lb.LogitGaussian], object]
Row = dict[str, object]

METHODS: dict[str, Method] = {
    "map_estimate": lb.links.map_estimate,
    "probit": lb.links.probit,
    "probit, centred": partial(lb.links.probit, centered=True),
    "second_order": lb.links.second_order,
    **{bridge.__name__: bridge for bridge in lb.bridges.BRIDGES.values()},
    "laplace_bridge, centred": partial(lb.laplace_bridge, zero_sum=lb.bridges.center),
    "one_vs_rest_mean": lb.bridges.one_vs_rest_mean,
    "race_mean": lb.bridges.race_mean,
    "monte_carlo, 10": partial(lb.links.monte_carlo, num_samples=10),
    "monte_carlo, 100": partial(lb.links.monte_carlo, num_samples=100),
}
# Correlated logits: matrices that share nothing, and those that share factors.
CORRELATED = (
    "dense, independent",
    "dense, four factors",
    "low rank",
    "shared basis",
    "falling shared basis",
    "ensemble of 5",
)
COMPARED = ("one_vs_rest_mean", "one_vs_rest_bridge", "race_mean", "race_bridge")


@dataclass(frozen=True)
class Target:
    """A figure of one of the tables and the most that it should be, for independent
    logits.
    """

    table: str
    method: str
    figure: str
    most: float
    classes: tuple[int, ...]


TARGETS = (
    *(
        Target("rows", method, "ratio_to_softmax", most, CLASSES[1:])
        for method, most in (
            ("laplace_bridge_raw", 6.0),
            ("laplace_bridge, centred", 6.0),
            ("laplace_bridge", 6.0),
            ("one_vs_rest_mean", 45.0),
            ("one_vs_rest_bridge", 90.0),
        )
    ),
    Target("against_sampling", "one_vs_rest_bridge", "ratio_to_10_samples", 2.5, COMPARED_CLASSES),
    Target(
        "against_sampling", "one_vs_rest_bridge", "ratio_to_1000_samples", 1 / 40, COMPARED_CLASSES
    ),
    Target("against_sampling", "race_mean", "ratio_to_100_samples", 0.8, COMPARED_CLASSES),
    # twice LB: denormal numbers made it four times as slow
    Target("rows", "laplace_bridge_norm", "ratio_to_laplace_bridge", 2.0, CLASSES[-1:]),
    Target("latency", "one_vs_rest_bridge", "processor min, ms", 2.5, LATENCY_CLASSES),
)


def gaussian(structure: str, batch: int, classes: int) -> lb.LogitGaussian:
    """Logits N(0, 2²) with log-normal variances, or with a random orthogonal basis and
    such weights.

    Args:
        structure: "independent", "shared basis", or another of `CORRELATED`.
        batch: Rows.
        classes: Classes.
    """
    generator = Generator().manual_seed(classes)
    mean = 2 * torch.randn(batch, classes, generator=generator)
    spread = torch.randn(batch, classes, generator=generator).exp()
    if structure == "independent":
        return lb.LogitGaussian(mean, lb.Diagonal(spread))
    if structure == "dense, independent":
        return lb.LogitGaussian(mean, lb.Dense(torch.diag_embed(spread)))
    if structure == "dense, four factors":
        factor = torch.randn(batch, classes, 4, generator=generator)
        return lb.LogitGaussian(mean, lb.Dense(factor @ factor.mT + torch.diag_embed(spread)))
    if structure == "low rank":
        return lb.LogitGaussian(
            mean, lb.LowRank(torch.randn(batch, classes, 8, generator=generator))
        )
    if structure == "ensemble of 5":
        members = 2 * torch.randn(5, batch, classes, generator=generator)
        return lb.LogitGaussian.from_samples(mean + members)
    basis, _ = torch.linalg.qr(torch.randn(classes, classes, generator=generator))
    if structure == "falling shared basis":  # eigenvalues like k^−1.5: a few count
        falling = torch.arange(1, classes + 1) ** -1.5
        scale = 5 * torch.rand(batch, 1, generator=generator)
        spread = scale * falling * (classes / falling.sum())
    return lb.LogitGaussian(mean, lb.SharedBasis(spread, basis))


def cases(largest: int = CLASSES[-1]) -> list[tuple[str, int]]:
    """Structures and numbers of classes, up to a largest number."""
    return [
        (structure, classes)
        for structure, limit in (("independent", CLASSES[-1]), ("shared basis", LARGEST_BASIS))
        for classes in CLASSES
        if classes <= min(limit, largest)
    ]


def measure(elements: int, budget: float) -> list[Row]:
    """Times every method for every structure and number of classes.

    Args:
        elements: Numbers B·K of each batch, about.
        budget: Seconds per method.
    """
    rows: list[Row] = []
    with tqdm(total=len(cases()), unit="case") as progress:
        for structure, classes in cases():
            given = gaussian(structure, max(2, elements // classes), classes)
            progress.set_description(f"{structure}, K = {classes}")
            calls = {"softmax": partial(torch.softmax, given.mean, -1)}
            calls |= {name: partial(method, given) for name, method in METHODS.items()}
            taken = timed(calls, budget=budget, most=50)
            rows += [
                {
                    "structure": structure,
                    "classes": classes,
                    "batch": len(given),
                    "method": name,
                    **timing.row(per=given.mean.numel(), unit="ns per class", scale=1e9),
                    "ratio_to_softmax": digits(timing.best / taken["softmax"].best, 3),
                    "ratio_to_laplace_bridge": digits(
                        timing.best / taken["laplace_bridge"].best, 3
                    ),
                }
                for name, timing in taken.items()
            ]
            progress.update()
    return rows


def measure_against_sampling(elements: int, budget: float) -> list[Row]:
    """Times of the accurate bridges relative to Monte Carlo on the same covariance.

    Args:
        elements: Numbers B·K of each batch, about.
        budget: Seconds per method.
    """
    rows: list[Row] = []
    for structure, classes in tqdm(cases(COMPARED_CLASSES[-1]), unit="case"):
        given = gaussian(structure, max(2, elements // COMPARED_FRACTION // classes), classes)
        calls = {name: partial(METHODS[name], given) for name in COMPARED}
        calls |= {
            samples: partial(lb.links.monte_carlo, given, num_samples=samples)
            for samples in SAMPLES
        }
        taken = timed(calls, budget=budget, most=50)
        for name in COMPARED:
            ratios = {
                f"ratio_to_{samples}_samples": digits(taken[name].best / taken[samples].best, 3)
                for samples in SAMPLES
            }
            rows.append(
                {
                    "structure": structure,
                    "classes": classes,
                    "batch": len(given),
                    "method": name,
                    **ratios,
                }
            )
    return rows


def measure_correlated(elements: int, budget: float) -> list[Row]:
    """Times of the race on correlated logits, with the search for factors and without,
    relative to 100 samples of the same covariance.

    Args:
        elements: Numbers B·K of each batch, about.
        budget: Seconds per method.
    """
    rows: list[Row] = []
    for structure in CORRELATED:
        for classes in COMPARED_CLASSES:
            batch = max(2, min(elements // COMPARED_FRACTION // classes, 64_000_000 // classes**2))
            given = gaussian(structure, batch, classes)
            plain = replace(given, seek_factors=False)
            calls: dict[str, Callable[[], object]] = {
                "race_mean": partial(lb.bridges.race_mean, given),
                "race_bridge": partial(lb.race_bridge, given),
                "race_mean, no search": partial(lb.bridges.race_mean, plain),
                "with its error": partial(lb.bridges.race_mean, given, return_error=True),
                "search alone": partial(
                    shared_factors, given.mean, given.covariance.modulo_shift()
                ),
                "samples": partial(lb.links.monte_carlo, given, num_samples=100),
            }
            taken = timed(calls, budget=budget, most=20)
            rows += [
                {
                    "structure": structure,
                    "classes": classes,
                    "batch": batch,
                    "method": name,
                    "ratio_to_100_samples": digits(taken[name].best / taken["samples"].best, 3),
                }
                for name in calls
                if name != "samples"
            ]
    return rows


def measure_latency(budget: float) -> list[Row]:
    """Milliseconds for one example, independent logits.

    Args:
        budget: Seconds per method.
    """
    rows: list[Row] = []
    for classes in LATENCY_CLASSES:
        given = gaussian("independent", 1, classes)
        calls = {name: partial(METHODS[name], given) for name in ("laplace_bridge", *COMPARED)}
        rows += [
            {
                "structure": "independent",
                "classes": classes,
                "method": name,
                **timing.row(unit="ms", scale=1e3),
            }
            for name, timing in timed(calls, budget=budget, most=2000).items()
        ]
    return rows


def judge_correlated(rows: list[Row]) -> list[Row]:
    """The race on correlated logits: no more than 100 samples from K = 100 on."""
    return [
        target(
            f"{row['method']}, ratio to 100 samples, {row['structure']}, K = {row['classes']}",
            row["ratio_to_100_samples"],
            most=1.0,
        )
        for row in rows
        if row["method"] in ("race_mean", "race_bridge") and row["classes"] >= 100
    ]


def judge(tables: dict[str, list[Row]]) -> list[Row]:
    """Every target with what was measured, and whether that is within it."""
    found = []
    for wanted in TARGETS:
        for row in tables[wanted.table]:
            here = row["method"] == wanted.method and row["structure"] == "independent"
            if here and row["classes"] in wanted.classes:
                what = f"{wanted.method}, {wanted.figure.replace('_', ' ')}, K = {row['classes']}"
                found.append(target(what, row[wanted.figure], most=wanted.most))
    return found + judge_correlated(tables["correlated"])


def table(rows: list[Row]) -> str:
    """The ratios as text, methods down and classes across."""
    lines = []
    for structure in dict.fromkeys(row["structure"] for row in rows):
        chosen = [row for row in rows if row["structure"] == structure]
        classes = list(dict.fromkeys(row["classes"] for row in chosen))
        lines.append(f"\n{structure}: time relative to softmax of the same logits")
        lines.append(f"{'':26}" + "".join(f"{f'K = {k}':>13}" for k in classes))
        for method in METHODS:
            ratios = [row["ratio_to_softmax"] for row in chosen if row["method"] == method]
            lines.append(f"{method:26}" + "".join(f"{ratio:13.1f}" for ratio in ratios))
    return "\n".join(lines)


def measured(quick: bool) -> dict[str, Any]:
    """All tables; the one of ratios is also printed as such."""
    elements, budget = (20_000, 0.02) if quick else (1_000_000, 1.0)
    tables = {
        "rows": measure(elements, budget),
        "against_sampling": measure_against_sampling(elements, budget),
        "correlated": measure_correlated(elements, budget),
        "latency": measure_latency(budget),
    }
    print(table(tables["rows"]), "\n")
    if not quick:  # small batches are all overhead
        tables["targets"] = judge(tables)
    return {
        "settings": {"threads": 1, "dtype": "float32", "ratios": "of the smallest processor times"},
        **tables,
    }


if __name__ == "__main__":
    run(__doc__, __file__, measured)
