"""What a model is fed: arrays by name, from any usual form, in the types that it takes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import TensorProto, helper
from torch import Tensor

from laplacebridge.errors import InputError, InputTypeError
from laplacebridge.onnx.model import FileGraph


def feed_of(graph: FileGraph, given: Any) -> dict[str, np.ndarray]:  # noqa: ANN401
    """Inputs in any usual form as arrays by name, of the types that the model takes.

    Args:
        graph: The file.
        given: A mapping by name, a tuple in the order of the model's inputs, or one
            array or tensor for the only input.

    Raises:
        InputError: If inputs are missing or unknown, or cannot be of the needed type.
    """
    wanted = graph.inputs
    if isinstance(given, Mapping):
        feed = dict(given)
    else:
        arrays = list(given) if isinstance(given, (tuple, list)) else [given]
        if len(arrays) != len(wanted):
            raise InputError(
                f"{graph.path} takes {described_inputs(graph)}; got {len(arrays)} arrays. Give a"
                " mapping from these names to arrays."
            )
        feed = dict(zip(wanted, arrays))
    if set(feed) != set(wanted):
        raise InputError(
            f"{graph.path} takes {described_inputs(graph)}; got"
            f" {', '.join(repr(name) for name in feed) or 'nothing'}."
        )
    return {name: _as_fed(graph, name, feed[name]) for name in wanted}


def drawn_feed(graph: FileGraph) -> dict[str, np.ndarray]:
    """Numbers for every input, for a look at a model without data.

    Args:
        graph: The file.

    Raises:
        InputError: If an input takes something else than numbers.
    """
    generator = np.random.default_rng(0)
    feed = {}
    for name, each in graph.inputs.items():
        sizes = dimensions(each)
        kind = each.type.tensor_type.elem_type
        if sizes is None or kind in {0, TensorProto.STRING}:
            raise InputError(
                f"{graph.path} takes {described_inputs(graph)}, which cannot be made up. Give a"
                " feed: a mapping from these names to arrays."
            )
        dtype = helper.tensor_dtype_to_np_dtype(kind)
        shape = [4 if size is None else size for size in sizes]
        drawn = generator.standard_normal(shape) if dtype.kind == "f" else np.ones(shape)
        feed[name] = drawn.astype(dtype)
    return feed


def described_inputs(graph: FileGraph) -> str:
    """What a model takes, for people."""
    return ", ".join(
        f"'{name}' {type_name(each)} {_shape(each)}" for name, each in graph.inputs.items()
    )


def num_examples(feed: Mapping[str, np.ndarray]) -> int:
    """How many examples are fed."""
    return max((len(array) for array in feed.values() if array.ndim), default=1)


def first_examples(feed: Mapping[str, np.ndarray], count: int) -> dict[str, np.ndarray]:
    """The first examples, where all inputs have the same number of them: what a model is
    told besides, as the state of a recurrent one, is not to be cut.

    Args:
        feed: Every input.
        count: How many.
    """
    lengths = {len(array) if array.ndim else 0 for array in feed.values()}
    if lengths != {num_examples(feed)}:
        return dict(feed)
    return {name: array[:count] for name, array in feed.items()}


def type_name(value: Any) -> str:  # noqa: ANN401
    """The type of an input or output, for people."""
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return (kind or "value of unknown type").replace("_type", "")
    return str(TensorProto.DataType.Name(value.type.tensor_type.elem_type)).lower()


def dimensions(value: Any) -> list[int | None] | None:  # noqa: ANN401
    """The shape of an input or output, None where it is open; some exporters, as
    Paddle's, write -1 or 0 there.
    """
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return [each.dim_value if each.dim_value > 0 else None for each in tensor.shape.dim]


def _shape(value: Any) -> str:  # noqa: ANN401
    known = dimensions(value)
    if known is None:
        return "of any shape"
    names = [each.dim_param or "?" for each in value.type.tensor_type.shape.dim]
    return f"({', '.join(str(size or name) for size, name in zip(known, names))})"


def _as_fed(graph: FileGraph, name: str, given: Any) -> np.ndarray:  # noqa: ANN401
    if isinstance(given, Tensor):
        given = given.detach().cpu().numpy()
    array = np.asarray(given)
    kind = graph.inputs[name].type.tensor_type.elem_type
    if kind == TensorProto.STRING:
        return array.astype(object)
    if kind == TensorProto.UNDEFINED:
        return array
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    if array.dtype == dtype:
        return array
    if array.dtype.kind not in "fiub" or (dtype.kind in "iu" and array.dtype.kind == "f"):
        raise InputTypeError(
            f"{graph.path} takes {described_inputs(graph)}; got '{name}' of type {array.dtype}."
        )
    return array.astype(dtype)
