"""Metrics: predictions, scores or sets against the truth, each a number; and intervals
for them.
"""

from laplacebridge.metrics.calibration_error import adaptive_ece as adaptive_ece
from laplacebridge.metrics.calibration_error import classwise_ece as classwise_ece
from laplacebridge.metrics.calibration_error import ece as ece
from laplacebridge.metrics.confidence_bins import Binning as Binning
from laplacebridge.metrics.confidence_bins import Reliability as Reliability
from laplacebridge.metrics.confidence_bins import equal_mass as equal_mass
from laplacebridge.metrics.confidence_bins import equal_width as equal_width
from laplacebridge.metrics.confidence_bins import reliability as reliability
from laplacebridge.metrics.covering import GroupCoverage as GroupCoverage
from laplacebridge.metrics.covering import SizeGroups as SizeGroups
from laplacebridge.metrics.covering import coverage as coverage
from laplacebridge.metrics.covering import coverage_by_group as coverage_by_group
from laplacebridge.metrics.covering import coverage_by_size as coverage_by_size
from laplacebridge.metrics.covering import mean_set_size as mean_set_size
from laplacebridge.metrics.covering import size_stratified_coverage as size_stratified_coverage
from laplacebridge.metrics.detection import aupr as aupr
from laplacebridge.metrics.detection import auroc as auroc
from laplacebridge.metrics.detection import fpr_at_tpr as fpr_at_tpr
from laplacebridge.metrics.intervals import Interval as Interval
from laplacebridge.metrics.intervals import bootstrap as bootstrap
from laplacebridge.metrics.proper import accuracy as accuracy
from laplacebridge.metrics.proper import brier as brier
from laplacebridge.metrics.proper import correct as correct
from laplacebridge.metrics.proper import mmc as mmc
from laplacebridge.metrics.proper import nll as nll
from laplacebridge.metrics.proper import top_k_accuracy as top_k_accuracy
from laplacebridge.metrics.risk_coverage import RiskCoverage as RiskCoverage
from laplacebridge.metrics.risk_coverage import aurc as aurc
from laplacebridge.metrics.risk_coverage import risk_coverage_curve as risk_coverage_curve
from laplacebridge.metrics.votes import dirichlet_multinomial_nll as dirichlet_multinomial_nll
