"""Plots of methods: how far from sampling, how long, and under which prior."""

import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from laplacebridge.errors import ShapeError
from laplacebridge.report.evaluation import PriorCurve
from laplacebridge.report.plots._drawing import (
    COLOURS,
    axes_or_new,
    legend,
    logarithmic,
    shortened,
    tidy,
)
from laplacebridge.report.table import COLUMNS, Row

# Candidates that are this many times as far from the best as half of them are need not
# be seen.
_FAR_WORSE = 6
# Characters of a line beside a vertical axis.
_SIDE_LENGTH = 30


def prior_curve(curve: PriorCurve, *, ax: Axes | None = None) -> Axes:
    """Draws how good every candidate of the prior precision was, with the chosen one
    marked.

    Args:
        curve: The candidates and their scores.

    Example:
        >>> from matplotlib.figure import Figure
        >>> curve = PriorCurve(
        ...     (0.1, 1.0, 10.0), (0.5, 0.3, 0.4), chosen=1.0, meaning="NLL of validation data"
        ... )
        >>> prior_curve(curve, ax=Figure().subplots()).get_ylabel()
        'NLL of validation data'
    """
    ax = axes_or_new(ax)
    ax.plot(curve.candidates, curve.scores, color=COLOURS[0], marker="o", markersize=3.5)
    marked = ax.axvline(curve.chosen, color=COLOURS[1], linestyle="--", linewidth=1.5)
    logarithmic(ax)
    ax.set_xlabel("prior precision")
    meaning = shortened(curve.meaning, 3 * _SIDE_LENGTH)
    ax.set_ylabel(
        textwrap.fill(meaning, _SIDE_LENGTH, max_lines=3, placeholder="…"), parse_math=False
    )
    scores = np.array(curve.scores)[np.isfinite(curve.scores)]
    if len(scores):
        low, usual = scores.min(), np.median(scores) - scores.min()
        if (
            0 < usual < np.ptp(scores) / _FAR_WORSE
        ):  # a few hopeless candidates would flatten the rest
            ax.set_ylim(low - 0.4 * usual, low + _FAR_WORSE * usual)
    legend(ax, [(f"chosen: {curve.chosen:.3g}", marked)])
    return tidy(ax)


def distances(rows: Sequence[Row], *, ax: Axes | None = None) -> Axes:
    """Draws how far every method of a report is from sampling.

    Args:
        rows: Those of an `Evaluation`.

    Raises:
        ShapeError: If there are no rows.

    Example:
        >>> from matplotlib.figure import Figure
        >>> row = Row("MAP", 0.9, 0.3, 0.02, 0.1, 0.01, None, 1.2, 0.95, 0.04, 1810.0)
        >>> distances([row], ax=Figure().subplots()).texts[0].get_text()
        'MAP: 0.0400'
    """
    ax = axes_or_new(ax)
    ax.locator_params(axis="x", nbins=4)  # numbers of four digits are wide
    return _bars("distances(rows)", rows, "distance", "mean total variation", ax)


def times(rows: Sequence[Row], *, ax: Axes | None = None) -> Axes:
    """Draws how long every method of a report takes for one example, on a logarithmic
    axis.

    Args:
        rows: Those of an `Evaluation`.

    Raises:
        ShapeError: If there are no rows.

    Example:
        >>> from matplotlib.figure import Figure
        >>> row = Row("MAP", 0.9, 0.3, 0.02, 0.1, 0.01, None, 1.2, 0.95, 0.04, 1810.0)
        >>> times([row], ax=Figure().subplots()).texts[0].get_text()
        'MAP: 1,810'
    """
    ax = axes_or_new(ax)
    logarithmic(ax)
    _bars("times(rows)", rows, "microseconds", "microseconds per example", ax)
    positive = [row.microseconds for row in rows if 0 < row.microseconds < np.inf]
    if (
        positive
    ):  # bars start at a power of ten, so that their lengths can be compared between plots
        ax.set_xlim(
            10 ** np.floor(np.log10(min(positive)) - 0.1), 10 ** np.ceil(np.log10(max(positive)))
        )
    return ax


def _bars(call: str, rows: Sequence[Row], column: str, meaning: str, ax: Axes) -> Axes:
    """Horizontal bars, the first on top, each with its name above, where also long ones
    have room.

    Raises:
        ShapeError: If there are none.
    """
    if not rows:
        raise ShapeError(f"`{call}` needs at least one row; got none. Give `evaluation.rows`.")
    height = -np.arange(len(rows), dtype=float)
    values = [getattr(row, column) for row in rows]
    lengths = np.where(np.isfinite(values), values, 0.0)  # of the others only the number is shown
    ax.barh(height, lengths, 0.4, color=COLOURS[0])
    for place, row, value in zip(height, rows, values):
        ax.annotate(
            f"{shortened(row.method)}: {COLUMNS[column].text(value)}",
            (0, place + 0.25),
            (3, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            verticalalignment="bottom",
            parse_math=False,
        )
    ax.set(xlabel=meaning, ylim=(height[-1] - 0.4, 0.85), yticks=[])
    return tidy(ax)
