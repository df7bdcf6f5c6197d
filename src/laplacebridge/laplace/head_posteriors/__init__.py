"""One posterior per curvature.

Each decomposes its curvature once, in float64, when it is built; a prior precision is
then only added to eigenvalues. What predictions need is kept as buffers in the type of
the head.
"""

from collections.abc import Callable

from laplacebridge.laplace.curvature import Curvature, Diag, DiagKron, Full, Kron
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

# the usual posterior of each curvature
POSTERIORS: dict[type[Curvature], Callable[..., HeadPosterior]] = {
    Diag: DiagPosterior,
    Kron: KronPosterior,
    DiagKron: DiagKronPosterior,
    Full: FullPosterior,
    LabelBlocks: LabelBlocksPosterior,
}
