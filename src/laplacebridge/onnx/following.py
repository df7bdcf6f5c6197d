"""What follows a linear layer: tensors that are multiples of its logits, class by class."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx

from laplacebridge.onnx.linear import Linear, per_class
from laplacebridge.onnx.model import FileGraph, attribute
from laplacebridge.onnx.running import Extension, constant_value

Numbers = np.ndarray | np.floating[Any]  # one, or one for each class
_NEUTRAL = frozenset({
    "Identity", "Dropout", "Cast", "CastLike", "QuantizeLinear", "DequantizeLinear",
})  # fmt: skip
_MOVING = frozenset({"Squeeze", "Unsqueeze", "Transpose"})
_RESHAPING = frozenset({"Reshape", "Flatten"})
_CHOOSING_ROWS = frozenset(
    {"ReduceMean", "GlobalAveragePool", "AveragePool", "Gather", "GatherND", "Slice"}
)


@dataclass(frozen=True, eq=False)
class Step:
    """A tensor that is scale · (features · weight) + shift, class by class.

    Attributes:
        tensor: Its name.
        scale: One number, or one for each class.
        shift: The same.
        node: What made it of the one before.
        replay: Nodes that chose or averaged rows on the way here. A linear layer lets
            them pass, so that they can be run on features to give those of this tensor.
        moves: Nodes since then that changed the order of dimensions, and would have to be
            run before another such; None if one of them cannot be.
    """

    tensor: str
    scale: Numbers
    shift: Numbers
    node: Any
    replay: tuple[Any, ...] = ()
    moves: tuple[Any, ...] | None = ()


def followed(graph: FileGraph, linear: Linear, output: str) -> Sequence["Step"]:
    """The tensors after a linear layer that are multiples of its logits, class by class:
    biases, scalings and changes of shape or type.

    Args:
        graph: The file.
        linear: The layer.
        output: The output that is followed.
    """
    assert linear.logits is not None  # noqa: S101
    relevant = graph.ancestors([output])
    num_classes = None if linear.weight is None else len(linear.weight)
    bias = 0.0 if linear.bias is None else linear.bias
    steps = [Step(linear.logits, np.float64(1.0), np.asarray(bias, np.float64), None)]
    while steps[-1].tensor != output:
        takers = [
            node
            for node in graph.consumers.get(steps[-1].tensor, [])
            if id(node) in relevant and node.op_type != "Shape"
        ]
        step = _advanced(graph, takers[0], steps[-1], num_classes) if len(takers) == 1 else None
        if step is None:
            break
        steps.append(step)
    return steps


def replayed(linear: Linear, step: Step, prefix: str) -> tuple[Extension, str]:
    """Nodes that choose rows of features as a tensor of logits has them, and the name of
    what they give.

    Args:
        linear: The layer.
        step: The tensor of logits.
        prefix: Of new names.
    """
    extension, name = Extension(), linear.features
    for place, node in enumerate(step.replay):
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        made = f"{prefix}chosen_{place}"
        copy.input[0], copy.output[0], copy.name = name, made, f"{made}_{node.op_type}"
        extension.nodes.append(copy)
        name = made
    return extension, name


def _advanced(
    graph: FileGraph,
    node: Any,  # noqa: ANN401
    step: Step,
    num_classes: int | None,
) -> Step | None:
    made, scale, shift = node.output[0], step.scale, step.shift
    at_first = node.input[0] == step.tensor
    if at_first and node.op_type in _NEUTRAL:
        return None if _drops(graph, node) else replace(step, tensor=made, node=node)
    if at_first and node.op_type in _MOVING:
        moves = None if step.moves is None else (*step.moves, node)
        return replace(step, tensor=made, node=node, moves=moves)
    if at_first and node.op_type in _RESHAPING:
        return replace(step, tensor=made, node=node, moves=None)
    if at_first and node.op_type in _CHOOSING_ROWS:
        if step.moves is None:
            return None
        return replace(
            step, tensor=made, node=node, replay=(*step.replay, *step.moves, node), moves=()
        )
    if node.op_type == "Neg":
        return _scaled(step, node, -scale, -shift)
    if node.op_type == "BatchNormalization" and not attribute(node, "training_mode", 0):
        return _normalised(graph, node, step)
    if node.op_type == "QLinearAdd":
        return _added_to_integers(graph, node, step, num_classes)
    if node.op_type == "Sum":
        return _summed(graph, node, step, num_classes)
    if node.op_type not in {"Add", "Sub", "Mul", "Div"}:
        return None
    place = list(node.input).index(step.tensor)
    other = node.input[1 - place]
    if not graph.is_constant(other):
        return None
    value = constant_value(graph, other)
    factor = per_class(value, num_classes or max(value.shape, default=1))
    if factor is None:
        return None
    factor = factor[:1].reshape(()) if value.size == 1 else factor
    if node.op_type == "Add":
        return _scaled(step, node, scale, shift + factor)
    if node.op_type == "Sub":
        sign = 1.0 if place == 0 else -1.0
        return _scaled(step, node, sign * scale, sign * (shift - factor))
    if node.op_type == "Mul":
        return _scaled(step, node, scale * factor, shift * factor)
    return _scaled(step, node, scale / factor, shift / factor) if place == 0 else None


def _scaled(step: Step, node: Any, scale: Numbers, shift: Numbers) -> Step:  # noqa: ANN401
    return replace(step, tensor=node.output[0], node=node, scale=scale, shift=shift)


def _summed(
    graph: FileGraph,
    node: Any,  # noqa: ANN401
    step: Step,
    num_classes: int | None,
) -> Step | None:
    """Logits and any number of constants."""
    others = [name for name in node.input if name != step.tensor]
    if len(others) != len(node.input) - 1 or not all(map(graph.is_constant, others)):
        return None
    shift = step.shift
    for name in others:
        value = constant_value(graph, name)
        added = per_class(value, num_classes or max(value.shape, default=1))
        if added is None:
            return None
        shift = shift + added
    return _scaled(step, node, step.scale, shift)


def _drops(graph: FileGraph, node: Any) -> bool:  # noqa: ANN401
    """Whether dropout is on, as in a file written for training."""
    if node.op_type != "Dropout" or len(node.input) < 3 or not node.input[2]:
        return False
    training = node.input[2]
    return not graph.is_constant(training) or bool(constant_value(graph, training))


def _normalised(graph: FileGraph, node: Any, step: Step) -> Step | None:  # noqa: ANN401
    if not all(graph.is_constant(name) for name in node.input[1:5]):
        return None
    weight, bias, mean, variance = (
        constant_value(graph, name).astype(np.float64) for name in node.input[1:5]
    )
    factor = weight / np.sqrt(variance + attribute(node, "epsilon", 1e-5))
    return _scaled(step, node, step.scale * factor, (step.shift - mean) * factor + bias)


def _added_to_integers(
    graph: FileGraph,
    node: Any,  # noqa: ANN401
    step: Step,
    num_classes: int | None,
) -> Step | None:
    place = list(node.input).index(step.tensor)
    integers, scale, zero = list(node.input)[3:6] if place == 0 else list(node.input)[:3]
    if num_classes is None or not all(map(graph.is_constant, (integers, scale, zero))):
        return None
    value = (
        constant_value(graph, integers).astype(np.float64) - constant_value(graph, zero)
    ) * constant_value(graph, scale)
    added = per_class(value, num_classes)
    return None if added is None else _scaled(step, node, step.scale, step.shift + added)
