"""How well scores find unusual inputs and wrong answers, and how large sets are, on
images, tables and text: `python benchmarks/bench_detection.py`.

Needs the data of `laplacebridge reproduce` in the folder that LAPLACEBRIDGE_DATA names.
Every score sees the same features of the same networks (`detection_tasks.py`). Held-out
examples, which are like the test examples, are all that anything is chosen by; unlike
examples are only judged on. AUROC and the share of unlike inputs that pass where 95 %
of test inputs do (FPR95) are means over the near sets and over the far ones of a task;
their deviations are those of resampled test and unlike examples.
"""

import argparse
import statistics
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from detection_judged import JUDGED, SEEN
from detection_tasks import SHIFTED, TASKS, Task, made
from timing import digits, store, target
from torch import Tensor
from torch.nn import functional

import laplacebridge as lb
from laplacebridge import scores
from laplacebridge.metrics import auroc, fpr_at_tpr

RESULTS = Path(__file__).parent / "results" / "detection.json"
JUDGED_RESULTS = RESULTS.with_name("detection_judged.json")
RESAMPLES, COVERAGE, SPLITS = 50, 0.9, 20
NOTICED = 0.95  # quantile; tables have too few held-out rows for a higher one
OWN = "ood_score"
SETS = {
    "LAC": lambda _: lb.sets.LeastAmbiguous(),
    "APS": lb.sets.APS,
    "RAPS": lambda generator: lb.sets.RAPS(generator=generator),
    "APS, u = 1": lambda _: lb.sets.APS(None),
}
Scorer = Callable[[Tensor], Tensor]


def scorers(task: Task, classifier: lb.Classifier) -> dict[str, Scorer]:
    """Every score, as a function of features."""
    head, (train, labels) = task.head, task.train

    def predicted(score: Callable[[lb.Prediction], Tensor]) -> Scorer:
        return lambda features: score(classifier.predict_features(features))

    def of_logits(score: Callable[[Tensor], Tensor]) -> Scorer:
        return lambda features: score(head(features))

    return {
        OWN: predicted(lambda prediction: prediction.ood_score),
        "mutual information": predicted(scores.mutual_information),
        "1 − max p": predicted(scores.msp),
        "−log total": predicted(scores.negative_log_total),
        "energy": of_logits(scores.energy),
        "max logit": of_logits(scores.max_logit),
        "GEN": of_logits(scores.generalised_entropy),
        "Mahalanobis": lambda features: scores.mahalanobis(features, train, labels),
        "relative Mahalanobis": lambda features: scores.relative_mahalanobis(
            features, train, labels
        ),
        "Mahalanobis++": lambda features: scores.mahalanobis_plus_plus(features, train, labels),
        "KNN": lambda features: scores.knn(
            features, train[:5000], neighbours=min(50, max(1, len(train) // 20))
        ),
        "ViM": lambda features: scores.vim(features, train, head),
        "ReAct": lambda features: scores.react(features, train, head),
        "ASH": lambda features: scores.ash(features.clamp_min(0), head),
    }


def detected(own: Tensor, unlike: list[Tensor], generator: torch.Generator) -> dict[str, float]:
    """AUROC with its deviation, and FPR95, as means over sets of unlike examples."""

    def mean(metric: Callable[[Tensor, Tensor], Any], resampled: bool) -> float:
        def rows(of: Tensor) -> Tensor:
            if not resampled:
                return of
            return of[torch.randint(len(of), (len(of),), generator=generator)]

        first = rows(own)
        return statistics.fmean(float(metric(first, rows(part))) for part in unlike)

    found = [mean(auroc, True) for _ in range(RESAMPLES)]
    return {
        "AUROC": digits(mean(auroc, False)),
        "deviation": digits(statistics.stdev(found), 2),
        "FPR95": digits(mean(fpr_at_tpr, False)),
    }


def of_task(name: str, task: Task) -> dict[str, list[dict[str, Any]]]:
    """Rows of scores, of sets and of corrupted inputs."""
    classifier = lb.fit(
        task.head, [task.train], val_loader=[task.held_out], head="", progress=False
    )
    test, labels = task.test
    wrong = classifier.predict_features(test).label != labels
    rows = []
    for score, function in scorers(task, classifier).items():
        own = function(test)
        row: dict[str, Any] = {"task": name, "kind": task.kind, "score": score}
        for where, unlike in (("near", task.near), ("far", task.far)):
            found = detected(
                own, [function(part) for part in unlike.values()], torch.Generator().manual_seed(0)
            )
            row |= {f"{where} {key}": value for key, value in found.items()}
        row["AURC"] = digits(float(lb.metrics.aurc(own, ~wrong)))
        rows.append(row)
    return {
        "rows": rows,
        "sets": sets_of(name, task, classifier),
        "shift": shift_of(name, task, classifier),
    }


def sets_of(name: str, task: Task, classifier: lb.Classifier) -> list[dict[str, Any]]:
    """Coverage and size of calibrated sets, over halves of the test examples.

    Halves and random numbers are drawn anew for every task: a sequence that all shared
    would be off in the same direction everywhere.
    """
    features, labels = task.test
    prediction = classifier.predict_features(features)
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(SPLITS):
        order = torch.randperm(len(labels), generator=generator)
        first, second = order[: len(order) // 2], order[len(order) // 2 :]
        for rule, build in SETS.items():
            calibrated = lb.sets.calibrate(
                build(generator), prediction[first], labels[first], coverage=COVERAGE
            )
            sets = calibrated(prediction[second])
            covered = float(lb.metrics.coverage(sets, labels[second]))
            found.setdefault(rule, []).append((covered, float(sets.size.double().mean())))
    return [
        {
            "task": name,
            "rule": rule,
            "coverage": digits(statistics.fmean(covered for covered, _ in pairs)),
            "size": digits(statistics.fmean(size for _, size in pairs)),
        }
        for rule, pairs in found.items()
    ]


def shift_of(name: str, task: Task, classifier: lb.Classifier) -> list[dict[str, Any]]:
    """Likelihood, coverage of sets and detection of corrupted inputs, as means over
    corruptions.
    """
    temperature = task.temperature
    own = classifier.predict_features(task.test[0]).ood_score
    # corrupted inputs are of the first test examples, so the others calibrate the sets
    first = min(SHIFTED, len(task.test[1]) // 2)
    features, labels = (part[first:] for part in task.test)
    sets = lb.sets.calibrate(
        lb.sets.LeastAmbiguous(),
        classifier.predict_features(features),
        labels,
        coverage=COVERAGE,
    )
    rows = []
    for severity, parts in task.shifted.items():
        found: dict[str, list[float]] = {}
        for features, labels in parts:
            prediction, logits = classifier.predict_features(features), task.head(features)
            scaled = functional.cross_entropy(logits / temperature, labels)
            for key, value in (
                ("NLL", lb.metrics.nll(prediction, labels)),
                ("NLL, temperature scaling", float(scaled)),
                ("accuracy", float((prediction.label == labels).double().mean())),
                ("AUROC", auroc(own, prediction.ood_score)),
                ("unusual", float((prediction.ood_quantile >= NOTICED).double().mean())),
                ("coverage", lb.metrics.coverage(sets(prediction[:first]), labels[:first])),
            ):
                found.setdefault(key, []).append(float(value))
        if found:
            means = {key: digits(statistics.fmean(values)) for key, values in found.items()}
            rows.append({"task": name, "kind": task.kind, "severity": int(severity), **means})
    return rows


def mean_of(rows: list[dict[str, Any]], kind: str, score: str, column: str) -> float:
    """Over all tasks of a kind."""
    return statistics.fmean(
        row[column] for row in rows if row["kind"] == kind and row["score"] == score
    )


def mean_ranks(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Mean place of each score over tasks, near and far: 1 is best."""
    places: dict[str, list[float]] = {}
    for task in dict.fromkeys(row["task"] for row in rows):
        own = [row for row in rows if row["task"] == task]
        for column in ("near AUROC", "far AUROC"):
            for row in own:
                better = sum(other[column] > row[column] for other in own)
                same = sum(other[column] == row[column] for other in own)
                places.setdefault(row["score"], []).append(better + (same + 1) / 2)
    return {score: digits(statistics.fmean(found), 3) for score, found in places.items()}


def targets(rows: list[dict[str, Any]], ranks: dict[str, float]) -> list[dict[str, object]]:
    """What was wanted beside what was found."""

    def lead(row: dict[str, Any]) -> float:
        (energy,) = (
            other for other in rows if other["task"] == row["task"] and other["score"] == "energy"
        )
        return float(row["near AUROC"] - energy["near AUROC"])

    leads = {row["task"]: lead(row) for row in rows if row["score"] == OWN}
    worst = min(leads, key=lambda task: leads[task])
    return [
        target(f"AUROC, {where}, {kind}s", mean_of(rows, kind, OWN, f"{where} AUROC"), least=least)
        for where, kind, least in (
            ("near", "image", 0.925),
            ("far", "image", 0.98),
            ("far", "table", 0.88),
        )
    ] + [
        target(f"near AUROC less that of energy, smallest ({worst})", leads[worst], least=-0.01),
        target(
            "best mean place of another score less that of `ood_score`",
            min(place for score, place in ranks.items() if score != OWN) - ranks[OWN],
            least=0,
        ),
    ]


def judged(tasks: dict[str, Callable[[], Task]]) -> dict[str, Any]:
    """Scores on tasks that were not there when the formula was made."""
    rows: list[dict[str, Any]] = []
    sets: list[dict[str, Any]] = []
    for name, make in tasks.items():
        task = make()
        with torch.no_grad():
            found = of_task(name, task)
        rows += found["rows"]
        sets += found["sets"]
        print(name, flush=True)
    ranks = mean_ranks(rows)
    goals = [goal for goal in targets(rows, ranks) if "smallest" in goal["what"]]
    return {"rows": rows, "sets": sets, "mean places": ranks, "targets": goals}


def main() -> None:
    """Measures and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--judged", action="store_true", help="tasks that judge, alone")
    parser.add_argument("--output", type=Path)
    parser.add_argument(
        "--cache", type=Path, default=Path(tempfile.gettempdir()) / "laplacebridge-detection"
    )
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.judged:
        command = "python benchmarks/bench_detection.py --judged"
        document = {**judged(JUDGED), "seen": judged(SEEN)}
        store(given.output or JUDGED_RESULTS, command, document)
        return
    document = {"rows": [], "sets": [], "shift": []}
    for name in TASKS:
        task = made(name, given.cache)
        with torch.no_grad():
            for part, added in of_task(name, task).items():
                document[part] += added
        print(name, flush=True)
    ranks = mean_ranks(document["rows"])
    store(
        given.output or RESULTS,
        "python benchmarks/bench_detection.py",
        {
            **document,
            "splits": SPLITS,
            "mean places": ranks,
            "targets": targets(document["rows"], ranks),
        },
    )


if __name__ == "__main__":
    main()
