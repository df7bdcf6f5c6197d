"""Fitting: of the whole, and in parts that add and are saved."""

from laplacebridge._fit.fit_sums import FitSums as FitSums
from laplacebridge._fit.parts import from_sums as from_sums
from laplacebridge._fit.parts import merged as merged
from laplacebridge._fit.parts import partial as partial
from laplacebridge._fit.whole import fit as fit
