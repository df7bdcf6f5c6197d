"""Plots of what should hold the truth: sets and intervals."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from laplacebridge._checks import Labels, require_rows
from laplacebridge.errors import ShapeError
from laplacebridge.report._findings.intervals import IntervalBin
from laplacebridge.report.plots._drawing import (
    COLOURS,
    array,
    axes_or_new,
    ink,
    legend,
    percent,
    tidy,
)
from laplacebridge.sets import ClassSets

_BARS = 30
# More bars have no room for a number above each.
_BARS_WITH_NUMBERS = 8


def set_size_histogram(
    sets: ClassSets, labels: Labels | None = None, *, ax: Axes | None = None
) -> Axes:
    """Draws how large class sets are, and which share of each size holds the label
    (Figure 7).

    Args:
        sets: The sets.
        labels: The right classes, shape (B,), if they are known.

    Example:
        >>> from matplotlib.figure import Figure
        >>> sets = ClassSets.from_lists([[2, 0], [1], [0]], num_classes=3)
        >>> set_size_histogram(sets, [0, 1, 2], ax=Figure().subplots()).get_xlabel()
        'classes in the set'
    """
    require_rows("set_size_histogram(sets)", len(sets))
    size = array(sets.size)
    step = np.ceil((np.ptp(size) + 1) / _BARS)  # whole, so that every bar stands for as many sizes
    edges = np.arange(size.min(), size.max() + step + 1, step) - 0.5
    total = np.histogram(size, edges)[0]
    middle, width, share = (edges[:-1] + edges[1:]) / 2, 0.8 * step, total / len(size)
    ax = axes_or_new(ax)
    if labels is None:
        ax.bar(middle, share, width, color=COLOURS[0])
    else:
        held = np.histogram(size[sets.contains(labels).cpu().numpy()], edges)[0]
        hit = ax.bar(middle, held / len(size), width, color=COLOURS[0])
        missed = ax.bar(
            middle, (total - held) / len(size), width, bottom=held / len(size), color=COLOURS[1]
        )
        legend(ax, [("label in the set", hit[0]), ("label missed", missed[0])])
        if len(middle) <= _BARS_WITH_NUMBERS:
            for bar in np.flatnonzero(total):
                number = f"{100 * held[bar] / total[bar]:.0f} %"
                ax.annotate(
                    number,
                    (middle[bar], share[bar]),
                    (0, 2),
                    textcoords="offset points",
                    ha="center",
                )
    ax.set(xlabel="classes in the set", ylabel="share of examples", ylim=(0, 1.45 * share.max()))
    ax.set_yticks([tick for tick in ax.get_yticks() if tick <= 1])  # above is room for the legend
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    percent(ax.yaxis)
    return tidy(ax)


def interval_check(bins: Sequence[IntervalBin], *, ax: Axes | None = None) -> Axes:
    """Draws how often predictions came true, beside the band of their mean 95 %
    intervals.

    Dots in the band agree with the intervals; the line through each is a 95 % interval.

    Args:
        bins: Those of an `Evaluation`: ``evaluation.intervals.bins``.

    Raises:
        ShapeError: If there are none.

    Example:
        >>> from matplotlib.figure import Figure
        >>> from laplacebridge.metrics import Interval
        >>> bins = [IntervalBin(0.7, 0.5, 0.9, Interval(0.6, 0.4, 0.8, 0.95), 20, True)]
        >>> interval_check(bins, ax=Figure().subplots()).get_ylabel()
        'came true'
    """
    if not bins:
        raise ShapeError("`interval_check(bins)` needs at least one bin; got none.")
    ax = axes_or_new(ax)
    predicted = [each.predicted for each in bins]
    band = ax.fill_between(
        predicted,
        [each.low for each in bins],
        [each.high for each in bins],
        color=COLOURS[0],
        alpha=0.2,
        linewidth=0,
    )
    ax.plot([0, 1], [0, 1], color=ink(), alpha=0.5, linestyle="--", linewidth=1)
    lows, highs = ([getattr(each.seen, end) for each in bins] for end in ("low", "high"))
    ax.vlines(predicted, lows, highs, color=COLOURS[1], linewidth=1.5)
    seen = [each.seen.estimate for each in bins]
    dots = ax.scatter(predicted, seen, 24, color=COLOURS[1], zorder=3, clip_on=False)
    ax.set(
        xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel="predicted probability", ylabel="came true"
    )
    legend(ax, [("mean 95 % interval", band), ("labels", dots)], above=True)
    percent(ax.xaxis)
    percent(ax.yaxis)
    return tidy(ax)
