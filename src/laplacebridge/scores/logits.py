"""Scores of logits alone, what a network gives without any bridge: a number for each
example, higher = more unusual, in at least float32.
"""

import math
from collections.abc import Callable as _Callable

import torch
from jaxtyping import Float
from torch import Tensor

from laplacebridge import _checks, _special
from laplacebridge._arrays import takes_arrays
from laplacebridge.errors import InputError
from laplacebridge.scores.predictions import without_largest


@takes_arrays
def msp_of_logits(logits: Tensor) -> Float[Tensor, " B"]:
    """1 − max_k softmax(z)_k: `msp` of a network without any bridge.

    Args:
        logits: What goes into softmax, shape (B, K).

    Example:
        >>> msp_of_logits(torch.tensor([[2.0, 0.0], [0.0, 0.0]]))
        tensor([0.1192, 0.5000])
    """
    return without_largest(_special.softmax(_logits("msp_of_logits(logits)", logits)))


@takes_arrays
def energy(logits: Tensor, *, temperature: int | float = 1.0) -> Float[Tensor, " B"]:
    """−T log Σ_k exp(z_k/T): low when some logit is large, whichever it is.

    Reads what softmax ignores: a constant added to all logits. It is −max_k z_k for T →
    0.

    Args:
        logits: What goes into softmax, shape (B, K).
        temperature: T.

    Raises:
        InputError: If the temperature is not positive and finite.

    Example:
        >>> energy(torch.tensor([[2.0, 0.0], [12.0, 10.0]]))
        tensor([ -2.1269, -12.1269])
    """
    if not 0 < temperature < math.inf:
        raise InputError(
            f"`energy(temperature)` needs a positive number; got {temperature}. 1 is usual."
        )
    checked = _logits("energy(logits)", logits)
    top = checked.amax(
        -1, keepdim=True
    )  # subtracted first, because z/T may leave the range of the type
    return -top.squeeze(-1) - temperature * ((checked - top) / temperature).logsumexp(-1)


@takes_arrays
def max_logit(logits: Tensor) -> Float[Tensor, " B"]:
    """−max_k z_k.

    Args:
        logits: What goes into softmax, shape (B, K).

    Example:
        >>> max_logit(torch.tensor([[2.0, 0.0], [12.0, 10.0]]))
        tensor([ -2., -12.])
    """
    return -_logits("max_logit(logits)", logits).amax(-1)


@takes_arrays
def generalised_entropy(
    logits: Tensor, *, power: float = 0.1, largest: int = 100
) -> Float[Tensor, " B"]:
    """Σ p^γ (1 − p)^γ over the largest probabilities: GEN (Liu, Lochman and Zach 2023).

    Args:
        logits: What goes into softmax, shape (B, K).
        power: γ, between 0 and 1; small ones look at improbable classes.
        largest: Over how many classes to sum.

    Raises:
        InputError: If the power is not between 0 and 1, or there is no class to sum.

    Example:
        >>> generalised_entropy(torch.tensor([[0.0, 0.0], [9.0, 0.0]]))
        tensor([1.7411, 0.8131])
    """
    if not 0 < power < 1 or largest < 1:
        raise InputError(
            "`generalised_entropy(power, largest)` needs a power between 0 and 1 and at least one"
            f" class; got {power} and {largest}."
        )
    checked = _logits("generalised_entropy(logits)", logits)
    log = checked.log_softmax(-1)
    log, places = log.topk(min(largest, log.shape[-1]), -1)
    # log(1 − p), which keeps its digits next to p = 1 if it is summed from the others
    first = torch.zeros_like(places).bool()
    first[:, 0] = True
    rest = without_largest(checked.softmax(-1)).unsqueeze(-1)
    smallest = torch.finfo(log.dtype).tiny
    others = torch.log1p(-torch.where(first, 0.0, log.exp()))
    log_rest = torch.where(first, rest.clamp_min(smallest).log(), others)
    return (power * (log + log_rest)).exp().sum(-1)


# by name, for tables
LOGIT_SCORES: dict[str, _Callable[[Tensor], Tensor]] = {
    "msp_of_logits": msp_of_logits,
    "energy": energy,
    "max_logit": max_logit,
    "generalised_entropy": generalised_entropy,
}


def _logits(call: str, logits: Tensor) -> Float[Tensor, "B K"]:
    """The logits in at least float32, known to be finite."""
    _checks.require_rows(call, len(_checks.require_logits(call, logits)))
    _checks.require_finite(call, "logits", logits, "Look at the input that produced that row.")
    return logits.float() if _checks.is_half(logits.dtype) else logits
