"""Puts what the stored benchmark of intervals found between the markers in README.md
and in the guide to priors.

python benchmarks/render_intervals.py
"""

import json
import statistics
from pathlib import Path

from plot_benchmarks import draw_intervals
from timing import Row, chosen

BENCHMARKS = Path(__file__).parent
RESULTS = BENCHMARKS / "results" / "intervals.json"
README = BENCHMARKS.parent / "README.md"
PLOT = BENCHMARKS.parent / "docs" / "benchmarks" / "intervals.png"
GUIDE = BENCHMARKS.parent / "docs" / "guide" / "priors.md"
BEGIN, END = "<!-- intervals:begin -->", "<!-- intervals:end -->"
METHODS = ("held-out labels (default)", "validation NLL", "evidence")
LEVELS = ("50%", "80%", "95%")
KINDS = {
    "study": "the rule was found with it",
    "later": "simplified on it",
    "held out": "chosen on it, later",
    "kept back": "seen while it was chosen",
    "judged": "chose nothing",
}
GROUPS = {
    "default, problems that it was chosen on": ("study", "later", "held out"),
    "default, problems seen while it was chosen": ("kept back",),
    "default, problems that chose nothing": ("judged",),
}


def summary(rows: list[Row]) -> str:
    """Nominal against found, over all problems and over each group of them."""
    lines = [
        (
            "| width chosen by | 50 % | 80 % | 95 % | 95 %, smallest – largest | in .90 – .99 | 95 %,"
            " all classes | NLL above TS, largest |"
        ),
        "|---|---|---|---|---|---|---|---|",
    ]
    default = chosen(rows, method=METHODS[0])
    parts = {method: chosen(rows, method=method) for method in METHODS}
    parts |= {
        name: [row for row in default if row["kind"] in kinds] for name, kinds in GROUPS.items()
    }
    for name, own in parts.items():
        if not own:
            continue
        found = [f"{statistics.fmean(row[f'top {level}'] for row in own):.2f}" for level in LEVELS]
        top = [row["top 95%"] for row in own]
        inside = sum(0.90 <= share <= 0.99 for share in top)
        everything = statistics.fmean(row["all 95%"] for row in own)
        worst = max(row["NLL above TS, %"] for row in own)
        lines.append(
            f"| {name} | {' | '.join(found)} | {min(top):.2f} – {max(top):.2f} | {inside} of"
            f" {len(own)} | {everything:.2f} | {worst:+.1f} % |"
        )
    runs = sorted({row["runs"] for row in rows})
    lines += [
        "",
        "Share of test inputs whose true probability of the top class lies inside its interval,",
        f"averaged over {len(default)} problems ({runs[0]} to {runs[-1]} runs each).",
        "TS: temperature scaling on the same held-out labels.",
        "Made by `python benchmarks/bench_intervals.py`.",
    ]
    if not all(parts.values()):  # stored before there were problems to judge by
        lines.append("These figures are of the rule before its last change.")
    return "\n".join(lines)


def by_problem(rows: list[Row]) -> str:
    """Every problem, with what disappoints."""
    columns = ("problem", "K", "95 %, top class", "all classes", "mean width", "NLL above TS")
    columns += ("by validation NLL", "by evidence", "kind")
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for row in chosen(rows, method=METHODS[0]):
        others = [
            chosen(rows, problem=row["problem"], method=method)[0]["top 95%"]
            for method in METHODS[1:]
        ]
        cells = (
            row["problem"],
            str(row["classes"]),
            f"{row['top 95%']:.2f} ± {row['top 95% ±']:.2f}",
            f"{row['all 95%']:.2f}",
            f"{row['width of top 95%']:.2f}",
            f"{row['NLL above TS, %']:+.1f} ± {row['NLL above TS, % ±']:.1f} %",
            *(f"{share:.2f}" for share in others),
            KINDS[row["kind"]],
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def ablation(rows: list[Row]) -> str:
    """What each step of the rule is there for."""
    whole = {row["problem"]: row for row in chosen(rows, **{"left out": "whole rule"})}
    lines = [
        "| left out | change of coverage, top class | largest loss | all classes | largest NLL above TS |",
        "|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(row["left out"] for row in rows):
        own = chosen(rows, **{"left out": name})
        changes = {row["problem"]: row["top 95%"] - whole[row["problem"]]["top 95%"] for row in own}
        others = statistics.fmean(row["all 95%"] - whole[row["problem"]]["all 95%"] for row in own)
        worst = min(changes, key=lambda problem: changes[problem])
        nll = max(row["NLL above TS, %"] for row in own)
        loss = "" if changes[worst] >= 0 else f"{changes[worst]:+.2f} ({worst})"
        mean = statistics.fmean(changes.values())
        lines.append(f"| {name} | {mean:+.3f} | {loss} | {others:+.3f} | {nll:+.1f} % |")
    return "\n".join(lines)


def rendered(document: Path) -> str:
    """The document with the table between its markers.

    Args:
        document: README or guide.
    """
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    rows = results["rows"]
    text = document.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    table = summary(rows)
    if document == GUIDE:
        table = "\n\n".join(
            [table, by_problem(rows), "Each step left out in turn:", ablation(results["ablation"])]
        )
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


if __name__ == "__main__":
    draw_intervals(json.loads(RESULTS.read_text(encoding="utf-8"))["rows"], PLOT)
    for path in (README, GUIDE):
        path.write_text(rendered(path), encoding="utf-8")
