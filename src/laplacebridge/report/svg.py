"""Plots as SVG to be set into a page, where they take over its ink and fonts."""

import re
import warnings
from collections.abc import Callable
from io import StringIO
from xml.etree import ElementTree

from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# A colour that no plot uses; in the page it becomes that of the text around.
_INK = "#010203"
_STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": _INK,
    "axes.facecolor": "none",
    "axes.labelcolor": _INK,
    "axes.linewidth": 0.7,
    "figure.facecolor": "none",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib and is wide: other fonts fit where it does
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


def inline_svg(
    draw: Callable[[Axes], object], *, name: str, description: str, width: float = 4.0, height: float = 2.9
) -> str:
    """Draws a plot without a display and gives the text of an `svg` element.

    The same drawing gives the same text. Plots of different names can stand in one page, because every id in them
    starts with the name.

    Args:
        draw: Draws on the axes it is given.
        name: What ids start with.
        description: What readers who do not see the plot are told.
        width: In inches, of 96 pixels where the page has room.
        height: In inches.

    Example:
        >>> text = inline_svg(lambda ax: ax.plot([0, 1]), name="rise", description="A line that rises.")
        >>> text[:38], "currentColor" in text
        ('<svg viewBox="0 0 288 208.8" role="img', True)
    """
    # whatever style the user has set, and without leaving a trace in it
    with style.context(_STYLE, after_reset=True), warnings.catch_warnings():
        # matplotlib only measures the text here; the browser has fonts for it
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font", category=UserWarning)
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure.subplots())
        file = StringIO()
        figure.savefig(file, format="svg", metadata=_NO_METADATA)
    return _for_a_page(file.getvalue(), name, description)


def _for_a_page(text: str, name: str, description: str) -> str:
    """The element without what only a file of its own needs, with ids of its own and the page's ink."""
    drawn = ElementTree.fromstring(text)  # noqa: S314 - written by matplotlib a moment ago
    root = ElementTree.Element(
        "svg", {"viewBox": drawn.attrib["viewBox"], "role": "img", "aria-label": description, "class": "plot"}
    )
    root.extend(drawn)
    for parent in root.iter():
        for child in [child for child in parent if _plain(child.tag) == "style"]:
            parent.remove(child)  # its rules would hold for the whole page
    for element in root.iter():
        element.tag = _plain(element.tag)
        attributes = {_plain(key): value for key, value in element.attrib.items()}
        element.attrib.clear()
        element.attrib.update({key: _attribute(key, value, name) for key, value in attributes.items()})
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
