"""A batch: what a loader yields is taken apart, and the logits are found in what a
network makes of it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor

from laplacebridge.errors import HeadNotFoundError, InputTypeError

LABEL_NAMES = ("labels", "label", "targets", "target", "y")
WEIGHT_NAMES = ("sample_weight", "sample_weights", "weight", "weights")


class Batch(NamedTuple):
    """What a loader yields, taken apart."""

    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    labels: Tensor | None
    weights: Any = None  # of the examples, if the loader gives them


def unpack_batch(batch: Any) -> Batch:  # noqa: ANN401  (loaders yield anything)
    """Separates inputs and labels: (inputs, labels), a mapping with labels under a
    usual name, or inputs alone.

    Args:
        batch: A tensor, a tuple or list whose last entry holds the labels, or a
            mapping, as Hugging Face has them; or a batch that was taken apart already.
    """
    if isinstance(batch, Batch):
        return batch
    if isinstance(batch, Mapping):
        labels = next((batch[name] for name in LABEL_NAMES if name in batch), None)
        return Batch(
            (), {key: value for key, value in batch.items() if key not in LABEL_NAMES}, labels
        )
    if isinstance(batch, (tuple, list)) and len(batch) > 1:
        return Batch(tuple(batch[:-1]), {}, batch[-1])
    return Batch(tuple(batch) if isinstance(batch, (tuple, list)) else (batch,), {}, None)


def batch_of_inputs(inputs: tuple[Any, ...], keywords: dict[str, Any]) -> Batch:
    """What a classifier was called with: inputs as the network takes them, or one batch
    as a loader yields it, whose labels are left out.

    Args:
        inputs: Positional arguments.
        keywords: The others.
    """
    if len(inputs) == 1 and not keywords and isinstance(inputs[0], (Mapping, tuple, list)):
        return unpack_batch(inputs[0])._replace(labels=None)
    if any(name in keywords for name in LABEL_NAMES):
        keywords = {name: value for name, value in keywords.items() if name not in LABEL_NAMES}
    return Batch(inputs, keywords, None)


def unpack_weighted_batch(batch: Any) -> Batch:  # noqa: ANN401
    """The same for batches with a weight for each example: (inputs, labels, weights), or
    a mapping with `sample_weight`.

    Args:
        batch: A tuple or list whose last two entries are labels and weights, or a
            mapping.

    Raises:
        InputTypeError: If there are no weights.
    """
    if isinstance(batch, Mapping):
        name = next((name for name in WEIGHT_NAMES if name in batch), None)
        if name is not None:
            rest = {key: value for key, value in batch.items() if key != name}
            return unpack_batch(rest)._replace(weights=batch[name])
    elif isinstance(batch, (tuple, list)) and len(batch) > 2:
        return unpack_batch(tuple(batch[:-1]))._replace(weights=batch[-1])
    raise InputTypeError(
        "`fit(sample_weights=True)` needs batches (inputs, labels, weights), or mappings with"
        f" `sample_weight`; got {type(batch).__name__}"
        f"{f' of {len(batch)}' if isinstance(batch, (tuple, list)) else ''}."
    )


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
