"""Running an ONNX model, or a part of it, with ONNX Runtime: tensors from inside, models
of a fixed batch size.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from laplacebridge.errors import InputError, LaplaceBridgeError, ShapeError
from laplacebridge.onnx.feeds import dimensions, num_examples, some_examples
from laplacebridge.onnx.model import FileGraph, taken_by
from laplacebridge.onnx.placing import Place, place_of

Feed = Mapping[str, np.ndarray]
_EXTERNAL_FOLDER = "session.model_external_initializers_file_folder_path"
_SILENT = 4  # what goes wrong is raised, in words of ours


class Session:
    """A model ready to run.

    Args:
        model: The model.
        graph: The file that it comes from, whose folder may hold its weights.
        threads: Of ONNX Runtime; 0 for its own choice.

    Raises:
        LaplaceBridgeError: If ONNX Runtime is not there, or cannot run the model.
    """

    def __init__(self, model: Any, graph: FileGraph, threads: int = 0) -> None:  # noqa: ANN401
        try:
            import onnxruntime
        except ModuleNotFoundError as error:
            raise LaplaceBridgeError(
                "Running an ONNX model needs onnxruntime, which is not installed. Install it with"
                " `pip install 'laplacebridge[onnx]'`."
            ) from error
        options = onnxruntime.SessionOptions()
        options.log_severity_level = _SILENT
        options.intra_op_num_threads = threads
        options.add_session_config_entry(_EXTERNAL_FOLDER, str(graph.path.resolve().parent))
        try:
            self._session = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # its own exceptions have no common base
            raise LaplaceBridgeError(
                f"ONNX Runtime cannot load {graph.path}: {_said(error)}"
            ) from error
        self._path = graph.path

    def run(self, feed: Feed, names: Sequence[str]) -> dict[str, Any]:
        """Some outputs, by name.

        Args:
            feed: Every input.
            names: The outputs.

        Raises:
            InputError: If the model cannot run on these inputs.
        """
        try:
            values = self._session.run(list(names), dict(feed))
        except Exception as error:
            shapes = ", ".join(
                f"'{name}' {array.dtype} {array.shape}" for name, array in feed.items()
            )
            raise InputError(
                f"ONNX Runtime cannot run {self._path} on {shapes}: {_said(error)}"
            ) from error
        return dict(zip(names, values))


class Runner:
    """A file's model with tensors from inside as outputs.

    Args:
        graph: The file.
        extend: Nodes, initializers and outputs to add to a copy of its graph.
        names: Tensors of the graph to make outputs of.
        threads: Of ONNX Runtime; 0 for its own choice.
        sample: A feed of examples that differ, by which a model of a fixed batch size
            tells where they lie; by default what is fed first.
    """

    def __init__(
        self,
        graph: FileGraph,
        *,
        names: Iterable[str] = (),
        extend: "Extension | None" = None,
        threads: int = 0,
        sample: Feed | None = None,
    ) -> None:
        self.graph = graph
        model = onnx.ModelProto()
        model.CopyFrom(graph.model)
        if extend is not None:
            extend.append_to(model)
        given = {each.name for each in model.graph.output}
        for name in dict.fromkeys(names):
            if name not in given:
                model.graph.output.append(onnx.ValueInfoProto(name=name))
        self._session = Session(model, graph, threads)
        self.fixed_rows = _fixed_rows(graph)
        self._sample = sample
        self._places: dict[str, Place | None] = {}

    def run(self, feed: Feed, names: Sequence[str]) -> dict[str, Any]:
        """Tensors by name, as many examples as are fed.

        A model of a fixed batch size is run as often as needed, its last batch filled up
        with copies of the last example.

        Args:
            feed: Every input.
            names: The tensors.

        Raises:
            ShapeError: If inputs disagree about the number of examples.
            InputError: If it cannot be told which part of a tensor is of which example.
        """
        fixed = self.fixed_rows
        lengths = {len(array) for array in feed.values() if array.ndim}
        if fixed is None or lengths == {fixed} or not lengths:
            return self._session.run(feed, names)
        if len(lengths) > 1:
            shapes = {name: array.shape for name, array in feed.items()}
            raise ShapeError(f"Inputs need the same number of examples; got shapes {shapes}.")
        total = lengths.pop()
        unknown = [name for name in names if name not in self._places]
        if unknown:
            self._places |= self.places(self._sample or feed, unknown)
        parts = [
            self._session.run(
                some_examples(self.graph, feed, np.minimum(np.arange(fixed) + start, total - 1)),
                names,
            )
            for start in range(0, total, fixed)
        ]
        return {name: self._joined(name, [part[name] for part in parts], total) for name in names}

    def places(self, feed: Feed, names: Sequence[str]) -> dict[str, Place | None]:
        """Where examples lie in tensors, by name; None where that cannot be told.

        Args:
            feed: Every input, of examples that differ.
            names: The tensors.

        Raises:
            InputError: If the model cannot run on these examples in another order.
        """
        given = num_examples(self.graph, feed)
        count = self.fixed_rows or max(2, given)
        order = np.arange(count) % given
        forward, backward = (
            self._session.run(some_examples(self.graph, feed, each), names)
            for each in (order, order[::-1])
        )
        return {name: place_of(forward[name], backward[name], count) for name in names}

    def _joined(self, name: str, parts: list[Any], total: int) -> Any:  # noqa: ANN401
        """A tensor of all examples, from batches of the size that the model has.

        Raises:
            InputError: If it cannot be told which part of it is of which example.
        """
        place, fixed = self._places[name], self.fixed_rows
        assert fixed is not None  # noqa: S101
        if place is None and all(np.array_equal(part, parts[0]) for part in parts):
            return parts[0]  # it does not depend on examples
        if place is None:
            raise InputError(
                f"{self.graph.path} takes {fixed} examples at a time, and got {total}; it cannot be"
                f" told which part of '{name}' is of which example, as where a model mixes them."
                f" Give batches of {fixed} examples, or export the model with an open batch size."
            )
        if isinstance(parts[0], list):
            return [entry for part in parts for entry in part][:total]
        return place.joined(parts, fixed, total)


class Extension:
    """Nodes, stored tensors and outputs to be added to a graph."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.outputs: list[Any] = []

    def append_to(self, model: Any) -> None:  # noqa: ANN401
        """Adds them behind what a model has.

        Args:
            model: The model, which is changed.
        """
        graph = model.graph
        graph.node.extend(self.nodes)
        graph.initializer.extend(self.initializers)
        graph.output.extend(self.outputs)


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


def _fixed_rows(graph: FileGraph) -> int | None:
    """The batch size that a model was written for, if every input has the same one."""
    first = set()
    for each in graph.inputs.values():
        sizes = dimensions(each)
        first.add(sizes[0] if sizes else None)
    return first.pop() if len(first) == 1 else None


def _without_shape(value: Any) -> Any:  # noqa: ANN401
    """An output whose type is kept, whatever its shape."""
    copy = onnx.ValueInfoProto()
    copy.CopyFrom(value)
    if copy.type.HasField("tensor_type"):
        copy.type.tensor_type.ClearField("shape")
    return copy


def _said(error: Exception) -> str:
    """The first line of an error, and what to do about types that a processor lacks."""
    line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if not any(word in line for word in ("NOT_IMPLEMENTED", "Numpy", "Tensor Type")):
        return line
    return (
        f"{line.rstrip('.')}. It does not have every operator in every type, bfloat16 least of"
        " all: export the model in float32."
    )
