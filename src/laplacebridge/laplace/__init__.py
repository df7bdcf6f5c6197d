"""How a Gaussian over logits comes to be: curvature of a trained head, a prior, a posterior over its weights."""

from laplacebridge.laplace.curvature import Curvature as Curvature
from laplacebridge.laplace.curvature import Diag as Diag
from laplacebridge.laplace.curvature import DiagKron as DiagKron
from laplacebridge.laplace.curvature import Full as Full
from laplacebridge.laplace.curvature import Kron as Kron
from laplacebridge.laplace.posterior import Posterior as Posterior
from laplacebridge.laplace.posteriors import DiagKronPosterior as DiagKronPosterior
from laplacebridge.laplace.posteriors import DiagPosterior as DiagPosterior
from laplacebridge.laplace.posteriors import FullPosterior as FullPosterior
from laplacebridge.laplace.posteriors import KronPosterior as KronPosterior
from laplacebridge.laplace.posteriors import MatrixNormalPosterior as MatrixNormalPosterior
