"""Calibration errors: how far confidence is from accuracy, in bins."""

from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from laplacebridge._arrays import takes_arrays
from laplacebridge._checks import Labels, labels_of
from laplacebridge._predictions import AnyPrediction, probabilities_of
from laplacebridge.errors import InputError
from laplacebridge.metrics.confidence_bins import (
    Binned,
    Binning,
    Reliability,
    bins_of,
    equal_mass,
    equal_width,
    most_probable,
    require_bins,
    table_of,
)
from laplacebridge.metrics.forms import carries


def gaps(
    prediction: AnyPrediction,
    labels: Labels,
    *,
    num_bins: int = 15,
    from_chance: bool = False,
    nominal_centers: bool = False,
    binning: Binning = equal_width,
) -> tuple[Float[Tensor, " B"], Int[Tensor, " B"]]:
    """1 if right less what was claimed, and the bin, of each example that `ece` counts:
    its value is Σ_b |Σ gap|/n.
    """
    call = "ece(prediction, labels)"
    chosen = _from_chance(call, prediction, labels) if from_chance else binning
    binned = bins_of(call, prediction, labels, num_bins, chosen)
    claimed = _nominal_centers(binned)[binned.index] if nominal_centers else binned.confidence
    return binned.correct - claimed, binned.index


@carries(gaps=gaps)
@takes_arrays
def ece(
    prediction: AnyPrediction,
    labels: Labels,
    *,
    num_bins: int = 15,
    from_chance: bool = False,
    nominal_centers: bool = False,
) -> float:
    r"""Expected calibration error of the most probable class.

    .. math:: \sum_b \frac{n_b}{n} \, |\mathrm{accuracy}_b - \mathrm{confidence}_b|

    over bins of the same width on [0, 1]. It is biased: a perfectly calibrated model
    has a positive error on finite data, more so the more bins there are. `bootstrap`
    takes that into account.

    Args:
        prediction: Dirichlets, or probabilities of shape (B, K).
        labels: The right classes, shape (B,).
        num_bins: How many bins, N.
        from_chance: Lay the bins on [1/n, 1] with n the number of classes that occur
            among labels and predicted classes; examples with less confidence are left
            out.
        nominal_centers: Compare accuracy not with the mean confidence of a bin but with
            N numbers spread evenly from 1/(2N) above the lowest edge to 1/(2N) below 1:
            the centres of the bins if the lowest edge is 0.

    Example:
        >>> round(
        ...     ece(
        ...         torch.tensor([[0.65, 0.35], [0.95, 0.05], [0.15, 0.85]]), [0, 0, 0], num_bins=10
        ...     ),
        ...     6,
        ... )
        0.416667
    """
    call = "ece(prediction, labels)"
    binning = _from_chance(call, prediction, labels) if from_chance else equal_width
    binned = bins_of(call, prediction, labels, num_bins, binning)
    table = table_of(binned)
    claimed = _nominal_centers(binned)[table.index] if nominal_centers else table.confidence
    return _weighted_gap(table, claimed)


@carries(gaps=partial(gaps, binning=equal_mass))
@takes_arrays
def adaptive_ece(prediction: AnyPrediction, labels: Labels, *, num_bins: int = 15) -> float:
    """Expected calibration error over bins that hold the same number of examples.

    Equal confidences share a bin, so the order of examples makes no difference. Biased
    as `ece` is.

    Args:
        prediction: Dirichlets, or probabilities of shape (B, K).
        labels: The right classes, shape (B,).
        num_bins: How many bins.

    Example:
        >>> probabilities = torch.tensor([[0.7, 0.3], [0.9, 0.1], [0.2, 0.8], [0.4, 0.6]])
        >>> round(adaptive_ece(probabilities, [0, 0, 0, 1], num_bins=2), 6)
        0.35
    """
    table = table_of(
        bins_of("adaptive_ece(prediction, labels)", prediction, labels, num_bins, equal_mass)
    )
    return _weighted_gap(table, table.confidence)


@carries(
    no_interval=(
        "resampling adds to the upward bias of `classwise_ece`, so that its interval would lie"
        " above the truth. Use `ece` or `adaptive_ece`."
    )
)
@takes_arrays
def classwise_ece(prediction: AnyPrediction, labels: Labels, *, num_bins: int = 15) -> float:
    r"""Calibration error of every class's probability, averaged over classes.

    .. math:: \frac1K \sum_k \sum_b \frac{n_{kb}}{n} \, |\mathrm{frequency}_{kb} - \mathrm{probability}_{kb}|

    where bin b of class k holds the examples that give it a probability there (Kull et
    al. 2019). Most classes of many have hardly any probability, so for large K it is
    small.

    Args:
        prediction: Dirichlets, or probabilities of shape (B, K).
        labels: The right classes, shape (B,).
        num_bins: How many bins of the same width on [0, 1].

    Example:
        >>> round(classwise_ece(torch.tensor([[0.75, 0.25], [0.75, 0.25]]), [0, 1], num_bins=5), 6)
        0.25
    """
    call = "classwise_ece(prediction, labels)"
    require_bins(call, num_bins)
    probabilities = probabilities_of(call, prediction).detach()
    column = labels_of(call, labels, *probabilities.shape).to(probabilities.device).unsqueeze(-1)
    bins = torch.bucketize(
        probabilities, equal_width(probabilities[:, 0], num_bins)[1:-1], out_int32=True
    )
    gap = probabilities.scatter(-1, column, probabilities.gather(-1, column) - 1)
    # n_kb/n · |frequency − probability| is |Σ gap|/n; bin by bin, so that nothing
    # larger than B × K is made
    in_bins = (
        torch.where(bins == index, gap, 0.0).sum(0, dtype=torch.float64)
        for index in range(num_bins)
    )
    return sum(total.abs().sum().item() for total in in_bins) / gap.numel()


def _weighted_gap(table: Reliability, claimed: Tensor) -> float:
    return ((table.accuracy - claimed).abs() * table.count / table.count.sum()).sum().item()


def _nominal_centers(binned: Binned) -> Tensor:
    num_bins = len(binned.edges) - 1
    half = 0.5 / num_bins
    lowest = binned.edges[0].item()
    return torch.linspace(
        lowest + half, 1 - half, num_bins, dtype=torch.float64, device=binned.edges.device
    )


def _from_chance(call: str, prediction: AnyPrediction, labels: Labels) -> Binning:
    _, predicted, truth = most_probable(call, prediction, labels)
    seen = int(torch.bincount(torch.cat([predicted, truth])).count_nonzero())
    if seen < 2:
        raise InputError(
            f"`{call}` needs two classes or more among labels and predictions if the bins begin at"
            f" 1/n; all are class {truth[0].item()}. Give more examples, or use"
            " `from_chance=False`."
        )
    return partial(equal_width, lowest=1 / seen)
