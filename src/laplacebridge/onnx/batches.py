"""Batches for an ONNX model: what it is fed, and labels as classes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from laplacebridge.errors import InputError
from laplacebridge.laplace.batch import LABEL_NAMES
from laplacebridge.onnx.feeds import feed_of
from laplacebridge.onnx.head import Head
from laplacebridge.onnx.model import FileGraph


def unpacked(graph: FileGraph, batch: Any) -> tuple[dict[str, np.ndarray], Any]:  # noqa: ANN401
    """A batch as a feed and labels, or None.

    Args:
        graph: The file.
        batch: Inputs, with labels as the last of a tuple or under a usual name.
    """
    if isinstance(batch, Mapping):
        label = next(
            (name for name in LABEL_NAMES if name in batch and name not in graph.inputs), None
        )
        feed = {name: value for name, value in batch.items() if name != label}
        return feed_of(graph, feed), None if label is None else batch[label]
    if isinstance(batch, (tuple, list)) and len(batch) > 1:
        inputs = batch[0] if len(batch) == 2 else tuple(batch[:-1])
        return feed_of(graph, inputs), batch[-1]
    return feed_of(graph, batch), None


def labels_as_classes(head: Head, labels: Any) -> Tensor:  # noqa: ANN401
    """Labels as classes counted from 0: where a file names its classes, these names are
    read.

    Args:
        head: The head, with the names if there are any.
        labels: Integers, texts, or votes in columns.

    Raises:
        InputError: If a label is none of the names.
    """
    if isinstance(labels, Tensor):
        labels = labels.detach().cpu().numpy()
    array = np.asarray(labels)
    names = list(head.class_labels)
    are_texts = array.dtype.kind in "OSU"
    counted = names == list(range(len(names)))
    are_votes = array.dtype.kind == "f" or (array.ndim > 1 and array.shape[-1] == len(names))
    if not are_texts and (not names or counted or are_votes):
        return torch.from_numpy(np.ascontiguousarray(array))
    if not names:
        raise InputError(
            f"The model does not name its classes; got the label {array.reshape(-1).tolist()[0]!r}."
            " Give integers, classes counted from 0 in the order of the model."
        )
    places = {name: place for place, name in enumerate(names)}
    unknown = [entry for entry in array.reshape(-1).tolist() if entry not in places]
    if unknown:
        raise InputError(
            f"The model names its classes {', '.join(map(repr, names[:8]))}; got the label"
            f" {unknown[0]!r}. Give labels by these names."
        )
    return torch.tensor([places[entry] for entry in array.reshape(-1).tolist()])


def require_order(head: Head, shape: tuple[int, ...], given: tuple[int, ...]) -> None:
    """Refuses labels with examples first where the output has time steps first, and the
    other way round.

    Args:
        head: The head.
        shape: Of the output, without classes.
        given: Shape of the labels.

    Raises:
        InputError: If labels are in the other order.
    """
    if len(given) == 2 and shape[::-1] == given != shape:
        raise InputError(
            f"Output '{head.output}' has predictions of shape {tuple(shape)}; got labels of shape"
            f" {tuple(given)}, examples and time steps in the other order. Give them as the"
            " output has them: `labels.T`."
        )
