"""laplace-torch 0.3 and this library on the same last-layer posteriors: `python
benchmarks/bench_laplace_torch.py`.

Single thread, float32, 512 random features, a head without bias (with one, Kronecker
factors of the two libraries mean different things). Each fit and prediction of
laplace-torch runs in a process of its own, which first weighs it, then times both
libraries in turn; ours is weighed in another process. Memory is the most above what the
process held before the call. A process may take 16 GB of addresses and 900 s. Both are
called repeatedly, laplace-torch at least `LEAST` times after the first, and ratios are
of medians; only what takes longer than `SLOW` seconds counts its first call too. Both
must give the same: logits and closed-form predictions where both predict, evidence
where both fit. `--quick`: tiny sizes.

For a diagonal laplace-torch has a fast way to the variances,
`functional_variance_fast`, that its public call for classification does not reach. It
is timed beside our logits.
"""

import argparse
import importlib.util
import json
import resource
import statistics
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from laplace_torch_calls import (
    OURS,
    SAME_NUMBERS,
    STRUCTURES,
    THEIRS,
    Case,
    fit_ours,
    fit_theirs,
    loader,
    network,
    posterior_of_ours,
    posterior_of_theirs,
    predictions,
    queries,
    warm_up,
)
from timing import Call, Row, Timing, digits, in_fresh_process, peak_above, store, target, timed
from torch import Tensor

from laplacebridge._stopwatch import once
from laplacebridge.laplace.head_fitting import HeadSums

RESULTS = Path(__file__).parent / "results" / "laplace_torch.json"
INSTALL = (
    "needs laplace-torch 0.3: `pip install --no-deps -r requirements/crosscheck.txt` (without"
    " --no-deps it brings a torchvision that cannot be imported beside a CPU build of torch)"
)
TOLERANCE = 1e-3  # relative, in float32
SLOW = 30.0  # seconds of a call whose first counts too
LEAST = 3  # calls of laplace-torch
FAST = "functional_variance_fast"
ADDRESSES = 16 * 10**9
FITS = ("fit", "fit without decomposition")


FULL = (
    Case("predict", "diag", 10, 128, 1024),
    Case("predict", "kron", 10, 128, 1024, 100),
    Case("predict", "diag", 100, 16, 128, 1000),
    Case("predict", "kron", 100, 16, 128, 1000),
    Case("predict", "diag", 1000, 1, 16),
    Case("predict", "kron", 1000, 1, 16),
    Case("refused", "diag", 1000, 128, 16),
    Case("refused", "kron", 1000, 128, 16),
    Case("fit", "diag", 10, 128, 2560, 10),
    Case("fit", "kron", 10, 128, 10_240, 10),
    Case("fit", "diag", 100, 8, 8),
    Case("fit", "kron", 100, 128, 1024),
    Case("fit", "diag", 1000, 1, 1, 500),
    Case("fit", "kron", 1000, 128, 128, 500),
)
QUICK = (
    Case("predict", "diag", 3, 2, 8, 100, features=4),
    Case("refused", "kron", 3, 4, 8, features=4),
    Case("fit", "kron", 3, 4, 8, 10, features=4),
)


def weighed(call: Call) -> tuple[int, tuple[float, float]]:
    """Memory of a call, and its processor and wall time."""
    times: list[tuple[float, float]] = []
    peak = peak_above(lambda: times.append(once(call)))
    return peak, times[0]


def relative(found: Tensor, expected: Tensor) -> float:
    """The largest difference, each relative to its own."""
    return ((found - expected).abs() / expected.abs()).max().item()


def row(case: Case, library: str, method: str, timing: Timing, **more: object) -> Row:
    """One line of the results."""
    return {
        "what": case.what,
        "structure": case.structure,
        "classes": case.classes,
        "batch": case.batch,
        "examples fitted": case.examples,
        "library": library,
        "method": method,
        "repetitions": len(timing.processor),
        **timing.row(unit="ms", scale=1e3),
        **more,
    }


def timed_in_turn(
    theirs: dict[str, Call], ours: dict[str, Call], first: tuple[float, float]
) -> dict[str, Timing]:
    """Times of both, each called repeatedly.

    A call that goes through hundreds of megabytes leaves ours with cold caches, and few
    rounds; so ours is also timed alone.
    """
    alone = timed(ours, budget=1.0)
    if first[1] > SLOW:
        name, call = next(iter(theirs.items()))
        calls = [first, *(once(call) for _ in range(LEAST - 1))]
        return {**alone, name: Timing(*zip(*calls))}
    times = timed({**theirs, **ours}, budget=0.5, least=LEAST)
    for name, more in alone.items():
        times[name] = Timing(times[name].processor + more.processor, times[name].wall + more.wall)
    return times


def ratios(ours: Timing, theirs: Timing) -> Row:
    """How many times faster, by the medians."""
    return {
        "laplace-torch / this, processor": digits(
            statistics.median(theirs.processor) / statistics.median(ours.processor)
        ),
        "laplace-torch / this, wall": digits(
            statistics.median(theirs.wall) / statistics.median(ours.wall)
        ),
    }


def fast_path(case: Case, fitted: Any, ours: Call, inputs: Tensor) -> list[Row]:  # noqa: ANN401
    """Variances of the logits by the way that their public call does not take, and
    ours.
    """
    times = timed({FAST: partial(getattr(fitted, FAST), inputs), "logits": ours}, budget=1.0)
    fast = replace(case, what="fast path")
    return [
        row(fast, THEIRS, FAST, times[FAST]),
        row(fast, OURS, "logits", times["logits"], **ratios(times["logits"], times[FAST])),
    ]


def predict_both(case: Case) -> list[Row]:
    """Predictions of both libraries from the same posterior, in this process."""
    fitted, classifier, inputs = posterior_of_theirs(case), posterior_of_ours(case), queries(case)
    seen: list[tuple[Tensor, Tensor]] = []
    distribution = fitted._glm_predictive_distribution

    def remembering(*arguments: Any, **options: Any) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        mean, covariance = distribution(*arguments, **options)
        seen[:] = [
            (mean.clone(), covariance.diagonal(dim1=-2, dim2=-1).clone())
        ]  # the call goes on in place
        return mean, covariance

    def predicted(link: str) -> Tensor:
        return fitted(inputs, pred_type="glm", link_approx=link)

    theirs = {link: partial(predicted, link) for link in SAME_NUMBERS}
    ours = predictions(classifier, inputs)
    answers: list[Tensor] = []
    fitted._glm_predictive_distribution = remembering
    peak, first = weighed(lambda: answers.append(predicted("bridge_norm")))
    fitted._glm_predictive_distribution = distribution
    times = timed_in_turn(theirs, ours, first)
    memory = {"peak, MB": digits(peak / 1e6)}
    rows = [
        row(case, THEIRS, link, times[link], **(memory if link == "bridge_norm" else {}))
        for link in theirs
        if link in times
    ]
    rows += [
        row(case, OURS, name, times[name], **ratios(times[name], times["bridge_norm"]))
        for name in ours
    ]
    (mean, variance), gaussian = seen[0], classifier.logits(inputs)
    differences = {
        "mean of logits": ((gaussian.mean - mean).abs().max() / mean.abs().max()).item(),
        "variance of logits": relative(gaussian.variance, variance),
        "bridge_norm": relative(SAME_NUMBERS["bridge_norm"](gaussian), answers[0]),
    }
    if "probit" in times:
        differences["probit"] = relative(SAME_NUMBERS["probit"](gaussian), predicted("probit"))
    if case.structure == "diag":
        rows += fast_path(case, fitted, partial(classifier.logits, inputs), inputs)
        fast = getattr(fitted, FAST)(inputs)[1]
        differences["variance by the fast path"] = relative(gaussian.variance, fast)
    return [*rows, *agreement(case, differences)]


def agreement(case: Case, differences: dict[str, float]) -> list[Row]:
    """Rows that say how far the libraries are from each other."""
    place = {"structure": case.structure, "classes": case.classes}
    return [
        {"what": "agreement", **place, "of": name, "relative difference": digits(value, 2)}
        for name, value in differences.items()
    ]


def fit_both(case: Case) -> list[Row]:
    """Fits by both libraries of the same data, in this process; of Kronecker factors
    also without decomposition.
    """
    model, data = network(case), loader(case)
    results: list[Any] = []
    peak, first = weighed(lambda: results.append(fit_theirs(model, data, case.structure)))
    (fitted,), classifier = results, fit_ours(model, data, case.structure)

    def summed() -> None:
        HeadSums(model, None, STRUCTURES[case.structure], resume=None, progress=False).add(data)

    theirs: dict[str, Call] = {"whole fit": lambda: fit_theirs(model, data, case.structure)}
    ours: dict[str, Call] = {"fit": lambda: fit_ours(model, data, case.structure), "sums": summed}
    times = timed_in_turn(theirs, ours, first)
    rows = [
        row(case, THEIRS, "fit", times["whole fit"], **{"peak, MB": digits(peak / 1e6)}),
        row(case, OURS, "fit", times["fit"], **ratios(times["fit"], times["whole fit"])),
    ]
    if case.structure == "kron":
        decomposing = timed({"once": fitted.H_facs.decompose}, budget=0.3)["once"]
        apart = Timing(
            tuple(seconds - decomposing.best for seconds in times["whole fit"].processor),
            tuple(seconds - min(decomposing.wall) for seconds in times["whole fit"].wall),
        )
        rows.append(row(case, THEIRS, "fit without decomposition", apart))
        rows.append(
            row(
                case,
                OURS,
                "fit without decomposition",
                times["sums"],
                **ratios(times["sums"], apart),
            )
        )
    evidence = fitted.log_marginal_likelihood().item()
    return [*rows, *agreement(case, {"evidence": abs(classifier.evidence() / evidence - 1)})]


def refused(case: Case) -> list[Row]:
    """A batch that laplace-torch has no memory for: what it says, and what it costs
    here.
    """
    fitted, inputs = posterior_of_theirs(case), queries(case)
    answers = ["answered"]

    def asked() -> None:
        try:
            fitted(inputs, pred_type="glm", link_approx="bridge_norm")
        except RuntimeError as error:
            answers[:] = str(error).splitlines()[:1]

    processor, wall = once(asked)
    times = timed(predictions(posterior_of_ours(case), inputs), budget=0.3)
    theirs = row(case, THEIRS, "bridge_norm", Timing((processor,), (wall,)), answer=answers[0])
    return [theirs, *(row(case, OURS, name, timing) for name, timing in times.items())]


def weigh_ours(case: Case) -> list[Row]:
    """Memory of this library's calls, in this process."""
    if case.what == "fit":
        calls: dict[str, Call] = {
            "fit": partial(fit_ours, network(case), loader(case), case.structure)
        }
    else:
        calls = predictions(posterior_of_ours(case), queries(case))
    return [
        {"method": name, "peak, MB": digits(peak_above(call) / 1e6)} for name, call in calls.items()
    ]


def one(library: str, structure: str, classes: int, what: str) -> list[Row]:
    """One measurement in this process."""
    (case,) = (
        c for c in FULL + QUICK if (c.structure, c.classes, c.what) == (structure, classes, what)
    )
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # dependencies of laplace-torch use what torch has deprecated
        warm_up(library)
        if library == OURS:
            return weigh_ours(case)
        return {"fit": fit_both, "predict": predict_both, "refused": refused}[what](case)


def here(library: str, case: Case, timeout: float) -> dict[str, Any]:
    """One measurement in this process; in a process of its own if it may be refused
    memory.
    """
    if case.what == "refused":
        return fresh(library, case, timeout)
    return {"rows": one(library, case.structure, case.classes, case.what)}


def fresh(library: str, case: Case, timeout: float) -> dict[str, Any]:
    """One measurement in a process of its own."""
    place = (case.structure, case.classes, case.what)
    return in_fresh_process(__file__, "--one", library, *place, timeout=timeout)


def measured(case: Case, run: Callable[..., dict[str, Any]], timeout: float) -> list[Row]:
    """Rows of a case: of both libraries, and what ours weighs."""
    both, ours = (run(library, case, timeout) for library in (THEIRS, OURS))
    if "failed" in ours:
        raise SystemExit(f"{OURS}, {case}: {ours['failed']}")
    if "failed" in both:
        rows = [
            {
                "what": case.what,
                "structure": case.structure,
                "classes": case.classes,
                "library": THEIRS,
                **both,
            }
        ]
    else:
        rows = both["rows"]
    peaks = {line["method"]: line["peak, MB"] for line in ours["rows"]}
    for line in rows:
        if line.get("library") == OURS and line["method"] in peaks:
            line["peak, MB"] = peaks[line["method"]]
        print(", ".join(f"{name} {value}" for name, value in line.items()), flush=True)
    return rows


def targets(case: Case, rows: list[Row]) -> list[dict[str, object]]:
    """What was wanted of a case: of predictions by the bridge that both libraries have."""
    lines, ratio = [], "laplace-torch / this, processor"
    for line in rows:
        if (
            case.least is not None
            and ratio in line
            and line["method"] in {"laplace_bridge_norm", *FITS}
        ):
            size = f"B = {case.batch}" if case.what == "predict" else f"N = {case.examples}"
            what = (
                f"times faster than laplace-torch, {case.structure}, K = {case.classes}, {size}:"
                f" {line['method']}"
            )
            lines.append(target(what, line[ratio], least=case.least))
    return lines


def main() -> None:
    """Measures and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for each process")
    parser.add_argument(
        "--one", nargs=4, metavar=("LIBRARY", "STRUCTURE", "K", "WHAT"), help="in this process"
    )
    options = parser.parse_args()
    if importlib.util.find_spec("laplace") is None:
        raise SystemExit(INSTALL)
    torch.set_num_threads(1)
    if options.one:
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
        library, structure, classes, what = options.one
        print(json.dumps({"rows": one(library, structure, int(classes), what)}))
        return
    rows, lines = [], []
    cases, run = (QUICK, here) if options.quick else (FULL, fresh)
    for case in cases:
        found = measured(case, run, options.timeout)
        rows += found
        lines += targets(case, found)
    for line in lines:
        print(
            f"{line['what']}: {line['measured']} (target"
            f" {line['target']}){'' if line['met'] else ' NOT MET'}"
        )
    command = "python benchmarks/bench_laplace_torch.py" + (" --quick" if options.quick else "")
    store(options.output, command, {"rows": rows, "targets": lines})
    apart = [line for line in rows if line.get("relative difference", 0.0) > TOLERANCE]
    if apart:
        raise SystemExit(f"the libraries do not agree, so times cannot be compared: {apart}")
    failed = [line for line in rows if "failed" in line]
    if failed:
        raise SystemExit(f"not everything could be measured: {failed}")


if __name__ == "__main__":
    main()
