"""Densities of a Dirichlet's Beta marginals, drawn so that spikes and infinite ends
look like what they are.
"""

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from scipy import special

from laplacebridge.beta import Beta
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.errors import InputError, ShapeError
from laplacebridge.report.plots._drawing import (
    Array,
    array,
    axes_or_new,
    colour,
    legend,
    line_style,
    probability,
    shortened,
    tidy,
)

# A marginal with 99 % of its mass in less than this is narrower than a pixel: a line at
# its mean.
_SPIKE = 1 / 2000
# Where all densities are infinite at an end, the axis ends at their mean over this much
# of it.
_END = 0.1
# How many times higher than the lowest peak the axis reaches: the broadest marginal
# takes a third of it.
_HEADROOM = 3.0
# Parameters beyond e^±this draw the same curve, and SciPy has numbers for them.
_LOG_RANGE = 300.0


def beta_marginals(
    dirichlet_row: Dirichlet,
    *,
    classes: Sequence[int] | None = None,
    class_names: Sequence[str] | None = None,
    top: int = 5,
    ax: Axes | None = None,
) -> Axes:
    """Draws the densities of the probabilities of some classes, as one prediction sees
    them (Figure 6).

    Marginals narrower than a pixel are lines at their means. The axis ends above the
    broadest marginals, where much narrower ones and infinite ends go on.

    Args:
        dirichlet_row: One Dirichlet: ``prediction[7]``.
        classes: The classes; if not given, the most probable ones.
        class_names: One name for each of the K classes; if not given, they are
            numbered.
        top: How many classes, if they are not given.
        ax: Where to draw; a new figure if not given.

    Raises:
        ShapeError: If there is not one row, or not one name for each class.
        InputError: If the row is not finite.

    Example:
        >>> from matplotlib.figure import Figure
        >>> prediction = Dirichlet.from_concentration(torch.tensor([[6.0, 3.0, 1.0]]))
        >>> ax = beta_marginals(
        ...     prediction, class_names=["cat", "dog", "owl"], top=2, ax=Figure().subplots()
        ... )
        >>> [text.get_text() for text in ax.get_legend().get_texts()]
        ['cat 0.6', 'dog 0.3']
    """
    row = _one_row(dirichlet_row)
    names = (
        [f"class {place}" for place in range(row.num_classes)]
        if class_names is None
        else class_names
    )
    if len(names) != row.num_classes:
        raise ShapeError(
            f"`beta_marginals(class_names)` needs a name for each of {row.num_classes} classes; got"
            f" {len(names)}. Give all names, also those of classes that are not drawn."
        )
    if classes is None:
        classes = row.log_concentration[0].argsort(descending=True, stable=True)[:top].tolist()
    marginals = [row.marginal(int(index)) for index in classes]
    curves = [_density(marginal) for marginal in marginals]
    ceiling = _ceiling(marginals, curves)
    ax = axes_or_new(ax)
    lines: list[tuple[str, Artist]] = []
    for place, (index, marginal, curve) in enumerate(zip(classes, marginals, curves)):
        mean = marginal.mean.item()
        # a spike has many points, or the legend would not see it and cover it
        x, y = (np.full(50, mean), np.linspace(0, ceiling, 50)) if curve is None else curve
        y = np.minimum(y, 2 * ceiling)  # cut above the axis, because infinities cannot be drawn
        width = max(
            1.0, 2.4 - 0.4 * place
        )  # a line that lies under another shows on both sides of it
        line = ax.plot(x, y, color=colour(place), linestyle=line_style(place), linewidth=width)[0]
        ax.fill_between(x, y, color=colour(place), alpha=0.12, linewidth=0)
        lines.append((f"{shortened(names[index])} {probability(mean)}", line))
    ax.set(
        xlim=(-0.02, 1.02), ylim=(0, ceiling), xlabel="probability of the class", ylabel="density"
    )
    if all(curve is None for curve in curves):
        ax.set_yticks([])  # the height of spikes says nothing
    legend(ax, lines)
    return tidy(ax)


def _one_row(dirichlet: Dirichlet) -> Dirichlet:
    """The row in float64, known to be finite.

    Raises:
        ShapeError: If there is not one row.
        InputError: If it is not finite.
    """
    if len(dirichlet) != 1:
        raise ShapeError(
            f"`beta_marginals(dirichlet_row)` needs one row; got {len(dirichlet)}. Choose one:"
            " `prediction[7]`."
        )
    if not dirichlet.log_concentration.isfinite().all():
        raise InputError(
            "`beta_marginals(dirichlet_row)` needs finite concentrations; got NaN or infinity. Find"
            " the input that made it: `lb.check(dirichlet)`."
        )
    return Dirichlet(dirichlet.log_concentration.detach().cpu().double())


def _density(marginal: Beta) -> tuple[Array, Array] | None:
    """Points of the density, close together where the mass is; None of a spike."""
    low, high = (bound.item() for bound in marginal.interval(0.99))
    if high - low < _SPIKE:
        return None
    levels = torch.linspace(0.001, 0.999, 150, dtype=torch.float64)
    quantiles = array(
        Beta(marginal.log_alpha.expand(150), marginal.log_beta.expand(150)).quantile(levels)
    )
    ends = np.geomspace(1e-8, 0.01, 40)
    x = np.unique(np.concatenate([[0.0, 1.0], np.linspace(0, 1, 151), quantiles, ends, 1 - ends]))
    logs = array(torch.cat([marginal.log_alpha, marginal.log_beta]))
    alpha, beta = np.exp(np.clip(logs, -_LOG_RANGE, _LOG_RANGE))
    log_density = (
        special.xlogy(alpha - 1, x) + special.xlog1py(beta - 1, -x) - special.betaln(alpha, beta)
    )
    return x, np.exp(np.minimum(log_density, _LOG_RANGE))


def _ceiling(marginals: Sequence[Beta], curves: Sequence[tuple[Array, Array] | None]) -> float:
    """Where the axis ends: above all peaks, unless they differ too much. Spikes have no
    say.
    """
    drawn = [
        (marginal, curve[1]) for marginal, curve in zip(marginals, curves) if curve is not None
    ]
    peaks = [
        y.max()
        for marginal, y in drawn
        if min(marginal.log_alpha.item(), marginal.log_beta.item()) >= 0
    ]
    if peaks:
        return 1.08 * min(max(peaks), _HEADROOM * min(peaks))
    ends = [
        max(marginal.cdf(_END).item(), 1 - marginal.cdf(1 - _END).item()) / _END
        for marginal, _ in drawn
    ]
    return 1.08 * max(ends, default=1.0)
