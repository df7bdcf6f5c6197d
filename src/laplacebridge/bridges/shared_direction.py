"""Conditioning on one direction that many logits share, for the race: clusters,
anticorrelated pairs, rank one.

Given one contrast ξ = ℓᵀz of the logits, z = μ + aξ + rest with a = Σℓ/√(ℓᵀΣℓ), and the
rest is closer to independent. The direction is the leading axis of what independent
logits cannot express,

    M = P½ C (Σ − diag D) Cᵀ P½,     P = diag(p),  C = I − 1pᵀ,

not of Σ itself, whose leading axis may be one noisy logit that the race already treats
exactly.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from laplacebridge.bridges.one_vs_rest import tempered_probabilities
from laplacebridge.covariance import Covariance, Residual

NUM_POINTS = 11
# Condition where the direction explains this share of the spread, and has at least this
# variance.
SMALLEST_SHARE = 0.3
SMALLEST_EIGENVALUE = 0.5
_LANCZOS_STEPS = 16

MeanOf = Callable[[Tensor, Covariance], Tensor]


def average_over_shared_direction(
    mean_of: MeanOf,
    mean: Float[Tensor, "B K"],
    covariance: Covariance,
    unconditioned: Float[Tensor, "B K"],
) -> Float[Tensor, "B K"]:
    """Replaces the mean probabilities of rows with one strong shared direction by an
    average over its values.

    Args:
        mean_of: Mean probabilities of logits with a given mean and covariance.
        mean: Means of the logits.
        covariance: Their covariance, from `Covariance.modulo_shift`.
        unconditioned: The mean probabilities to keep for all other rows.
    """
    with torch.no_grad():
        flagged, contrast = shared_direction(mean, covariance)
    if not flagged.any():
        return unconditioned
    rest = Residual(covariance[flagged], contrast[flagged])
    reach = (
        2 + NUM_POINTS / 12
    )  # steps in ξ are sharp: an even grid does better than Gauss–Hermite nodes
    points = torch.linspace(-reach, reach, NUM_POINTS, dtype=mean.dtype, device=mean.device)
    weights = torch.softmax(-0.5 * points.square(), -1)
    averaged = sum(
        weight * mean_of(mean[flagged] + point * rest.direction(), rest)
        for point, weight in zip(points, weights)
    )
    return unconditioned.index_put((flagged,), averaged)


def shared_direction(
    mean: Float[Tensor, "B K"], covariance: Covariance
) -> tuple[Bool[Tensor, " B"], Float[Tensor, "B K"]]:
    """Which rows to condition, and on which contrast ℓ of their logits.

    Args:
        mean: Means of the logits.
        covariance: Their covariance.

    Returns:
        The rows whose leading shared axis has a large share of the spread, and ℓ for
        every row.
    """
    effective = covariance.effective_variance()
    p = tempered_probabilities(mean, effective)
    root = p.sqrt()

    def weighted(vector: Tensor) -> Tensor:  # Cᵀ P½ x
        scaled = root * vector
        return scaled - p * scaled.sum(-1, keepdim=True)

    def shared(vector: Tensor) -> Tensor:  # M x
        contrast = weighted(vector)
        product = covariance.matvec(contrast) - effective * contrast
        return root * (product - (p * product).sum(-1, keepdim=True))

    value, axis = _leading_axis(shared, p)
    product = covariance.matvec(p)
    spread = (p * covariance.diagonal()).sum(-1) - (p * product).sum(-1)
    return (value > SMALLEST_EIGENVALUE) & (value > SMALLEST_SHARE * spread), weighted(axis)


def _leading_axis(operator: Callable[[Tensor], Tensor], like: Tensor) -> tuple[Tensor, Tensor]:
    """Largest eigenvalue and its vector of a symmetric operator, by Lanczos iteration
    with full orthogonalisation.
    """
    generator = torch.Generator(device=like.device).manual_seed(0)
    start = torch.randn(like.shape, dtype=like.dtype, device=like.device, generator=generator)
    basis = [start / torch.linalg.vector_norm(start, dim=-1, keepdim=True)]
    images = []
    for _ in range(min(like.shape[-1], _LANCZOS_STEPS)):
        images.append(operator(basis[-1]))
        remaining = images[-1]
        for _ in range(2):  # twice is enough
            stacked = torch.stack(basis, -1)
            overlaps = (remaining.unsqueeze(-2) @ stacked).squeeze(-2)
            remaining = remaining - (stacked @ overlaps.unsqueeze(-1)).squeeze(-1)
        length = torch.linalg.vector_norm(remaining, dim=-1, keepdim=True)
        basis.append(remaining / torch.where(length > 0, length, torch.ones_like(length)))
    vectors, products = torch.stack(basis[:-1], -1), torch.stack(images, -1)
    projected = vectors.mT @ products
    values, rotations = torch.linalg.eigh((projected + projected.mT) / 2)
    return values[:, -1], (vectors @ rotations[:, :, -1:]).squeeze(-1)
