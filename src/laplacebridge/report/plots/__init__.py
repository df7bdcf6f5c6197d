"""Plots of predictions, scores, sets and methods: each draws on the axes given, or on a
new figure, and returns them.

Whatever is neither bar nor curve has the colour of text, so that plots follow the style
in use.
"""

from laplacebridge.report.plots._answers import reliability_diagram as reliability_diagram
from laplacebridge.report.plots._answers import risk_coverage as risk_coverage
from laplacebridge.report.plots._answers import score_histograms as score_histograms
from laplacebridge.report.plots._answers import uncertainty_parts as uncertainty_parts
from laplacebridge.report.plots._coverage import interval_check as interval_check
from laplacebridge.report.plots._coverage import set_size_histogram as set_size_histogram
from laplacebridge.report.plots._marginals import beta_marginals as beta_marginals
from laplacebridge.report.plots._methods import distances as distances
from laplacebridge.report.plots._methods import prior_curve as prior_curve
from laplacebridge.report.plots._methods import times as times
