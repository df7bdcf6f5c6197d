"""Bootstrap intervals from values on resampled data: bias-corrected and accelerated
(BCa).
"""

import math
from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from laplacebridge import _blocks
from laplacebridge import _scipy_special as special

# Rows are drawn in blocks of about this many, so that memory does not grow with the
# number of resamples. Skewness is read from leaving out this many groups of examples,
# or up to twice as many.
_NUM_GROUPS = 200


def resampled_rows(
    lengths: Sequence[int], num_resamples: int, generator: Generator | None
) -> Iterator[list[Int[Tensor, "R _"]]]:
    """Rows drawn with replacement from each of some samples, in blocks of resamples."""
    device = None if generator is None else generator.device
    block = max(1, _blocks.ELEMENTS_AT_ONCE // max(lengths))
    for start in range(0, num_resamples, block):
        size = min(block, num_resamples - start)
        yield [
            torch.randint(length, (size, length), generator=generator, device=device).cpu()
            for length in lengths
        ]


def rows_without_a_group(length: int) -> Iterator[Int[Tensor, "G _"]]:
    """All rows but those of one group, for every group, in blocks of groups.

    A group takes rows at even distances: if the data is sorted by class, neighbours
    would be one class.
    """
    group_size = max(1, length // _NUM_GROUPS)
    num_groups = length // group_size
    rows = torch.arange(length)
    group = torch.where(
        rows < num_groups * group_size, rows % num_groups, -1
    )  # the last few are never left out
    block = max(1, _blocks.ELEMENTS_AT_ONCE // length)
    for start in range(0, num_groups, block):
        numbers = torch.arange(start, min(start + block, num_groups))
        yield rows.expand(len(numbers), -1)[group != numbers.unsqueeze(-1)].reshape(
            len(numbers), -1
        )


def bca_interval(
    estimate: float,
    resampled: Float[Tensor, " R"],
    left_out: list[Tensor],
    *,
    level: float,
    num_examples: int,
) -> tuple[float, float]:
    """The BCa interval of Efron, its tails widened by what Student's t adds for so many
    examples (Hesterberg).

    Args:
        estimate: The value on the data.
        resampled: The values on resampled data.
        left_out: The values without each group of examples, for every argument that is
            resampled on its own.
        level: How often the interval is to hold the truth.
        num_examples: Size of the data, or of the smaller argument.
    """
    below = (resampled < estimate).double().mean() + 0.5 * (resampled == estimate).double().mean()
    half_a_resample = 0.5 / len(
        resampled
    )  # a tail that no resample reached is not known to be empty
    bias = float(special.ndtri(below.clamp(half_a_resample, 1 - half_a_resample).item()))
    skewness = _acceleration(left_out)
    tail = math.sqrt(num_examples / (num_examples - 1)) * float(
        special.stdtrit(num_examples - 1, (1 - level) / 2)
    )
    ordered = resampled.sort().values
    low, high = (_quantile(ordered, _adjusted(z, bias, skewness)) for z in (tail, -tail))
    return low, high


def _acceleration(left_out: list[Tensor]) -> float:
    """A sixth of the skewness of the estimate, from the influence of each group."""
    influence = torch.cat(
        [(values.mean() - values) * (len(values) - 1) / len(values) for values in left_out]
    )
    square = influence.square().sum().item()
    return influence.pow(3).sum().item() / (6 * square**1.5) if square > 0 else 0.0


def _adjusted(z: float, bias: float, skewness: float) -> float:
    """The level at which the resampled values are to be read instead of Φ(z)."""
    shifted = bias + z
    stretch = 1 - skewness * shifted
    if stretch <= 0:  # beyond the reach of the transformation, whose limit is an end
        return 0.0 if shifted < 0 else 1.0
    return float(special.ndtr(bias + shifted / stretch))


def _quantile(ordered: Tensor, level: float) -> float:
    """Quantile by linear interpolation, the i-th of R values standing at i/(R + 1)."""
    position = min(max(level * (len(ordered) + 1) - 1, 0.0), len(ordered) - 1.0)
    below = int(position)
    low, high = ordered[below].item(), ordered[min(below + 1, len(ordered) - 1)].item()
    return low + (position - below) * (high - low)
