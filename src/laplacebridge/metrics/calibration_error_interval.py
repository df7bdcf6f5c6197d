"""An interval for a calibration error, whose estimate is biased where it matters.

A calibration error is Σ_b |g_b| with g_b the mean gap between accuracy and confidence
in bin b. The estimate adds up |g_b + noise|, which is more on average, and much more if
the model is nearly calibrated. Resampling adds the same noise once more, so percentile
and BCa intervals lie above the truth; those of a calibrated model never hold it.

Here every candidate θ is asked whether the estimate would be an ordinary value if θ
were the truth. That takes gaps that add up to θ: those nearest to the observed ones, in
units of their standard errors. The noise is that of resampling. The interval holds the
candidates that do not put the estimate into a tail.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from laplacebridge.metrics.resampling import resampled_rows

_BISECTIONS = 40


def calibration_error_interval(
    gap: Float[Tensor, " B"],
    index: Int[Tensor, " B"],
    *,
    num_resamples: int,
    level: float,
    generator: torch.Generator | None,
) -> tuple[float, float]:
    """Lower and upper ends for Σ_b |mean gap of bin b|.

    Args:
        gap: 1 if right less what was claimed, of each example.
        index: Its bin.
        num_resamples: How many resamples show the noise.
        level: How often the interval is to hold the truth.
        generator: Source of randomness.
    """
    num_bins = int(index.max()) + 1
    observed = torch.zeros(num_bins, dtype=gap.dtype).index_add(0, index, gap) / len(gap)
    blocks = [
        torch.zeros(len(rows), num_bins, dtype=gap.dtype).scatter_add(1, index[rows], gap[rows])
        / len(gap)
        for (rows,) in resampled_rows([len(gap)], num_resamples, generator)
    ]
    noise = torch.cat(blocks) - observed
    variance = noise.square().mean(0)
    # a bin that no resample changes adds what it is, without noise
    varies = variance > torch.finfo(gap.dtype).eps ** 2
    known = observed[~varies].abs().sum().item()
    if not varies.any():
        return known, known
    size, variance = observed[varies].abs(), variance[varies]
    noise = noise[:, varies] * torch.where(
        observed[varies] < 0, -1.0, 1.0
    )  # as if all gaps were positive
    nearest = _nearest_gaps(size, variance)
    estimate = size.sum()
    largest = (
        estimate + noise.abs().sum(-1).max()
    ).item()  # gaps of this sum exceed the estimate with any noise

    def chance_of_less(candidate: float) -> float:
        return ((nearest(candidate) + noise).abs().sum(-1) <= estimate).double().mean().item()

    tail = (1 - level) / 2
    return known + _last_above(1 - tail, chance_of_less, largest), known + _last_above(
        tail, chance_of_less, largest
    )


def _nearest_gaps(size: Tensor, variance: Tensor) -> Callable[[float], Tensor]:
    """The function from θ to the positive gaps that add up to θ and are nearest to
    those observed.

    They are max(size − λ·variance, 0) for some λ, positive for θ below the observed sum
    and negative above.
    """
    ratio, order = (size / variance).sort(descending=True)
    sizes, variances = size[order].cumsum(0), variance[order].cumsum(0)

    def gaps(theta: float) -> Tensor:
        # with the first k bins above zero λ is known; the right k is the last whose own
        # bin it leaves above zero
        multiplier = (sizes - theta) / variances
        last = (multiplier < ratio).nonzero()
        chosen = multiplier[last[-1, 0]] if len(last) else ratio[0]
        return (size - chosen * variance).clamp_min(0)

    return gaps


def _last_above(level: float, falling: Callable[[float], float], largest: float) -> float:
    """Up to where a falling function on [0, largest] stays above a level, 0 if nowhere."""
    if falling(0.0) <= level:
        return 0.0
    low, high = 0.0, largest
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > level else (low, middle)
    return low
