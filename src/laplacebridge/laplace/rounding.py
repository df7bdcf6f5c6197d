"""Whether two results of a network are the same, up to its rounding."""

import torch
from torch import Tensor


def nearly_equal(first: Tensor, second: Tensor) -> bool:
    """Whether two results differ by no more than the rounding of a network, relative to
    the largest of the second.

    Args:
        first: One of them.
        second: The other, of the same shape.
    """
    scale = second.abs().max().clamp_min(1e-6)
    return bool(((first - second).abs() <= _tolerance(first) * scale).all())


def common_scale(first: Tensor, second: Tensor) -> float | None:
    """The positive number that the second is to be multiplied by to give the first;
    None if there is none, or one row alone cannot show it.

    Args:
        first: One result, shape (B, K).
        second: The other, of the same shape.

    Example:
        >>> common_scale(
        ...     torch.tensor([[2.0, 4.0], [6.0, 0.0]]), torch.tensor([[1.0, 2.0], [3.0, 0.0]])
        ... )
        2.0
    """
    if len(first) < 2 or not (first.isfinite().all() and second.isfinite().all()):
        return None
    # the largest alone: sums over a vocabulary in float64 would take much memory
    row, column = divmod(int(second.abs().argmax()), second.shape[-1])
    divisor = float(second[row, column])
    if divisor == 0:
        return None
    rows, columns = first[:, column].double(), second[:, column].double()
    scale = float(rows @ columns / (columns @ columns))
    return scale if scale > 0 and nearly_equal(first, second * scale) else None


def _tolerance(values: Tensor) -> float:
    return 1e-3 if values.dtype in {torch.float32, torch.float64} else 5e-2
