"""Which of n examples in order a promise about new ones rests on."""

import math

# What the rounding of a product or quotient of shares may add.
_ROUNDING = 1e-9


def rank_for(share: float, number: int) -> int:
    """⌈(n + 1)·share⌉: a new example is at most as large as the one of this rank with
    at least that probability. More than n where n examples cannot promise it.

    Args:
        share: The probability, between 0 and 1.
        number: n.

    Example:
        >>> rank_for(0.9, 9), rank_for(0.9, 8)
        (9, 9)
    """
    return math.ceil((number + 1) * share - _ROUNDING)


def fewest_for(share: float) -> int:
    """The smallest n with ⌈(n + 1)·share⌉ ≤ n.

    Args:
        share: The probability, between 0 and 1.

    Example:
        >>> fewest_for(0.9)
        9
    """
    return math.ceil(share / (1 - share) - _ROUNDING)
