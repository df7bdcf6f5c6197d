"""Running an ONNX model, or a part of it, with ONNX Runtime: tensors from inside, models
of a fixed batch size.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from laplacebridge.errors import InputError, LaplaceBridgeError, ShapeError
from laplacebridge.onnx.feeds import dimensions, num_examples, some_examples
from laplacebridge.onnx.model import FileGraph
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


def _fixed_rows(graph: FileGraph) -> int | None:
    """The batch size that a model was written for, if every input has the same one."""
    first = set()
    for each in graph.inputs.values():
        sizes = dimensions(each)
        first.add(sizes[0] if sizes else None)
    return first.pop() if len(first) == 1 else None


def _said(error: Exception) -> str:
    """The first line of an error, and what to do about types that a processor lacks."""
    line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if not any(word in line for word in ("NOT_IMPLEMENTED", "Numpy", "Tensor Type")):
        return line
    return (
        f"{line.rstrip('.')}. It does not have every operator in every type, bfloat16 least of"
        " all: export the model in float32."
    )
