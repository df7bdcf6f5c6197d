"""What all plots share: colours, axes without clutter, and names shown as they are written."""

from collections.abc import Sequence

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, NullLocator
from torch import Tensor

# Those colours of Okabe and Ito that have a contrast of 3 on light and on dark ground (the purple a little darker, for
# that), and a grey. Lines differ in style as well, so that nothing is said by colour alone.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#C46A9C", "#767676")
LINE_STYLES: tuple[str | tuple[int, tuple[int, ...]], ...] = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)))

# Longer names are cut, or a legend would cover its plot.
_NAME_LENGTH = 28

Array = npt.NDArray[np.float64]


def axes_or_new(ax: Axes | None) -> Axes:
    """The axes given, or those of a new figure of pyplot.

    Args:
        ax: The axes, if there are any.
    """
    if ax is not None:
        return ax
    from matplotlib import pyplot  # only here, because it looks for a display

    return pyplot.subplots()[1]


def tidy(ax: Axes) -> Axes:
    """Removes the lines above and on the right, which say nothing.

    Args:
        ax: The axes.
    """
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def percent(axis: Axis) -> None:
    """Labels an axis of shares in percent.

    Args:
        axis: One axis of a plot.
    """
    axis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))


def logarithmic(ax: Axes) -> None:
    """Makes the horizontal axis logarithmic, with powers of ten written as numbers.

    Args:
        ax: The axes.
    """
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_locator(NullLocator())


def legend(ax: Axes, named: Sequence[tuple[str, Artist]]) -> None:
    """Names curves or bars.

    Names are given to the legend afterwards: it would leave out those that start with an underscore, and read a
    formula where there are two dollar signs.

    Args:
        ax: The axes.
        named: Names and what they stand for.
    """
    drawn = ax.legend([artist for _, artist in named], ["name"] * len(named), frameon=False, handlelength=1.8)
    for text, (name, _) in zip(drawn.get_texts(), named):
        text.set_parse_math(False)
        text.set_text(name)


def shortened(name: str, length: int = _NAME_LENGTH) -> str:
    """A name on one line, cut where it is too long.

    Args:
        name: The name.
        length: How many characters there is room for.

    Example:
        >>> shortened("great white shark, white shark, man-eater")
        'great white shark, white sh…'
    """
    # an SVG with a control character is no SVG
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in name).split())
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"


def probability(value: float) -> str:
    """A probability in two digits that never claims certainty.

    Args:
        value: The probability.

    Example:
        >>> probability(0.9999), probability(0.0123)
        ('> 0.99', '0.012')
    """
    text = f"{value:.2g}"
    return "> 0.99" if text == "1" else text


def ink() -> str:
    """The colour of text in the style in use."""
    return str(matplotlib.rcParams["text.color"])


def colour(place: int) -> str:
    """The colour of the n-th curve.

    Args:
        place: Counted from 0.
    """
    return COLOURS[place % len(COLOURS)]


def line_style(place: int) -> str | tuple[int, tuple[int, ...]]:
    """The line style of the n-th curve.

    Args:
        place: Counted from 0.
    """
    return LINE_STYLES[place % len(LINE_STYLES)]


def array(values: Tensor) -> Array:
    """Numbers of any type and device for matplotlib.

    Args:
        values: The numbers.
    """
    return values.detach().cpu().double().numpy()
