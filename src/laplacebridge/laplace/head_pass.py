"""One batch on its way through a head: what the layer took and gave, and that as one
row for every prediction, pixels of a convolution and tokens of a text included.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from laplacebridge._checks import is_readable
from laplacebridge.errors import HeadNotFoundError, ShapeError
from laplacebridge.laplace.batch import Batch, Output, logits_of
from laplacebridge.laplace.rounding import nearly_equal
from laplacebridge.laplace.running import watched


class Seen(NamedTuple):
    """A layer as it ran last: what it took and gave."""

    name: str
    features: Tensor
    logits: Tensor


class Passed(NamedTuple):
    """What one batch gave: a row for every prediction, tokens and pixels included."""

    features: Float[Tensor, "B D"]
    logits: Float[Tensor, "B K"]  # of the head, whose layout is known
    output: Tensor  # of the network, which may have reshaped them


def last_run(
    model: nn.Module, layers: Mapping[str, nn.Module], batch: Batch, where: Output | None
) -> tuple[Seen | None, Tensor]:
    """Runs a batch in evaluation mode; which of some layers ran last, and the network's
    logits.

    Args:
        model: The network.
        layers: Those that are watched, by name.
        batch: Inputs of the network.
        where: Where the logits are in what it returns.
    """
    last: list[Seen] = []

    def note(name: str, features: Tensor, logits: Tensor) -> None:
        last[:] = [Seen(name, features, logits)]

    with watched(model, layers, note):
        output = model(*batch.arguments, **batch.keywords)
    return last[0] if last else None, logits_of(output, where) if last else output


def as_rows(head: nn.Module, seen: Seen, output: Tensor, *, scale: float = 1.0) -> Passed:
    """What a head took and gave as rows.

    Args:
        head: The layer.
        seen: It, as it ran.
        output: The network's logits.
        scale: What the network multiplies the head's logits by.

    Raises:
        HeadNotFoundError: If the network answers with one token of each text, and an
            answer is that of no token.
        ShapeError: If they are of one example, without a batch dimension.
    """
    features, logits = seen.features, seen.logits if scale == 1 else seen.logits * scale
    kernel = () if isinstance(head, nn.Linear) else getattr(head, "kernel_size", ())
    if features.dim() < 2 + len(kernel):
        raise ShapeError(
            f"The head took features of shape {tuple(features.shape)}, without a first"
            " dimension of examples. For one example give `inputs.unsqueeze(0)`; for a data"
            " set `DataLoader(dataset, batch_size=128)`."
        )
    if kernel:  # classes of a convolution are its second dimension
        features, logits = features.movedim(1, -1), logits.movedim(1, -1)
        output = output.movedim(1, -1).flatten(0, -2) if output.dim() > 1 else output
    elif features.dim() == 3 and features.shape[1] > 1 and output.shape == logits[:, 0].shape:
        features, logits = _picked(features, logits, output)
    elif output.dim() > 1:
        output = output.reshape(-1, output.shape[-1])
    return Passed(features.flatten(0, -2), logits.flatten(0, -2), output)


def _picked(features: Tensor, logits: Tensor, output: Tensor) -> tuple[Tensor, Tensor]:
    """Of all tokens those whose logits the network answers with, one for each example,
    as decoders do that classify texts by their last token.

    Raises:
        HeadNotFoundError: If an answer is that of no token.
    """
    distances = (logits - output.unsqueeze(1)).abs().amax(-1)
    nearest = distances.argmin(1)
    rows = torch.arange(len(nearest), device=nearest.device)
    picked = logits[rows, nearest]
    if is_readable(output) and not nearly_equal(output, picked):
        raise HeadNotFoundError(
            f"The output of shape {tuple(output.shape)} is that of no token: the head gives logits"
            f" of shape {tuple(logits.shape)}, and something follows it. The model must end in its"
            " linear layer, or answer with the logits of one token."
        )
    return features[rows, nearest], picked
