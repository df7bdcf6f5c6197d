"""The plots of docs/benchmarks.md and of the guide to priors, drawn by
`render_benchmarks.py` and `render_intervals.py`.
"""

from collections.abc import Callable
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
    for name, drawn in (
        ("bridges", bridges),
        ("scaling", scaling),
        ("laplace_torch", laplace_torch),
    ):
        _save(drawn, found, folder / f"{name}.png")


def draw_intervals(rows: list[Row], path: Path) -> None:
    """Draws nominal against found coverage.

    Args:
        rows: Of the stored benchmark of intervals.
        path: Where the picture goes.
    """
    _save(intervals, rows, path)


def _save(drawn: Callable[[Any], plt.Figure], given: Any, path: Path) -> None:  # noqa: ANN401
    style = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}
    with plt.rc_context({**style, "figure.dpi": 110}):
        figure = drawn(given)
        figure.savefig(path, metadata={"Software": None})
        plt.close(figure)


def intervals(rows: list[Row]) -> plt.Figure:
    """How often intervals hold the true probability, against how often they should."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    figure, panels = plt.subplots(
        1, len(methods), figsize=(8.4, 3.2), layout="constrained", sharey=True
    )
    levels = (0.5, 0.8, 0.95)
    for panel, method in zip(panels, methods):
        own = chosen(rows, method=method)
        found = [[row[f"top {level:.0%}"] for level in levels] for row in own]
        for line in found:
            panel.plot(levels, line, color="#4c78a8", alpha=0.25, linewidth=1)
        mean = [sum(column) / len(column) for column in zip(*found)]
        panel.plot(levels, mean, color="#4c78a8", marker="o", linewidth=2.5)
        panel.plot((0, 1), (0, 1), color="#999999", linestyle="--", linewidth=1)
        panel.set(title=method, xlabel="nominal", xlim=(0.4, 1), ylim=(0, 1.02), xticks=levels)
        panel.grid(alpha=0.25)
    panels[0].set_ylabel("found")
    return figure


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
