"""A batch: what a loader yields is taken apart, and the logits are found in what a
network makes of it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor

from laplacebridge.errors import HeadNotFoundError

LABEL_NAMES = ("labels", "label", "targets", "target", "y")


class Batch(NamedTuple):
    """What a loader yields, taken apart."""

    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    labels: Tensor | None


def unpack_batch(batch: Any) -> Batch:  # noqa: ANN401  (loaders yield anything)
    """Separates inputs and labels: (inputs, labels), a mapping with labels under a
    usual name, or inputs alone.

    Args:
        batch: A tensor, a tuple or list whose last entry holds the labels, or a
            mapping, as Hugging Face has them.
    """
    if isinstance(batch, Mapping):
        labels = next((batch[name] for name in LABEL_NAMES if name in batch), None)
        return Batch(
            (), {key: value for key, value in batch.items() if key not in LABEL_NAMES}, labels
        )
    if isinstance(batch, (tuple, list)) and len(batch) > 1:
        return Batch(tuple(batch[:-1]), {}, batch[-1])
    return Batch(tuple(batch) if isinstance(batch, (tuple, list)) else (batch,), {}, None)


def logits_of(output: Any) -> Tensor:  # noqa: ANN401  (networks return anything)
    """The logits in a network's output: a tensor, an object or mapping with ``logits``,
    or the first of a tuple.

    Args:
        output: What the network returned.

    Raises:
        HeadNotFoundError: If there are none.
    """
    if isinstance(output, Tensor):
        return output
    found = output
    if isinstance(output, Mapping):
        found = output.get("logits")
    elif hasattr(output, "logits"):
        found = output.logits
    elif isinstance(output, (tuple, list)) and output:
        found = output[0]
    if not isinstance(found, Tensor):
        raise HeadNotFoundError(
            "The model must return logits as a tensor, or an object or dict with `logits`; got "
            f"{type(output).__name__}. Wrap it in a module whose forward returns the logits."
        )
    return found
