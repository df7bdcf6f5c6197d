"""Cost of a whole prediction, against the head's own product, against a network, and
for one example alone.

    python benchmarks/bench_prediction.py            # writes results/prediction.json
    python benchmarks/bench_prediction.py --quick    # tiny sizes, prints only

Single thread, float32, 512 features. From features: mean and covariance of the logits,
then the bridge, as multiples of the product that the head computes anyway. One example:
what a classifier adds to its network, as it is and after `classifier.compile()`, with
the first call's time. ResNet-18: what the default bridge adds to a pass over 10 000
images of 32 x 32 pixels in batches of 128, random ones, which cost what real ones do.
"""

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import torch
from timing import Row, chosen, digits, run, target, timed
from torch import Tensor, nn
from tqdm import tqdm

import laplacebridge as lb
from laplacebridge._stopwatch import once
from laplacebridge.laplace import Curvature
from laplacebridge.laplace.batch import Batch
from laplacebridge.laplace.head_posteriors.base import with_constant
from laplacebridge_reproduction.models import initialised, resnet18

NUM_FEATURES = 512
CLASSES = (10, 100, 1000)
EXAMPLES = 1024  # in a batch from features
STRUCTURES: tuple[type[Curvature], ...] = (lb.laplace.Diag, lb.laplace.DiagKron, lb.laplace.Kron)
BRIDGES = {name: lb.bridges.BRIDGES[name] for name in ("laplace", "one-vs-rest", "race")}
CALLS: dict[str, Callable[[lb.LogitGaussian], object]] = {
    **BRIDGES,
    **{f"{name} mean": lb.bridges.mean_of(BRIDGES[name]) for name in ("one-vs-rest", "race")},
}
ONE_EXAMPLE = (
    ("one-vs-rest mean", False),
    ("one-vs-rest mean", True),
    ("one-vs-rest", False),
    ("race", False),
)
IMAGES, BATCH = 10_000, 128
OOD_SCORE = "OOD score"
WHOLE, INTERVAL = "race, predicted", "interval for every class"
# what a Kronecker posterior makes of features, and a Mahalanobis distance without a metric
# of few directions
SQUARE = "product with a D × D matrix"


def fitted(
    classes: int, kind: type[Curvature], bridge: Callable[..., Any] = lb.race_bridge
) -> lb.Classifier:
    """A random head with the posterior that random features give it."""
    generator = torch.Generator().manual_seed(classes)
    head = nn.Linear(NUM_FEATURES, classes).eval()
    with torch.no_grad():
        head.weight.normal_(0, 2 / NUM_FEATURES**0.5, generator=generator)
        head.bias.zero_()
    features = torch.randn(4 * NUM_FEATURES, NUM_FEATURES, generator=generator)
    labels = torch.randint(classes, (len(features),), generator=generator)
    batches = [(features, labels)]
    # under this prior a logit has a variance of about one before any data, as in the
    # other benchmarks
    return lb.fit(
        head,
        batches,
        curvature=kind,
        prior_precision=float(NUM_FEATURES),
        bridge=bridge,
        progress=False,
    )


def queries(count: int) -> Tensor:
    """Random features to predict from."""
    return torch.randn(count, NUM_FEATURES, generator=torch.Generator().manual_seed(1))


def from_features(classes: int, kind: type[Curvature], examples: int, budget: float) -> list[Row]:
    """Whole predictions from features, as multiples of the head's product."""
    classifier, features = fitted(classes, kind), queries(examples)
    head, posterior = classifier.network.head, classifier.posterior
    calls: dict[str, Callable[[], object]] = {
        "head": lambda: head(features),
        "posterior": lambda: posterior(features),
    }
    square = torch.randn(NUM_FEATURES, NUM_FEATURES)
    calls[SQUARE] = lambda: features @ square
    score, logits = classifier.unusual, head(features)
    if score is not None:
        calls[OOD_SCORE] = lambda: score(features, logits)
    for name, bridge in CALLS.items():
        calls[name] = lambda bridge=bridge: bridge(posterior(features))
    gaussian = posterior(features)
    prediction = lb.predict(gaussian)
    calls[WHOLE] = lambda: lb.predict(gaussian)
    calls[INTERVAL] = lambda: prediction.interval(0.95)
    taken = timed(calls, budget=budget)
    return [
        {
            "structure": kind.__name__,
            "classes": classes,
            "examples": examples,
            "method": name,
            **timing.row(per=examples, unit="µs per example", scale=1e6),
            "times the head": digits(timing.best / taken["head"].best, 3),
        }
        for name, timing in taken.items()
    ]


def one_example(
    classes: int, kind: type[Curvature], name: str, budget: float, *, compiled: bool
) -> Row:
    """Wall time that a classifier adds to its network, here the head alone, for one
    example.
    """
    mean_alone = name.endswith(" mean")
    query, classifier = queries(1), fitted(classes, kind, BRIDGES[name.removesuffix(" mean")])
    predict = classifier.probabilities if mean_alone else classifier
    row: Row = {
        "structure": kind.__name__,
        "classes": classes,
        "method": name,
        "compiled": compiled,
    }
    if compiled:
        torch.compiler.reset()
        classifier.compile()
        row["first call, s"] = digits(once(lambda: predict(query))[1], 3)
    network, posterior = classifier.network, classifier.posterior
    squares = with_constant(query).square()
    weights = posterior.variances.T if kind is lb.laplace.Diag else posterior.variances
    calls: dict[str, Callable[[], object]] = {
        "network": lambda: network.model(query),
        "whole": lambda: predict(query),
        "network with features": lambda: network.for_posterior(Batch((query,), {}, None)),
        "product of the variances": lambda: squares @ weights,
    }
    taken = timed(calls, budget=budget, most=5000)
    for what, timing in taken.items():
        row |= {f"{what} {key}": value for key, value in timing.row(unit="ms", scale=1e3).items()}
    row["added, ms"] = digits(1e3 * (min(taken["whole"].wall) - min(taken["network"].wall)), 3)
    return row


def on_resnet(images: int, budget: float) -> list[Row]:
    """What posterior and bridge add to a ResNet-18."""
    model = initialised(resnet18, seed=0).eval()
    generator = torch.Generator().manual_seed(0)
    batch = torch.rand(BATCH, 3, 32, 32, generator=generator)
    labels = torch.randint(10, (BATCH,), generator=generator)
    classifier = lb.fit(
        model, [(batch, labels)], curvature=lb.laplace.Kron, prior_precision=1.0, progress=False
    )
    count = -(-images // BATCH)

    def run_network() -> None:
        for _ in tqdm(range(count), desc="ResNet-18", unit="batch"):
            model(batch)

    forward = once(run_network)
    parts = [classifier.features(batch)] * count
    taken = timed(
        {
            name: lambda bridge=bridge: [bridge(classifier.posterior(part)) for part in parts]
            for name, bridge in BRIDGES.items()
            if name != "laplace"
        },
        budget=budget,
    )
    return [
        {
            "structure": "Kron",
            "images": count * BATCH,
            "method": name,
            "forward processor, s": digits(forward[0]),
            "forward wall, s": digits(forward[1]),
            **timing.row(),
            "share added": digits(timing.best / forward[0], 3),
        }
        for name, timing in taken.items()
    ]


def targets(tables: dict[str, list[Row]]) -> list[dict[str, object]]:
    """What was wanted beside what was measured."""
    found = []
    for kind, most in (("Diag", 7.0), ("Kron", 20.0)):
        (row,) = chosen(
            tables["from_features"], structure=kind, classes=1000, method="one-vs-rest mean"
        )
        what = (
            "whole prediction from features (one-vs-rest mean) over the head's product, K = 1000,"
            f" {kind}"
        )
        found.append(target(what, row["times the head"], most=most))
    for classes, most in ((10, 1.5), (1000, 1.5)):
        (row,) = chosen(
            tables["from_features"], structure="Kron", classes=classes, method=OOD_SCORE
        )
        what = f"OOD score over the head's product, K = {classes}"
        found.append(target(what, row["times the head"], most=most))
        (product,) = chosen(
            tables["from_features"], structure="Kron", classes=classes, method=SQUARE
        )
        ratio = digits(row["times the head"] / product["times the head"], 2)
        found.append(target(f"OOD score over a {SQUARE}, K = {classes}", ratio, most=1.5))
    for kind, classes in itertools.product(STRUCTURES, CLASSES):
        rows = chosen(tables["from_features"], structure=kind.__name__, classes=classes)
        times = {row["method"]: row["times the head"] for row in rows}
        what = f"{INTERVAL} over the default bridge, {kind.__name__}, K = {classes}"
        found.append(target(what, digits(times[INTERVAL] / times[WHOLE], 2), most=0.15))
    (row,) = chosen(tables["resnet"], method="race")
    found.append(
        target("share added to ResNet-18 by the default bridge", row["share added"], most=0.005)
    )
    for name, compiled, most in (("one-vs-rest mean", True, 0.2), ("one-vs-rest", False, 2.5)):
        for row in chosen(tables["one_example"], structure="Diag", method=name, compiled=compiled):
            what = (
                f"ms added for one example, K = {row['classes']},"
                f" {name}{', compiled' if compiled else ''}"
            )
            found.append(target(what, row["added, ms"], most=most))
    return found


def measured(quick: bool) -> dict[str, list[Row]]:
    """All tables."""
    budget, examples, images = (0.01, 16, 1) if quick else (2.0, EXAMPLES, IMAGES)
    sizes = [(classes, kind) for classes in CLASSES for kind in STRUCTURES]
    with (
        tempfile.TemporaryDirectory() as folder
    ):  # an empty cache of the compiler: first calls are first calls
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        tables = {
            "from_features": [
                row
                for classes, kind in tqdm(sizes, desc="from features")
                for row in from_features(classes, kind, examples, budget)
            ],
            "one_example": [
                one_example(classes, kind, name, budget, compiled=compiled)
                for classes in (10, 1000)
                for kind in (lb.laplace.Diag, lb.laplace.Kron)
                for name, compiled in ONE_EXAMPLE
                if not compiled or (shutil.which("g++") and not quick)
            ],
            "resnet": on_resnet(images, budget),
        }
    return {**tables, "targets": targets(tables)}


if __name__ == "__main__":
    run(__doc__, __file__, measured)
