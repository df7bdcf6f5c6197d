"""How a Gaussian over logits comes to be: curvature of a trained head or of more
layers, a prior, a posterior.
"""

from laplacebridge.laplace.curvature import Curvature as Curvature
from laplacebridge.laplace.curvature import Diag as Diag
from laplacebridge.laplace.curvature import DiagKron as DiagKron
from laplacebridge.laplace.curvature import Full as Full
from laplacebridge.laplace.curvature import Kron as Kron
from laplacebridge.laplace.head_posteriors.base import HeadPosterior as HeadPosterior
from laplacebridge.laplace.head_posteriors.diag import DiagPosterior as DiagPosterior
from laplacebridge.laplace.head_posteriors.diag_kron import DiagKronPosterior as DiagKronPosterior
from laplacebridge.laplace.head_posteriors.full import FullPosterior as FullPosterior
from laplacebridge.laplace.head_posteriors.kron import KronPosterior as KronPosterior
from laplacebridge.laplace.head_posteriors.kron import (
    MatrixNormalPosterior as MatrixNormalPosterior,
)
from laplacebridge.laplace.head_posteriors.label_blocks import LabelBlocks as LabelBlocks
from laplacebridge.laplace.head_posteriors.label_blocks import (
    LabelBlocksPosterior as LabelBlocksPosterior,
)
from laplacebridge.laplace.interrupted import FitInterrupted as FitInterrupted
from laplacebridge.laplace.interrupted import LoaderError as LoaderError
from laplacebridge.laplace.layers.curvature import NetworkCurvature as NetworkCurvature
from laplacebridge.laplace.layers.network import Linearisation as Linearisation
from laplacebridge.laplace.layers.network import LinearisedNetwork as LinearisedNetwork
from laplacebridge.laplace.layers.posterior import FullNetworkPosterior as FullNetworkPosterior
from laplacebridge.laplace.layers.posterior import NetworkPosterior as NetworkPosterior
from laplacebridge.laplace.posterior import Posterior as Posterior
