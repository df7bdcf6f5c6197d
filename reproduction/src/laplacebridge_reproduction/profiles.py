"""How much of the paper's experiments is computed."""

from enum import Enum


class Profile(str, Enum):
    """Names of the settings: seconds on generated data, minutes on real data, the
    original sizes.
    """

    smoke = "smoke"
    small = "small"
    paper = "paper"
