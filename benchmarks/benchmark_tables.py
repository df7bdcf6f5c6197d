"""The tables of docs/benchmarks.md, one function for each: from stored results to
Markdown.
"""

import itertools
from collections.abc import Sequence
from typing import Any

from timing import Row, chosen, digits

Results = dict[str, dict[str, Any]]


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


def across(rows: Sequence[Row], down: str, over: str, figure: str) -> str:
    """One figure as a table: one key down, another across."""
    columns = list(dict.fromkeys(row[over] for row in rows))
    names = list(dict.fromkeys(row[down] for row in rows))
    cells = {(row[down], row[over]): row[figure] for row in rows}
    label = "K" if over == "classes" else over
    return markdown(
        [
            "",
            *(
                f"{label} = {column:,}" if isinstance(column, int) else str(column)
                for column in columns
            ),
        ],
        [[name, *(cells.get((name, column)) for column in columns)] for name in names],
    )


def targets(found: Results) -> str:
    """Every target with what was measured; one line for a target at several numbers of
    classes.
    """
    rows = []
    for stored in found.values():
        if "targets" not in stored:
            continue
        script = f"`{stored['command'].split('/')[-1]}`"
        lines_of = stored["targets"]
        for (what, wanted), group in itertools.groupby(lines_of, _without_classes):
            lines = list(group)
            low, high = (end(line["measured"] for line in lines) for end in (min, max))
            classes = [line["what"].rpartition(", K = ")[2] for line in lines]
            place = (
                ""
                if what == lines[0]["what"]
                else f", K = {' … '.join(dict.fromkeys((classes[0], classes[-1])))}"
            )
            measured = low if low == high else f"{low:.3g} – {high:.3g}"
            rows.append(
                [what + place, wanted, measured, all(line["met"] for line in lines), script]
            )
    return markdown(["what", "target", "measured", "holds", "by"], rows)


def _without_classes(line: Row) -> tuple[str, str]:
    before, _, classes = line["what"].rpartition(", K = ")
    return (before if classes.isdigit() else line["what"]), line["target"]


def bridges(found: Results) -> str:
    """Every bridge and link against softmax."""
    rows, parts = found["bridge"]["rows"], []
    for structure, title in (
        ("independent", "Independent logits"),
        ("shared basis", "A shared basis (Kronecker)"),
    ):
        here = chosen(rows, structure=structure)
        parts.append(f"{title}, as multiples of softmax of the same logits:\n")
        parts.append(across(here, "method", "classes", "ratio_to_softmax") + "\n")
    parts.append("Nanoseconds for each class of each example, independent logits:\n")
    parts.append(
        across(
            chosen(rows, structure="independent"),
            "method",
            "classes",
            "processor min, ns per class",
        )
    )
    return "\n".join(parts)


def sampling(found: Results) -> str:
    """The accurate bridges against sampling."""
    rows = found["bridge"]["against_sampling"]
    return markdown(
        ["covariance", "K", "method", "over 10 samples", "over 100", "over 1000"],
        [
            [
                row["structure"],
                row["classes"],
                row["method"],
                *(row[f"ratio_to_{n}_samples"] for n in (10, 100, 1000)),
            ]
            for row in rows
        ],
    )


def correlated(found: Results) -> str:
    """The race on correlated logits against 100 samples of the same covariance."""
    rows = found["bridge"].get("correlated", [])
    if not rows:
        return "Not measured yet: `python benchmarks/bench_bridge.py`."
    parts = []
    for structure in dict.fromkeys(row["structure"] for row in rows):
        chosen_rows = chosen(rows, structure=structure)
        parts.append(f"{structure.capitalize()}, as multiples of 100 samples:\n")
        parts.append(across(chosen_rows, "method", "classes", "ratio_to_100_samples") + "\n")
    return "\n".join(parts).rstrip()


def prediction(found: Results) -> str:
    """Whole predictions from features."""
    rows = found["prediction"]["from_features"]
    parts = []
    for structure in dict.fromkeys(row["structure"] for row in rows):
        parts.append(f"`{structure}`, as multiples of the head's product:\n")
        parts.append(
            across(chosen(rows, structure=structure), "method", "classes", "times the head") + "\n"
        )
    return "\n".join(parts).rstrip()


def one_example(found: Results) -> str:
    """Latency of one example."""
    rows = found["prediction"]["one_example"]
    keys = {
        "network alone, ms": "network wall min, ms",
        "with features": "network with features wall min, ms",
        "variances": "product of the variances wall min, ms",
        "whole": "whole wall min, ms",
        "median": "whole wall median, ms",
        "added": "added, ms",
        "first call, s": "first call, s",
    }
    return markdown(
        ["method", "posterior", "K", "compiled", *keys],
        [
            [
                row["method"],
                row["structure"],
                row["classes"],
                "yes" if row["compiled"] else "",
                *(row.get(key) for key in keys.values()),
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


MEDIAN, FAST_PATH = "processor median, ms", "functional_variance_fast"


def laplace_torch(found: Results) -> str:
    """Both libraries on the same posterior."""
    theirs = {
        (row["what"], row["structure"], row["classes"], row["method"]): row
        for row in chosen_theirs(found)
    }
    table = []
    for row in chosen(found["laplace_torch"]["rows"], library="laplacebridge"):
        method = {"predict": "bridge_norm", "fit": row["method"], "fast path": FAST_PATH}
        place = (row["what"], row["structure"], row["classes"], method.get(row["what"]))
        if place not in theirs or MEDIAN not in theirs[place]:
            continue
        other = theirs[place]
        size = f"N = {row['examples fitted']:,}" if row["what"] == "fit" else f"B = {row['batch']}"
        table.append(
            [
                f"{row['what']}, {row['structure']}, K = {row['classes']:,}, {size}",
                row["method"],
                other[MEDIAN],
                other["repetitions"],
                row[MEDIAN],
                digits(other[MEDIAN] / row[MEDIAN], 2),
                other.get("peak, MB"),
                row.get("peak, MB"),
            ]
        )
    headings = [
        "what",
        "ours",
        "laplace-torch, ms",
        "its calls",
        "ours, ms",
        "ratio",
        "laplace-torch, MB",
        "ours, MB",
    ]
    return markdown(headings, table)


def chosen_theirs(found: Results) -> list[Row]:
    """The rows of laplace-torch."""
    return chosen(found["laplace_torch"]["rows"], library="laplace-torch")


def refused(found: Results) -> str:
    """What laplace-torch has no memory for."""
    lines = []
    for row in chosen(chosen_theirs(found), what="refused"):
        ours = chosen(
            found["laplace_torch"]["rows"],
            what="refused",
            structure=row["structure"],
            method="race_bridge",
        )
        asked = row["answer"].split("you tried to allocate ")[-1].split(" bytes")[0]
        said = (
            f"{int(asked) / 1e9:.0f} GB, and is refused"
            if asked.isdigit()
            else f"“{row['answer']}”"
        )
        lines.append(
            f"- {row['structure']}, K = {row['classes']:,}, B = {row['batch']}: laplace-torch asks"
            f" for {said}; the race bridge takes {ours[0]['processor min, ms']:.0f} ms and"
            f" {ours[0]['peak, MB']:.0f} MB."
        )
    return "\n".join(lines)


def agreement(found: Results) -> str:
    """How far the libraries are from each other."""
    largest: dict[str, float] = {}
    for row in chosen(found["laplace_torch"]["rows"], what="agreement"):
        largest[row["of"]] = max(largest.get(row["of"], 0.0), row["relative difference"])
    return markdown(
        ["of", "largest relative difference"], [[name, value] for name, value in largest.items()]
    )


def exponents(found: Results) -> str:
    """How time grows."""
    rows = chosen(found["scaling"]["rows"], what="exponent")
    names = {"classes": "K", "batch": "B", "examples": "N"}
    return markdown(
        ["what", "in", "over", "exponent"],
        [
            [
                ", ".join(
                    [
                        row["structure"],
                        (
                            row["bridge"]
                            if "bridge" in row
                            else f"sums of a fit, K = {row['classes']:,}"
                        ),
                    ]
                ),
                names[row["against"]],
                row["over"],
                row["figure"],
            ]
            for row in rows
        ],
    )


def memory(found: Results) -> str:
    """How much memory a process takes."""
    rows = chosen(found["scaling"]["rows"], what="load and predict")
    keys = (
        "after import, MB",
        "peak while loading, MB",
        "peak while predicting, MB",
        "whole process, MB",
    )
    return markdown(
        ["posterior", "K", "B", *keys],
        [
            [row["structure"], row["classes"], row["batch"], *(row[key] for key in keys)]
            for row in rows
        ],
    )


def sets(found: Results) -> str:
    """Sets against quantiles."""
    return markdown(
        [
            "K",
            "classes in a set",
            "`overlap_sets`, µs per example",
            "a quantile for every class, µs",
            "ratio",
        ],
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
        f"Stored figures are of one thread of {about['processor']}, {about['system']}, torch"
        f" {about['torch']}, numpy {about['numpy']}, SciPy {about['scipy']}, Python"
        f" {about['python']}."
    )


def export(found: Results) -> str:
    """Networks with their uncertainty in production, as multiples of the bare network."""
    if "export" not in found:
        return "Not measured yet: `python benchmarks/bench_export.py`, then render this page."
    rows = found["export"]["rows"]
    parts = []
    for bridge in dict.fromkeys(row["bridge"] for row in rows):
        here = [
            {**row, "batch": f"{row['network']}, B = {row['examples']}"}
            for row in chosen(rows, bridge=bridge)
        ]
        nodes = " … ".join(str(end(row["nodes added"] for row in here)) for end in (min, max))
        parts.append(f"`{bridge}`, {nodes} nodes added, as multiples of the bare network:\n")
        parts.append(across(here, "form", "batch", "times the bare network") + "\n")
    return "\n".join(parts).rstrip()


def vocabulary(found: Results) -> str:
    """Memory of heads as large as a vocabulary; nothing if it was never measured."""
    if "vocabulary" not in found:
        return "Not measured yet."
    return markdown(
        ["tokens", "features", "the head itself (GB)", "before the fit (GB)", "at most (GB)"],
        [
            (
                f"{row['vocabulary']:,}",
                row["width"],
                f"{row['head_bytes'] / 1e9:.2f}",
                f"{row['before_bytes'] / 1e9:.2f}",
                f"{row['peak_bytes'] / 1e9:.2f}",
            )
            for row in found["vocabulary"]["rows"]
        ],
    )


def generating(found: Results) -> str:
    """What collecting adds to a step of `generate`; nothing if it was never measured."""
    if "generate" not in found:
        return "Not measured yet."
    return markdown(
        ["texts at once", "a step (ms)", "with collecting (ms)", "times as long"],
        [
            (
                row["batch"],
                f"{1e3 * row['seconds_per_step']:.1f}",
                f"{1e3 * row['seconds_per_step_collecting']:.1f}",
                f"{row['ratio']:.3f}",
            )
            for row in found["generate"]["rows"]
        ],
    )
