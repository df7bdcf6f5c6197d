"""What all plots share: colours, axes without clutter, names shown as they are written;
and plots as SVG for a page.
"""

import re
import warnings
from collections.abc import Callable, Sequence
from io import StringIO
from typing import Any
from xml.etree import ElementTree

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib import style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator
from torch import Tensor

# Those colours of Okabe and Ito that have a contrast of 3 on light and on dark ground
# (the purple a little darker, for that), and a grey. Lines differ in style as well, so
# that nothing is said by colour alone.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#C46A9C", "#767676")
LINE_STYLES: tuple[str | tuple[int, tuple[int, ...]], ...] = (
    "-",
    "--",
    "-.",
    ":",
    (0, (6, 1, 1, 1, 1, 1)),
)

# Longer names are cut, or a legend would cover its plot.
_NAME_LENGTH = 28

# A colour that no plot uses; in the page it becomes that of the text around.
_INK = "#010203"
_STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": _INK,
    "axes.facecolor": "none",
    "axes.labelcolor": _INK,
    "axes.linewidth": 0.7,
    "figure.facecolor": "none",
    "font.sans-serif": [
        "DejaVu Sans"
    ],  # comes with matplotlib and is wide: other fonts fit where it does
    "font.size": 9.0,
    "legend.fontsize": 9.0,
    "lines.linewidth": 1.8,
    "savefig.facecolor": "none",
    "svg.fonttype": "none",  # text stays text: readable for machines, in the page's font
    "svg.hashsalt": "laplacebridge",  # the same plot gives the same file
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
}
_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}

Array = npt.NDArray[np.float64]


def axes_or_new(ax: Axes | None) -> Axes:
    """The axes given, or those of a new figure of pyplot."""
    if ax is not None:
        return ax
    from matplotlib import pyplot  # only here, because it looks for a display

    return pyplot.subplots()[1]


def tidy(ax: Axes) -> Axes:
    """Removes the lines above and on the right, which say nothing."""
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def percent(axis: Axis) -> None:
    """Labels an axis of shares in percent."""
    axis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))


def logarithmic(ax: Axes) -> None:
    """Makes the horizontal axis logarithmic, with powers of ten written as numbers."""
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_locator(NullLocator())


def legend(ax: Axes, named: Sequence[tuple[str, Artist]], *, above: bool = False) -> None:
    """Names curves or bars, inside the plot where they cover least; or side by side
    above it, where they cover nothing.

    Names are given to the legend afterwards: it would leave out those that start with
    an underscore, and read a formula where there are two dollar signs.
    """
    on_top = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "ncols": len(named)}
    place: dict[str, Any] = on_top if above else {}
    artists, names = [artist for _, artist in named], ["name"] * len(named)
    drawn = ax.legend(artists, names, frameon=False, handlelength=1.8, **place)
    for text, (name, _) in zip(drawn.get_texts(), named):
        text.set_parse_math(False)
        text.set_text(name)


def shortened(name: str, length: int = _NAME_LENGTH) -> str:
    """A name on one line, cut where it is too long.

    Example:
        >>> shortened("great white shark, white shark, man-eater")
        'great white shark, white sh…'
    """
    # an SVG with a control character is no SVG
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in name).split())
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"


def probability(value: float) -> str:
    """A probability in two digits that never claims certainty.

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
    """The colour of the n-th curve, counted from 0."""
    return COLOURS[place % len(COLOURS)]


def line_style(place: int) -> str | tuple[int, tuple[int, ...]]:
    """The line style of the n-th curve, counted from 0."""
    return LINE_STYLES[place % len(LINE_STYLES)]


def array(values: Tensor) -> Array:
    """Numbers of any type and device for matplotlib."""
    return values.detach().cpu().double().numpy()


def inline_svg(
    draw: Callable[[Axes], object],
    *,
    name: str,
    description: str,
    width: float = 4.0,
    height: float = 2.9,
) -> str:
    """Draws a plot without a display and gives the text of an `svg` element.

    The same drawing gives the same text. Plots of different names can stand in one
    page, because every id in them starts with the name.

    Args:
        draw: Draws on the axes it is given.
        name: What ids start with.
        description: What readers who do not see the plot are told.
        width: In inches, of 96 pixels where the page has room.
        height: In inches.

    Example:
        >>> text = inline_svg(
        ...     lambda ax: ax.plot([0, 1]), name="rise", description="A line that rises."
        ... )
        >>> text[:38], "currentColor" in text
        ('<svg viewBox="0 0 288 208.8" role="img', True)
    """
    # whatever style the user has set, and without leaving a trace in it
    with style.context(_STYLE, after_reset=True), warnings.catch_warnings():
        # matplotlib only measures the text here; the browser has fonts for it
        warnings.filterwarnings(
            "ignore", message=r"Glyph .* missing from (current )?font", category=UserWarning
        )
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure.subplots())
        file = StringIO()
        figure.savefig(file, format="svg", metadata=_NO_METADATA)
    return _for_a_page(file.getvalue(), name, description)


def _for_a_page(text: str, name: str, description: str) -> str:
    """The element without what only a file of its own needs, with ids of its own and
    the page's ink.
    """
    drawn = ElementTree.fromstring(text)  # noqa: S314 - written by matplotlib a moment ago
    root = ElementTree.Element(
        "svg",
        {
            "viewBox": drawn.attrib["viewBox"],
            "role": "img",
            "aria-label": description,
            "class": "plot",
        },
    )
    root.extend(drawn)
    for parent in root.iter():
        for child in [child for child in parent if _plain(child.tag) == "style"]:
            parent.remove(child)  # its rules would hold for the whole page
    for element in root.iter():
        element.tag = _plain(element.tag)
        attributes = {_plain(key): value for key, value in element.attrib.items()}
        element.attrib.clear()
        element.attrib.update(
            {key: _attribute(key, value, name) for key, value in attributes.items()}
        )
    return ElementTree.tostring(root, encoding="unicode")


def _attribute(key: str, value: str, name: str) -> str:
    if key == "id":
        return f"{name}-{value}"
    if key == "aria-label":
        return value
    return re.sub(r"^#|(?<=url\()#", f"#{name}-", value).replace(_INK, "currentColor")


def _plain(name: str) -> str:
    """A name without its namespace, which a page does not need."""
    return name.rpartition("}")[2]


def wilson_interval(share: Array, count: Array) -> tuple[Array, Array]:
    """95 % interval of a share that was observed on so many examples.

    Args:
        share: The share.
        count: How many examples.
    """
    z = 1.96
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return middle - half, middle + half
