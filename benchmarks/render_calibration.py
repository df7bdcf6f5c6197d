"""Puts what the stored benchmark of real networks found into docs/networks.md.

python benchmarks/render_calibration.py
"""

import json
from pathlib import Path

from timing import Row, chosen

BENCHMARKS = Path(__file__).parent
RESULTS = BENCHMARKS / "results" / "calibration.json"
PAGE = BENCHMARKS.parent / "docs" / "networks.md"
BEGIN, END = "<!-- calibration:begin -->", "<!-- calibration:end -->"
OURS = "held-out labels (default)"
COLUMNS = {
    "NLL": "NLL",
    "adaptive ECE": "adaptive ECE",
    "AURC": "AURC",
    "NLL, severity 5": "NLL, severity 5",
    "MI, near": "MI, near",
    "MI, far": "MI, far",
    "nats per vote": "nats per vote",
}


def against_scaling(rows: list[Row]) -> str:
    """NLL of the default, in per cent above temperature scaling."""
    lines = [
        "| network | held-out labels | temperature scaling | default | difference ± standard error |",
        "|---|---|---|---|---|",
    ]
    for row in chosen(rows, method=OURS):
        (scaling,) = chosen(rows, method="temperature scaling", network=row["network"])
        lines.append(
            f"| {row['network']} | {row['held-out labels']} | {scaling['NLL']:.4f} |"
            f" {row['NLL']:.4f} | {row['NLL above TS, %']:+.1f} ± {row['±, %']:.1f} % |"
        )
    return "\n".join(lines)


def everything(rows: list[Row]) -> str:
    """All methods and figures, network by network."""
    lines = [f"| network | method | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 2) + "|"]
    for row in rows:
        name = row["network"] if row["method"] == "MAP" else ""
        cells = [f"{row[column]:.4g}" if column in row else "" for column in COLUMNS]
        lines.append(f"| {name} | {row['method']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def targets(rows: list[Row]) -> str:
    """What was wanted beside what was found."""
    lines = ["| wanted | target | found | |", "|---|---|---|---|"]
    for row in rows:
        sign = "met" if row["met"] else "**missed**"
        lines.append(f"| {row['what']} | {row['target']} | {row['measured']} | {sign} |")
    return "\n".join(lines)


def rendered() -> str:
    """The page with its tables between the markers."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    parts = [
        against_scaling(results["rows"]),
        "## Everything that was measured",
        everything(results["rows"]),
        "## What was wanted",
        targets(results["targets"]),
    ]
    tables = "\n\n".join(parts)
    return f"{before}{BEGIN}\n{tables}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(rendered(), encoding="utf-8")
