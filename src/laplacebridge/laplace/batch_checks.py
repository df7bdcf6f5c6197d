"""Checks of what a loader yields, before it is used: batches that the model can run,
and labels that are classes.

What goes wrong here goes wrong on the first day. Errors of torch are put into words of
batches; nothing is repaired.
"""

import inspect
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset

from laplacebridge.errors import HeadNotFoundError, InputError, InputTypeError, ShapeError
from laplacebridge.laplace.batch import Batch, logits_of, unpack_batch
from laplacebridge.laplace.running import eval_mode

BATCHES_OF_TENSORS = (
    "Give `[(inputs, labels)]`, tensors or arrays, or for more than fits into one batch "
    "`DataLoader(TensorDataset(inputs, labels), batch_size=128)`."
)
RIGHT_ORDER = "Are inputs and labels in the right order?"


def require_loader(name: str, batches: object, *, call: str = "fit") -> None:
    """Refuses what can be walked over, but yields no batches: a tensor, a pair of them,
    a single batch, a data set.

    Args:
        name: What it was given as.
        batches: What was given.
        call: The function that it was given to.

    Raises:
        InputTypeError: If it is one of these.
    """
    if not isinstance(batches, (Iterable, Dataset)) and not hasattr(batches, "__getitem__"):
        given, advice = f"{batches!r}", BATCHES_OF_TENSORS
    elif isinstance(batches, str):
        given, advice = f"the text {batches!r}", BATCHES_OF_TENSORS
    elif isinstance(batches, Dataset) and not isinstance(batches, IterableDataset):
        given, advice = (
            f"a data set, {type(batches).__name__}",
            (
                "Give `DataLoader(dataset, batch_size=128)`, or `batch_size=None` if each item is a"
                " batch already."
            ),
        )
    elif isinstance(batches, Mapping):
        given, advice = (
            f"a single mapping, {type(batches).__name__}",
            "Put it into a list: `[batch]`.",
        )
    elif isinstance(batches, (Tensor, np.ndarray)):
        given = f"a {type(batches).__name__} of shape {tuple(batches.shape)}"
        advice = f"{BATCHES_OF_TENSORS} Without labels give `[inputs]`."
    elif _is_pair(batches):
        assert isinstance(batches, (tuple, list))  # noqa: S101
        given, advice = (
            f"a pair of {_described(batches[0])} and {_described(batches[1])}",
            BATCHES_OF_TENSORS,
        )
    else:
        return
    raise InputTypeError(
        f"`{call}` needs a loader as `{name}`, something that yields batches of tensors; got"
        f" {given}. {advice}"
    )


def _is_pair(batches: Any) -> bool:  # noqa: ANN401
    """Whether these are inputs and labels; two batches of inputs alone have as many
    dimensions as each other.
    """
    if not isinstance(batches, (tuple, list)) or len(batches) != 2:
        return False
    if not all(isinstance(part, (Tensor, np.ndarray)) for part in batches):
        return False
    inputs, labels = (tuple(part.shape) for part in batches)
    differ = len(inputs) > len(labels) or (isinstance(batches, tuple) and inputs[1:] != labels[1:])
    return differ and inputs[:1] == labels[:1]


@contextmanager
def explain_failure(
    model: nn.Module,
    batch: Any,  # noqa: ANN401
    what: str = "the first batch, whose inputs are",
) -> Iterator[None]:
    """Puts the failure of a first batch into words, if it was the batch and not the
    network that was wrong.

    Args:
        model: The network.
        batch: What its loader yielded first, or a `Batch`.
        what: What to call it.

    Raises:
        InputError: If the model cannot run the batch, or makes NaN of it.
    """
    try:
        yield
    except Exception as error:
        explain_error(error, model, batch, what)
        raise


def explain_error(error: Exception, model: nn.Module, batch: Any, what: str) -> None:  # noqa: ANN401
    """Raises in place of an error what was wrong with a batch, if it was the batch and
    not the network.

    Args:
        error: What the model raised.
        model: The network.
        batch: As for `explain_failure`.
        what: The same.

    Raises:
        InputError: If the model cannot run the batch, or makes NaN of it.
    """
    if isinstance(error, (ShapeError, torch.OutOfMemoryError)):  # they say already what is wrong
        return
    parts = batch if isinstance(batch, Batch) else unpack_batch(batch)
    try:
        with eval_mode(model), torch.no_grad():
            output = model(*parts.arguments, **parts.keywords)
    except Exception as cause:
        given = ", ".join(map(_described, _inputs(parts))) or "none at all"
        advice = _advice(model, parts) or (
            "Give tensors of the shape and type that the model was trained with."
            if parts is batch
            else "A batch is (inputs, labels), a mapping with labels, or inputs alone."
            f" {RIGHT_ORDER}"
        )
        raise InputError(f"The model could not run {what} {given}: {cause}. {advice}") from error
    if torch.is_grad_enabled() and any(
        isinstance(part, Tensor) and part.is_inference() for part in _inputs(parts)
    ):
        raise InputError(
            f"The model could not run {what} made under `torch.inference_mode`, where gradients"
            " are kept. Predict under `torch.no_grad()` or `torch.inference_mode()` too, or"
            " give `inputs.clone()`."
        ) from error
    _explain_what_is_not_finite(output, parts, error)


def _explain_what_is_not_finite(output: Any, batch: Batch, error: Exception) -> None:  # noqa: ANN401
    """Raises in place of an error that NaN has led to.

    Raises:
        InputError: If the logits are not finite. From finite inputs −∞ alone is how
            classes are masked, and no failure.
    """
    try:
        logits = logits_of(output)
    except HeadNotFoundError:
        return
    if not logits.isfinite().all() and not (
        _has_finite_inputs(batch) and (logits < math.inf).all()
    ):
        raise InputError(_not_finite(logits, "logits", 0, batch)) from error


def require_finite(values: Tensor, name: str, index: int, batch: Batch) -> None:
    """Refuses a batch that holds NaN or infinity, before anything of it is added.

    Args:
        values: What the network made of it, one row for each example.
        name: What they are.
        index: Of the batch.
        batch: The batch.

    Raises:
        InputError: If a value is not finite.
    """
    if not values.isfinite().all():
        raise InputError(_not_finite(values, name, index, batch))


def _not_finite(values: Tensor, name: str, index: int, batch: Batch) -> str:
    row = int((~values.isfinite()).reshape(len(values), -1).any(-1).nonzero()[0])
    cause = (
        "Its inputs are finite: look for NaN among the model's weights, or for overflow of half"
        " precision inside it."
        if _has_finite_inputs(batch)
        else "Its inputs hold NaN or infinity: leave such examples out, or fill in what is missing."
    )
    return (
        f"Batch {index} (counted from 0) gave {name} that are not finite, first in its row {row}."
        f" {cause} Nothing of it was added."
    )


def is_empty(batch: Any) -> bool:  # noqa: ANN401
    """Whether a batch has no examples.

    Args:
        batch: As a loader yields it.
    """
    tensors = [value for value in _inputs(unpack_batch(batch)) if isinstance(value, Tensor)]
    return bool(tensors) and tensors[0].dim() > 0 and len(tensors[0]) == 0


def _inputs(batch: Batch) -> list[Any]:
    return [*batch.arguments, *batch.keywords.values()]


def _has_finite_inputs(batch: Batch) -> bool:
    return all(
        bool(value.isfinite().all()) for value in _inputs(batch) if isinstance(value, Tensor)
    )


def _described(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype} {tuple(value.shape)}"
    return (
        f"{type(value).__name__} {value.shape}"
        if isinstance(value, np.ndarray)
        else type(value).__name__
    )


def _advice(model: nn.Module, batch: Batch) -> str:
    """What to do about a batch that the model cannot run, if its type or place says it."""
    weight = next(model.parameters(), None)
    tensors = [value for value in _inputs(batch) if isinstance(value, Tensor)]
    if any(isinstance(value, np.ndarray) for value in _inputs(batch)):
        return (
            "Tensors are needed: convert arrays with `torch.as_tensor`, or use a `DataLoader`,"
            " which does."
        )
    if weight is not None and any(value.device != weight.device for value in tensors):
        return f"The model is on {weight.device}: move the inputs there with `.to(device)`."
    if weight is not None and any(
        value.is_floating_point() and value.dtype != weight.dtype for value in tensors
    ):
        return (
            f"The model's weights are {weight.dtype}: convert the inputs with"
            f" `.to({weight.dtype})`."
        )
    unknown = _not_taken(model, batch)
    if unknown:
        taken, place = _parameters(model), ", ".join(map(repr, unknown))
        return (
            f"Entries of a mapping are given to `forward` by their names; it takes"
            f" {', '.join(map(repr, taken)) or 'none'}, and not {place}. Rename or leave out in the"
            " data set or its `collate_fn`; or yield pairs, (inputs, labels)."
        )
    if any(isinstance(value, (Mapping, tuple, list)) for value in batch.arguments):
        return (
            "Inputs within another list or mapping are given to `forward` as they are. For inputs"
            " of their own give (first, second, labels), or one mapping with all names and"
            " `labels`."
        )
    if isinstance(batch.labels, (Tensor, np.ndarray, int)) and np.ndim(batch.labels) == 0:
        return (
            "There is a single label: is this one example, without a batch dimension? Use "
            "`DataLoader(dataset, batch_size=128)`."
        )
    return ""


def _parameters(model: nn.Module) -> list[str]:
    """Names that `forward` takes."""
    return list(inspect.signature(model.forward).parameters)


def _not_taken(model: nn.Module, batch: Batch) -> list[str]:
    """Names of a mapping that `forward` does not take."""
    parameters = inspect.signature(model.forward).parameters
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return []
    return [name for name in batch.keywords if name not in parameters]
