"""Parts of an ONNX model as models of their own."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from laplacebridge.onnx.model import FileGraph, taken_by
from laplacebridge.onnx.running import Feed, Session


class Part:
    """The nodes between some tensors and others as a model of its own.

    What else they need, such as shapes of inputs, is taken from a run of the whole.

    Args:
        graph: The file.
        starts: Where it begins.
        ends: Where it ends.
    """

    def __init__(self, graph: FileGraph, starts: Sequence[str], ends: Sequence[str]) -> None:
        self.graph, self.starts, self.ends = graph, list(starts), list(ends)
        self.nodes = graph.between(self.starts, self.ends)
        taken = [name for node in self.nodes for name in taken_by(node) if name]
        made = {name for node in self.nodes for name in node.output}
        beside = [name for name in dict.fromkeys(taken) if name not in made]
        self._constants = [name for name in beside if graph.is_constant(name)]
        self.needed = [
            name for name in beside if name not in self._constants and name not in self.starts
        ]
        self._session: Session | None = None

    def run(self, values: Feed, beside: Feed) -> dict[str, Any]:
        """Its ends.

        Args:
            values: Its starts.
            beside: What is `needed`, from a run of the whole.
        """
        fed = {**{name: beside[name] for name in self.needed}, **values}
        if self._session is None:
            self._session = self._made(fed)
        return self._session.run(fed, self.ends)

    def _made(self, fed: Feed) -> Session:
        graph, whole = self.graph, self.graph.model
        makers = graph.ancestors(self._constants)
        inside = {id(node) for node in self.nodes} | set(makers)
        nodes = [node for node in graph.nodes if id(node) in inside]
        taken = {name for node in nodes for name in taken_by(node)}
        model = onnx.ModelProto()
        model.CopyFrom(whole)
        model.graph.Clear()
        model.graph.name = "part"
        model.graph.node.extend(nodes)
        _store(graph, taken, model)
        model.graph.input.extend(
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), [None] * array.ndim
            )
            for name, array in fed.items()
        )
        known = graph.outputs
        model.graph.output.extend(
            _without_shape(known[name]) if name in known else onnx.ValueInfoProto(name=name)
            for name in self.ends
        )
        return Session(model, graph)


def constant_value(graph: FileGraph, name: str) -> np.ndarray:
    """The value of a tensor that depends on no input.

    Args:
        graph: The file.
        name: The tensor.
    """
    if name in graph.initializers:
        return graph.stored(name)
    nodes = graph.ancestors([name])
    taken = {name} | {taken for node in nodes.values() for taken in taken_by(node)}
    given = f"{name}_given"  # a stored tensor is no output until a node makes it one
    model = onnx.ModelProto()
    model.CopyFrom(graph.model)
    model.graph.Clear()
    model.graph.name = "constant"
    model.graph.node.extend(node for node in graph.nodes if id(node) in nodes)
    model.graph.node.append(helper.make_node("Identity", [name], [given]))
    _store(graph, taken, model)
    model.graph.output.append(onnx.ValueInfoProto(name=given))
    return Session(model, graph).run({}, [given])[given]


def _store(graph: FileGraph, names: Collection[str], model: Any) -> None:  # noqa: ANN401
    """Stored tensors of a file, put into a model that takes them."""
    model.graph.initializer.extend(
        tensor for name, tensor in graph.initializers.items() if name in names
    )
    model.graph.sparse_initializer.extend(
        tensor for name, tensor in graph.sparse_initializers.items() if name in names
    )


def _without_shape(value: Any) -> Any:  # noqa: ANN401
    """An output whose type is kept, whatever its shape."""
    copy = onnx.ValueInfoProto()
    copy.CopyFrom(value)
    if copy.type.HasField("tensor_type"):
        copy.type.tensor_type.ClearField("shape")
    return copy
