"""Deep ensembles: the same data learned several times from other first weights; their
disagreement is the spread.
"""

from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from laplacebridge._checks import require_tensor
from laplacebridge.errors import InputError, ShapeError
from laplacebridge.gaussian import LogitGaussian
from laplacebridge.laplace.batch import logits_of, unpack_batch
from laplacebridge.laplace.running import eval_mode


def ensemble_gaussian(models: Iterable[nn.Module], batch: Any) -> LogitGaussian:  # noqa: ANN401
    """Mean and covariance of the logits of several networks, each in evaluation mode.

    Args:
        models: The members, at least two, all with the same classes.
        batch: As a loader yields it: inputs, (inputs, labels), or a mapping.

    Raises:
        InputError: If there are fewer than two different members.
        ShapeError: If their logits have different shapes.

    Example:
        >>> members = [nn.Linear(4, 3) for _ in range(5)]
        >>> ensemble_gaussian(members, torch.zeros(2, 4)).mean.shape
        torch.Size([2, 3])
    """
    call = "ensemble_gaussian(models, batch)"
    members = list(models)
    different = len({id(member) for member in members})
    if different < 2:
        raise InputError(
            f"`{call}` needs at least two different networks, whose disagreement is the spread; got"
            f" {different} (in a list of {len(members)}). Train more from other seeds; for a single"
            " network use `lb.fit`, or `dropout_gaussian` if it has dropout."
        )
    samples = []
    for member in members:
        with eval_mode(member):
            samples.append(batch_logits(call, member, batch))
    shapes = [tuple(logits.shape) for logits in samples]
    if len(set(shapes)) > 1:
        other = next(place for place, shape in enumerate(shapes) if shape != shapes[0])
        raise ShapeError(
            f"`{call}` needs networks with the same classes; the first gives logits of shape"
            f" {shapes[0]}, number {other + 1} of shape {shapes[other]}. Leave out what was trained"
            " on other classes."
        )
    return LogitGaussian.from_samples(torch.stack(samples))


def batch_logits(call: str, model: nn.Module, batch: Any) -> Float[Tensor, "B K"]:  # noqa: ANN401
    """Logits of a batch in the mode that the network is in.

    Args:
        call: What the user called, for errors.
        model: The network.
        batch: As a loader yields it.
    """
    parts = unpack_batch(batch)
    logits = logits_of(model(*parts.arguments, **parts.keywords))
    hint = (
        "Predictions for tokens or pixels are rows: wrap the network so that it returns them as"
        " (B·T, K)."
    )
    return require_tensor(call, logits, "B K", hint=hint)
