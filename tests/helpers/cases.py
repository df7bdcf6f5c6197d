"""The lists that the suites run over. A new structure, bridge or link is added here,
once, and tested everywhere.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Generator, Tensor

import laplacebridge as lb
from laplacebridge import laplace, sets
from laplacebridge.covariance import LowRankPlusDiagonal


def seeded(seed: int) -> Generator:
    return torch.Generator().manual_seed(seed)


def _variance(generator: Generator, *shape: int) -> Tensor:
    return torch.exp(1.5 * torch.randn(shape, generator=generator, dtype=torch.float64))


def diagonal(generator: Generator, batch: int, classes: int) -> lb.covariance.Covariance:
    return lb.Diagonal(_variance(generator, batch, classes))


def centered_diagonal(generator: Generator, batch: int, classes: int) -> lb.covariance.Covariance:
    return lb.covariance.CenteredDiagonal(_variance(generator, batch, classes))


def shared_basis(generator: Generator, batch: int, classes: int) -> lb.covariance.Covariance:
    basis = torch.randn(classes, classes, generator=generator, dtype=torch.float64) / classes**0.5
    return lb.SharedBasis(_variance(generator, batch, classes), basis)


def shared_basis_low_rank(
    generator: Generator, batch: int, classes: int
) -> lb.covariance.Covariance:
    rank = classes // 2 + 2  # of rank one, conditioning on the sum leaves nothing but rounding
    basis = torch.randn(classes, rank, generator=generator, dtype=torch.float64) / rank**0.5
    return lb.SharedBasis(_variance(generator, batch, rank), basis)


def low_rank(generator: Generator, batch: int, classes: int) -> lb.covariance.Covariance:
    rank = classes // 2 + 2  # of rank one, conditioning on the sum leaves nothing but rounding
    return lb.LowRank(
        torch.randn(batch, classes, rank, generator=generator, dtype=torch.float64) / rank**0.5
    )


def dense(generator: Generator, batch: int, classes: int) -> lb.covariance.Covariance:
    factor = torch.randn(batch, classes, classes + 1, generator=generator, dtype=torch.float64)
    return lb.Dense(factor @ factor.mT / classes)


def low_rank_plus_diagonal(
    generator: Generator, batch: int, classes: int
) -> lb.covariance.Covariance:
    factor = torch.randn(batch, classes, 2, generator=generator, dtype=torch.float64)
    return LowRankPlusDiagonal(factor, _variance(generator, batch, classes))


STRUCTURES: dict[str, Callable[[Generator, int, int], lb.covariance.Covariance]] = {
    "diagonal": diagonal,
    "centered diagonal": centered_diagonal,
    "shared basis": shared_basis,
    "shared basis of low rank": shared_basis_low_rank,
    "low rank": low_rank,
    "dense": dense,
}
# inside the race
COVARIANCES = {**STRUCTURES, "low rank plus diagonal": low_rank_plus_diagonal}


def gaussian(
    structure: str, seed: int, batch: int, classes: int, spread: float = 2.0
) -> lb.LogitGaussian:
    """A random Gaussian in float64 with the given structure."""
    generator = seeded(seed)
    mean = spread * torch.randn(batch, classes, generator=generator, dtype=torch.float64)
    return lb.LogitGaussian(mean, STRUCTURES[structure](generator, batch, classes))


@dataclass(frozen=True)
class Bridge:
    """A bridge and which laws it is claimed to obey."""

    function: Callable[[lb.LogitGaussian], lb.Dirichlet]
    shift_invariant: bool = True  # a constant added to all logits changes nothing
    common_mode_invariant: bool = True  # nor does Σ + u1ᵀ + 1uᵀ
    consistent: bool = True  # the mean becomes softmax(μ) as Σ → 0
    structured_tolerance: float = (
        1e-6  # difference in log-concentration between a structure and its dense twin
    )
    gradcheck_tolerance: float = 1e-5
    float32_mean: float = 1e-5  # distance of the mean in float32 from float64
    float32_log_total: float = 1e-3


LAPLACE_BRIDGES = {
    "laplace_bridge": Bridge(
        lb.laplace_bridge, shift_invariant=False, common_mode_invariant=False, consistent=False
    ),
    "laplace_bridge centered": Bridge(
        partial(lb.laplace_bridge, zero_sum=lb.bridges.center), consistent=False
    ),
    "laplace_bridge_norm": Bridge(
        lb.bridges.laplace_bridge_norm,
        shift_invariant=False,
        common_mode_invariant=False,
        consistent=False,
    ),
    "laplace_bridge_norm centered, large only": Bridge(
        partial(lb.bridges.laplace_bridge_norm, zero_sum=lb.bridges.center, only_large=True),
        consistent=False,
    ),
    "laplace_bridge_norm with the printed sum": Bridge(
        partial(lb.bridges.laplace_bridge_norm, average=False),
        shift_invariant=False,
        common_mode_invariant=False,
        consistent=False,
    ),
    "laplace_bridge_raw": Bridge(
        lb.bridges.laplace_bridge_raw, common_mode_invariant=False, consistent=False
    ),
}

OUR_BRIDGES = {
    # the nodes carry no gradient
    "race_bridge": Bridge(lb.race_bridge, gradcheck_tolerance=5e-3),
    "one_vs_rest_bridge": Bridge(lb.bridges.one_vs_rest_bridge),
    "kl_bridge": Bridge(lb.bridges.kl_bridge),
    "delta_bridge": Bridge(lb.bridges.delta_bridge),
}

BRIDGES: dict[str, Bridge] = {**OUR_BRIDGES, **LAPLACE_BRIDGES}


@dataclass(frozen=True)
class Link:
    """A link and which laws it is claimed to obey."""

    function: Callable[[lb.LogitGaussian], Tensor]
    shift_invariant: bool = True
    common_mode_invariant: bool = True
    smooth: bool = True
    exact_permutation: bool = True  # sampled links agree only in distribution


def _sampled(gaussian: lb.LogitGaussian) -> Tensor:
    return lb.links.monte_carlo(gaussian, num_samples=20, generator=seeded(0))


LINKS: dict[str, Link] = {
    "map_estimate": Link(lb.links.map_estimate),
    "monte_carlo": Link(_sampled, common_mode_invariant=False, exact_permutation=False),
    "probit": Link(lb.links.probit, shift_invariant=False, common_mode_invariant=False),
    "probit centered": Link(partial(lb.links.probit, centered=True)),
    "second_order": Link(lb.links.second_order, smooth=False),
}


# rules for class sets, each made anew because some draw random numbers; here none does,
# so that laws hold exactly
SET_RULES: dict[str, Callable[[], sets.SetRule]] = {
    "overlap": sets.Overlap,
    "top k": sets.TopK,
    "mass": sets.Mass,
    "least ambiguous": sets.LeastAmbiguous,
    "APS": partial(sets.APS, None),  # as drawn, no two calls are the same
    "RAPS": partial(sets.RAPS, penalty=0.02, free_places=2, generator=None),
}


# each curvature with the posteriors that are made of it
POSTERIORS = [
    (laplace.Diag, laplace.DiagPosterior),
    (laplace.Kron, laplace.KronPosterior),
    (laplace.Kron, laplace.MatrixNormalPosterior),
    (laplace.DiagKron, laplace.DiagKronPosterior),
    (laplace.Full, laplace.FullPosterior),
]
CURVATURES = list(dict.fromkeys(curvature for curvature, _ in POSTERIORS))


def total_variation(first: Tensor, second: Tensor) -> Tensor:
    """Half the sum of absolute differences, row by row."""
    return 0.5 * (first.double() - second.double()).abs().sum(-1)
