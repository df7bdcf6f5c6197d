"""Cost of a fit on cached features against the head's forward pass, and of choosing the
prior on validation data.

    python benchmarks/bench_fit.py            # writes benchmarks/results/fit.json
    python benchmarks/bench_fit.py --quick    # tiny sizes, prints only

Single thread, float32 features, 512 of them. "Sums" is what a batch adds to a
curvature; "fit" is `lb.fit` over all batches, with the forward pass and softmax in
float64 that the sums need, and one decomposition, which is also timed alone. Beside
them stands the time of a ResNet-18 for as many images of 32 x 32 pixels, from one batch
of them.
"""

from collections.abc import Callable
from typing import Any

import torch
from bench_prediction import NUM_FEATURES, fitted, queries
from timing import Row, chosen, digits, run, target, timed
from torch import nn
from tqdm import tqdm

import laplacebridge as lb
from laplacebridge.bridges.precision import MANY_CLASSES
from laplacebridge.laplace import Curvature, prior
from laplacebridge.laplace.head_posteriors import POSTERIORS
from laplacebridge.laplace.head_posteriors.base import with_constant
from laplacebridge_reproduction.models import initialised, resnet18

BATCH, NUM_BATCHES = 512, 8
CLASSES = (10, 100, 1000, 10_000)
LARGEST_KRON = 1000  # beyond, the decomposition alone takes minutes
CANDIDATES = tuple(10.0 ** (exponent / 8) for exponent in range(-16, 34))  # fifty
VALIDATION = {10: 4096, 100: 2048, 1000: 512}
IMAGES = 128
HELD_OUT = 5000  # labels that choose the width


def resnet_seconds(images: int, budget: float) -> float:
    """Processor time of a ResNet-18 for one image."""
    model = initialised(resnet18, seed=0).eval()
    batch = torch.rand(images, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    return timed({"forward": lambda: model(batch)}, budget=budget)["forward"].best / images


def fitting(
    classes: int, kind: type[Curvature], per_image: float, num_batches: int, budget: float
) -> Row:
    """The parts of a fit as multiples of the head's forward pass over the same
    features.
    """
    features = queries(BATCH * num_batches)
    head = nn.Linear(NUM_FEATURES, classes).eval()
    labels = torch.zeros(len(features), dtype=torch.long)
    batches = list(zip(features.split(BATCH), labels.split(BATCH)))
    # a batch's probabilities and features with the constant one, as the sums take them
    prepared = [(with_constant(part), head(part).double().softmax(-1)) for part, _ in batches]
    total = kind.of_batch(*prepared[0])
    calls: dict[str, Callable[[], object]] = {
        "head": lambda: [head(part) for part, _ in batches],
        "sums": lambda: [kind.of_batch(*one) for one in prepared],
        "decomposition": lambda: POSTERIORS[kind](head.weight, head.bias, total, 1.0),
        "fit": lambda: lb.fit(head, batches, curvature=kind, prior_precision=1.0, progress=False),
    }
    taken = timed(calls, budget=budget)
    row: Row = {"structure": kind.__name__, "classes": classes, "examples": len(features)}
    for name, timing in taken.items():
        row |= {f"{name} {key}": value for key, value in timing.row(unit="ms", scale=1e3).items()}
    repeated = (
        taken["fit"].best - taken["decomposition"].best
    )  # what grows with the number of examples
    row["sums / head"] = digits(taken["sums"].best / taken["head"].best, 3)
    row["fit without decomposition / head"] = digits(repeated / taken["head"].best, 3)
    row["fit without decomposition / ResNet-18"] = digits(repeated / len(features) / per_image, 3)
    row["sums / ResNet-18"] = digits(taken["sums"].best / len(features) / per_image, 3)
    return row


def choosing(classes: int, kind: type[Curvature], examples: int, budget: float) -> Row:
    """Fifty prior precisions on validation data, in passes over their features with the
    same bridge.
    """
    classifier, features = fitted(classes, kind), queries(examples)
    labels = torch.randint(classes, (examples,), generator=torch.Generator().manual_seed(0))
    posterior, bridge = classifier.posterior, lb.bridges.one_vs_rest_bridge
    taken = timed(
        {
            "pass": lambda: bridge(posterior(features)).mean,
            "choice": lambda: prior.by_validation(
                posterior, bridge, features, labels, candidates=CANDIDATES
            ),
        },
        budget=budget,
    )
    row: Row = {
        "structure": kind.__name__,
        "classes": classes,
        "examples": examples,
        "candidates": len(CANDIDATES),
    }
    for name, timing in taken.items():
        row |= {f"{name} {key}": value for key, value in timing.row(unit="ms", scale=1e3).items()}
    return {**row, "passes": digits(taken["choice"].best / taken["pass"].best, 3)}


def width_rule(classes: int, examples: int) -> Row:
    """What held-out labels add to a fit, from features: temperature, prior and width.
    Beside it a pass over their features: mean and covariance of the logits, and the
    bridge.
    """
    classifier, features = fitted(classes, lb.laplace.Kron), queries(examples)
    head, train = classifier.network.head, queries(BATCH * NUM_BATCHES)
    generator = torch.Generator().manual_seed(0)
    labels = torch.distributions.Categorical(logits=head(features)).sample()
    batches = [(train, torch.randint(classes, (len(train),), generator=generator))]
    taken = timed(
        {
            "pass": lambda: classifier.predict_features(features),
            "fit": lambda: lb.fit(head, batches, prior_precision=1.0, progress=False),
            "with labels": lambda: lb.fit(
                head, batches, val_loader=[(features, labels)], progress=False
            ),
        },
        budget=0.0,
        least=2,
    )
    row: Row = {"classes": classes, "examples": examples}
    for name, timing in taken.items():
        row |= {f"{name} {key}": value for key, value in timing.row().items()}
    return {**row, "added, s": digits(min(taken["with labels"].wall) - min(taken["fit"].wall))}


def usual_structure(classes: int) -> str:
    """What `fit` takes by default."""
    return "Kron" if classes < MANY_CLASSES else "DiagKron"


def targets(tables: dict[str, list[Row]]) -> list[dict[str, object]]:
    """What was wanted beside what was measured."""
    found = []
    for kind, most in (("Diag", 2.0), ("Kron", 6.0)):
        (row,) = chosen(tables["fitting"], structure=kind, classes=1000)
        found.append(
            target(
                f"sums of a fit over the head's forward pass, K = 1000, {kind}",
                row["sums / head"],
                most,
            )
        )
    usual = [
        row for row in tables["fitting"] if row["structure"] == usual_structure(row["classes"])
    ]
    for rows, which in ((tables["fitting"], "any structure"), (usual, "the default structure")):
        worst = max(rows, key=lambda row: row["sums / ResNet-18"])
        place = f"{worst['structure']}, K = {worst['classes']}"
        what = f"sums of a fit over a ResNet-18 forward pass, {which}, worst ({place})"
        found.append(target(what, worst["sums / ResNet-18"], most=0.01))
    worst = max(tables["choosing"], key=lambda row: row["passes"])
    what = (
        f"passes for fifty prior precisions, worst of all ({worst['structure']}, K ="
        f" {worst['classes']})"
    )
    found.append(target(what, worst["passes"], most=60))
    for row in tables["width_rule"]:
        what = (
            "seconds that the rule for the width takes beyond a pass over held-out features,"
            f" N = {row['examples']}, K = {row['classes']}"
        )
        found.append(target(what, digits(row["added, s"] - row["pass wall min, s"]), most=10))
    return found


def measured(quick: bool) -> dict[str, Any]:
    """All tables."""
    budget, num_batches, images = (0.01, 1, 1) if quick else (2.0, NUM_BATCHES, IMAGES)
    sizes = [
        (classes, kind)
        for classes in CLASSES
        for kind in (lb.laplace.Diag, lb.laplace.DiagKron, lb.laplace.Kron)
        if classes <= (LARGEST_KRON if kind is lb.laplace.Kron else CLASSES[-1])
    ]
    per_image = resnet_seconds(images, budget)
    tables = {
        "fitting": [
            fitting(*size, per_image, num_batches, budget) for size in tqdm(sizes, desc="fit")
        ],
        "choosing": [
            choosing(classes, kind, 16 if quick else examples, budget)
            for classes, examples in VALIDATION.items()
            for kind in (lb.laplace.Diag, lb.laplace.Kron)
        ],
        "width_rule": [
            width_rule(classes, 64 if quick else HELD_OUT) for classes in (10, 100, 1000)
        ],
    }
    return {
        "ResNet-18, ms per image": digits(1e3 * per_image),
        **tables,
        "targets": targets(tables),
    }


if __name__ == "__main__":
    run(__doc__, __file__, measured)
