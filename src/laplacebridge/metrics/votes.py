"""Predictions against votes: several people's answers for each example."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from laplacebridge._arrays import takes_arrays
from laplacebridge._predictions import AnyPrediction, dirichlet_of
from laplacebridge.errors import InputError, ShapeError

# log α below which α (α + 1) … is α (c − 1)! to rounding, and beyond which it is α^c.
TINY, HUGE = -40.0, 80.0
_NEEDS_WIDTH = (
    "Probabilities alone do not say how votes depend on each other: give what a bridge or a"
    " classifier returned, or use `nll` with one label for each example."
)


@takes_arrays
def dirichlet_multinomial_nll(prediction: AnyPrediction, votes: "Tensor | np.ndarray") -> float:
    """Mean negative log-likelihood of votes, in nats for each vote.

    Votes on one example come one after the other, and each makes the next of its class
    likelier: −log Γ(α₀)/Γ(α₀ + n) Π_k Γ(α_k + c_k)/Γ(α_k), without the number of
    orders. Of a single vote it is `nll`; several test the width of a distribution, and
    not only its mean.

    Args:
        prediction: Predictions, or Dirichlets.
        votes: How many people chose each class, shape (B, K).

    Raises:
        ShapeError: If there is not one number for every class of every example.
        InputError: If these are not numbers of votes, there is no vote at all, or
            probabilities were given.

    Example:
        >>> from laplacebridge import Dirichlet
        >>> sure, unsure = (
        ...     Dirichlet.from_concentration(torch.tensor([[a, a]])) for a in (50.0, 1.0)
        ... )
        >>> split, agreed = torch.tensor([[5, 5]]), torch.tensor([[10, 0]])
        >>> dirichlet_multinomial_nll(sure, split) < dirichlet_multinomial_nll(unsure, split)
        True
        >>> dirichlet_multinomial_nll(sure, agreed) > dirichlet_multinomial_nll(unsure, agreed)
        True
    """
    call = "dirichlet_multinomial_nll(prediction, votes)"
    log = dirichlet_of(call, prediction, _NEEDS_WIDTH).log_concentration.double()
    counts = torch.as_tensor(votes, device=log.device).double()
    if counts.shape != log.shape:
        raise ShapeError(
            f"`{call}` needs a number of votes for every class of every example, shape"
            f" {tuple(log.shape)}; got {tuple(counts.shape)}."
        )
    if not ((counts >= 0) & (counts == counts.round()) & counts.isfinite()).all():
        raise InputError(f"`{call}` needs numbers of votes: whole, and 0 or more.")
    if not counts.sum():
        raise InputError(f"`{call}` needs at least one vote; got none.")
    total = _log_rising(log.logsumexp(-1), counts.sum(-1))
    return float((total - _log_rising(log, counts).sum(-1)).sum() / counts.sum())


def _log_rising(log: Float[Tensor, "..."], counts: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """log α (α + 1) … (α + c − 1), from log α. The Beta function loses nothing where α
    is large, as differences of log Γ do.
    """
    from scipy import special  # here, because importing it takes long

    places, known = log.detach().cpu().numpy(), counts.clamp_min(1).cpu().numpy()
    alpha = places.clip(TINY, HUGE)
    middle = special.gammaln(known) - special.betaln(np.exp(alpha), known)
    # beyond both ends the logarithm grows by one, and by c
    below, above = places - alpha, (places - alpha) * known
    rising = torch.as_tensor(middle + (below * (places < TINY)) + (above * (places > HUGE)))
    return torch.where(counts > 0, rising.to(counts), torch.zeros_like(counts))
