"""All tables and figures that can be reproduced, by name."""

from laplacebridge.paper.artifact import Artifact
from laplacebridge.paper.figure2_beta import FIGURE_2
from laplacebridge.paper.figure3_moons import FIGURE_3
from laplacebridge.paper.figure4_limits import FIGURE_4
from laplacebridge.paper.figure5_kl import FIGURE_5
from laplacebridge.paper.figure8_contour import FIGURE_8

ARTIFACTS: dict[str, Artifact] = {
    artifact.name: artifact for artifact in (FIGURE_2, FIGURE_3, FIGURE_4, FIGURE_5, FIGURE_8)
}
