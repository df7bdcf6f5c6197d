"""How well a score tells unusual examples from usual ones. Scores are higher for the more unusual.

The functions on rows take scores with leading dimensions of any shape, so that resampling is one call.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from laplacebridge._checks import values_of
from laplacebridge.errors import ShapeError


def auroc(inside: Tensor, outside: Tensor) -> float:
    """Area under the ROC curve: the chance that an example outside scores higher than one inside.

    Ties count half, so a constant score has 0.5. Exact, from ranks; infinite scores are legal.

    Args:
        inside: Scores of usual (in-distribution) examples, higher = more unusual, shape (B,).
        outside: Scores of unusual (out-of-distribution) examples, shape (M,).

    Example:
        >>> auroc(torch.tensor([0.1, 0.2, 0.4]), torch.tensor([0.3, 0.4, 0.9]))
        0.8333333333333334
    """
    return auroc_of_rows(*_both("auroc(inside, outside)", inside, outside)).item()


def aupr(inside: Tensor, outside: Tensor, *, inside_positive: bool = False) -> float:
    """Area under the precision-recall curve, as average precision: Σ (R_i − R_{i−1}) P_i over falling thresholds.

    By chance it is the share of positive examples, so it compares only on the same number of each.

    Args:
        inside: Scores of usual (in-distribution) examples, higher = more unusual, shape (B,).
        outside: Scores of unusual (out-of-distribution) examples, shape (M,).
        inside_positive: Search for the usual examples by low scores, instead of the unusual ones by high scores.

    Example:
        >>> aupr(torch.tensor([0.1, 0.35]), torch.tensor([0.3, 0.9]))
        0.8333333333333333
    """
    both = _both("aupr(inside, outside)", inside, outside)
    return aupr_of_rows(*both, inside_positive=inside_positive).item()


def fpr_at_tpr(inside: Tensor, outside: Tensor, *, tpr: float = 0.95) -> float:
    """Share of unusual examples that pass as usual, at the threshold that lets this share of usual ones pass ("FPR95").

    The threshold is the `tpr` quantile of the scores inside, interpolated between neighbours; a score equal to it
    passes.

    Args:
        inside: Scores of usual (in-distribution) examples, higher = more unusual, shape (B,).
        outside: Scores of unusual (out-of-distribution) examples, shape (M,).
        tpr: Share of the examples inside to let pass.

    Raises:
        ValueError: If that share is not above 0 and at most 1.

    Example:
        >>> fpr_at_tpr(torch.arange(21.0), torch.tensor([5.0, 19.0, 19.5, 30.0]))
        0.5
    """
    if not 0 < tpr <= 1:
        raise ValueError(f"`fpr_at_tpr(tpr)` needs a share above 0 and at most 1; got {tpr}. 0.95 is usual.")
    return fpr_of_rows(*_both("fpr_at_tpr(inside, outside)", inside, outside), tpr=tpr).item()


def auroc_of_rows(inside: Float[Tensor, "*rows B"], outside: Float[Tensor, "*rows M"]) -> Float[Tensor, "*rows"]:
    """`auroc` of every row."""
    ordered, wanted = inside.sort(-1).values, outside.contiguous()
    below, up_to = (torch.searchsorted(ordered, wanted, right=right) for right in (False, True))
    return (below + up_to).sum(-1).double() / (2 * inside.shape[-1] * outside.shape[-1])


def aupr_of_rows(
    inside: Float[Tensor, "*rows B"], outside: Float[Tensor, "*rows M"], *, inside_positive: bool = False
) -> Float[Tensor, "*rows"]:
    """`aupr` of every row: the mean over positive examples of the precision at their own score."""
    positive, negative = (-inside, -outside) if inside_positive else (outside, inside)
    positive, negative = positive.sort(-1).values, negative.sort(-1).values
    found, wrongly = (scores.shape[-1] - torch.searchsorted(scores, positive) for scores in (positive, negative))
    return (found.double() / (found + wrongly)).mean(-1)


def fpr_of_rows(
    inside: Float[Tensor, "*rows B"], outside: Float[Tensor, "*rows M"], *, tpr: float = 0.95
) -> Float[Tensor, "*rows"]:
    """`fpr_at_tpr` of every row."""
    ordered = inside.sort(-1).values
    position = tpr * (ordered.shape[-1] - 1)
    below = int(position)
    low, high = ordered[..., below], ordered[..., min(below + 1, ordered.shape[-1] - 1)]
    # nothing is to be interpolated between equal scores, and between −inf and any other it is −inf
    is_low = (low == high) | (low == -torch.inf) | (position == below)
    threshold = torch.where(is_low, low, low + (position - below) * (high - low))
    return (outside <= threshold.unsqueeze(-1)).double().mean(-1)


def _both(call: str, inside: object, outside: object) -> tuple[Tensor, Tensor]:
    """Both scores in float64, after checks.

    Raises:
        ShapeError: If there are none of one kind.
    """
    sides = [side for side in (inside, outside) if isinstance(side, Tensor)]
    if any(side.numel() == 0 for side in sides):
        raise ShapeError(
            f"`{call}` needs scores of both kinds, because it compares one with the other and is not defined for one "
            f"alone; got {' and '.join(str(side.numel()) for side in sides)}. Give examples from inside and outside."
        )
    usual, unusual = values_of(call, inside).detach().double(), values_of(call, outside).detach().double()
    return usual, unusual.to(usual.device)
