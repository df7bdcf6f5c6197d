"""All tables and figures that can be reproduced, by name."""

from collections.abc import Iterable

from laplacebridge.paper.artifact import Artifact, Result, text_of
from laplacebridge.paper.figure2_beta import FIGURE_2
from laplacebridge.paper.figure3_moons import FIGURE_3
from laplacebridge.paper.figure4_limits import FIGURE_4
from laplacebridge.paper.figure5_kl import FIGURE_5
from laplacebridge.paper.figure8_contour import FIGURE_8

ARTIFACTS: dict[str, Artifact] = {
    artifact.name: artifact for artifact in (FIGURE_2, FIGURE_3, FIGURE_4, FIGURE_5, FIGURE_8)
}

PREFACE = """# Reproduction of the paper

Made by `laplacebridge reproduce all`; every number below comes from the JSON file of the same name beside this page.
Tables 1 to 6 and Figures 1, 6 and 7 are not here yet.
"""


def page_of(records: Iterable[Result]) -> str:
    """One page of all records.

    Args:
        records: What `reproduced` gave, in any order.
    """
    ordered = sorted(records, key=lambda record: record["artifact"])
    return "\n".join([PREFACE, *(text_of(ARTIFACTS[record["artifact"]], record) for record in ordered)])
