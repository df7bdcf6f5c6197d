"""How time and memory grow with classes, examples and batch: `python benchmarks/bench_scaling.py` (`--quick`: tiny).

Single thread, float32, 512 random features, a head without bias. Predictions start from features: posterior, then
bridge. Every size runs in a process of its own, except the tiny ones. Times are the least of some repetitions, all
methods in turn; memory is the most that one call had above what the process held before it, after a call on one example
and with all features there. Exponents are slopes of log time against log size over the largest three sizes, where the
cost of calling is gone. The largest head is also loaded from a file, as users do, and the memory of that process is
taken as a whole.
"""

import argparse
import ctypes
import itertools
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timing import digits, in_fresh_process, peak_bytes, store, target, timed
from torch import Generator, Tensor, nn

import laplacebridge as lb
from laplacebridge.laplace import Curvature
from laplacebridge.laplace.features import SplitNetwork
from laplacebridge.laplace.fitting import HeadSums
from laplacebridge.laplace.posterior import HeadPosterior
from laplacebridge.laplace.posteriors import POSTERIORS

RESULTS = Path(__file__).parent / "results" / "scaling.json"
STRUCTURES: dict[str, type[Curvature]] = {"Diag": lb.Diag, "DiagKron": lb.DiagKron, "Kron": lb.Kron}
BRIDGES = {bridge.__name__: bridge for bridge in (lb.laplace_bridge, lb.one_vs_rest_bridge, lb.race_bridge)}
CURVATURE_EXAMPLES = 64  # of the posteriors that predict; what a prediction costs does not depend on them
FIT_BATCH = 512
NOISE = 0.05  # of an exponent

Row = dict[str, Any]


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


FULL = Sizes(
    classes=(10, 100, 1000, 10_000, 100_000),
    kron_classes=(10, 100, 1000, 2000, 3000),
    batch=64,
    batches=(1, 16, 256, 1024, 4096),
    batch_classes=1000,
    memory_batches=(1024, 4096, 16_384),
    examples=(1024, 4096, 16_384),
    fit_classes=(100, 1000),
    features=512,
    budget=0.5,
)
QUICK = Sizes((3, 4, 6), (3, 4, 6), 2, (1, 2, 4), 5, (2, 4, 8), (8, 16, 32), (3, 4), 8, 0.01)


def peak_above(call: Callable[[], object]) -> int:
    """The most memory that a call has above what the process holds before it.

    The peak that a process reports only grows, and on Linux it starts with the peak of the process that started it. So
    what was freed is given back first, and the peak is set anew. Elsewhere only growth of the old peak is seen.

    Args:
        call: What to run.
    """
    if not sys.platform.startswith("linux"):
        before = peak_bytes()
        call()
        return peak_bytes() - before
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = _bytes_of_process("VmRSS")
    call()
    return _bytes_of_process("VmHWM") - before


def _bytes_of_process(field: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field))


def whole_peak() -> int:
    """The most memory that this process has had, without what the process that started it had."""
    return _bytes_of_process("VmHWM") if sys.platform.startswith("linux") else peak_bytes()


def random_head(classes: int, features: int) -> nn.Linear:
    """A head without bias, the same in every process."""
    torch.manual_seed(classes)
    return nn.Linear(features, classes, bias=False).requires_grad_(False)


def random_features(num: int, features: int) -> Tensor:
    """Standard normal ones."""
    return torch.randn(num, features, generator=Generator().manual_seed(num))


def posterior_of(head: nn.Linear, structure: str) -> HeadPosterior:
    """A posterior of a few random examples."""
    features = random_features(CURVATURE_EXAMPLES, head.in_features)
    curvature = STRUCTURES[structure].of_batch(features, head(features).softmax(-1))
    return POSTERIORS[type(curvature)](head.weight, None, curvature, 1.0)


def predict(structure: str, classes: int, batch: int, features: int, budget: float) -> list[Row]:
    """Time and memory of a prediction by each bridge, in this process; memory alone if there is no time for more."""
    head = random_head(classes, features)
    posterior, inputs = posterior_of(head, structure), random_features(batch, features)
    calls: dict[str, Callable[[], object]] = {
        name: partial(lambda bridge: bridge(posterior(inputs)), bridge) for name, bridge in BRIDGES.items()
    }
    output = batch * classes * inputs.element_size()
    rows = []
    for name, call in calls.items():
        BRIDGES[name](posterior(inputs[:1]))  # loads code, so that it is not counted
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
    plain: dict[str, Callable[[], object]] = {"head": lambda: head(inputs)}
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
    """Time and memory of a fit to cached features, in this process: the sums over examples, and what is done once."""
    head, inputs = random_head(classes, features), random_features(examples, features)
    labels = torch.randint(classes, (examples,), generator=Generator().manual_seed(0))
    batches = list(zip(torch.split(inputs, FIT_BATCH), torch.split(labels, FIT_BATCH)))

    def summed() -> HeadSums:
        sums = HeadSums(head, None, STRUCTURES[structure], progress=False)
        sums.add(batches)
        return sums

    def whole(few: int | None = None) -> lb.Classifier:
        kind = STRUCTURES[structure]
        return lb.fit(head, batches[:few], curvature=kind, prior_precision=1.0, progress=False)

    whole(1)
    peak = peak_above(whole)
    sums = summed()
    times = timed({"sums": summed, "once": lambda: sums.posterior(sums.curvature, 1.0, None)}, budget=budget)
    return [
        {
            "what": "fit",
            "structure": structure,
            "classes": classes,
            "examples": examples,
            "part": part,
            "peak of the whole fit, MB": digits(peak / 1e6),
            **times[part].row(unit="ms", scale=1e3),
            **({"processor, µs per example": digits(times[part].best / examples * 1e6)} if part == "sums" else {}),
        }
        for part in ("sums", "once")
    ]


def save(structure: str, classes: int, features: int, path: str) -> list[Row]:
    """Writes a classifier, in this process."""
    head = random_head(classes, features)
    lb.save(lb.Classifier(SplitNetwork(head, ""), posterior_of(head, structure)), path)
    return []


def load_and_predict(structure: str, classes: int, batch: int, features: int, path: str) -> list[Row]:
    """Memory of a whole process that loads a classifier and predicts one batch by the default bridge."""
    imported = whole_peak()
    head, inputs = random_head(classes, features), random_features(batch, features)
    with_head = whole_peak()
    classifier = lb.load(path, head)
    loaded = whole_peak()
    peak = peak_above(lambda: classifier.bridge(classifier.posterior(inputs)))
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
    at_classes = [(structure, classes) for structure in ("Diag", "DiagKron") for classes in sizes.classes]
    at_classes += [("Kron", classes) for classes in sizes.kron_classes]
    jobs = {(structure, classes, batch): sizes.budget for structure, classes in at_classes}
    jobs |= {(s, batch_classes, some): sizes.budget for s in ("Diag", "Kron") for some in sizes.batches}
    for structure, some in itertools.product(STRUCTURES, sizes.memory_batches):
        jobs.setdefault((structure, batch_classes, some), 0.0)
    for job, budget in jobs.items():
        yield run("predict", *job, sizes.features, budget)
    for structure, classes, examples in itertools.product(("Diag", "Kron"), sizes.fit_classes, sizes.examples):
        yield run("fit", structure, classes, examples, sizes.features, sizes.budget)
    for structure in ("Diag", "DiagKron"):
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "classifier.safetensors")
            fresh("save", structure, largest, sizes.features, path)
            yield fresh("load", structure, largest, batch, sizes.features, path)


def chosen(rows: Sequence[Row], **wanted: object) -> list[Row]:
    """Rows with some values."""
    return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]


def slope(rows: Sequence[Row], size: str, figure: str, *, logarithmic: bool) -> float:
    """Least squares of a figure against a size."""
    x, y = ([float(row[name]) for row in rows] for name in (size, figure))
    return float(np.polyfit(np.log(x), np.log(y), 1)[0] if logarithmic else np.polyfit(x, y, 1)[0])


def growth(rows: Sequence[Row], sizes: Sizes) -> list[Row]:
    """Exponents of time over the last three sizes, and memory above the output against the batch."""
    predictions = [row for row in rows if "processor min, ms" in row]
    found = []

    def add(some: list[Row], size: str, most: float, **labels: object) -> None:
        used = sorted(some, key=lambda row: row[size])[-3:]
        exponent = digits(slope(used, size, "processor min, ms", logarithmic=True), 3)
        span = f"{used[0][size]} to {used[-1][size]}"
        found.append({"what": "exponent", **labels, "against": size, "over": span, "figure": exponent, "most": most})

    for structure, bridge in itertools.product(STRUCTURES, BRIDGES):
        labels = {"structure": structure, "bridge": bridge}
        some = chosen(predictions, batch=sizes.batch, **labels)
        add(some, "classes", (2 if structure == "Kron" else 1) + NOISE, **labels)
        if structure != "DiagKron":
            some = chosen(predictions, classes=sizes.batch_classes, **labels)
            add([row for row in some if row["batch"] in sizes.batches], "batch", 1 + NOISE, **labels)
        weighed = [
            row | {"above": row["peak, MB"] * 1e6 / (sizes.batch_classes * 4) - row["batch"]}
            for row in chosen(rows, what="predict", classes=sizes.batch_classes, **labels)
            if row["batch"] in sizes.memory_batches
        ]
        figure = digits(slope(weighed, "batch", "above", logarithmic=False), 3)
        found.append({"what": "memory above the output per example, rows of logits", **labels, "figure": figure})
    for structure, classes in itertools.product(("Diag", "Kron"), sizes.fit_classes):
        labels = {"structure": structure, "classes": classes, "part": "sums"}
        add(chosen(rows, what="fit", **labels), "examples", 1 + NOISE, **labels)
    return found


def targets(rows: Sequence[Row], sizes: Sizes) -> list[dict[str, object]]:
    """What was wanted."""
    lines = []
    for row in chosen(rows, what="exponent"):
        of = ", ".join(str(row[name]) for name in ("structure", "bridge", "classes", "part") if name in row)
        lines.append(target(f"exponent of time in {row['against']}, {of}", row["figure"], most=row["most"]))
    places = [(s, sizes.batch_classes, max(sizes.batches)) for s in STRUCTURES]
    places += [(s, max(sizes.classes), sizes.batch) for s in ("Diag", "DiagKron")]
    for (structure, classes, batch), bridge in itertools.product(places, BRIDGES):
        (row,) = chosen(rows, what="predict", structure=structure, classes=classes, batch=batch, bridge=bridge)
        name = f"peak memory / output, {structure}, {bridge}, K = {classes}, B = {batch}"
        lines.append(target(name, row["peak / output"], most=12.0))
    for row in rows:
        if row["what"].startswith("memory above"):
            lines.append(target(f"{row['what']}, {row['structure']}, {row['bridge']}", row["figure"], most=0.1))
        if row["what"] == "load and predict":
            for figure in ("peak while predicting, MB", "whole process, MB"):
                name = f"{figure}, {row['structure']}, K = {row['classes']}, B = {row['batch']}"
                lines.append(target(name, row[figure], most=1500.0))
    return lines


def main() -> None:
    """Measures and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--one", nargs=2, metavar=("WHAT", "ARGUMENTS"), help="one measurement, in this process")
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
        print(f"{line['what']}: {line['measured']} (target {line['target']}){'' if line['met'] else ' NOT MET'}")
    command = "python benchmarks/bench_scaling.py" + (" --quick" if options.quick else "")
    store(options.output, command, {"rows": rows, "targets": lines})


if __name__ == "__main__":
    main()
