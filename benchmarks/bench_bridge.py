"""Time of every bridge and link relative to softmax of the same logits, in one run.

    python benchmarks/bench_bridge.py            # writes benchmarks/results/bridge.json and prints the table
    python benchmarks/bench_bridge.py --quick    # a fraction of the work, prints only

Single thread, float32, independent logits and, up to K = 1000, a shared basis. CPU time, the smallest of several
repetitions: machines are shared, and ratios inside one process are what can be compared.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from machine import description
from torch import Generator
from tqdm import tqdm

import laplacebridge as lb

RESULTS = Path(__file__).parent / "results" / "bridge.json"
CLASSES = (10, 100, 1000, 10_000, 100_000)
LARGEST_BASIS = 1000  # a basis of K columns for more classes is a matrix product benchmark

Method = Callable[[lb.LogitGaussian], object]

METHODS: dict[str, Method] = {
    "map_estimate": lb.links.map_estimate,
    "probit": lb.links.probit,
    "probit, centred": partial(lb.links.probit, centered=True),
    "second_order": lb.links.second_order,
    "laplace_bridge_raw": lb.laplace_bridge_raw,
    "laplace_bridge": lb.laplace_bridge,
    "laplace_bridge, centred": partial(lb.laplace_bridge, zero_sum=lb.center),
    "laplace_bridge_norm": lb.laplace_bridge_norm,
    "delta_bridge": lb.delta_bridge,
    "one_vs_rest_mean": lb.one_vs_rest_mean,
    "one_vs_rest_bridge": lb.one_vs_rest_bridge,
    "race_mean": lb.race_mean,
    "race_bridge": lb.race_bridge,
    "kl_bridge": lb.kl_bridge,
    "monte_carlo, 10": partial(lb.links.monte_carlo, num_samples=10),
    "monte_carlo, 100": partial(lb.links.monte_carlo, num_samples=100),
}


def gaussian(structure: str, batch: int, classes: int) -> lb.LogitGaussian:
    """Logits N(0, 2²) with log-normal variances, or with a random orthogonal basis and such weights.

    Args:
        structure: "independent" or "shared basis".
        batch: Rows.
        classes: Classes.
    """
    generator = Generator().manual_seed(classes)
    mean = 2 * torch.randn(batch, classes, generator=generator)
    spread = torch.randn(batch, classes, generator=generator).exp()
    if structure == "independent":
        return lb.LogitGaussian(mean, lb.Diagonal(spread))
    basis, _ = torch.linalg.qr(torch.randn(classes, classes, generator=generator))
    return lb.LogitGaussian(mean, lb.SharedBasis(spread, basis))


def seconds(call: Callable[[], object], *, budget: float, most: int) -> float:
    """Smallest CPU time of a call, after one to warm up.

    Args:
        call: What to time.
        budget: Stop repeating after so many seconds, but not before three repetitions.
        most: Never repeat more often than this.
    """
    call()
    times: list[float] = []
    while len(times) < 3 or (sum(times) < budget and len(times) < most):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def measure(elements: int, budget: float) -> list[dict[str, object]]:
    """Times every method for every structure and number of classes.

    Args:
        elements: Numbers B·K of each batch, about.
        budget: Seconds per method.
    """
    rows: list[dict[str, object]] = []
    cases = [
        (structure, classes)
        for structure in ("independent", "shared basis")
        for classes in CLASSES
        if structure == "independent" or classes <= LARGEST_BASIS
    ]
    with torch.no_grad(), tqdm(total=len(cases) * len(METHODS), unit="method") as progress:
        for structure, classes in cases:
            batch = max(2, elements // classes)
            given = gaussian(structure, batch, classes)
            softmax = seconds(partial(torch.softmax, given.mean, -1), budget=budget, most=200)
            for name, method in METHODS.items():
                progress.set_description(f"{structure}, K = {classes}, {name}")
                taken = seconds(partial(method, given), budget=budget, most=50)
                rows.append(
                    {
                        "structure": structure,
                        "classes": classes,
                        "batch": batch,
                        "method": name,
                        "nanoseconds_per_class": round(1e9 * taken / given.mean.numel(), 2),
                        "ratio_to_softmax": round(taken / softmax, 2),
                    }
                )
                progress.update()
    return rows


def table(rows: list[dict[str, object]]) -> str:
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


def main() -> None:
    """Measures, prints and stores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small batches, few repetitions, nothing stored")
    parser.add_argument("--output", type=Path, help="where to store the results instead")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = measure(20_000, 0.02) if arguments.quick else measure(1_000_000, 2.0)
    print(table(rows))
    output = arguments.output or (None if arguments.quick else RESULTS)
    if output:
        settings = {"threads": 1, "dtype": "float32", "time": "CPU seconds, smallest of the repetitions"}
        document = {"command": "python benchmarks/bench_bridge.py", "machine": description(), "settings": settings}
        output.write_text(json.dumps({**document, "rows": rows}, indent=1) + os.linesep, encoding="utf-8")
        print(f"\nstored in {output}")


if __name__ == "__main__":
    main()
