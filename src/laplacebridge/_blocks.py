"""How bridges and links walk over a batch: in the right type, and in blocks of rows
that fit the cache.
"""

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import torch
from torch import Tensor

from laplacebridge._checks import HALF_PRECISION
from laplacebridge._values import replaced
from laplacebridge.errors import InputTypeError
from laplacebridge.gaussian import LogitGaussian

# Numbers b·K of a block whose temporaries stay in the cache, large enough that the cost
# of calling torch disappears; the race has twelve nodes for each of them.
ELEMENTS_IN_CACHE = 131_072
ELEMENTS_OF_A_RACE = 65_536
# Numbers of a block of whatever need not stay in the cache: beyond, memory grows by the
# answer alone.
ELEMENTS_AT_ONCE = 2**22
# Numbers of random splits, and of nodes of quadratures for labels by themselves.
DRAWS_AT_ONCE = NODES_AT_ONCE = 2**21
# Logits of a vocabulary: so many stay in the cache from one step over them to the next.
LOGITS_AT_ONCE = 2**19
# Rows that are compared with all training features, and rows of an estimator that are
# made dense and run through its network.
ROWS_AGAINST_ALL, ROWS_OF_AN_ESTIMATOR = 512, 1024
# Rows of features for which many priors are tried.
ROWS_AT_ONCE = 4096
# Rows that a report samples, compares and times.
ROWS_OF_A_REPORT = 1024
# Memory of a block of one layer's Jacobian, and of a chunk of examples that are
# linearised: the graph of the forward pass, and what is recorded of every layer.
BYTES_OF_JACOBIANS = 2**22
BYTES_AT_ONCE = 2**28
# Levels, and pairs of nodes and classes, of a quadrature.
LEVELS_AT_ONCE, PAIRS_AT_ONCE = 2**13, 2**18


Rows = TypeVar("Rows", Tensor, tuple[Tensor, ...])


def by_rows(
    function: Callable[[LogitGaussian], Rows],
    gaussian: LogitGaussian,
    *,
    elements: int | None = None,
) -> Rows:
    """Applies a function of rows to a batch, block by block.

    Half-precision Gaussians are computed in float32, and so is the result. When
    gradients are wanted, or the call is being compiled, the whole batch goes through in
    one piece.

    Args:
        function: From Gaussians (b, K) to a tensor with b rows, or several of them,
            each row on its own.
        gaussian: The whole batch.
        elements: About how many numbers b·K a block has; by default
            `ELEMENTS_IN_CACHE`.

    Returns:
        The function's results for all rows, in float32 or float64.

    Raises:
        InputTypeError: If it is not a Gaussian.
    """
    if not isinstance(gaussian, LogitGaussian):
        raise InputTypeError(
            f"Bridges and links take a `LogitGaussian`; got {type(gaussian).__name__}. Wrap means"
            " and variances: `LogitGaussian(mean, Diagonal(variance))`."
        )
    working = gaussian.to(torch.float32) if gaussian.mean.dtype in HALF_PRECISION else gaussian
    working = replaced(working, covariance=working.covariance.bounded())
    rows = max(1, (elements or ELEMENTS_IN_CACHE) // working.mean.shape[1])
    if not torch.compiler.is_compiling():
        _keep_freed_memory()
    with without_autocast(working.mean.device):
        # asked first: a compiled call holds for any number of rows
        at_once = torch.compiler.is_compiling() or working.mean.shape[0] <= rows
        if at_once or (torch.is_grad_enabled() and working.requires_grad):
            return function(working)
        results: list[Tensor] = []
        for start in range(0, len(working), rows):
            part = function(working[start : start + rows])
            parts = (part,) if isinstance(part, Tensor) else part
            results = results or [some.new_empty(len(working), *some.shape[1:]) for some in parts]
            for result, some in zip(results, parts):
                result[start : start + rows] = some
        return results[0] if isinstance(part, Tensor) else tuple(results)


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Products in the type of their factors, also where the caller has asked networks
    for half precision.

    Args:
        device: Where they are computed.
    """
    known = torch.amp.is_autocast_available(device.type)  # other devices refuse the question
    is_on = known and torch.is_autocast_enabled(device.type)
    return torch.autocast(device.type, enabled=False) if is_on else nullcontext()


@functools.cache
def _keep_freed_memory() -> None:
    """Allocates and frees one large block, never touched, once in a process.

    Until it has seen such a block freed, glibc gives the memory of temporaries back to
    the system after every step, and page faults take half of the time of a bridge.
    Networks free many.
    """
    torch.empty(2**23 - 2**13, dtype=torch.float32)
