"""Nodes that read a model's features and logits: in float32, classes and features last,
scaled as the output has them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from laplacebridge.onnx.feeds import dimensions
from laplacebridge.onnx.following import replayed
from laplacebridge.onnx.head import Head
from laplacebridge.onnx.model import FileGraph
from laplacebridge.onnx.running import Extension

PREFIX = "lb_"
_HALF = 0.5  # any power of two but one, by which runtimes do not multiply


@dataclass(frozen=True)
class Read:
    """Tensors to read a head by.

    Attributes:
        extension: The nodes that make them.
        features: Name of the tensor of features, which are its last dimension.
        logits: The same of logits, one for two classes among them; None if they have to
            be computed from features, where the graph has none or they are coarse.
        shape: Of the features, on the feed that the head was verified by.
    """

    extension: Extension
    features: str
    logits: str | None
    shape: tuple[int, ...]


def read_by(graph: FileGraph, head: Head, prefix: str, *, own_logits: bool = False) -> Read:
    """Nodes that read the features and logits of a head.

    Args:
        graph: The file.
        head: Its head.
        prefix: Of all new names.
        own_logits: Whether to leave the graph's logits alone.
    """
    nodes = _Nodes(prefix)
    layout, linear = head.layout, head.layout.linear
    size = head.num_features
    # a file may declare an output with too few dimensions; then its shape cannot be read
    one_row = layout.has_one_row or _is_misdeclared(graph, head)
    name = head.features
    if linear.dequantise is not None:
        quantised = linear.dequantise
        name = nodes.add("DequantizeLinear", [name, quantised.scale, quantised.zero_point])
    name = nodes.dequantised(graph, name)
    # Runtimes compute halves as float32 and round between layers only what is read as it
    # is. A cast would do that, and change the model's own outputs; a product does not.
    if layout.are_features_coarse:
        name = nodes.add("Mul", [name, nodes.stored(np.float16(_HALF))])
    if layout.step is not None:
        chosen, name = replayed(layout.step, name, prefix)
        nodes.extension.nodes += chosen.nodes
    name = nodes.add("Cast", [name], to=TensorProto.FLOAT)
    if layout.are_features_coarse:
        name = nodes.add("Div", [name, nodes.stored(np.float32(_HALF))])
    name, shape = _last(nodes, name, layout.features_shape, layout.features_axis, size, one_row)
    coarse = layout.are_logits_coarse and head.precision != "8-bit"
    if head.logits is None or coarse or own_logits:
        return Read(nodes.extension, name, None, shape)
    logits = nodes.dequantised(graph, head.logits)
    logits = nodes.add("Cast", [logits], to=TensorProto.FLOAT)
    classes = len(head.weight)
    logits, logits_shape = _last(
        nodes, logits, layout.logits_shape, layout.logits_axis, classes, one_row
    )
    if head.scale != 1:
        logits = nodes.add("Mul", [logits, nodes.stored(np.float32(head.scale))])
    if len(logits_shape) > len(shape):  # the graph computes rows, and gives time steps
        leading = nodes.add(
            "Slice",
            [
                nodes.add("Shape", [logits]),
                nodes.stored(np.array([0])),
                nodes.stored(np.array([len(logits_shape) - 1])),
            ],
        )
        wanted = nodes.add("Concat", [leading, nodes.stored(np.array([size]))], axis=0)
        name, shape = nodes.add("Reshape", [name, wanted]), (*logits_shape[:-1], size)
    return Read(nodes.extension, name, logits, shape)


def free_prefix(graph: FileGraph) -> str:
    """A beginning of names that no name of a graph has.

    Args:
        graph: The file.
    """
    taken = {*graph.inputs, *graph.initializers, *graph.producers}
    taken |= {node.name for node in graph.nodes}
    prefix, count = PREFIX, 1
    while any(name.startswith(prefix) for name in taken):
        count += 1
        prefix = f"lb{count}_"
    return prefix


def _last(
    nodes: "_Nodes",
    name: str,
    shape: tuple[int, ...],
    axis: int,
    size: int,
    one_row: bool,
) -> tuple[str, tuple[int, ...]]:
    """A tensor with `size` numbers along its last dimension; with one row for each example
    it has two dimensions.
    """
    if axis not in {-1, len(shape) - 1} and size > 1:
        order = [place for place in range(len(shape)) if place != axis % len(shape)]
        order.append(axis % len(shape))
        name, shape = nodes.add("Transpose", [name], perm=order), tuple(shape[i] for i in order)
    if shape[-1:] != (size,) or (one_row and len(shape) != 2):
        rows = int(np.prod(shape)) // size
        name = nodes.add("Reshape", [name, nodes.stored(np.array([-1, size]))])
        shape = (rows, size)
    return name, shape


def _is_misdeclared(graph: FileGraph, head: Head) -> bool:
    """Whether a file says that the logits have another number of dimensions than they have."""
    declared = graph.outputs.get(head.logits or "")
    sizes = None if declared is None else dimensions(declared)
    return sizes is not None and len(sizes) != len(head.layout.logits_shape)


class _Nodes:
    """Nodes under construction."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.extension = Extension()

    def add(self, kind: str, inputs: Sequence[str], **attributes: Any) -> str:  # noqa: ANN401
        """A node with one output, whose name it gives."""
        name = f"{self.prefix}read_{len(self.extension.nodes)}"
        self.extension.nodes.append(
            helper.make_node(kind, list(inputs), [name], name=f"{name}_{kind}", **attributes)
        )
        return name

    def dequantised(self, graph: FileGraph, name: str) -> str:
        """A tensor that a graph makes of integers, made of them once more: another reader
        of the first would keep runtimes from computing in integers.
        """
        maker = graph.producers.get(name)
        if maker is None or maker.op_type != "DequantizeLinear":
            return name
        copy = onnx.NodeProto()
        copy.CopyFrom(maker)
        made = f"{self.prefix}read_{len(self.extension.nodes)}"
        copy.output[0], copy.name = made, f"{made}_DequantizeLinear"
        self.extension.nodes.append(copy)
        return made

    def stored(self, value: np.ndarray | np.generic) -> str:
        """A stored tensor."""
        name = f"{self.prefix}read_array_{len(self.extension.initializers)}"
        self.extension.initializers.append(numpy_helper.from_array(np.asarray(value), name))
        return name
