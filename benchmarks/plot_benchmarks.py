"""The plots of docs/benchmarks.md, drawn by `render_benchmarks.py`."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
from timing import Row, chosen

mpl.use("Agg")
from matplotlib import pyplot as plt  # the backend comes first
from matplotlib.axes import Axes

Results = dict[str, dict[str, Any]]

COLOURS = {"laplace_bridge": "#4c78a8", "one_vs_rest_bridge": "#f58518", "race_bridge": "#54a24b"}
DRAWN = {
    "softmax": "#999999",
    "laplace_bridge": "#4c78a8",
    "one_vs_rest_mean": "#ffbf79",
    "one_vs_rest_bridge": "#f58518",
    "race_bridge": "#54a24b",
    "monte_carlo, 100": "#b279a2",
}
LINES = {"Diag": "-", "DiagKron": "--", "Kron": ":"}


def draw(found: Results, folder: Path) -> None:
    """Draws all plots.

    Args:
        found: Stored results by name.
        folder: Where the pictures go.
    """
    folder.mkdir(exist_ok=True)
    with plt.rc_context(
        {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "figure.dpi": 110}
    ):
        for name, drawn in (
            ("bridges", bridges),
            ("scaling", scaling),
            ("laplace_torch", laplace_torch),
        ):
            figure = drawn(found)
            figure.savefig(folder / f"{name}.png", metadata={"Software": None})
            plt.close(figure)


def _logarithmic(axes: Axes, x: str, y: str) -> None:
    axes.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
    axes.grid(alpha=0.25)


def _line(axes: Axes, rows: list[Row], x: str, y: str, **style: Any) -> None:  # noqa: ANN401
    ordered = sorted(rows, key=lambda row: row[x])
    axes.plot(
        [row[x] for row in ordered],
        [row[y] for row in ordered],
        marker="o",
        markersize=3.5,
        **style,
    )


def bridges(found: Results) -> plt.Figure:
    """Time of one example against the number of classes."""
    figure, axes = plt.subplots(figsize=(6.4, 4), layout="constrained")
    rows = [
        row | {"microseconds": row["processor min, ns per class"] * row["classes"] / 1e3}
        for row in chosen(found["bridge"]["rows"], structure="independent")
    ]
    for name, colour in DRAWN.items():
        _line(
            axes,
            chosen(rows, method=name),
            "classes",
            "microseconds",
            color=colour,
            label=name.replace("_", " "),
        )
    _logarithmic(axes, "classes K", "µs for one example, large batches")
    axes.legend(frameon=False, fontsize=9)
    return figure


def scaling(found: Results) -> plt.Figure:
    """Time and memory of whole predictions against K."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    rows = [
        row
        for row in chosen(found["scaling"]["rows"], what="predict", batch=64)
        if "processor min, ms" in row
    ]
    for structure, line in LINES.items():
        for name, colour in COLOURS.items():
            some = chosen(rows, structure=structure, bridge=name)
            style = {"color": colour, "linestyle": line}
            _line(
                left,
                some,
                "classes",
                "processor min, ms",
                label=f"{name.replace('_', ' ')}, {structure}",
                **style,
            )
            _line(
                right, [row for row in some if row["peak, MB"] > 0], "classes", "peak, MB", **style
            )
    _logarithmic(left, "classes K", "ms for 64 examples")
    _logarithmic(right, "classes K", "peak memory of a call, MB")
    left.legend(frameon=False, fontsize=7.5)
    return figure


def laplace_torch(found: Results) -> plt.Figure:
    """Both libraries side by side, time and memory."""
    rows = [
        row
        for row in found["laplace_torch"]["rows"]
        if row["what"] == "predict" and "peak, MB" in row
    ]
    methods = {"bridge_norm": ("laplace-torch, bridge_norm", "#b279a2")}
    methods |= {
        name: (f"ours, {name.replace('_', ' ')}", colour)
        for name, colour in {**COLOURS, "laplace_bridge_norm": "#4c78a8"}.items()
    }
    methods.pop("laplace_bridge")
    places = list(dict.fromkeys((row["structure"], row["classes"], row["batch"]) for row in rows))
    figure, both = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    for axes, key, label in zip(
        both, ("processor min, ms", "peak, MB"), ("ms for the batch", "peak memory, MB")
    ):
        for shift, (method, (title, colour)) in enumerate(methods.items()):
            some = {
                (row["structure"], row["classes"], row["batch"]): row[key]
                for row in chosen(rows, method=method)
            }
            heights = [max(some.get(place, 0), 1e-2) for place in places]
            axes.bar(
                [x + 0.2 * shift for x in range(len(places))],
                heights,
                width=0.19,
                color=colour,
                label=title,
            )
        names = [f"{structure}\nK = {classes}\nB = {batch}" for structure, classes, batch in places]
        axes.set_xticks([x + 0.3 for x in range(len(places))], names, fontsize=8)
        axes.set(yscale="log", ylabel=label)
        axes.grid(alpha=0.25, axis="y")
    both[0].legend(frameon=False, fontsize=8)
    return figure
