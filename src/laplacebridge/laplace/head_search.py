"""The head of any network, found by watching one batch go through: so it does not
matter how the network is written.
"""

from typing import Any

import torch
from torch import nn

from laplacebridge.errors import HeadNotFoundError
from laplacebridge.laplace.affine import linear_layers, possible_maps
from laplacebridge.laplace.batch import Batch, Output, unpack_batch
from laplacebridge.laplace.head import HeadNetwork
from laplacebridge.laplace.head_pass import as_rows, last_run
from laplacebridge.laplace.head_refusals import computed_in_forward, layers_of


def find_head(
    model: nn.Module,
    batch: Any,  # noqa: ANN401
    *,
    may_end_in_sigmoid: bool = False,
    output: Output | None = None,
) -> HeadNetwork:
    """Runs one batch and splits the network at the last linear layer that it went
    through; or at another module that gives the network's logits and is a linear map.

    Args:
        model: The network.
        batch: A batch as its loader yields it.
        may_end_in_sigmoid: Whether a sigmoid may follow, as where there are several
            labels at once: the logits before it are taken.
        output: Where the logits are in what the network returns, if that is unusual.

    Raises:
        HeadNotFoundError: If no linear layer gives the network's output.

    Example:
        >>> network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> find_head(network, torch.zeros(2, 4)).head_name
        '2'
    """
    parts = unpack_batch(batch)
    with torch.no_grad():
        seen, logits = last_run(model, linear_layers(model), parts, output)
    refusal = None
    if seen is not None:
        split = HeadNetwork(model, seen.name, output=output)
        split.may_end_in_sigmoid = may_end_in_sigmoid
        try:
            split.verify_pass(as_rows(split.head, seen, logits))
        except HeadNotFoundError as error:
            refusal = error
        else:
            return split
    found = _linear_map(model, parts, output)
    if found is not None:
        return found
    said = computed_in_forward(model, parts, output)
    if said is not None:
        raise HeadNotFoundError(said)
    if refusal is not None:
        raise refusal
    raise HeadNotFoundError(
        f"{type(model).__name__} ran without going through a linear layer; {layers_of(model)}."
        " The last layer must be an `nn.Linear` or a convolution with a 1 x 1 kernel."
    )


def _linear_map(model: nn.Module, batch: Batch, output: Output | None) -> HeadNetwork | None:
    """The network split at a module that gives its logits and is a linear map, the
    innermost of them; None if there is none.
    """
    candidates, logits = possible_maps(model, batch, output)
    for seen in candidates:
        num_features = seen.features.shape[-1]
        try:
            split = HeadNetwork(model, seen.name, num_features=num_features, output=output)
            split.verify_pass(as_rows(split.head, seen, logits))
        except HeadNotFoundError:
            continue
        return split
    return None
