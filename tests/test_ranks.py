"""Ranks that promise a share, against exact fractions."""

from fractions import Fraction
from math import ceil

import pytest

from laplacebridge._ranks import fewest_for, rank_for

SHARES = ["1/20", "1/2", "7/10", "9/10", "19/20", "99/100", "999/1000"]


@pytest.mark.parametrize("share", [Fraction(share) for share in SHARES])
def test_ranks_are_those_of_exact_arithmetic(share):
    for number in range(1, 300):
        assert rank_for(float(share), number) == ceil((number + 1) * share)


@pytest.mark.parametrize("share", [Fraction(share) for share in SHARES])
def test_fewest_is_the_first_number_whose_rank_it_has(share):
    fewest = fewest_for(float(share))
    assert rank_for(float(share), fewest) <= fewest
    assert fewest == 1 or rank_for(float(share), fewest - 1) > fewest - 1
