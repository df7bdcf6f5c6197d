"""Out-of-distribution (OOD) detection: how well a score tells OOD examples from
in-distribution (ID) ones.

Scores are higher for the more unusual.

The functions on rows take scores with leading dimensions of any shape, so that
resampling is one call.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from laplacebridge._arrays import takes_arrays
from laplacebridge._checks import values_of
from laplacebridge.errors import InputError, ShapeError
from laplacebridge.metrics.forms import carries


def auroc_of_rows(
    id_scores: Float[Tensor, "*rows B"], ood_scores: Float[Tensor, "*rows M"]
) -> Float[Tensor, "*rows"]:
    """`auroc` of every row."""
    ordered, wanted = id_scores.sort(-1).values, ood_scores.contiguous()
    below, up_to = (torch.searchsorted(ordered, wanted, right=right) for right in (False, True))
    return (below + up_to).sum(-1).double() / (2 * id_scores.shape[-1] * ood_scores.shape[-1])


@carries(of_rows=auroc_of_rows)
@takes_arrays
def auroc(id_scores: Tensor, ood_scores: Tensor) -> float:
    """Area under the ROC curve: the chance that an OOD example scores higher than one
    in distribution.

    Ties count half, so a constant score has 0.5. Exact, from ranks; infinite scores are
    legal.

    Args:
        id_scores: Scores of in-distribution examples, higher = more unusual, shape
            (B,).
        ood_scores: Scores of out-of-distribution examples, shape (M,).

    Example:
        >>> auroc(torch.tensor([0.1, 0.2, 0.4]), torch.tensor([0.3, 0.4, 0.9]))
        0.8333333333333334
    """
    return auroc_of_rows(*_both("auroc(id_scores, ood_scores)", id_scores, ood_scores)).item()


def aupr_of_rows(
    id_scores: Float[Tensor, "*rows B"],
    ood_scores: Float[Tensor, "*rows M"],
    *,
    id_positive: bool = False,
) -> Float[Tensor, "*rows"]:
    """`aupr` of every row: the mean over positive examples of the precision at their
    own score.
    """
    positive, negative = (-id_scores, -ood_scores) if id_positive else (ood_scores, id_scores)
    positive, negative = positive.sort(-1).values, negative.sort(-1).values
    found, wrongly = (
        scores.shape[-1] - torch.searchsorted(scores, positive) for scores in (positive, negative)
    )
    return (found.double() / (found + wrongly)).mean(-1)


@carries(of_rows=aupr_of_rows)
@takes_arrays
def aupr(id_scores: Tensor, ood_scores: Tensor, *, id_positive: bool = False) -> float:
    """Area under the precision-recall curve, as average precision: Σ (R_i − R_{i−1})
    P_i over falling thresholds.

    By chance it is the share of positive examples, so it compares only on the same
    number of each.

    Args:
        id_scores: Scores of in-distribution examples, higher = more unusual, shape
            (B,).
        ood_scores: Scores of out-of-distribution examples, shape (M,).
        id_positive: Search for the ID examples by low scores, instead of the OOD ones
            by high scores.

    Example:
        >>> aupr(torch.tensor([0.1, 0.35]), torch.tensor([0.3, 0.9]))
        0.8333333333333333
    """
    both = _both("aupr(id_scores, ood_scores)", id_scores, ood_scores)
    return aupr_of_rows(*both, id_positive=id_positive).item()


def fpr_of_rows(
    id_scores: Float[Tensor, "*rows B"], ood_scores: Float[Tensor, "*rows M"], *, tpr: float = 0.95
) -> Float[Tensor, "*rows"]:
    """`fpr_at_tpr` of every row."""
    ordered = id_scores.sort(-1).values
    position = tpr * (ordered.shape[-1] - 1)
    below = int(position)
    low, high = ordered[..., below], ordered[..., min(below + 1, ordered.shape[-1] - 1)]
    # nothing is to be interpolated between equal scores, and between −inf and any other
    # it is −inf
    is_low = (low == high) | (low == -torch.inf) | (position == below)
    threshold = torch.where(is_low, low, low + (position - below) * (high - low))
    return (ood_scores <= threshold.unsqueeze(-1)).double().mean(-1)


@carries(of_rows=fpr_of_rows)
@takes_arrays
def fpr_at_tpr(id_scores: Tensor, ood_scores: Tensor, *, tpr: float = 0.95) -> float:
    """Share of OOD examples that pass as ID, at the threshold that lets this share of
    ID ones pass ("FPR95").

    The threshold is the `tpr` quantile of the ID scores, interpolated between
    neighbours; a score equal to it passes.

    Args:
        id_scores: Scores of in-distribution examples, higher = more unusual, shape
            (B,).
        ood_scores: Scores of out-of-distribution examples, shape (M,).
        tpr: Share of the ID examples to let pass.

    Raises:
        InputError: If that share is not above 0 and at most 1.

    Example:
        >>> fpr_at_tpr(torch.arange(21.0), torch.tensor([5.0, 19.0, 19.5, 30.0]))
        0.5
    """
    if not 0 < tpr <= 1:
        raise InputError(
            f"`fpr_at_tpr(tpr)` needs a share above 0 and at most 1; got {tpr}. 0.95 is usual."
        )
    return fpr_of_rows(
        *_both("fpr_at_tpr(id_scores, ood_scores)", id_scores, ood_scores), tpr=tpr
    ).item()


def _both(call: str, id_scores: object, ood_scores: object) -> tuple[Tensor, Tensor]:
    """Both scores in float64, after checks.

    Raises:
        ShapeError: If there are none of one kind.
    """
    sides = [side for side in (id_scores, ood_scores) if isinstance(side, Tensor)]
    if any(side.numel() == 0 for side in sides):
        raise ShapeError(
            f"`{call}` needs scores of both kinds, because it compares one with the other and is"
            f" not defined for one alone; got {' and '.join(str(side.numel()) for side in sides)}."
            " Give ID and OOD examples."
        )
    first, second = (
        values_of(call, id_scores).detach().double(),
        values_of(call, ood_scores).detach().double(),
    )
    return first, second.to(first.device)
