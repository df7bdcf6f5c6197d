"""How large classifiers and their servers are, by number of classes and features:
`python benchmarks/bench_sizes.py`, a few minutes.

Each row is of a process of its own: a head alone with the default curvature, its files,
what a fit and a loaded classifier hold above the libraries, and the answers of a server
to 64 examples over the product of the head, both without waiting.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from timing import Row, digits, in_fresh_process, peak_above, run, timed
from torch import nn

import laplacebridge as lb

CLASSES, FEATURES = (10, 100, 1000, 10_000), (512, 2048)
EXAMPLES, BATCH = 2048, 64
MEGABYTE = 1e6


def row(classes: int, features: int) -> Row:
    """One size."""
    from laplacebridge.serve import ServedClassifier

    torch.manual_seed(0)
    head = nn.Linear(features, classes)
    inputs = torch.randn(EXAMPLES, features)
    with torch.no_grad():
        labels = head(inputs).argmax(-1)
    batches = list(zip(inputs.split(256), labels.split(256)))
    made: list[lb.Classifier] = []

    def fit() -> None:
        made.append(lb.fit(head, batches, prior_precision=1.0, progress=False))

    fit_peak = peak_above(fit)
    with tempfile.TemporaryDirectory() as name:
        saved, parts = Path(name) / "classifier.safetensors", Path(name) / "part.safetensors"
        lb.save(made[0], saved)
        lb.partial(head, batches[:1], progress=False).save(parts)
        sizes = saved.stat().st_size, parts.stat().st_size
        posterior = type(made.pop().posterior).__name__
        served: list[ServedClassifier] = []
        held = peak_above(lambda: served.append(ServedClassifier(lb.load(saved))))
    examples = {"features": inputs[:BATCH].numpy()}
    taken = timed(
        {
            "answers": lambda: served[0].answer(examples, frozenset()),
            "head": lambda: head(inputs[:BATCH]),
        },
        budget=2.0,
    )
    return {
        "classes": classes,
        "features": features,
        "posterior": posterior,
        "file of the classifier, MB": digits(sizes[0] / MEGABYTE, 3),
        "file of sums, MB": digits(sizes[1] / MEGABYTE, 3),
        "fit, MB": digits(fit_peak / MEGABYTE, 3),
        "loaded and asked once, MB": digits(held / MEGABYTE, 3),
        "answers to 64, ms": digits(1000 * taken["answers"].best, 3),
        "answers / head": digits(taken["answers"].best / taken["head"].best, 3),
    }


def measured(quick: bool) -> dict[str, Any]:
    """All sizes."""
    classes, features = (CLASSES[:1], FEATURES[:1]) if quick else (CLASSES, FEATURES)
    return {
        "rows": [in_fresh_process(__file__, count, size) for count in classes for size in features]
    }


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1].isdecimal():
        torch.set_num_threads(1)
        with torch.no_grad():
            print(json.dumps(row(int(sys.argv[1]), int(sys.argv[2]))))
    else:
        run(__doc__ or "", __file__, measured)
