"""Selective prediction: answer where errors are rare enough, otherwise name a set of
classes, or defer.
"""

from laplacebridge.selective.calibrating import calibrate as calibrate
from laplacebridge.selective.conditional import ConditionalRule as ConditionalRule
from laplacebridge.selective.conditional import calibrate_by_class as calibrate_by_class
from laplacebridge.selective.conditional import calibrate_by_group as calibrate_by_group
from laplacebridge.selective.decisions import Action as Action
from laplacebridge.selective.decisions import Decision as Decision
from laplacebridge.selective.decisions import Decisions as Decisions
from laplacebridge.selective.policy import Policy as Policy
from laplacebridge.selective.reviewing import ReviewCase as ReviewCase
from laplacebridge.selective.reviewing import review as review
from laplacebridge.selective.selective_rule import SelectiveRule as SelectiveRule
from laplacebridge.selective.thresholds import clopper_pearson_upper as clopper_pearson_upper
