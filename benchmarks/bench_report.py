"""How long a report takes, and how large its page is, for 1000 classes and 5000
examples: `python benchmarks/bench_report.py`, a minute or two.

Seconds by the clock and of the processor, with one thread, of `classifier.report` as a
whole: the network over all examples, every method, intervals, and the page. Validation
and out-of-distribution inputs are given, so that all parts of the page are there.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from timing import Row, digits, run
from torch import Tensor, nn

import laplacebridge as lb

# classes, test examples
SIZES = ((10, 5000), (1000, 5000))
FEATURES, NOISE = 64, 1.6
BATCH = 256


def batches(centres: Tensor, num: int, seed: int) -> list[tuple[Tensor, Tensor]]:
    """Examples around the centres of their classes."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(len(centres), (num,), generator=generator)
    inputs = centres[labels] + NOISE * torch.randn(num, FEATURES, generator=generator)
    return list(zip(inputs.split(BATCH), labels.split(BATCH)))


def row(classes: int, examples: int) -> Row:
    """One page."""
    generator = torch.Generator().manual_seed(0)
    centres = 0.9 * torch.randn(classes, FEATURES, generator=generator)
    head = nn.Linear(FEATURES, classes)  # the one that Bayes' rule gives
    head.weight.copy_(centres / NOISE**2)
    head.bias.copy_(-centres.square().sum(-1) / (2 * NOISE**2))
    classifier = lb.fit(
        head,
        batches(centres, 4 * examples, 1),
        val_loader=batches(centres, 2000, 2),
        progress=False,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        wall, processor = time.perf_counter(), time.process_time()
        classifier.report(
            batches(centres, examples, 3),
            path,
            ood=[3 * torch.randn(1000, FEATURES, generator=generator)],
            validation=batches(centres, 2000, 4),
            progress=False,
        )
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        size = path.stat().st_size
    return {
        "classes": classes,
        "examples": examples,
        "wall, s": digits(wall),
        "processor, s": digits(processor),
        "page, MB": digits(size / 1e6),
    }


def measured(quick: bool) -> dict[str, Any]:
    """All pages, or a small one."""
    return {"report": [row(*size) for size in (((5, 200),) if quick else SIZES)]}


if __name__ == "__main__":
    run(__doc__ or "", __file__, measured)
