"""An ONNX file as a graph: who makes a tensor, who takes it, what is constant, and what
lies between two tensors.
"""

import os
from collections.abc import Collection, Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from laplacebridge.errors import InputError, InputTypeError

# Their results say nothing about the values of what they take.
_SHAPE_ONLY = frozenset({"Shape", "Size"})
# What they give are values of the first tensor, if that is not constant; others choose.
_CHOOSING = frozenset({"Gather", "GatherND", "Slice"})
RANDOM = frozenset({
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial",
    "Bernoulli",
})  # fmt: skip
_MAIN_DOMAINS = ("", "ai.onnx")
_SAME_VALUES = frozenset({
    "QuantizeLinear", "DequantizeLinear", "Identity", "Squeeze", "Unsqueeze", "Flatten", "Reshape",
})  # fmt: skip


class FileGraph:
    """A model read from a file, with the ways through its main graph. The model is not
    changed; weights in other files stay there until they are asked for.

    Args:
        path: An `.onnx` file.

    Raises:
        InputError: If it is no such file.
        InputTypeError: If it is a model, and no path.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, (str, os.PathLike)):
            raise InputTypeError(
                f"`lb.onnx` reads files; got {type(path).__name__}. Save it first,"
                " `onnx.save(model, 'model.onnx')`, and give the path."
            )
        self.path = Path(path)
        if not self.path.is_file():
            raise InputError(f"There is no file {self.path}; give the path of an .onnx file.")
        try:
            self.model: Any = onnx.load(self.path, load_external_data=False)
        except Exception as error:  # that of protobuf, which is onnx's own matter
            raise InputError(
                f"{self.path} cannot be read as an ONNX model: it is damaged, cut short or of"
                " another format."
            ) from error
        if not self.model.graph.output:
            raise InputError(f"{self.path} holds no ONNX graph with outputs.")

    @cached_property
    def nodes(self) -> list[Any]:
        """The nodes in the order of the file: makers of a tensor before its takers. Kept,
        because nodes are told apart by identity.
        """
        return list(self.model.graph.node)

    @property
    def opset(self) -> int:
        """Version of the standard operators that the file uses."""
        versions = [
            each.version for each in self.model.opset_import if each.domain in _MAIN_DOMAINS
        ]
        return max(versions, default=0)

    @cached_property
    def initializers(self) -> dict[str, Any]:
        """Stored tensors by name."""
        return {tensor.name: tensor for tensor in self.model.graph.initializer}

    @cached_property
    def sparse_initializers(self) -> dict[str, Any]:
        """Tensors stored by what is not zero, by name."""
        return {each.values.name: each for each in self.model.graph.sparse_initializer}

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """What must be fed, by name; weights that old files list as inputs are not."""
        return {
            each.name: each for each in self.model.graph.input if each.name not in self.initializers
        }

    @cached_property
    def outputs(self) -> dict[str, Any]:
        """What the model gives, by name."""
        return {each.name: each for each in self.model.graph.output}

    @cached_property
    def producers(self) -> dict[str, Any]:
        """The node that makes a tensor, by the tensor's name."""
        return {name: node for node in self.nodes for name in node.output if name}

    @cached_property
    def consumers(self) -> dict[str, list[Any]]:
        """The nodes that take a tensor, by the tensor's name."""
        found: dict[str, list[Any]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(taken_by(node)):
                found.setdefault(name, []).append(node)
        return found

    def is_constant(self, name: str) -> bool:
        """Whether a tensor is the same whatever is fed."""
        return name in self._constant

    @cached_property
    def _constant(self) -> set[str]:
        known = set(self.initializers)
        known |= set(self.sparse_initializers)
        for node in self.nodes:
            taken = [name for name in taken_by(node) if name]
            made_of_nothing = not taken and node.op_type != "Constant"
            if node.op_type in RANDOM or made_of_nothing:
                continue
            if all(name in known for name in taken):
                known |= {name for name in node.output if name}
        return known

    def stored(self, name: str) -> np.ndarray:
        """The value of an initializer."""
        return numpy_helper.to_array(self.initializers[name], base_dir=str(self.path.parent))

    def between(self, starts: Collection[str], ends: Iterable[str]) -> list[Any]:
        """Nodes on the way from some tensors to others, in the order of the file.

        Args:
            starts: Where the ways begin.
            ends: Where they end.
        """
        downstream = set(starts)
        reached: dict[int, Any] = {}
        for node in self.nodes:
            if any(name in downstream for name in taken_by(node)) and not (
                set(node.output) & set(starts)
            ):
                downstream |= {name for name in node.output if name}
                reached[id(node)] = node
        needed = self.ancestors(ends, stop=starts)
        return [node for node in self.nodes if id(node) in reached and id(node) in needed]

    def ancestors(
        self, ends: Iterable[str], *, stop: Collection[str] = (), values_only: bool = False
    ) -> dict[int, Any]:
        """Nodes that tensors are made by, by identity.

        Args:
            ends: The tensors.
            stop: Tensors behind which not to look.
            values_only: Whether to leave out what only shapes depend on.
        """
        found: dict[int, Any] = {}
        waiting = [name for name in ends if name not in stop]
        while waiting:
            node = self.producers.get(waiting.pop())
            if node is None or id(node) in found:
                continue
            found[id(node)] = node
            taken = self._values_of(node) if values_only else taken_by(node)
            waiting.extend(name for name in taken if name and name not in stop)
        return found

    def _values_of(self, node: Any) -> list[str]:  # noqa: ANN401
        """Tensors whose values are in what a node gives."""
        if node.op_type in _SHAPE_ONLY:
            return []
        if node.op_type in _CHOOSING and not self.is_constant(node.input[0]):
            return [node.input[0]]
        return taken_by(node)

    def depends_on_inputs(self, end: str, *, without: Collection[str] = ()) -> bool:
        """Whether values that are fed reach a tensor on a way that avoids some others.

        Args:
            end: The tensor.
            without: Tensors to avoid.
        """
        nodes = self.ancestors([end], stop=without, values_only=True).values()
        drawn = any(node.op_type in RANDOM for node in nodes)
        return drawn or bool(self.inputs_of(end, without=without))

    def inputs_of(self, end: str, *, without: Collection[str] = ()) -> list[str]:
        """Inputs whose values reach a tensor on a way that avoids some others.

        Args:
            end: The tensor.
            without: Tensors to avoid.
        """
        nodes = self.ancestors([end], stop=without, values_only=True).values()
        taken = {end, *(name for node in nodes for name in self._values_of(node))}
        return [name for name in self.inputs if name in taken.difference(without)]

    def external_files(self) -> list[Path]:
        """Files beside this one that hold weights of it, relative to its folder."""
        tensors = [*self.model.graph.initializer]
        for node in self.nodes:
            tensors += [each.t for each in node.attribute if each.HasField("t")]
        places = (
            entry.value
            for tensor in tensors
            if tensor.data_location == onnx.TensorProto.EXTERNAL
            for entry in tensor.external_data
            if entry.key == "location"
        )
        return [Path(place) for place in dict.fromkeys(places)]


def taken_by(node: Any) -> list[str]:  # noqa: ANN401
    """Tensors that a node takes, those that its subgraphs take from outside among them."""
    names = list(node.input)
    for attribute in node.attribute:
        for graph in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
            names += _captured(graph)
    return names


def _captured(graph: Any) -> list[str]:  # noqa: ANN401
    """Tensors of an outer graph that a subgraph takes."""
    own = {each.name for each in graph.input} | {each.name for each in graph.initializer}
    taken: list[str] = []
    for node in graph.node:
        taken += [name for name in taken_by(node) if name and name not in own]
        own |= set(node.output)
    return taken + [each.name for each in graph.output if each.name not in own]


def attribute(node: Any, name: str, default: Any = None) -> Any:  # noqa: ANN401
    """An attribute of a node, texts as `str`, or a default."""
    for each in node.attribute:
        if each.name == name:
            value = onnx.helper.get_attribute_value(each)
            if isinstance(value, bytes):
                return value.decode()
            if isinstance(value, list) and value and isinstance(value[0], bytes):
                return [entry.decode() for entry in value]
            return value
    return default


def named(node: Any) -> str:  # noqa: ANN401
    """A node for people: its operator, and its name or what it gives."""
    return f"{node.op_type} '{node.name or node.output[0]}'"


def before_packing(graph: FileGraph, output: str) -> str:
    """An output before it was put into another form: made integers and numbers again, which
    cuts off what is larger than its calibration saw, or mapped to names of classes, which
    runtimes give in the order of the names.

    Args:
        graph: The file.
        output: The output.
    """
    maker = graph.producers.get(output)
    if maker is not None and maker.op_type == "ZipMap":
        output = maker.input[0]
    name, shown = output, output
    while (maker := graph.producers.get(name)) is not None and maker.op_type in _SAME_VALUES:
        name = maker.input[0]
        if maker.op_type == "QuantizeLinear":
            shown = name
    return shown
