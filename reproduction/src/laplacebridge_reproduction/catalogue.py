"""All tables and figures that can be reproduced, by name."""

from collections.abc import Iterable

from laplacebridge_reproduction.artifact import Artifact, Result, text_of
from laplacebridge_reproduction.figure1_overview import FIGURE_1
from laplacebridge_reproduction.figure2_beta import FIGURE_2
from laplacebridge_reproduction.figure3_moons import FIGURE_3
from laplacebridge_reproduction.figure4_limits import FIGURE_4
from laplacebridge_reproduction.figure5_kl import FIGURE_5
from laplacebridge_reproduction.figure6_marginals import FIGURE_6
from laplacebridge_reproduction.figure7_sets import FIGURE_7
from laplacebridge_reproduction.figure8_contour import FIGURE_8
from laplacebridge_reproduction.table1_ood import TABLE_1
from laplacebridge_reproduction.table2_probit import TABLE_2, TABLE_6
from laplacebridge_reproduction.table3_layers import TABLE_3
from laplacebridge_reproduction.table4_prior import TABLE_4
from laplacebridge_reproduction.table5_timing import TABLE_5
from laplacebridge_reproduction.votes import VOTES

TABLES = (TABLE_1, TABLE_2, TABLE_3, TABLE_4, TABLE_5, TABLE_6)
FIGURES = (FIGURE_1, FIGURE_2, FIGURE_3, FIGURE_4, FIGURE_5, FIGURE_6, FIGURE_7, FIGURE_8)
BEYOND = (VOTES,)  # what no table of the paper judges
ARTIFACTS: dict[str, Artifact] = {
    artifact.name: artifact for artifact in (*TABLES, *FIGURES, *BEYOND)
}

PREFACE = """# Reproduction of the paper

Made by `laplacebridge reproduce all`; every number below comes from the JSON file of its table or figure, which holds
seed, versions and checksums of the data too. What the paper printed, or its authors stored, stands in *italics*.
[What we would show the authors](authors.md) is one page.

**Never run.** SVHN could not be had here, nor the validation images of ImageNet, nor a GPU to train ResNet-18 on (the
time on a processor is under Table 5): smaller published networks stand in for CIFAR, and features of a sample for
ImageNet. The code for the original networks and files is there, trains on a GPU if there is one, and has run only on
tiny files in the official formats, on a processor (`reproduction/tests/test_paper_profile.py`). On a machine that has
the data the one command is

    laplacebridge reproduce all --profile paper --data FOLDER -o paper-results

with `svhn/train_32x32.mat`, `svhn/test_32x32.mat`, the binary versions of CIFAR-10 and CIFAR-100 and the MNIST family,
which it downloads if it can, and `imagenet/train`, `imagenet/val` (a folder for each WordNet id) and
`weights/densenet121-a639ec97.pth`, which must be there.
"""


def page_of(records: Iterable[Result], *, pictures: str = "") -> str:
    """One page of all records: tables first, then figures, then what is beyond the
    paper.

    Args:
        records: What `reproduced` gave, in any order.
        pictures: Where their PNG files lie, as a prefix; beside the page if empty.
    """
    known = {record["artifact"]: record for record in records}
    texts = [
        text_of(artifact, known[name], pictures=pictures)
        for name, artifact in ARTIFACTS.items()
        if name in known
    ]
    return "\n".join([PREFACE, *texts])
