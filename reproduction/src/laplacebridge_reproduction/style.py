"""The look of all figures: that of a two-column paper, with one colour for each method.

A figure is one column or the whole page wide, its letters are Times-like and as large
as a caption, and lines differ in style as well as in colour.
"""

from contextlib import AbstractContextManager
from typing import Any

import matplotlib
from cycler import cycler

PAGE = 6.75  # inches, as in the style files of the large conferences
RESOLUTION = 200  # dots per inch of PNG files

# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = {
    "MAP": "#767676",
    "samples": "#000000",
    "LB as in the figure": "#E69F00",
    "LB": "#D55E00",
    "LB-norm": "#C46A9C",
    "race": "#0072B2",
    "one-vs-rest": "#009E73",
    "KL": "#56B4E9",
}
DASHES = {"LB": "--", "LB-norm": "-.", "race": ":", "KL": (0, (6, 1, 1, 1))}

_STYLE: dict[Any, Any] = {
    "font.family": "STIXGeneral",  # like Times, and comes with matplotlib
    "mathtext.fontset": "stix",
    "font.size": 8.0,
    "axes.titlesize": 8.0,
    "axes.labelsize": 8.0,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "legend.fontsize": 7.0,
    "legend.title_fontsize": 7.0,
    "legend.frameon": False,
    "legend.handlelength": 1.8,
    "axes.linewidth": 0.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": cycler(color=["#0072B2", "#D55E00", "#009E73", "#C46A9C", "#767676"]),
    "lines.linewidth": 1.1,
    "lines.markersize": 3.5,
    "xtick.major.width": 0.5,
    "ytick.major.width": 0.5,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.size": 1.5,
    "ytick.minor.size": 1.5,
    "savefig.dpi": RESOLUTION,
    "pdf.fonttype": 42,  # letters as letters, which journals ask for
}


def applied() -> AbstractContextManager[None]:
    """The style, for as long as a figure is drawn and written."""
    return matplotlib.rc_context(_STYLE)
