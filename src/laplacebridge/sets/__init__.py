"""Which classes remain: uncertainty-aware top-k (Algorithm 1), other rules, and
guarantees for all of them.
"""

from laplacebridge.sets.adaptive import APS as APS
from laplacebridge.sets.adaptive import RAPS as RAPS
from laplacebridge.sets.class_sets import ClassSets as ClassSets
from laplacebridge.sets.conditional import ClassConditionalSets as ClassConditionalSets
from laplacebridge.sets.conditional import GroupConditionalSets as GroupConditionalSets
from laplacebridge.sets.conditional import calibrate_by_class as calibrate_by_class
from laplacebridge.sets.conditional import calibrate_by_group as calibrate_by_group
from laplacebridge.sets.conformal import CalibratedSets as CalibratedSets
from laplacebridge.sets.conformal import calibrate as calibrate
from laplacebridge.sets.cross_conformal import CrossCalibratedSets as CrossCalibratedSets
from laplacebridge.sets.cross_conformal import cross_calibrate as cross_calibrate
from laplacebridge.sets.overlap import Overlap as Overlap
from laplacebridge.sets.overlap import overlap_sets as overlap_sets
from laplacebridge.sets.rules import LeastAmbiguous as LeastAmbiguous
from laplacebridge.sets.rules import Mass as Mass
from laplacebridge.sets.rules import SetRule as SetRule
from laplacebridge.sets.rules import TopK as TopK
