"""Do intervals hold? Coverage of known probabilities, and what it costs in NLL: `python
benchmarks/bench_intervals.py`.

On problems whose true class probabilities are known, intervals of several ways to fit
are compared with the truth: the share of test inputs whose true probability lies
inside, for the class ranked first and for all classes. Each problem is drawn, trained
and fitted several times; standard errors are between these runs. `NLL above TS` is the
expected negative log-likelihood under the truth, in per cent above temperature scaling
on the same held-out labels.
"""

import contextlib
import math
import statistics
import warnings
from collections.abc import Callable, Iterable
from unittest import mock

import torch
from kept_back_truth import JUDGED, KEPT_BACK
from known_truth import FAST, HELD_OUT, LATER, STUDY, Run, runs_of
from timing import digits, run
from torch import nn

import laplacebridge as lb
from laplacebridge import bridges
from laplacebridge.laplace import candidate_widths, prior, width

LEVELS = (0.5, 0.8, 0.95)
RUNS, ABLATION_RUNS, QUICK_RUNS = 10, 3, 2
KINDS = {
    "study": STUDY,
    "later": LATER,
    "held out": HELD_OUT,
    "kept back": KEPT_BACK,
    "judged": JUDGED,
}
PROBLEMS = {name: problem for kind in KINDS.values() for name, problem in kind.items()}
# networks of many examples take longer, and vary less from run to run
FEWER_RUNS = {
    "lr10_2000": 5,
    "mog_2000": 5,
    "teach_1000": 5,
    "teach_4000": 5,
    "teach_1000_over": 5,
    "scatter10_2000": 5,
    **dict.fromkeys((*KEPT_BACK, *JUDGED), 5),
}
Batches = list[tuple[torch.Tensor, torch.Tensor]]


def by_held_out_labels(head: nn.Linear, training: Batches, validation: Batches) -> lb.Classifier:
    """The default: temperature and width by what held-out labels reveal."""
    return lb.fit(head, training, val_loader=validation, progress=False)


def by_validation(head: nn.Linear, training: Batches, validation: Batches) -> lb.Classifier:
    """The prior precision of the smallest NLL of held-out labels, which is usual."""
    fitted = lb.fit(head, training, prior_precision=1.0, progress=False)
    choice = prior.by_validation(fitted.posterior, lb.race_bridge, *validation[0])
    return fitted.with_prior(choice.prior_precision)


def by_evidence(head: nn.Linear, training: Batches, validation: Batches) -> lb.Classifier:
    """The prior precision of the largest evidence: what a fit without held-out labels
    does.
    """
    return lb.fit(head, training, progress=False)


METHODS: dict[str, Callable[[nn.Linear, Batches, Batches], lb.Classifier]] = {
    "held-out labels (default)": by_held_out_labels,
    "validation NLL": by_validation,
    "evidence": by_evidence,
}


def judged(own: Run, methods: Iterable[str] = METHODS) -> dict[str, dict[str, float]]:
    """Every method on one run of a problem."""
    head = nn.Linear(*own.weight.T.shape, dtype=torch.float64)
    with torch.no_grad():
        head.weight.copy_(torch.tensor(own.weight))
        head.bias.copy_(torch.tensor(own.bias))
        inputs, truth = torch.tensor(own.test), torch.tensor(own.truth)
        training, validation = (
            [tuple(map(torch.tensor, part))] for part in (own.training, own.validation)
        )
        scaling = lb.temperature.temperature_scaling(head(validation[0][0]), validation[0][1])
        baseline = _nll(scaling(head(inputs)), truth)
        found = {}
        for name in methods:
            prediction = METHODS[name](head, training, validation)(inputs)
            top = prediction.label.unsqueeze(-1)
            numbers = {"NLL above TS, %": 100 * (_nll(prediction.mean, truth) / baseline - 1)}
            for level in LEVELS:
                lower, upper = prediction.interval(level)
                inside = ((lower <= truth) & (truth <= upper)).double()
                numbers[f"top {level:.0%}"] = float(inside.gather(-1, top).mean())
                numbers[f"all {level:.0%}"] = float(inside.mean())
            numbers["width of top 95%"] = float((upper - lower).gather(-1, top).mean())
            found[name] = numbers
    return found


_temperature = width.network_temperature
# What each step of the rule is replaced by to leave it out, by its name in one of these.
STEPS = (width, candidate_widths, bridges)
ABLATIONS: dict[str, dict[str, object]] = {
    "whole rule": {},
    "no error of T": {"network_temperature": lambda *given: (_temperature(*given)[0], 0.0)},
    "s = 1": {"joint_scale": lambda *_: 1.0},
    "k = 1": {"SHARES": (1.0,), "ALLOWED_LOSS": math.inf},
    "no gap": {"brier_gap": lambda *_: (0.0, 0.0)},
    "no neighbours": {"shared_residuals": lambda *_: 0.0},
    "no extra variance": {"LARGEST_VARIANCE": 1.1e-4},
    "no growth with log-odds": {"RELATIVE_VARIANCE": 0.0},
}


def ablated(problem: str, number: int) -> list[dict[str, object]]:
    """The default with each step left out, on one problem."""
    with torch.enable_grad():
        trained = runs_of(PROBLEMS[problem], number)
    rows = []
    for name, replaced in ABLATIONS.items():
        with contextlib.ExitStack() as stack:
            for step, value in replaced.items():
                module = next(module for module in STEPS if hasattr(module, step))
                stack.enter_context(mock.patch.object(module, step, value))
            runs = [judged(own, ("held-out labels (default)",)) for own in trained]
        found = [each["held-out labels (default)"] for each in runs]
        means = {
            key: digits(statistics.fmean(each[key] for each in found), 4)
            for key in ("top 95%", "all 95%", "NLL above TS, %")
        }
        rows.append({"problem": problem, "runs": number, "left out": name, **means})
    return rows


def _nll(probabilities: torch.Tensor, truth: torch.Tensor) -> float:
    return float(-(truth * probabilities.clamp_min(1e-300).log()).sum(-1).mean())


def row(problem: str, number: int) -> list[dict[str, object]]:
    """All methods on one problem."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # that a width cannot be checked, or that a network is overfitted, is meant
        with torch.enable_grad():
            trained = runs_of(PROBLEMS[problem], number)
        runs = [judged(own) for own in trained]
    rows = []
    for method in METHODS:
        numbers = {name: [each[method][name] for each in runs] for name in runs[0][method]}
        rows.append(
            {
                "problem": problem,
                "kind": next(kind for kind, own in KINDS.items() if problem in own),
                "classes": PROBLEMS[problem].num_classes,
                "runs": number,
                "method": method,
                **{name: digits(statistics.fmean(values), 4) for name, values in numbers.items()},
                **{
                    f"{name} ±": digits(statistics.stdev(values) / len(values) ** 0.5, 2)
                    for name, values in numbers.items()
                    if name in {"top 95%", "all 95%", "NLL above TS, %"}
                },
            }
        )
    return rows


def targets(rows: list[dict[str, object]], kinds: str) -> list[dict[str, object]]:
    """What was wanted beside what was found, for the default on some problems."""
    ours = [row for row in rows if row["method"] == "held-out labels (default)"]
    covered = [float(row["top 95%"]) for row in ours]
    few = [float(row["all 95%"]) for row in ours if int(row["classes"]) <= 4]
    worst = max(float(row["NLL above TS, %"]) - float(row["NLL above TS, % ±"]) for row in ours)
    inside = sum(0.90 <= share <= 0.99 for share in covered)
    enough = math.ceil(15 * len(ours) / 18)
    lines = [
        (
            f"problems whose 95 % intervals of the top class cover 0.90 to 0.99, of {len(ours)}",
            inside,
            f"≥ {enough} of {len(ours)}",
        ),
        ("smallest coverage of the top class", min(covered), "≥ 0.80"),
        ("smallest coverage of all classes, K ≤ 4", min(few, default=1.0), "> 0.85"),
        ("largest NLL above temperature scaling less one standard error, %", worst, "≤ 1"),
    ]
    met = [
        inside >= enough,
        min(covered) >= 0.80,
        min(few, default=1.0) > 0.85,
        worst <= 1,
    ]
    return [
        {
            "problems": kinds,
            "what": what,
            "target": wanted,
            "measured": digits(value, 3),
            "met": bool(good),
        }
        for (what, value, wanted), good in zip(lines, met)
    ]


def measured(quick: bool) -> dict[str, object]:
    """Every problem, or the fast ones a few times."""
    names = FAST if quick else tuple(PROBLEMS)
    rows = []
    for name in names:
        rows += row(name, QUICK_RUNS if quick else FEWER_RUNS.get(name, RUNS))
        print(f"{name}: {rows[-len(METHODS)]}", flush=True)
    chosen_on = [row for row in rows if row["kind"] not in {"kept back", "judged"}]
    groups = {"chosen on": chosen_on} | {
        kind: [row for row in rows if row["kind"] == kind] for kind in ("kept back", "judged")
    }
    found = [line for kind, own in groups.items() if own for line in targets(own, kind)]
    return {"rows": rows, "ablation": ablation(quick), "targets": found}


def ablation(quick: bool) -> list[dict[str, object]]:
    """Each step left out, on the problems that the rule was not held out from."""
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in FAST[:1] if quick else (*STUDY, *LATER):
            rows += ablated(name, QUICK_RUNS if quick else ABLATION_RUNS)
    return rows


if __name__ == "__main__":
    run(__doc__ or "", __file__, measured)
