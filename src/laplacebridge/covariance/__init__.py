"""Covariances over logits: B of them over K classes, each a structure that answers
questions about a matrix.

A bridge asks for the diagonal and for products with a vector per example. Every
structure answers with whole-batch products; only `Dense` holds a K x K matrix per
example.
"""

from laplacebridge.covariance.base import Covariance as Covariance
from laplacebridge.covariance.dense import Dense as Dense
from laplacebridge.covariance.dense import LowRank as LowRank
from laplacebridge.covariance.diagonal import CenteredDiagonal as CenteredDiagonal
from laplacebridge.covariance.diagonal import Diagonal as Diagonal
from laplacebridge.covariance.low_rank_plus_diagonal import (
    LowRankPlusDiagonal as LowRankPlusDiagonal,
)
from laplacebridge.covariance.shared_basis import SharedBasis as SharedBasis
