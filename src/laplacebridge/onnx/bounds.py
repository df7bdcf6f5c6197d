"""Nodes that bound logits, told by name: no batch may ever reach the bound."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from laplacebridge.onnx import tail
from laplacebridge.onnx.model import FileGraph, attribute, taken_by
from laplacebridge.onnx.parts import constant_value

_NORMALISING = frozenset({"Softmax", "LogSoftmax", "Exp", "Sigmoid", "Normalizer", "ArgMax"})
_NO_BOUND = 1e30  # what is written for infinity


def bounds_logits(graph: FileGraph, nodes: Sequence[Any], kind: str) -> Any:  # noqa: ANN401
    """The first node that bounds logits before they become probabilities, or None.

    A batch may never reach the bound, so such nodes are told by name.

    Args:
        graph: The file.
        nodes: What follows the logits, in order.
        kind: What the output is of them.
    """
    normalised: set[str] = set()
    normalising = set(_NORMALISING)
    if kind == tail.SIGMOID and not any(node.op_type in normalising for node in nodes):
        normalising.add("Tanh")  # (1 + tanh(z/2)) / 2 is a sigmoid
    for node in nodes:
        taken = [name for name in taken_by(node) if name]
        if node.op_type in normalising or any(name in normalised for name in taken):
            normalised |= set(node.output)
        elif _bounds(graph, node):
            return node
    return None


def _bounds(graph: FileGraph, node: Any) -> bool:  # noqa: ANN401
    if node.op_type in {"Relu", "ThresholdedRelu", "HardSigmoid", "HardSwish", "Tanh", "Softsign"}:
        return True
    if node.op_type == "Clip":
        limits = [attribute(node, "min"), attribute(node, "max")]
        limits = [limit for limit in limits if limit is not None and abs(limit) < _NO_BOUND]
        limits += [_finite(graph, name) for name in list(node.input)[1:]]
        return any(limit is not None for limit in limits)
    if node.op_type in {"Min", "Max"}:
        return any(_finite(graph, name) is not None for name in node.input)
    return False


def _finite(graph: FileGraph, name: str) -> float | None:
    """A number in a constant that is less than the largest of its type, if there is one; of
    what is not constant nothing is known.
    """
    if not name or not graph.is_constant(name):
        return None
    given = np.asarray(constant_value(graph, name))
    largest = float(np.finfo(given.dtype).max) if given.dtype.kind == "f" else _NO_BOUND
    value = given.astype(np.float64).reshape(-1)
    finite = value[np.isfinite(value) & (np.abs(value) < min(largest, _NO_BOUND))]
    return float(finite[0]) if finite.size else None
