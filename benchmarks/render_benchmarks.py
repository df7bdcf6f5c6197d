"""Turns the stored results into docs/benchmarks.md, what stands between its markers, and the plots beside it.

python benchmarks/render_benchmarks.py
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parent
RESULTS = BENCHMARKS / "results"
DOCUMENT = BENCHMARKS.parent / "docs" / "benchmarks.md"
NAMES = ("bridge", "prediction", "fit", "laplace_torch", "scaling", "sets")  # in the order of the page

Row = dict[str, Any]
Results = dict[str, dict[str, Any]]


def results() -> Results:
    """All stored results by name."""
    return {name: json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8")) for name in NAMES}


def markdown(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table; numbers with three digits."""

    def cell(value: object) -> str:
        if isinstance(value, bool):
            return "yes" if value else "**no**"
        if isinstance(value, float | int):
            return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
        return "" if value is None else str(value)

    lines = [f"| {' | '.join(headings)} |", "|---|" + "---:|" * (len(headings) - 1)]
    return "\n".join([*lines, *(f"| {' | '.join(map(cell, row))} |" for row in rows)])


def chosen(rows: Sequence[Row], **wanted: object) -> list[Row]:
    """The rows with these values."""
    return [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]


def across(rows: Sequence[Row], down: str, over: str, figure: str) -> str:
    """One figure as a table: one key down, another across."""
    columns = list(dict.fromkeys(row[over] for row in rows))
    names = list(dict.fromkeys(row[down] for row in rows))
    cells = {(row[down], row[over]): row[figure] for row in rows}
    label = "K" if over == "classes" else over
    return markdown(
        ["", *(f"{label} = {column:,}" if isinstance(column, int) else str(column) for column in columns)],
        [[name, *(cells.get((name, column)) for column in columns)] for name in names],
    )


def targets(found: Results) -> str:
    """Every target with what was measured."""
    rows = [
        [row["what"], row["target"], row["measured"], row["met"], f"`{stored['command'].split('/')[-1]}`"]
        for stored in found.values()
        for row in stored["targets"]
    ]
    return markdown(["what", "target", "measured", "holds", "by"], rows)


def bridges(found: Results) -> str:
    """Every bridge and link against softmax."""
    rows, parts = found["bridge"]["rows"], []
    for structure, title in (("independent", "Independent logits"), ("shared basis", "A shared basis (Kronecker)")):
        here = chosen(rows, structure=structure)
        parts.append(f"{title}, as multiples of softmax of the same logits:\n")
        parts.append(across(here, "method", "classes", "ratio_to_softmax") + "\n")
    parts.append("Nanoseconds for each class of each example, independent logits:\n")
    parts.append(across(chosen(rows, structure="independent"), "method", "classes", "processor min, ns per class"))
    return "\n".join(parts)


def sampling(found: Results) -> str:
    """The accurate bridges against sampling."""
    rows = found["bridge"]["against_sampling"]
    return markdown(
        ["covariance", "K", "method", "over 10 samples", "over 100", "over 1000"],
        [
            [row["structure"], row["classes"], row["method"], *(row[f"ratio_to_{n}_samples"] for n in (10, 100, 1000))]
            for row in rows
        ],
    )


def prediction(found: Results) -> str:
    """Whole predictions from features."""
    rows = found["prediction"]["from_features"]
    parts = []
    for structure in dict.fromkeys(row["structure"] for row in rows):
        parts.append(f"`{structure}`, as multiples of the head's product:\n")
        parts.append(across(chosen(rows, structure=structure), "method", "classes", "times the head") + "\n")
    return "\n".join(parts).rstrip()


def one_example(found: Results) -> str:
    """Latency of one example."""
    rows = found["prediction"]["one_example"]
    return markdown(
        [
            "method",
            "posterior",
            "K",
            "compiled",
            "network alone, ms",
            "whole, ms",
            "median",
            "added, ms",
            "first call, s",
        ],
        [
            [
                row["method"],
                row["structure"],
                row["classes"],
                "yes" if row["compiled"] else "",
                row["network wall min, ms"],
                row["whole wall min, ms"],
                row["whole wall median, ms"],
                row["added, ms"],
                row.get("first call, s"),
            ]
            for row in rows
        ],
    )


def resnet(found: Results) -> str:
    """What is added to a ResNet-18."""
    return markdown(
        ["bridge", "images", "forward, s", "posterior and bridge, s", "added"],
        [
            [
                row["method"],
                row["images"],
                row["forward processor, s"],
                row["processor min, s"],
                f"{row['share added']:.2%}",
            ]
            for row in found["prediction"]["resnet"]
        ],
    )


def fitting(found: Results) -> str:
    """What a fit costs."""
    rows = found["fit"]["fitting"]
    return markdown(
        [
            "curvature",
            "K",
            "sums / head",
            "whole fit / head",
            "decomposition, ms",
            "sums / ResNet-18",
            "fit / ResNet-18",
        ],
        [
            [
                row["structure"],
                row["classes"],
                row["sums / head"],
                row["fit without decomposition / head"],
                row["decomposition processor min, ms"],
                f"{row['sums / ResNet-18']:.2%}",
                f"{row['fit without decomposition / ResNet-18']:.2%}",
            ]
            for row in rows
        ],
    )


def choosing(found: Results) -> str:
    """What choosing a prior costs."""
    return markdown(
        ["posterior", "K", "examples", "one pass, ms", "fifty candidates, ms", "passes"],
        [
            [
                row["structure"],
                row["classes"],
                row["examples"],
                row["pass processor min, ms"],
                row["choice processor min, ms"],
                row["passes"],
            ]
            for row in found["fit"]["choosing"]
        ],
    )


def sets(found: Results) -> str:
    """Sets against quantiles."""
    return markdown(
        ["K", "classes in a set", "`overlap_sets`, µs per example", "a quantile for every class, µs", "ratio"],
        [
            [
                row["classes"],
                row["mean size"],
                row["processor min, µs per example"],
                row["quantiles processor min, µs per example"],
                row["ratio of minima"],
            ]
            for row in found["sets"]["rows"]
        ],
    )


def machine(found: Results) -> str:
    """What ran the benchmarks."""
    about = found["bridge"]["machine"]
    return (
        f"Stored figures are of one thread of {about['processor']}, {about['system']}, torch {about['torch']}, numpy "
        f"{about['numpy']}, SciPy {about['scipy']}, Python {about['python']}."
    )


BLOCKS: dict[str, Callable[[Results], str]] = {
    "machine": machine,
    "targets": targets,
    "bridges": bridges,
    "sampling": sampling,
    "prediction": prediction,
    "one-example": one_example,
    "resnet": resnet,
    "fitting": fitting,
    "choosing": choosing,
    "sets": sets,
}


def rendered() -> str:
    """The page with the stored results between its markers."""
    found, page = results(), DOCUMENT.read_text(encoding="utf-8")
    for name, block in BLOCKS.items():
        before, begin, rest = page.partition(f"<!-- {name}:begin -->")
        _, end, after = rest.partition(f"<!-- {name}:end -->")
        page = f"{before}{begin}\n\n{block(found)}\n\n{end}{after}"
    return page


def main() -> None:
    """Rewrites the page and its plots."""
    from plot_benchmarks import draw

    draw(results(), DOCUMENT.parent / "benchmarks")
    DOCUMENT.write_text(rendered(), encoding="utf-8")


if __name__ == "__main__":
    main()
