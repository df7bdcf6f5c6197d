"""How time and memory grow with classes, examples and batch: `python
benchmarks/bench_scaling.py` (`--quick`: tiny).

Single thread, float32, 512 random features, a head without bias. Predictions start from
features: the head, which is the network here, posterior, bridge. Every size runs in a
process of its own, except the tiny ones. Times are the least of some repetitions, all
methods in turn; memory is the most that one call had above what the process held before
it, after a call on one example and with all features there. Exponents are slopes of log
time against log size over the largest three sizes, where the cost of calling is gone.
The largest head is also loaded from a file, as users do, and the memory of that process
is taken as a whole.
"""

import argparse
import itertools
import json
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from scaling_growth import BRIDGES, STRUCTURES, Sizes, growth, targets
from timing import Call, Row, digits, in_fresh_process, peak_above, store, timed, whole_peak
from torch import Generator, Tensor, nn

import laplacebridge as lb
from laplacebridge.laplace.head import HeadNetwork
from laplacebridge.laplace.head_fitting import HeadSums
from laplacebridge.laplace.head_posteriors import POSTERIORS

RESULTS = Path(__file__).parent / "results" / "scaling.json"
CURVATURE_EXAMPLES = (
    64  # of the posteriors that predict; what a prediction costs does not depend on them
)
FIT_BATCH = 512


FULL = Sizes(
    classes=(10, 100, 1000, 10_000, 100_000),
    kron_classes=(10, 100, 1000, 2000, 3000),
    batch=64,
    batches=(1, 16, 256, 1024, 4096),
    batch_classes=1000,
    memory_batches=(4096, 16_384, 65_536),
    examples=(1024, 4096, 16_384),
    fit_classes=(100, 1000),
    features=512,
    budget=0.5,
)
QUICK = Sizes((3, 4, 6), (3, 4, 6), 2, (1, 2, 4), 5, (2, 4, 8), (8, 16, 32), (3, 4), 8, 0.01)


def random_head(classes: int, features: int) -> nn.Linear:
    """A head without bias, the same in every process."""
    torch.manual_seed(classes)
    return nn.Linear(features, classes, bias=False).requires_grad_(False)


def random_features(num: int, features: int) -> Tensor:
    """Standard normal ones."""
    return torch.randn(num, features, generator=Generator().manual_seed(num))


def classifier_of(head: nn.Linear, structure: str) -> lb.Classifier:
    """A classifier with the posterior of a few random examples."""
    features = random_features(CURVATURE_EXAMPLES, head.in_features)
    curvature = STRUCTURES[structure].of_batch(features, head(features).softmax(-1))
    return lb.Classifier(
        HeadNetwork(head, ""), POSTERIORS[type(curvature)](head.weight, None, curvature, 1.0)
    )


def predict(structure: str, classes: int, batch: int, features: int, budget: float) -> list[Row]:
    """Time and memory of a prediction by each bridge, in this process; memory alone if
    there is no time for more.
    """
    head = random_head(classes, features)
    classifier, inputs = classifier_of(head, structure), random_features(batch, features)
    calls: dict[str, Call] = {
        name: partial(classifier.with_bridge(bridge), inputs) for name, bridge in BRIDGES.items()
    }
    output = batch * classes * inputs.element_size()
    rows = []
    for name, call in calls.items():
        classifier.with_bridge(BRIDGES[name])(inputs[:1])  # loads code, so that it is not counted
        peak = peak_above(call)
        rows.append(
            {
                "what": "predict",
                "structure": structure,
                "classes": classes,
                "batch": batch,
                "bridge": name,
                "peak, MB": digits(peak / 1e6),
                "peak / output": digits(peak / output),
            }
        )
    if not budget:
        return rows
    plain: dict[str, Call] = {"head": lambda: head(inputs)}
    if structure == "Kron":
        logits, square = head(inputs), torch.randn(classes, classes)
        plain["two products"] = lambda: (logits @ square, logits @ square)
    times = timed({**calls, **plain}, budget=budget)
    for row in rows:
        time = times[row["bridge"]]
        row |= time.row(unit="ms", scale=1e3)
        row |= {f"ratio to {name}": digits(time.best / times[name].best) for name in plain}
    return rows


def fit(structure: str, classes: int, examples: int, features: int, budget: float) -> list[Row]:
    """Time and memory of a fit to cached features, in this process: the sums over
    examples, and what is done once.
    """
    head, inputs = random_head(classes, features), random_features(examples, features)
    labels = torch.randint(classes, (examples,), generator=Generator().manual_seed(0))
    batches = list(zip(torch.split(inputs, FIT_BATCH), torch.split(labels, FIT_BATCH)))

    def summed() -> HeadSums:
        sums = HeadSums(head, None, STRUCTURES[structure], resume=None, progress=False)
        sums.add(batches)
        return sums

    def whole(few: int | None = None) -> lb.Classifier:
        kind = STRUCTURES[structure]
        return lb.fit(head, batches[:few], curvature=kind, prior_precision=1.0, progress=False)

    whole(1)
    peak = peak_above(whole)
    sums = summed()
    times = timed(
        {"sums": summed, "once": lambda: sums.posterior(sums.curvature, 1.0, None)}, budget=budget
    )
    return [
        {
            "what": "fit",
            "structure": structure,
            "classes": classes,
            "examples": examples,
            "part": part,
            "peak of the whole fit, MB": digits(peak / 1e6),
            **times[part].row(unit="ms", scale=1e3),
            **(
                {"processor, µs per example": digits(times[part].best / examples * 1e6)}
                if part == "sums"
                else {}
            ),
        }
        for part in ("sums", "once")
    ]


def save(structure: str, classes: int, features: int, path: str) -> list[Row]:
    """Writes a classifier, in this process."""
    head = random_head(classes, features)
    lb.save(classifier_of(head, structure), path)
    return []


def load_and_predict(
    structure: str, classes: int, batch: int, features: int, path: str
) -> list[Row]:
    """Memory of a whole process that loads a classifier and predicts one batch by the
    default bridge.
    """
    imported = whole_peak()
    head, inputs = random_head(classes, features), random_features(batch, features)
    with_head = whole_peak()
    classifier = lb.load(path, head)
    loaded = whole_peak()
    peak = peak_above(lambda: classifier(inputs))
    predicting = whole_peak()  # since the peak was set anew
    return [
        {
            "what": "load and predict",
            "structure": structure,
            "classes": classes,
            "batch": batch,
            "bridge": classifier.bridge.__name__,
            "after import, MB": digits(imported / 1e6),
            "with the head, MB": digits(with_head / 1e6),
            "peak while loading, MB": digits(loaded / 1e6),
            "peak while predicting, MB": digits(predicting / 1e6),
            "of which for the prediction, MB": digits(peak / 1e6),
            "whole process, MB": digits(max(loaded, predicting) / 1e6),
        }
    ]


ONE = {"predict": predict, "fit": fit, "save": save, "load": load_and_predict}


def here(what: str, *arguments: Any) -> list[Row]:  # noqa: ANN401
    """Rows of one measurement in this process."""
    with torch.no_grad():
        return ONE[what](*arguments)


def fresh(what: str, *arguments: object) -> list[Row]:
    """Rows of one measurement in a process of its own."""
    result = in_fresh_process(__file__, "--one", what, json.dumps(arguments), timeout=300)
    if "failed" in result:
        raise SystemExit(f"{what} {arguments}: {result['failed']}")
    for row in result["rows"]:
        print(", ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    return result["rows"]


def measured(sizes: Sizes, run: Callable[..., list[Row]]) -> Iterable[list[Row]]:
    """All rows; those of classifiers from files always from processes of their own."""
    largest, batch, batch_classes = max(sizes.classes), sizes.batch, sizes.batch_classes
    at_classes = [
        (structure, classes) for structure in ("Diag", "DiagKron") for classes in sizes.classes
    ]
    at_classes += [("Kron", classes) for classes in sizes.kron_classes]
    jobs = {(structure, classes, batch): sizes.budget for structure, classes in at_classes}
    jobs |= {
        (s, batch_classes, some): sizes.budget for s in ("Diag", "Kron") for some in sizes.batches
    }
    for structure, some in itertools.product(STRUCTURES, sizes.memory_batches):
        jobs.setdefault((structure, batch_classes, some), 0.0)
    for job, budget in jobs.items():
        yield run("predict", *job, sizes.features, budget)
    for structure, classes, examples in itertools.product(
        ("Diag", "Kron"), sizes.fit_classes, sizes.examples
    ):
        yield run("fit", structure, classes, examples, sizes.features, sizes.budget)
    for structure in ("Diag", "DiagKron"):
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "classifier.safetensors")
            fresh("save", structure, largest, sizes.features, path)
            yield fresh("load", structure, largest, batch, sizes.features, path)


def main() -> None:
    """Measures and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument(
        "--one", nargs=2, metavar=("WHAT", "ARGUMENTS"), help="one measurement, in this process"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.one:
        what, arguments = options.one
        print(json.dumps({"rows": here(what, *json.loads(arguments))}))
        return
    sizes, run = (QUICK, here) if options.quick else (FULL, fresh)
    rows = list(itertools.chain.from_iterable(measured(sizes, run)))
    rows += growth(rows, sizes)
    lines = targets(rows, sizes)
    for line in lines:
        print(
            f"{line['what']}: {line['measured']} (target"
            f" {line['target']}){'' if line['met'] else ' NOT MET'}"
        )
    command = "python benchmarks/bench_scaling.py" + (" --quick" if options.quick else "")
    store(options.output, command, {"rows": rows, "targets": lines})


if __name__ == "__main__":
    main()
