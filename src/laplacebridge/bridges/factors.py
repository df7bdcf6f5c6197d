"""What correlated logits share: Σ ≈ AAᵀ + diag D modulo shift, a few factors and noise
of its own for every logit.

The factors are the leading axes of what independent logits cannot express,

    M = P½ C (Σ − diag D) Cᵀ P½,     P = diag(p),  C = I − 1pᵀ,

not of Σ itself, whose leading axis may be one noisy logit that the race already treats
exactly. They are found by products with Σ alone. Given the contrasts L of these axes,
A = W (LᵀW)^−½ with W = (Σ − diag D)L, and D is what A leaves of the variances: a few
rounds of principal factors. Everything follows the classes when these are renamed.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from laplacebridge.bridges.log_odds import tempered_probabilities
from laplacebridge.covariance import Covariance, LowRank
from laplacebridge.covariance.base import independent_variance

MOST_FACTORS = 16
# Contrasts among which they are searched: all of them for few classes, otherwise what M
# makes of so many vectors of signs.
NUM_CONTRASTS = 20
# Rounds of principal factors. They start from nothing of their own, which is where an
# ensemble stays; from the variances as a whole it takes them four times as long. Of few
# classes a factor is told from what is their own more slowly, and rounds cost little.
NUM_ROUNDS, ROUNDS_OF_FEW = 4, 8
# A factor counts from this share of the spread and this variance on, and fully from twice
# as much.
SMALLEST_SHARE = 0.01
SMALLEST_VARIANCE = 1e-3
# No logit is all factors: its own variance must not be lost in rounding.
LARGEST_EXPLAINED = 0.9999
# By how much a mean variance may exceed that of most classes.
MOST_UNEVEN = 4.0
# Which share of it decides at least on what is searched: of less, the own variance of a
# class that is far wider than the others would pass for a factor.
LEAST_USUAL = 1 / 30
_TINY = 1e-30
# Numbers of a block of rows and contrasts that stay in the cache.
_ELEMENTS = 524_288
# A round in which a factor all but disappears, to between one and two times this share of
# its strength, is believed in part, so that nothing jumps when it does.
FADED = 0.1


class Factors(NamedTuple):
    """Σ ≈ AAᵀ + diag D, modulo shift, row by row."""

    loadings: Float[Tensor, "B K R"]  # A; columns of zeros in rows that have fewer factors
    own: Float[Tensor, "B K"]  # D
    presence: Float[Tensor, "B 1"]  # from 0, where nothing is shared, to 1

    def of_rows(self, rows: Tensor | slice) -> "Factors":
        """Those of some rows.

        Args:
            rows: Which.
        """
        return Factors(*[part[rows] for part in self])

    def faded(self, share: Float[Tensor, " B"]) -> "Factors":
        """The same, believed in part.

        Args:
            share: From 0 to 1.
        """
        return self._replace(presence=self.presence * share.to(self.presence).unsqueeze(-1))


def shared_factors(mean: Float[Tensor, "B K"], covariance: Covariance) -> Factors:
    """Finds the factors of every row.

    The contrasts carry no gradient, the factors do.

    Args:
        mean: Means of the logits.
        covariance: Their covariance, from `Covariance.modulo_shift`.
    """
    rows = max(1, _ELEMENTS // (NUM_CONTRASTS * mean.shape[-1]))
    if torch.compiler.is_compiling() or len(mean) <= rows:
        return _found_factors(mean, covariance)
    starts = range(0, len(mean), rows)
    parts = [_found_factors(mean[i : i + rows], covariance[i : i + rows]) for i in starts]
    most = max(part.loadings.shape[-1] for part in parts)
    loadings = [
        torch.nn.functional.pad(part.loadings, (0, most - part.loadings.shape[-1]))
        for part in parts
    ]
    own, presence = (torch.cat([part[place] for part in parts]) for place in (1, 2))
    return Factors(torch.cat(loadings), own, presence)


def _found_factors(mean: Float[Tensor, "B K"], covariance: Covariance) -> Factors:
    """Those of rows that stay in the cache together."""
    total = covariance.effective_variance()
    centered = covariance.centered_diagonal().clamp_min(0)
    with torch.no_grad():
        p = tempered_probabilities(mean, total)
        diagonal, product = covariance.diagonal(), covariance.matvec(p)
        spread = (p * (diagonal - product)).sum(-1, keepdim=True).clamp_min(0)
        usual = usual_variance(spread, p, total, least_share=LEAST_USUAL)
        smallest = (SMALLEST_SHARE * usual).clamp_min(SMALLEST_VARIANCE)
        contrasts, products, strength, presence = _leading_contrasts(
            mean, p, total, covariance, smallest
        )
        kept = (presence > 0).to(p)
        absent = torch.diag_embed(1 - kept)
    if covariance.requires_grad:
        products = covariance.matmat(contrasts)  # the same, with its gradient
    loadings, own = torch.zeros_like(products), torch.zeros_like(centered)
    for _ in range(ROUNDS_OF_FEW if p.shape[-1] <= NUM_CONTRASTS else NUM_ROUNDS):
        rest = _without(own, contrasts, products)
        root, failed = _root(contrasts.mT @ rest + absent)
        with torch.no_grad():
            left = root.diagonal(dim1=-2, dim2=-1).square() / torch.where(kept > 0, strength, 1.0)
            left = torch.where(kept > 0, left, 1.0).amin(-1, keepdim=True)
            trust = ((left - FADED) / FADED).clamp(0, 1) * (failed == 0).to(p).unsqueeze(-1)
        new = rest @ (_inverse(root).mT * presence.sqrt().unsqueeze(1))
        new = new - new.mean(1, keepdim=True)
        loadings = loadings + trust.unsqueeze(-1) * (new - loadings)
        explained = loadings.square().sum(-1)
        share = explained / centered.clamp_min(_TINY)
        fit = torch.where(share > LARGEST_EXPLAINED, LARGEST_EXPLAINED / share.clamp_min(1e-3), 1.0)
        loadings = loadings * fit.sqrt().unsqueeze(-1)
        own = independent_variance((centered - explained * fit).clamp_min(0))
    loadings = loadings - (p.unsqueeze(-1) * loadings).sum(1, keepdim=True)
    return Factors(loadings, own, presence[:, :1])


def principal_loadings(mean: Float[Tensor, "B K"], covariance: LowRank) -> Float[Tensor, "B K R"]:
    """The factor of logits that are all factors, turned to its principal axes, the
    strongest first: points are spread most evenly along these.

    The turn carries no gradient, the loadings do.

    Args:
        mean: Means of the logits.
        covariance: Their covariance, from `Covariance.modulo_shift`.
    """
    with torch.no_grad():
        p = tempered_probabilities(mean, covariance.effective_variance())
    factor = covariance.factor - torch.einsum("bk,bkr->br", p, covariance.factor).unsqueeze(1)
    with torch.no_grad():
        weighted = factor * p.sqrt().unsqueeze(-1)
        gram = (weighted.mT @ weighted).double()
        turns = torch.linalg.eigh((gram + gram.mT) / 2)[1].flip(-1).to(factor)
        skewness = (weighted @ turns).pow(3).sum(1, keepdim=True)
        turns = torch.where(skewness < 0, -turns, turns)
    return factor @ turns


def usual_variance(
    spread: Float[Tensor, "B 1"],
    p: Float[Tensor, "B K"],
    variance: Float[Tensor, "B K"],
    *,
    least_share: float = 0.0,
) -> Float[Tensor, "B 1"]:
    """A mean variance, but not that of a class that varies far more than the others: it wins
    or loses whatever they share, and does not make that count less for them.

    Args:
        spread: The mean.
        p: How much classes count.
        variance: Of their logits.
        least_share: Of the mean that is kept at least.
    """
    least = 1 + variance.amin(-1, keepdim=True)
    weights = p * (least / (1 + variance)).square()  # relative, within the range of float32
    small = (weights * variance).sum(-1, keepdim=True)
    usual = MOST_UNEVEN * small / weights.sum(-1, keepdim=True).clamp_min(_TINY)
    return torch.minimum(spread, usual.maximum(spread * least_share))


def _rounding(like: Tensor) -> float:
    """What is added to diagonals, so that rounding does not make them negative."""
    return max(1e-10, 8 * torch.finfo(like.dtype).eps)


def _root(gram: Float[Tensor, "B R R"]) -> tuple[Float[Tensor, "B R R"], Int[Tensor, " B"]]:
    """Its Cholesky factor, the identity where it has none, and where that is."""
    gram = (gram + gram.mT) / 2
    rounding = torch.diag_embed(_rounding(gram) * gram.diagonal(dim1=-2, dim2=-1))
    root, failed = torch.linalg.cholesky_ex(gram + rounding)
    identity = torch.eye(root.shape[-1]).to(root)
    return torch.where((failed == 0)[:, None, None], root, identity), failed


def _inverse(root: Float[Tensor, "B R R"]) -> Float[Tensor, "B R R"]:
    """That of a triangular matrix: products with it are faster than solving for K columns."""
    identity = torch.eye(root.shape[-1]).to(root).expand_as(root)
    return torch.linalg.solve_triangular(root, identity, upper=False)


def contrasts_of(axes: Float[Tensor, "B K N"], p: Float[Tensor, "B K"]) -> Float[Tensor, "B K N"]:
    """CᵀP½V: contrasts of logits, whose coefficients add up to zero.

    Args:
        axes: V.
        p: How much classes count.
    """
    scaled = p.sqrt().unsqueeze(-1) * axes
    return scaled - p.unsqueeze(-1) * scaled.sum(1, keepdim=True)


def weighted_rest(
    products: Float[Tensor, "B K N"], p: Float[Tensor, "B K"]
) -> Float[Tensor, "B K N"]:
    """P½CX, the other half of M.

    Args:
        products: X.
        p: How much classes count.
    """
    away = products - (p.unsqueeze(-1) * products).sum(1, keepdim=True)
    return p.sqrt().unsqueeze(-1) * away


def _without(
    own: Float[Tensor, "B K"], contrasts: Float[Tensor, "B K N"], products: Float[Tensor, "B K N"]
) -> Float[Tensor, "B K N"]:
    """(Σ − diag D)L, from D, L and ΣL."""
    return torch.addcmul(products, own.unsqueeze(-1), contrasts, value=-1)


def _leading_contrasts(
    mean: Float[Tensor, "B K"],
    p: Float[Tensor, "B K"],
    total: Float[Tensor, "B K"],
    covariance: Covariance,
    smallest: Float[Tensor, "B 1"],
) -> tuple[Tensor, Tensor, Float[Tensor, "B R"], Float[Tensor, "B R"]]:
    """CᵀP½V for the leading axes V of M, their products with Σ, both zero for factors that
    do not count, the eigenvalues, falling, and how much each factor counts.
    """
    num_classes = p.shape[-1]
    if num_classes <= NUM_CONTRASTS:
        axes = torch.eye(num_classes, dtype=p.dtype, device=p.device).expand(len(p), -1, -1)
    else:
        contrasts = contrasts_of(signs(mean, NUM_CONTRASTS), p)
        rest = _without(total, contrasts, covariance.matmat(contrasts))
        # twice: of vectors that nearly depend on each other one Cholesky factor
        # leaves noise in float32
        axes = _orthonormal(_orthonormal(weighted_rest(rest, p)))
    contrasts = contrasts_of(axes, p)
    products = covariance.matmat(contrasts)
    projected = contrasts.mT @ _without(total, contrasts, products)
    values, turns = torch.linalg.eigh((projected + projected.mT).double() / 2)
    values, turns = (part.to(p).flip(-1)[..., :MOST_FACTORS] for part in (values, turns))
    presence = (values / smallest - 1).clamp(0, 1)
    if not torch.compiler.is_compiling():  # the strongest come first: no more than there are
        most = max(1, int((presence > 0).sum(-1).amax()))
        values, turns, presence = (part[..., :most] for part in (values, turns, presence))
    turned = axes @ turns
    # an eigenvector has no sign of its own
    turns = torch.where((turned * turned * turned).sum(1, keepdim=True) < 0, -turns, turns)
    turns = turns * (presence > 0).to(p).unsqueeze(1)
    return contrasts @ turns, products @ turns, values, presence


def signs(mean: Float[Tensor, "B K"], number: int) -> Float[Tensor, "B K N"]:
    """Signs for classes by the order of their means, in no pattern that factors could have.

    Args:
        mean: Means of the logits.
        number: How many vectors of signs.
    """
    place = torch.arange(1, mean.shape[-1] + 1, dtype=torch.float64)
    column = torch.arange(2, 2 + number, dtype=torch.float64)
    known = torch.where((place.square() * column.sqrt().unsqueeze(-1)).sin() < 0, -1.0, 1.0)
    order = mean.argsort(-1, descending=True).argsort(-1).unsqueeze(1)
    of_rows = known.to(mean).expand(len(mean), -1, -1)
    return of_rows.gather(2, order.expand(-1, number, -1)).mT


def _orthonormal(vectors: Float[Tensor, "B K N"]) -> Float[Tensor, "B K N"]:
    """Orthonormal columns of the same span, by the Cholesky factor of their products;
    columns that depend on others, but for rounding, stay small.
    """
    length = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    unit = vectors / torch.where(length > 0, length, 1.0)
    gram = unit.mT @ unit
    identity = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    root, failed = torch.linalg.cholesky_ex(gram + _rounding(gram) * identity)
    root = torch.where((failed == 0)[:, None, None], root, identity)
    return unit @ _inverse(root).mT
