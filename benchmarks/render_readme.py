"""Puts the main figures of the stored benchmarks between the markers in README.md and
in the guide to bridges.

python benchmarks/render_readme.py
"""

import json
from pathlib import Path

from timing import Row, chosen, digits

BENCHMARKS = Path(__file__).parent
README = BENCHMARKS.parent / "README.md"
GUIDE = BENCHMARKS.parent / "docs" / "guide" / "bridges.md"
# where all figures stand, as each document links there; the README has a heading of its
# own in the block
DOCUMENTS = {
    README: "[docs/bridges.md](docs/bridges.md)",
    GUIDE: "[the full tables](../bridges.md#figures)",
}
HEADING = "## How accurate, how fast\n\n"
BEGIN, END = "<!-- figures:begin -->", "<!-- figures:end -->"
CLASSES = (10, 100, 1000)
# name in the README, in accuracy.json and in bridge.json
METHODS = (
    ("`race_bridge`", "race", "race_bridge"),
    ("`one_vs_rest_bridge`", "one-vs-rest", "one_vs_rest_bridge"),
    ("`laplace_bridge` (paper)", "LB", "laplace_bridge"),
    ("`laplace_bridge_norm` (paper)", "LB-norm", "laplace_bridge_norm"),
    ("100 Monte Carlo samples", "MC-100", "monte_carlo, 100"),
    ("1000 Monte Carlo samples", "MC-1000", None),
)

EXPLANATION = (
    (
        "Error: total variation between mean probabilities and the truth, averaged over {gaussians}"
        " Gaussians for each K"
    ),
    (
        "(five covariance structures, four regimes of variance). Coverage: share of the true"
        " distribution of the top"
    ),
    (
        "class's probability inside its 95 % interval, smallest and largest over K = 2 … 1000 and"
        " regimes. Time: relative"
    ),
    "to softmax of the same logits, independent logits, one thread of {processor}. Made by",
    (
        "`python benchmarks/bench_accuracy.py` and `python benchmarks/bench_bridge.py`; all"
        " figures, the regimes that fail"
    ),
    "among them, are in {details}.",
)

SPEED = (
    (
        "The default bridge, posterior included, adds {share:.2%} to a ResNet-18. A head with 100"
        " 000 classes by 512"
    ),
    (
        "is loaded and asked about 64 examples within {gigabytes:.1f} GB. With a Kronecker"
        " posterior and 100 classes the"
    ),
    (
        "paper's bridge takes some {ratio:,.0f} times less than laplace-torch 0.3 for the same numbers."
        " These and all other"
    ),
    "timings, those that disappoint among them, are in [docs/benchmarks.md](docs/benchmarks.md).",
)


def figures(accuracy: Row, timed: Row, details: str) -> str:
    """The table and the sentences below it, as Markdown.

    Args:
        accuracy: Contents of accuracy.json.
        timed: Contents of bridge.json.
        details: A link to all figures.
    """
    columns = " | ".join(f"K = {classes}" for classes in CLASSES)
    lines = [
        f"| | error of the mean, {columns} | coverage of 95 % intervals | time, {columns} |",
        "|---|" + "---|" * (2 * len(CLASSES) + 1),
    ]
    for title, name, in_bridge in METHODS:
        errors = [
            chosen(accuracy["overall"], method=name, num_classes=k)[0]["tv_mean"] for k in CLASSES
        ]
        cells = [row["coverage"] for row in chosen(accuracy["by_regime"], method=name)]
        times = [
            f"{row['ratio_to_softmax']:.0f}"
            for k in CLASSES
            for row in chosen(timed["rows"], structure="independent", method=in_bridge, classes=k)
        ] or [""] * len(CLASSES)
        coverage = f"{min(cells):.2f} – {max(cells):.2f}"
        lines.append(
            f"| {title} | {' | '.join(f'{e:.4f}' for e in errors)} | {coverage} |"
            f" {' | '.join(times)} |"
        )
    gaussians = chosen(accuracy["overall"], method="race", num_classes=CLASSES[0])[0][
        "num_gaussians"
    ]
    processor = timed["machine"]["processor"]
    lines += [
        "",
        " ".join(EXPLANATION).format(gaussians=gaussians, processor=processor, details=details),
    ]
    return "\n".join(lines)


def speed() -> str:
    """The main timings in words."""
    prediction, scaling, peer = (
        stored(name) for name in ("prediction", "scaling", "laplace_torch")
    )
    (added,) = chosen(prediction["resnet"], method="race")
    (whole,) = chosen(scaling["rows"], what="load and predict", structure="DiagKron")
    same = {"what": "predict", "structure": "kron", "classes": 100, "method": "laplace_bridge_norm"}
    (compared,) = chosen(peer["rows"], **same)
    return " ".join(SPEED).format(
        share=added["share added"],
        gigabytes=whole["whole process, MB"] / 1e3,
        ratio=digits(compared["laplace-torch / this, processor"], 1),
    )


def stored(name: str) -> Row:
    """Results by name."""
    return json.loads((BENCHMARKS / "results" / f"{name}.json").read_text(encoding="utf-8"))


def rendered(document: Path) -> str:
    """A document with the figures of the stored results between its markers.

    Args:
        document: One of `DOCUMENTS`.
    """
    tables = figures(stored("accuracy"), stored("bridge"), DOCUMENTS[document])
    before, _, rest = document.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    if document == README:
        tables = f"{HEADING}{tables}\n\n{speed()}"
    return f"{before}{BEGIN}\n{tables}\n{END}{after}"


def main() -> None:
    """Rewrites the blocks."""
    for document in DOCUMENTS:
        document.write_text(rendered(document), encoding="utf-8")


if __name__ == "__main__":
    main()
