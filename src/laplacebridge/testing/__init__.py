"""Checks for objects of your own: the laws that the library's own bridges, covariances,
scores and rules for sets are tested with.

Each check raises an `AssertionError` that says which law does not hold, and with which
input; it returns nothing if all hold. Put one call into your tests:

    lb.testing.check_bridge(my_bridge)
"""

from laplacebridge.testing.bridges import check_bridge as check_bridge
from laplacebridge.testing.covariances import check_covariance as check_covariance
from laplacebridge.testing.scores import check_score as check_score
from laplacebridge.testing.set_rules import check_set_rule as check_set_rule
