"""How bridges and links walk over a batch: in the right type, and in blocks of rows that fit the cache."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from jaxtyping import Float
from torch import Tensor

from laplacebridge._checks import is_half
from laplacebridge.gaussian import LogitGaussian

# Large enough that the cost of calling torch disappears, small enough that temporaries stay in the cache.
ELEMENTS_PER_BLOCK = 131_072

# Until it has seen a large block freed, glibc gives the memory of temporaries back to the system after every step, and
# page faults take half of the time of a bridge. One such block, never touched, ends that; networks free many.
_LARGE = torch.empty(2**23 - 2**13, dtype=torch.float32)
del _LARGE


def by_rows(
    function: Callable[[LogitGaussian], Tensor],
    gaussian: LogitGaussian,
    *,
    elements: int = ELEMENTS_PER_BLOCK,
) -> Float[Tensor, "B K"]:
    """Applies a function of rows to a batch, block by block.

    Half-precision Gaussians are computed in float32, and so is the result. When gradients are wanted, or the
    call is being compiled, the whole batch goes through in one piece.

    Args:
        function: From Gaussians (b, K) to a tensor (b, K), each row on its own.
        gaussian: The whole batch.
        elements: About how many numbers b·K a block has.

    Returns:
        The function's results for all rows, in float32 or float64.

    Raises:
        TypeError: If it is not a Gaussian.
    """
    if not isinstance(gaussian, LogitGaussian):
        raise TypeError(
            f"Bridges and links take a `LogitGaussian`; got {type(gaussian).__name__}. Wrap means and variances: "
            "`LogitGaussian(mean, Diagonal(variance))`."
        )
    working = gaussian.to(torch.float32) if is_half(gaussian.dtype) else gaussian
    rows = max(1, elements // working.num_classes)
    differentiating = torch.is_grad_enabled() and working.requires_grad
    with without_autocast(working.mean.device):
        if len(working) <= rows or differentiating or torch.compiler.is_compiling():
            return function(working)
        results = torch.empty_like(working.mean)
        for start in range(0, len(working), rows):
            results[start : start + rows] = function(working[start : start + rows])
        return results


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Products in the type of their factors, also where the caller has asked networks for half precision.

    Args:
        device: Where they are computed.
    """
    is_on = torch.is_autocast_enabled(device.type)
    return torch.autocast(device.type, enabled=False) if is_on else nullcontext()
