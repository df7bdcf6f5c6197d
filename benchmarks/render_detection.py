"""Writes docs/detection.md from the stored benchmark of detection.

python benchmarks/render_detection.py
"""

import json
import statistics
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parent
RESULTS = BENCHMARKS / "results" / "detection.json"
JUDGED = BENCHMARKS / "results" / "detection_judged.json"
PAGE = BENCHMARKS.parent / "docs" / "detection.md"
OWN = "ood_score"
SHOWN = (OWN, "energy", "Mahalanobis++", "ViM", "KNN", "mutual information", "1 − max p")
KINDS = {"image": "seven image networks", "table": "ten tables", "text": "text"}
Row = dict[str, Any]


def mean(rows: list[Row], column: str) -> str:
    """A mean, as it is printed."""
    return f"{statistics.fmean(row[column] for row in rows):.3f}"


def by_score(document: dict[str, Any]) -> list[str]:
    """All scores, over all tasks of each kind."""
    kinds = " | ".join(f"{words}, near / far" for words in KINDS.values())
    lines = [f"| score | mean place | {kinds} | FPR95, images |", "|---|---|---|---|---|---|"]
    places = document["mean places"]
    for score in sorted(places, key=lambda name: float(places[name])):
        own = [row for row in document["rows"] if row["score"] == score]
        cells = []
        for kind in KINDS:
            some = [row for row in own if row["kind"] == kind]
            cells.append(f"{mean(some, 'near AUROC')} / {mean(some, 'far AUROC')}")
        some = [row for row in own if row["kind"] == "image"]
        cells.append(f"{mean(some, 'near FPR95')} / {mean(some, 'far FPR95')}")
        name = f"**`{score}`**" if score == OWN else score
        lines.append(f"| {name} | {places[score]:.1f} | {' | '.join(cells)} |")
    return lines


def by_task(document: dict[str, Any]) -> list[str]:
    """Every task, with what disappoints; the best in bold."""
    lines = [f"| task, near / far | {' | '.join(SHOWN)} |", "|---" * (len(SHOWN) + 1) + "|"]
    for task in dict.fromkeys(row["task"] for row in document["rows"]):
        found = {row["score"]: row for row in document["rows"] if row["task"] == task}
        best = {
            where: max(found[score][f"{where} AUROC"] for score in SHOWN)
            for where in ("near", "far")
        }
        cells = []
        for score in SHOWN:
            parts = []
            for where in ("near", "far"):
                value, deviation = (
                    found[score][f"{where} {key}"] for key in ("AUROC", "deviation")
                )
                text = f"{value:.3f} ± {2 * deviation:.3f}" if score == OWN else f"{value:.3f}"
                parts.append(f"**{text}**" if value == best[where] else text)
            cells.append(" / ".join(parts))
        lines.append(f"| {task} | {' | '.join(cells)} |")
    return lines


def judged(document: dict[str, Any]) -> list[str]:
    """Tasks that judge, with the mean places of scores there."""
    places = document["mean places"]
    ordered = sorted(places, key=lambda name: float(places[name]))
    (goal,) = document["targets"]
    near = {
        score: [row["near AUROC"] for row in document["rows"] if row["score"] == score]
        for score in (OWN, "energy")
    }
    ahead = sum(own > other for own, other in zip(near[OWN], near["energy"]))
    return [
        *by_task(document),
        "",
        "Mean places: " + ", ".join(f"{score} {places[score]:.1f}" for score in ordered) + ".",
        (
            f"Near, `{OWN}` leads the energy on {ahead} of {len(near[OWN])} tasks;"
            f" {goal['what']}: {goal['measured']:+.3f}, wanted {goal['target']}"
            f" ({'met' if goal['met'] else '**missed**'})."
        ),
    ]


def rejection(document: dict[str, Any]) -> list[str]:
    """AURC by kind."""
    lines = [f"| score | {' | '.join(KINDS.values())} |", "|---|---|---|---|"]
    for score in ("1 − max p", "mutual information", "energy", OWN, "Mahalanobis++"):
        own = [row for row in document["rows"] if row["score"] == score]
        cells = [mean([row for row in own if row["kind"] == kind], "AURC") for kind in KINDS]
        lines.append(f"| {score} | {' | '.join(cells)} |")
    return lines


def sets(document: dict[str, Any]) -> list[str]:
    """Coverage and size by rule."""
    lines = ["| rule | coverage | mean size |", "|---|---|---|"]
    for rule in dict.fromkeys(row["rule"] for row in document["sets"]):
        own = [row for row in document["sets"] if row["rule"] == rule]
        sizes = statistics.fmean(row["size"] for row in own)
        lines.append(f"| {rule} | {mean(own, 'coverage')} | {sizes:.2f} |")
    return lines


def shift(document: dict[str, Any]) -> list[str]:
    """Corrupted inputs by kind and severity."""
    lines = [
        (
            "| inputs | severity | accuracy | NLL | NLL, temperature scaling"
            " | coverage of 90 % sets | AUROC of `ood_score` | `ood_quantile` ≥ .95 |"
        ),
        "|---|---|---|---|---|---|---|---|",
    ]
    columns = ("accuracy", "NLL", "NLL, temperature scaling", "coverage", "AUROC", "unusual")
    for kind, words in KINDS.items():
        for severity in dict.fromkeys(row["severity"] for row in document["shift"]):
            own = [
                row
                for row in document["shift"]
                if row["kind"] == kind and row["severity"] == severity
            ]
            if own:
                cells = " | ".join(mean(own, column) for column in columns)
                lines.append(f"| {words} | {severity} | {cells} |")
    return lines


def goals(document: dict[str, Any]) -> list[str]:
    """What was wanted beside what was found."""
    lines = ["| goal | wanted | found | |", "|---|---|---|---|"]
    for goal in document["targets"]:
        met = "met" if goal["met"] else "**missed**"
        lines.append(f"| {goal['what']} | {goal['target']} | {goal['measured']} | {met} |")
    return lines


TEXT = """# Finding unusual inputs

All scores see the same features of the same networks. Near: other classes of a similar
kind (CIFAR-100 for a network of CIFAR-10, unknown digits, shuffled columns, other parts
of the same documentation). Far: other kinds of images, noise, rows in the wrong unit,
documentation of other libraries. AUROC is the chance that an unlike input scores higher
than one like the training data; FPR95 is the share of unlike inputs that pass where 95 %
of the others do. [Scores](guide/scores.md) says which to use for what. Made by
`python benchmarks/bench_detection.py`.

## All scores

{by_score}

Mean place: among all scores, over tasks, near and far. Unlike inputs choose nothing when
a classifier is fitted. But the formula of `ood_score` and its metric were chosen among
some hundred, by these very tasks and unlike inputs: its figures here are those of a
study, not of a test, and others will see less.

## Every task

{by_task}

± is twice the deviation over resampled inputs. `ood_score` loses to distances alone
where these say everything (other letters and noise for networks of digits), to distances
of features as they are on rows in the wrong unit, and to the energy where distances say
little: on CIFAR-100, near, and on text.

## Tasks that judge it

Written after metric and formula: other documentations, letters, Japanese characters, a
linear head on a table in its own units
(`python benchmarks/bench_detection.py --judged`). They chose two things: one-sided
deviations lost on the two with fewer than a hundred held-out examples, and are since
taken only from two hundred on; and from where on energy and distances count, one
deviation below and above their means, was looked at here too.

{judged}

The tasks that judged before, and were looked at when the metric was made cheap and the
deviations one-sided: other documentations, drawn shapes, classes left out of tables and
of made-up data.

{seen}

## Goals

{goals}

## Wrong answers among usual inputs

Area under the risk–coverage curve, lower is better, when the inputs of the highest score
are deferred first. What finds unusual inputs is not what finds wrong answers: for these
1 − max p is best or next to it.

{rejection}

## Under shift

Test inputs that were corrupted on their way: noise, blur, contrast, brightness, JPEG and
rotation of images; noise, erased columns and wrong units of tables
(`benchmarks/corruptions.py`). Means over corruptions and tasks; AUROC against inputs
that were not. Sets are those of least ambiguity, calibrated for 90 % on test inputs as
they are: a guarantee for inputs like these, which no corrupted input is. The last column
says how many are noticed where one of twenty usual inputs is.

{shift}

## Sets

Calibrated for a coverage of 90 % on half of the test inputs and judged on the other
half; means over all tasks. "u = 1" draws no random number. Coverage is promised on
average over halves *and* random numbers. {splits}over many halves of the tasks that judge,
APS and RAPS cover {covered}.

{sets}
"""


def rendered() -> str:
    """The whole page, from the stored results."""
    document = json.loads(RESULTS.read_text(encoding="utf-8"))
    apart = json.loads(JUDGED.read_text(encoding="utf-8"))
    covered = " and ".join(
        mean([row for row in apart["sets"] if row["rule"] == rule], "coverage")
        for rule in ("APS", "RAPS")
    )
    tables = {
        "by_score": by_score,
        "by_task": by_task,
        "goals": goals,
        "rejection": rejection,
        "sets": sets,
        "shift": shift,
    }
    parts = {name: "\n".join(made(document)) for name, made in tables.items()}
    splits = (
        "The table has means over many; "
        if document.get("splits", 1) > 1
        else (
            "In the table one half and one sequence of random numbers\nserved all tasks, so that"
            " APS and RAPS are off in the same direction everywhere;\n"
        )
    )
    shown, seen = ("\n".join(judged(part)) for part in (apart, apart["seen"]))
    return TEXT.format(**parts, judged=shown, seen=seen, covered=covered, splits=splits)


def main() -> None:
    """Writes the page."""
    PAGE.write_text(rendered(), encoding="utf-8")


if __name__ == "__main__":
    main()
