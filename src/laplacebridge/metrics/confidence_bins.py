"""Do probabilities mean what they say? Confidence against accuracy, in bins."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from laplacebridge._arrays import takes_arrays
from laplacebridge._checks import Labels, labels_of
from laplacebridge._predictions import AnyPrediction, probabilities_of
from laplacebridge.errors import InputError

Binning: TypeAlias = Callable[[Tensor, int], Tensor]


@dataclass(frozen=True, eq=False)
class Reliability:
    """What a reliability diagram shows: N bins of confidence, without those that hold
    no example.

    Attributes:
        index: Which of the bins asked for each is, counted from 0, shape (N,).
        lower: Its lower edge, shape (N,).
        upper: Its upper edge, shape (N,).
        confidence: Mean confidence of its examples, shape (N,).
        accuracy: Share of them that are right, shape (N,).
        count: How many they are, shape (N,).

    Example:
        >>> table = reliability(
        ...     torch.tensor([[0.7, 0.3], [0.9, 0.1], [0.2, 0.8]]), [0, 0, 0], num_bins=4
        ... )
        >>> table.index, table.count
        (tensor([2, 3]), tensor([1, 2]))
    """

    index: Int[Tensor, " N"]
    lower: Float[Tensor, " N"]
    upper: Float[Tensor, " N"]
    confidence: Float[Tensor, " N"]
    accuracy: Float[Tensor, " N"]
    count: Int[Tensor, " N"]


@takes_arrays
def equal_width(
    confidence: Float[Tensor, " B"], num_bins: int, *, lowest: float = 0.0
) -> Float[Tensor, " E"]:
    """Edges of bins of the same width, from `lowest` to 1, in the type of the
    confidences.

    Args:
        confidence: Confidences, shape (B,); only their type is read.
        num_bins: How many bins.
        lowest: The lowest edge.

    Example:
        >>> equal_width(torch.tensor([0.6, 0.9]), 4)
        tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000])
    """
    share = torch.arange(num_bins + 1, dtype=torch.float64, device=confidence.device) / num_bins
    return (lowest + (1 - lowest) * share).to(confidence.dtype)


@takes_arrays
def equal_mass(confidence: Float[Tensor, " B"], num_bins: int) -> Float[Tensor, " E"]:
    """Edges of bins with the same number of examples, or one more. Equal confidences
    share a bin.

    Args:
        confidence: Confidences, shape (B,).
        num_bins: How many bins.

    Example:
        >>> equal_mass(torch.tensor([0.5, 0.6, 0.9, 0.95]), 2)
        tensor([0.5000, 0.6000, 0.9500])
    """
    ordered = confidence.sort().values
    counts = torch.arange(num_bins + 1, device=ordered.device) * len(ordered)
    last = (
        counts + num_bins - 1
    ) // num_bins - 1  # rounded up, so that no bin before the last runs short
    return ordered[last.clamp_min(0)]


@takes_arrays
def reliability(
    prediction: AnyPrediction, labels: Labels, *, num_bins: int = 15, binning: Binning = equal_width
) -> Reliability:
    """Confidence (probability of the most probable class) against accuracy, in bins.

    A bin holds its upper edge, and the first also its lower. Examples below the lowest
    edge are left out.

    Args:
        prediction: Dirichlets, or probabilities of shape (B, K).
        labels: The right classes, shape (B,).
        num_bins: How many bins.
        binning: `equal_width`, `equal_mass`, or a function of confidences and number of
            bins that gives edges.

    Example:
        >>> table = reliability(
        ...     torch.tensor([[0.7, 0.3], [0.9, 0.1], [0.2, 0.8]]), [0, 0, 0], num_bins=2
        ... )
        >>> table.lower, table.confidence, table.accuracy, table.count
        (tensor([0.5000], dtype=torch.float64), tensor([0.8000], dtype=torch.float64),
         tensor([0.6667], dtype=torch.float64), tensor([3]))
    """
    return table_of(
        bins_of("reliability(prediction, labels)", prediction, labels, num_bins, binning)
    )


@dataclass(frozen=True, eq=False)
class Binned:
    """Confidence, whether right (0 or 1) and the bin of each example, and the edges of
    the bins.
    """

    confidence: Tensor
    correct: Tensor
    index: Tensor
    edges: Tensor


def bins_of(
    call: str, prediction: AnyPrediction, labels: Labels, num_bins: int, binning: Binning
) -> Binned:
    """Puts examples into bins; those below the lowest edge are left out.

    Args:
        call: The call being checked.
        prediction: As for `reliability`.
        labels: The same.
        num_bins: The same.
        binning: The same.

    Raises:
        InputError: If none is above the lowest edge, or there is no bin.
    """
    require_bins(call, num_bins)
    confidence, predicted, truth = most_probable(call, prediction, labels)
    edges = binning(confidence, num_bins)
    inside = confidence >= edges[0]
    if not inside.any():
        raise InputError(
            f"`{call}` needs examples with a confidence of at least {edges[0].item():.4g}, where"
            f" the bins begin; the largest is {confidence.max().item():.4g}. Lay the bins on all of"
            " [0, 1]."
        )
    correct = (predicted == truth)[inside].double()
    index = torch.bucketize(confidence[inside], edges[1:-1])
    return Binned(confidence[inside].double(), correct, index, edges.double())


def table_of(binned: Binned) -> Reliability:
    """What a reliability diagram shows of examples in bins.

    Args:
        binned: The examples.
    """
    count = torch.bincount(binned.index, minlength=len(binned.edges) - 1)
    index = count.nonzero().squeeze(-1)
    confidence, correct = (
        torch.bincount(binned.index, weights=values, minlength=len(count))[index] / count[index]
        for values in (binned.confidence, binned.correct)
    )
    return Reliability(
        index, binned.edges[index], binned.edges[index + 1], confidence, correct, count[index]
    )


def most_probable(
    call: str, prediction: AnyPrediction, labels: Labels
) -> tuple[Tensor, Tensor, Tensor]:
    """Confidence and class of each example, and the right class.

    Args:
        call: The call being checked.
        prediction: As for `reliability`.
        labels: The same.
    """
    probabilities = probabilities_of(call, prediction).detach()
    truth = labels_of(call, labels, *probabilities.shape).to(probabilities.device)
    confidence, predicted = probabilities.max(-1)
    return confidence, predicted, truth


def require_bins(call: str, num_bins: int) -> None:
    """Refuses to count in no bin.

    Args:
        call: The call being checked.
        num_bins: How many there are.

    Raises:
        InputError: If there is none.
    """
    if num_bins < 1:
        raise InputError(f"`{call}` needs num_bins ≥ 1; got {num_bins}. 15 is usual.")
