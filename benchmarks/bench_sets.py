"""Cost of `overlap_sets` against one SciPy quantile for every class, in one run: `python benchmarks/bench_sets.py`.

Single thread, float32 predictions, minimum and median over repetitions. SciPy's quantiles are what Algorithm 1 needs
when it is done as printed, without stopping. The Gaussians go from sure to hardly sure at all, because sets that hold a
third of all classes cost more: they must be sorted.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from machine import description
from scipy import special

import laplacebridge as lb

RESULTS = Path(__file__).parent / "results" / "sets.json"
BATCH = 4096  # a test set at once; calls on a few examples cost a few milliseconds, whatever their number
REPETITIONS = 5
CLASSES = (10, 100, 1000)
MARGINS = (20.0, 10.0, 5.0)


def predictions(classes: int, margin: float) -> lb.Dirichlet:
    """Five classes stand out from the others, by up to a margin of their logits."""
    generator = torch.Generator().manual_seed(classes)
    mean = torch.randn(BATCH, classes, generator=generator)
    mean[:, :5] += margin * torch.rand(BATCH, 5, generator=generator)
    variance = torch.exp(torch.randn(BATCH, classes, generator=generator)) / 4
    return lb.race_bridge(lb.LogitGaussian(mean, lb.Diagonal(variance)))


def seconds(function: Callable[[], object]) -> list[float]:
    """Processor time of some calls, after one to warm up."""
    function()
    times = []
    for _ in range(REPETITIONS):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return times


def row(classes: int, margin: float, threshold: float = 0.05) -> dict[str, float]:
    """Both ways on the same predictions."""
    prediction = predictions(classes, margin)
    few = prediction[: max(4, 20_000 // classes)]  # the slow way costs the same for every row
    alpha = few.log_concentration.double().exp().numpy()
    others = alpha.sum(-1, keepdims=True) - alpha
    slow = [t * BATCH / len(few) for t in seconds(lambda: special.betaincinv(alpha, others, 1 - threshold / 2))]
    fast = seconds(lambda: lb.overlap_sets(prediction, threshold))
    return {
        "classes": classes,
        "margin": margin,
        "threshold": threshold,
        "mean size": float(lb.overlap_sets(prediction, threshold).size.double().mean()),
        "microseconds per example": min(fast) / BATCH * 1e6,
        "microseconds per example, a quantile for every class": min(slow) / BATCH * 1e6,
        "ratio of minima": min(slow) / min(fast),
        "ratio of medians": statistics.median(slow) / statistics.median(fast),
    }


def main() -> None:
    """Measures and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RESULTS)
    output = parser.parse_args().output
    torch.set_num_threads(1)
    rows = [row(classes, margin) for classes in CLASSES for margin in MARGINS]
    for measured in rows:
        print(", ".join(f"{name} {value:.3g}" for name, value in measured.items()))
    output.write_text(json.dumps({"machine": description(), "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
