"""What follows a linear layer: tensors that are multiples of its logits, class by class."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx

from laplacebridge.onnx.linear import Linear, per_class
from laplacebridge.onnx.model import FileGraph, attribute
from laplacebridge.onnx.parts import constant_value
from laplacebridge.onnx.running import Extension

Numbers = np.ndarray | np.floating[Any]  # one, or one for each class
_NEUTRAL = frozenset({
    "Identity", "Dropout", "Cast", "CastLike", "QuantizeLinear", "DequantizeLinear",
})  # fmt: skip
_MOVING = frozenset({"Squeeze", "Unsqueeze", "Transpose"})
_RESHAPING = frozenset({"Reshape", "Flatten"})
_CHOOSING_ROWS = frozenset(
    {"ReduceMean", "GlobalAveragePool", "AveragePool", "Gather", "GatherND", "Slice"}
)
_MOST_STEPS = 64  # of all ways in which choices of rows or of classes can be read


@dataclass(frozen=True, eq=False)
class Step:
    """A tensor that is scale · (features · weight) + shift, class by class.

    Attributes:
        tensor: Its name.
        scale: One number, or one for each class.
        shift: The same.
        node: What made it of the one before.
        replay: Nodes that chose, averaged or rearranged rows on the way here. A linear
            layer lets them pass, so that they can be run on features to give those of this
            tensor.
        moves: Nodes since then that changed the order of dimensions, and would have to be
            run before another such; None if one of them cannot be.
        classes: Which of the layer's classes these are, where some were cut out or put in
            another order; None if they are all.
    """

    tensor: str
    scale: Numbers
    shift: Numbers
    node: Any
    replay: tuple[Any, ...] = ()
    moves: tuple[Any, ...] | None = ()
    classes: np.ndarray | None = None

    def weight(self, linear: Linear) -> np.ndarray:
        """Weights of these classes, before scaling.

        Args:
            linear: The layer.
        """
        assert linear.weight is not None  # noqa: S101
        return linear.weight if self.classes is None else linear.weight[self.classes]


def followed(graph: FileGraph, linear: Linear, output: str) -> Sequence["Step"]:
    """The tensors after a linear layer that may be multiples of its logits, class by class:
    biases, scalings, changes of shape or type, choices of rows or classes. Where a choice
    can be read in both ways, numbers tell later which of them it is.

    Args:
        graph: The file.
        linear: The layer.
        output: The output that is followed.
    """
    assert linear.logits is not None  # noqa: S101
    relevant = graph.ancestors([output])
    bias = 0.0 if linear.bias is None else linear.bias
    steps = [Step(linear.logits, np.float64(1.0), np.asarray(bias, np.float64), None)]
    for step in steps:  # which grows
        takers = [
            node
            for node in graph.consumers.get(step.tensor, [])
            if id(node) in relevant and node.op_type != "Shape"
        ]
        if step.tensor == output or len(takers) != 1 or len(steps) > _MOST_STEPS:
            continue
        count = None if linear.weight is None else len(step.weight(linear))
        found = [_turned_rows(takers[0], step), _advanced(graph, takers[0], step, count)]
        if count is not None and takers[0].input[0] == step.tensor:
            made = [
                name
                for name in takers[0].output
                if name == output or any(id(n) in relevant for n in graph.consumers.get(name, []))
            ]
            found += [_of_some_classes(graph, takers[0], step, count, made)]
        steps += [each for each in found if each is not None]
    return steps


def replayed(step: Step, features: str, prefix: str) -> tuple[Extension, str]:
    """Nodes that choose rows of features as a tensor of logits has them, and the name of
    what they give.

    Args:
        step: The tensor of logits.
        features: The tensor of features.
        prefix: Of new names.
    """
    extension, name = Extension(), features
    for place, node in enumerate(step.replay):
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        made = f"{prefix}chosen_{place}"
        copy.input[0], copy.output[0], copy.name = name, made, f"{made}_{node.op_type}"
        extension.nodes.append(copy)
        name = made
    return extension, name


def drops(graph: FileGraph, node: Any) -> bool:  # noqa: ANN401
    """Whether a node is a dropout that is on, as in a file written for training.

    Args:
        graph: Its file.
        node: The node.
    """
    if node.op_type != "Dropout" or len(node.input) < 3 or not node.input[2]:
        return False
    training = node.input[2]
    return not graph.is_constant(training) or bool(constant_value(graph, training))


def _advanced(
    graph: FileGraph,
    node: Any,  # noqa: ANN401
    step: Step,
    num_classes: int | None,
) -> Step | None:
    made, scale, shift = node.output[0], step.scale, step.shift
    at_first = node.input[0] == step.tensor
    if at_first and node.op_type in _NEUTRAL:
        return None if drops(graph, node) else replace(step, tensor=made, node=node)
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
        return _normalised(graph, node, step, num_classes)
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


def _turned_rows(node: Any, step: Step) -> Step | None:  # noqa: ANN401
    """What is given if a node puts rows in another order, as time steps before examples;
    if it moves classes, which is tried first, features stay as they are.
    """
    if node.op_type != "Transpose" or step.moves is None:
        return None
    replay = (*step.replay, *step.moves, node)
    return replace(step, tensor=node.output[0], node=node, replay=replay, moves=())


def _of_some_classes(
    graph: FileGraph,
    node: Any,  # noqa: ANN401
    step: Step,
    count: int,
    made: Sequence[str],
) -> Step | None:
    """What is left if a node chooses classes.

    Args:
        graph: The file.
        node: The node.
        step: The tensor that it takes.
        count: Classes of that.
        made: Tensors of the node that the output is made of.
    """
    places = _chosen_places(graph, node, count, made[0]) if len(made) == 1 else None
    if places is None or not len(places):
        return None
    classes = places if step.classes is None else step.classes[places]
    scale, shift = (
        np.broadcast_to(each, count)[places] if np.size(each) > 1 else each
        for each in (step.scale, step.shift)
    )
    return replace(_scaled(step, node, scale, shift), tensor=made[0], classes=classes)


def _chosen_places(
    graph: FileGraph,
    node: Any,  # noqa: ANN401
    count: int,
    made: str,
) -> np.ndarray | None:
    """Which of some entries along one dimension a node chooses."""
    if not all(graph.is_constant(name) for name in node.input[1:] if name):
        return None
    given = [constant_value(graph, name).reshape(-1) if name else None for name in node.input[1:]]
    if node.op_type == "Gather":
        assert given[0] is not None  # noqa: S101
        inside = ((given[0] >= -count) & (given[0] < count)).all()
        return given[0] % count if inside else None
    if node.op_type == "Slice":
        starts, ends, _, steps = (*given, None, None)[:4]
        assert starts is not None  # noqa: S101
        assert ends is not None  # noqa: S101
        steps = np.ones_like(starts) if steps is None else steps
        cuts = [slice(*map(int, cut)) for cut in zip(starts, ends, steps)]
        real = [cut for cut in cuts if len(range(count)[cut]) < count or cut.step < 0]
        return np.arange(count)[real[0]] if len(real) == 1 else None
    if node.op_type == "Split":
        sizes = attribute(node, "split") if not given or given[0] is None else given[0]
        if sizes is None:  # parts of the same size, but for the last
            sizes = [-(-count // len(node.output))] * len(node.output)
        parts = np.split(np.arange(count), np.cumsum(sizes)[:-1])
        return parts[list(node.output).index(made)]
    return None


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


def _normalised(
    graph: FileGraph,
    node: Any,  # noqa: ANN401
    step: Step,
    num_classes: int | None,
) -> Step | None:
    if not all(graph.is_constant(name) for name in node.input[1:5]):
        return None
    weight, bias, mean, variance = (
        constant_value(graph, name).astype(np.float64) for name in node.input[1:5]
    )
    factor = weight / np.sqrt(variance + attribute(node, "epsilon", 1e-5))
    if num_classes not in {None, factor.size}:  # it normalises something else, as time steps
        return None
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
