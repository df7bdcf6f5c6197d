"""What plots share: colours that everyone can tell apart, and SVG that can stand in a
page.
"""

import itertools
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from laplacebridge.report.plots._drawing import COLOURS, LINE_STYLES, inline_svg


def test_plots_in_one_page_do_not_share_ids():
    one, other = (
        inline_svg(lambda ax: ax.plot([0, 1], "o"), name=name, description="A line.")
        for name in "ab"
    )
    ids = [set(re.findall(r'id="([^"]+)"', text)) for text in (one, other)]
    assert ids[0]
    assert not ids[0] & ids[1]
    assert one.replace('"a-', '"b-').replace("#a-", "#b-") == other


def test_text_of_a_plot_is_left_as_it_is_even_if_it_looks_like_an_id():
    text = inline_svg(
        lambda ax: ax.set_xlabel('url(#p1) id="x" #010203 猫', parse_math=False),
        name="a",
        description='"<&>"',
    )
    tree = ElementTree.fromstring(text)  # noqa: S314 - our own plot
    assert 'url(#p1) id="x" #010203 猫' in [label.text for label in tree.iter("text")]
    assert tree.get("aria-label") == '"<&>"'


def luminance(colour):
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in to_rgb(colour)
    ]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


@pytest.mark.parametrize("ground", ["#ffffff", "#f6f7f8", "#15181c", "#1d2126"])
def test_colours_stand_out_on_light_and_dark_ground(ground):
    for colour in COLOURS:
        low, high = sorted([luminance(colour), luminance(ground)])
        assert (high + 0.05) / (low + 0.05) >= 3


# what the three kinds of colour blindness make of linear RGB (Machado, Oliveira and
# Fernandes 2009, severity 1)
DEFICIENCIES = {
    "protan": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deutan": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritan": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
TO_XYZ = [
    [0.4338, 0.3762, 0.1899],
    [0.2127, 0.7152, 0.0722],
    [0.0178, 0.1095, 0.8728],
]  # relative to white


def lightness_and_hue(colour, deficiency):
    """CIELAB as seen with a deficiency."""
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in to_rgb(colour)
    ]
    x, y, z = np.cbrt(np.array(TO_XYZ) @ np.clip(np.array(DEFICIENCIES[deficiency]) @ linear, 0, 1))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
def test_colours_differ_for_colour_blind_readers_and_lines_differ_without_any_colour(deficiency):
    seen = [lightness_and_hue(colour, deficiency) for colour in COLOURS]
    nearest = min(np.linalg.norm(one - other) for one, other in itertools.combinations(seen, 2))
    assert nearest > 10  # a difference of 2 can just be seen
    assert len(set(LINE_STYLES)) == len(COLOURS)
