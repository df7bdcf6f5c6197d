"""A batch: what a loader yields is taken apart, and the logits are found in what a
network makes of it.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torch import Tensor

from laplacebridge.errors import HeadNotFoundError, InputTypeError

LABEL_NAMES = ("labels", "label", "targets", "target", "y")
# Where the logits are in what a network returns: a key, or a function of it.
Output = str | Callable[[Any], Tensor]
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
    if keywords:
        keywords = {name: value for name, value in keywords.items() if name not in LABEL_NAMES}
    return Batch(inputs, keywords, None)


def unpack_weighted_batch(batch: Any) -> Batch:  # noqa: ANN401
    """The same for batches with a weight for each example: (inputs, labels, weights),
    or a mapping with `sample_weight`.

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


def logits_of(output: Any, where: Output | None = None) -> Tensor:  # noqa: ANN401  (anything)
    """The logits in a network's output: a tensor, an object or mapping with ``logits``,
    or the first of a tuple.

    Args:
        output: What the network returned.
        where: A key or attribute in its place, or a function of the output.

    Raises:
        HeadNotFoundError: If there are none.
        InputTypeError: If it is neither a key nor a function.

    Example:
        >>> logits_of({"scores": torch.zeros(2, 3)}, "scores").shape
        torch.Size([2, 3])
    """
    found: Any
    if where is not None and not isinstance(where, str):
        if not callable(where):
            raise InputTypeError(
                f"`output` needs a key or a function of what the model returns; got {where!r}. Of a"
                f" tuple: `output=lambda returned: returned[{where!r}]`."
            )
        found = where(output)
    elif where is not None:
        found = output.get(where) if isinstance(output, Mapping) else getattr(output, where, None)
    elif isinstance(output, Mapping):
        found = output.get("logits")
    elif hasattr(output, "logits"):
        found = output.logits
    else:
        found = output[0] if isinstance(output, (tuple, list)) and output else output
    if isinstance(found, Tensor):
        return found
    given = type(output).__name__
    if isinstance(output, Mapping):
        given += f" with {', '.join(map(repr, output)) or 'nothing in it'}"
    if where is not None:
        raise HeadNotFoundError(
            f"`fit(output={where if callable(where) else repr(where)})` finds"
            f" {type(found).__name__} in what the model returns, {given}; a tensor of logits is"
            " needed."
        )
    raise HeadNotFoundError(
        "The model must return logits as a tensor, or an object or dict with `logits`; got"
        f" {given}. `fit(..., output='key')` says where they are, or a function of what the model"
        " returns; where there is no `output=`, as for `partial`, wrap the model in a module whose"
        " forward returns them."
    )
