"""Plots of answers: calibration, risk, scores, uncertainty."""

from collections.abc import Mapping

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from torch import Tensor

from laplacebridge import metrics
from laplacebridge._checks import Labels, values_of
from laplacebridge._predictions import AnyPrediction
from laplacebridge.errors import InputError, ShapeError
from laplacebridge.report.plots._drawing import (
    COLOURS,
    array,
    axes_or_new,
    colour,
    ink,
    legend,
    line_style,
    percent,
    shortened,
    tidy,
    wilson_interval,
)

# A screen shows no more points of a curve, which would only make files large.
_CURVE_POINTS = 400
_BARS = 30
# From this share of answers on a risk is no longer that of a few examples; the axis
# need not reach higher.
_SETTLED = 0.05
# As many characters as a horizontal axis has room for.
_LABEL_LENGTH = 44


def reliability_diagram(
    prediction: AnyPrediction, labels: Labels, *, num_bins: int = 15, ax: Axes | None = None
) -> Axes:
    """Draws how often answers are right against how sure they claim to be, in bins.

    Dots below the diagonal claim too much; the line through each is a 95 % interval
    (Wilson). The bars below show the share of all examples that is in each bin.

    Args:
        prediction: Dirichlets, or probabilities of shape (B, K).
        labels: The right classes, shape (B,).
        num_bins: How many bins of the same width.

    Example:
        >>> from matplotlib.figure import Figure
        >>> probabilities = torch.tensor([[0.7, 0.3], [0.9, 0.1], [0.2, 0.8]])
        >>> reliability_diagram(probabilities, [0, 0, 0], ax=Figure().subplots()).get_xlabel()
        'confidence'
    """
    table = metrics.reliability(prediction, labels, num_bins=num_bins)
    error = metrics.ece(prediction, labels, num_bins=num_bins)
    lower, upper, count = array(table.lower), array(table.upper), array(table.count)
    confidence, accuracy = array(table.confidence), array(table.accuracy)
    ax = axes_or_new(ax)
    ax.plot([0, 1], [0, 1], color=ink(), alpha=0.5, linestyle="--", linewidth=1)
    bars = ax.bar(
        (lower + upper) / 2, count / count.sum(), 0.9 * (upper - lower), color=COLOURS[4], alpha=0.5
    )
    ax.vlines(confidence, *wilson_interval(accuracy, count), color=COLOURS[0], linewidth=1.5)
    dots = ax.scatter(confidence, accuracy, 24, color=COLOURS[0], zorder=3, clip_on=False)
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", ylabel="share")
    legend(ax, [(f"right answers, ECE {error:.3f}", dots), ("examples", bars[0])], above=True)
    percent(ax.xaxis)
    percent(ax.yaxis)
    return tidy(ax)


def risk_coverage(
    curves: Mapping[str, tuple[Tensor, Tensor]] | tuple[Tensor, Tensor], *, ax: Axes | None = None
) -> Axes:
    """Draws the error rate among answered examples against the share that is answered.

    The dashed line is the error rate of all examples: a score that knows nothing stays
    near it.

    Args:
        curves: Scores (higher = more unusual) and whether answers are right, both of
            shape (B,); or such pairs by name.

    Raises:
        ShapeError: If there is no curve.

    Example:
        >>> from matplotlib.figure import Figure
        >>> pair = (torch.tensor([0.1, 0.9, 0.5]), torch.tensor([True, False, True]))
        >>> risk_coverage(pair, ax=Figure().subplots()).get_xlabel()
        'share answered'
    """
    named = curves if isinstance(curves, Mapping) else {"": curves}
    if not named:
        raise ShapeError(
            "`risk_coverage(curves)` needs at least one curve; got none. Give a pair `(scores,"
            " correct)`, or pairs by name."
        )
    found = {name: metrics.risk_coverage_curve(*pair) for name, pair in named.items()}
    ax = axes_or_new(ax)
    lines: list[tuple[str, Artist]] = []
    highest = 0.0
    for place, (name, curve) in enumerate(found.items()):
        coverage, risk = array(curve.coverage), array(curve.risk)
        shown = np.unique(np.linspace(0, len(risk) - 1, _CURVE_POINTS).round().astype(int))
        line = ax.plot(
            coverage[shown], risk[shown], color=colour(place), linestyle=line_style(place)
        )[0]
        lines.append((shortened(name), line))
        ax.axhline(risk[-1], color=ink(), alpha=0.5, linestyle="--", linewidth=1)
        highest = max(highest, risk[coverage >= _SETTLED].max())
    ax.set(
        xlim=(0, 1),
        ylim=(0, min(1.0, 1.25 * highest) or 1.0),
        xlabel="share answered",
        ylabel="errors among them",
    )
    percent(ax.xaxis)
    percent(ax.yaxis)
    if isinstance(curves, Mapping):
        legend(ax, lines)
    return tidy(ax)


def score_histograms(
    id_scores: Tensor,
    ood_scores: Tensor | None = None,
    *,
    name: str = "score",
    ax: Axes | None = None,
) -> Axes:
    """Draws the scores of in-distribution and of out-of-distribution (OOD) examples
    over the same bins.

    The less the two overlap, the better the score tells them apart.

    Args:
        id_scores: Scores of in-distribution examples, shape (B,).
        ood_scores: Scores of out-of-distribution examples, if there are any.
        name: What the score is, for the axis.

    Raises:
        InputError: If a score is infinite.

    Example:
        >>> from matplotlib.figure import Figure
        >>> id_scores, ood_scores = torch.tensor([0.1, 0.2]), torch.tensor([0.8, 0.9])
        >>> score_histograms(
        ...     id_scores, ood_scores, name="doubt", ax=Figure().subplots()
        ... ).get_xlabel()
        'doubt'
    """
    call = "score_histograms(id_scores, ood_scores)"
    given = {"ordinary": id_scores} | ({} if ood_scores is None else {"unusual": ood_scores})
    samples = {title: array(values_of(call, scores)) for title, scores in given.items()}
    together = np.concatenate(list(samples.values()))
    if not np.isfinite(together).all():
        raise InputError(
            f"`{call}` needs finite scores; got infinite ones. Draw the others:"
            " `scores[scores.isfinite()]`."
        )
    edges = np.histogram_bin_edges(together, _BARS)
    ax = axes_or_new(ax)
    outlines: list[tuple[str, Artist]] = []
    for place, (title, sample) in enumerate(samples.items()):
        shares = np.histogram(sample, edges)[0] / len(sample)
        ax.stairs(shares, edges, fill=True, color=colour(place), alpha=0.25)
        outline = ax.stairs(
            shares, edges, color=colour(place), linestyle=line_style(place), linewidth=1.5
        )
        outlines.append((title, outline))
    ax.set_xlabel(shortened(name, _LABEL_LENGTH), parse_math=False)
    ax.set_ylabel("share of examples")
    ax.set_ylim(bottom=0)
    percent(ax.yaxis)
    if ood_scores is not None:
        legend(ax, outlines)
    return tidy(ax)


def uncertainty_parts(
    parts: Mapping[str, Mapping[str, float | int]], *, ax: Axes | None = None
) -> Axes:
    """Draws mean aleatoric and epistemic uncertainty of groups of inputs, as bars.

    Args:
        parts: Those of an `Evaluation`: ``evaluation.uncertainty``.

    Raises:
        ShapeError: If there are none.

    Example:
        >>> from matplotlib.figure import Figure
        >>> parts = {"right answers": {"aleatoric": 0.1, "epistemic": 0.05}}
        >>> uncertainty_parts(parts, ax=Figure().subplots()).get_xlabel()
        'uncertainty (nats)'
    """
    if not parts:
        raise ShapeError("`uncertainty_parts(parts)` needs at least one group; got none.")
    ax = axes_or_new(ax)
    height = -np.arange(len(parts), dtype=float)
    first = np.array([each["aleatoric"] for each in parts.values()])
    second = np.array([each["epistemic"] for each in parts.values()])
    bars = ax.barh(height, first, 0.35, color=COLOURS[0])
    more = ax.barh(height, second, 0.35, left=first, color=COLOURS[1])
    for place, name in zip(height, parts):
        ax.annotate(
            shortened(name),
            (0, place + 0.2),
            (3, 1),
            textcoords="offset points",
            verticalalignment="bottom",
            parse_math=False,
        )
    ax.set(xlabel="uncertainty (nats)", ylim=(height[-1] - 0.4, 0.75), yticks=[])
    legend(ax, [("aleatoric", bars[0]), ("epistemic", more[0])], above=True)
    return tidy(ax)
