"""What a model is fed: arrays by name, from any usual form, in the types that it takes."""

from collections.abc import Mapping, Sequence
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


def example_axes(graph: FileGraph, feed: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Along which dimension each input has its examples; without inputs that have none,
    as what a model is told besides.

    The first dimension of the first input whose first dimension is open goes over them
    (of the first input, if all are fixed), and with it dimensions of the same name, as
    the second of a recurrent model's state, and first ones of the same length.

    Args:
        graph: The file.
        feed: Every input.
    """
    usual = [name for name, array in feed.items() if array.ndim]
    first = next((name for name in usual if _is_open(graph, name, 0)), usual[0] if usual else None)
    if first is None:
        return {}
    label, is_open = _names(graph, first)[:1], _is_open(graph, first, 0)
    axes = {}
    for name in usual:
        if label and label[0] and label[0] in _names(graph, name):
            axes[name] = _names(graph, name).index(label[0])
        elif len(feed[name]) == len(feed[first]) and _is_open(graph, name, 0) == is_open:
            axes[name] = 0
    return axes


def num_examples(graph: FileGraph, feed: Mapping[str, np.ndarray]) -> int:
    """How many examples are fed.

    Args:
        graph: The file.
        feed: Every input.
    """
    return next((feed[name].shape[axis] for name, axis in example_axes(graph, feed).items()), 1)


def some_examples(
    graph: FileGraph, feed: Mapping[str, np.ndarray], places: Sequence[int] | np.ndarray
) -> dict[str, np.ndarray]:
    """A feed of some of its examples, in some order.

    Args:
        graph: The file.
        feed: Every input.
        places: Which examples.
    """
    axes = example_axes(graph, feed)
    return {
        name: np.take(array, places, axes[name]) if name in axes else array
        for name, array in feed.items()
    }


def first_examples(
    graph: FileGraph, feed: Mapping[str, np.ndarray], count: int
) -> dict[str, np.ndarray]:
    """The first examples, where all inputs have them: what a model is told besides may
    have to fit to the others.

    Args:
        graph: The file.
        feed: Every input.
        count: How many.
    """
    if len(example_axes(graph, feed)) < len(feed):
        return dict(feed)
    return some_examples(graph, feed, np.arange(min(count, num_examples(graph, feed))))


def lengthened(graph: FileGraph, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray] | None:
    """A feed that is twice as long along every other open dimension, as time steps are;
    None if there is none.

    Args:
        graph: The file.
        feed: Every input.
    """
    axes, longer = example_axes(graph, feed), dict(feed)
    for name, array in feed.items():
        for axis in range(array.ndim):
            if axis != axes.get(name) and _is_open(graph, name, axis):
                longer[name] = np.repeat(longer[name], 2, axis)
    return longer if any(longer[name].shape != feed[name].shape for name in feed) else None


def _is_open(graph: FileGraph, name: str, axis: int) -> bool:
    """Whether a dimension of an input may have any size."""
    sizes = dimensions(graph.inputs[name])
    return sizes is None or axis >= len(sizes) or sizes[axis] is None


def _names(graph: FileGraph, name: str) -> list[str]:
    """What a file calls the dimensions of an input, empty where it does not."""
    return [each.dim_param for each in graph.inputs[name].type.tensor_type.shape.dim]


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
