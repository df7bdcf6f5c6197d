"""Cost of `overlap_sets` against one SciPy quantile for every class, in one run:
`python benchmarks/bench_sets.py`.

Single thread, float32 predictions, minimum and median over repetitions. SciPy's
quantiles are what Algorithm 1 needs when it is done as printed, without stopping. The
Gaussians go from sure to hardly sure at all, because sets that hold a third of all
classes cost more: they must be sorted.
"""

import argparse
import statistics
from pathlib import Path

import torch
from scipy import special
from timing import digits, store, target, timed

import laplacebridge as lb

RESULTS = Path(__file__).parent / "results" / "sets.json"
BATCH = 4096  # a test set at once; calls on a few examples cost a few milliseconds, whatever their number
CLASSES = (10, 100, 1000)
MARGINS = (20.0, 10.0, 5.0)


def predictions(classes: int, margin: float) -> lb.Dirichlet:
    """Five classes stand out from the others, by up to a margin of their logits."""
    generator = torch.Generator().manual_seed(classes)
    mean = torch.randn(BATCH, classes, generator=generator)
    mean[:, :5] += margin * torch.rand(BATCH, 5, generator=generator)
    variance = torch.exp(torch.randn(BATCH, classes, generator=generator)) / 4
    return lb.race_bridge(lb.LogitGaussian(mean, lb.Diagonal(variance)))


def row(classes: int, margin: float, threshold: float = 0.05) -> dict[str, float]:
    """Both ways on the same predictions."""
    prediction = predictions(classes, margin)
    few = prediction[: max(4, 20_000 // classes)]  # the slow way costs the same for every row
    alpha = few.log_concentration.double().exp().numpy()
    others = alpha.sum(-1, keepdims=True) - alpha
    taken = timed(
        {
            "sets": lambda: lb.sets.overlap_sets(prediction, threshold),
            "quantiles": lambda: special.betaincinv(alpha, others, 1 - threshold / 2),
        },
        budget=2.0,
    )
    fast, slow = taken["sets"], taken["quantiles"]
    scale = len(prediction) / len(few)
    return {
        "classes": classes,
        "margin": margin,
        "threshold": threshold,
        "mean size": digits(
            float(lb.sets.overlap_sets(prediction, threshold).size.double().mean())
        ),
        **fast.row(per=len(prediction), unit="µs per example", scale=1e6),
        **{
            f"quantiles {k}": v
            for k, v in slow.row(per=len(few), unit="µs per example", scale=1e6).items()
        },
        "ratio of minima": digits(scale * slow.best / fast.best),
        "ratio of medians": digits(
            scale * statistics.median(slow.processor) / statistics.median(fast.processor)
        ),
    }


def targets(rows: list[dict[str, float]]) -> list[dict[str, object]]:
    """What was wanted beside what was measured."""
    return [
        target(
            f"SciPy's quantile of every class over `overlap_sets`, K = 1000, {row['mean size']:.3g}"
            " classes in a set",
            row["ratio of minima"],
            least=40,
        )
        for row in rows
        if row["classes"] == 1000
    ]


def main() -> None:
    """Measures and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RESULTS)
    output = parser.parse_args().output
    torch.set_num_threads(1)
    rows = [row(classes, margin) for classes in CLASSES for margin in MARGINS]
    for measured in rows:
        print(", ".join(f"{name} {value:.3g}" for name, value in measured.items()))
    store(output, "python benchmarks/bench_sets.py", {"rows": rows, "targets": targets(rows)})


if __name__ == "__main__":
    main()
