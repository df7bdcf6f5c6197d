"""Nodes of an ONNX graph, written as formulas.

A `Value` is the name of a tensor in a graph that is being written; arithmetic on it
appends nodes. So a formula reads as it does in torch. Only operators of opset 11 are
used, in the form that the graph's own opset has for them.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

# From these opsets on, reductions, squeezes and splits take their axes as an input.
_SUM_AXES_AS_INPUT, _AXES_AS_INPUT = 13, 18
# Arrays with fewer numbers than this are stored as they are, whatever was asked.
_FEW_NUMBERS = 64

Operand: TypeAlias = "Value | float | np.ndarray"


class Graph:
    """Nodes and arrays to be appended to a graph.

    Args:
        opset: Of the graph.
        prefix: Of all names, so that none collides with names of the graph.
        float16: Whether arrays are stored in half precision.
        num_classes: K, if rows are so long that it is their arithmetic that takes the
            time, and not the number of nodes.
    """

    def __init__(
        self,
        opset: int,
        prefix: str = "lb_",
        *,
        float16: bool = False,
        num_classes: int | None = None,
    ) -> None:
        self.opset = opset
        self.prefix = prefix
        self.float16 = float16
        self.num_classes = num_classes
        self.nodes: list[Any] = []
        self.arrays: list[Any] = []
        self._constants: dict[tuple[Any, ...], str] = {}
        self._known: dict[tuple[Any, ...], list[str]] = {}
        self._stored: set[str] = set()
        self._count = 0

    def value(self, name: str, dtype: type[np.generic] = np.float32) -> "Value":
        """A tensor that is in the graph already.

        Args:
            name: Its name.
            dtype: Its type.
        """
        return Value(self, name, np.dtype(dtype))

    def constant(self, values: Any, dtype: Any = np.float32) -> "Value":  # noqa: ANN401
        """Numbers of a formula, stored once however often they are used.

        Args:
            values: The numbers.
            dtype: Their type in the graph.
        """
        array = np.asarray(values, dtype=dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self._store(array, f"constant_{len(self._constants)}")
        return Value(self, self._constants[key], array.dtype)

    def array(self, values: np.ndarray, name: str, *, exact: bool = False) -> "Value":
        """An array of the classifier, in float32 or, if that was asked for, in half
        precision.

        Args:
            values: The numbers.
            name: What they are; asked for again, it is the same array.
            exact: Whether half precision is never enough, as for eigenvalues, which span
                many orders of magnitude.
        """
        array = np.ascontiguousarray(values, dtype=np.float32)
        if not self.float16 or exact or array.size < _FEW_NUMBERS:
            return Value(self, self._store(array, name), array.dtype)
        # in units of the largest: half precision ends at 65,504, and below 6e-5 it has few digits
        unit = float(np.abs(array).max()) or 1.0
        half = Value(self, self._store((array / unit).astype(np.float16), name), np.dtype("f2"))
        return half.cast(np.float32) * unit

    def call(
        self,
        operator: str,
        *inputs: "Value",
        gives: int = 1,
        **attributes: Any,  # noqa: ANN401
    ) -> list[str]:
        """Appends a node, unless the same one is there; names of what it gives.

        Args:
            operator: Name of the operator.
            inputs: What it takes.
            gives: How many tensors it gives.
            attributes: Of the operator.
        """
        from onnx import helper

        given = [value.name for value in inputs]
        key = (operator, *given, gives, repr(sorted(attributes.items())))
        if key not in self._known:
            names = [self._name(operator) for _ in range(gives)]
            node = helper.make_node(operator, given, names, name=names[0], **attributes)
            self.nodes.append(node)
            self._known[key] = names
        return self._known[key]

    def reduce(self, operator: str, value: "Value", axis: int, *, keepdims: bool = True) -> "Value":
        """A reduction along one axis.

        Args:
            operator: Such as ``ReduceSum``.
            value: What is reduced.
            axis: Along which.
            keepdims: Whether the axis stays, with one entry.
        """
        since = _SUM_AXES_AS_INPUT if operator == "ReduceSum" else _AXES_AS_INPUT
        kept = int(keepdims)
        if self.opset >= since:
            axes = self.constant([axis], np.int64)
            return value.like(self.call(operator, value, axes, keepdims=kept)[0])
        return value.like(self.call(operator, value, axes=[axis], keepdims=kept)[0])

    def choose(
        self, condition: "Value", then: "Callable[[], Value]", otherwise: "Callable[[], Value]"
    ) -> "Value":
        """One of two values, of which only that one is computed when the graph is run.

        Args:
            condition: A single truth value.
            then: Writes the value for a true condition; what it writes cannot be used
                outside.
            otherwise: The same for a false one.
        """
        from onnx import helper

        branches = {}
        nodes, known = self.nodes, self._known
        for branch, write in (("then_branch", then), ("else_branch", otherwise)):
            self.nodes, self._known = [], dict(known)
            value = write()
            given = value.like(self._name(branch), value.dtype)
            self.nodes.append(helper.make_node("Identity", [value.name], [given.name]))
            kept, _ = self.needed([given.name])
            kind = helper.np_dtype_to_tensor_dtype(value.dtype)
            declared = helper.make_tensor_value_info(given.name, kind, None)
            branches[branch] = helper.make_graph(kept, given.name, [], [declared])
        self.nodes, self._known = nodes, known
        name = self._name("If")
        self.nodes.append(helper.make_node("If", [condition.name], [name], name=name, **branches))
        return value.like(name)

    def rename(self, value: "Value", name: str) -> None:
        """Gives a value a name of its own, without the prefix.

        Args:
            value: The value.
            name: Its name.
        """
        from onnx import helper

        last = self.nodes[-1]
        if list(last.output) == [value.name] and value.name.startswith(self.prefix):
            last.output[0] = name  # nothing has read it yet
            self._known = {
                key: given for key, given in self._known.items() if given != [value.name]
            }
        else:
            self.nodes.append(helper.make_node("Identity", [value.name], [name]))

    def needed(self, outputs: "Sequence[str]") -> tuple[list[Any], list[Any]]:
        """Nodes and arrays without those that no output needs.

        Args:
            outputs: Names of the outputs.
        """
        wanted, nodes = set(outputs), []
        for node in reversed(self.nodes):
            if wanted.intersection(node.output):
                wanted.update(_read_by(node))
                nodes.append(node)
        return nodes[::-1], [array for array in self.arrays if array.name in wanted]

    def _name(self, word: str) -> str:
        self._count += 1
        return f"{self.prefix}{word}_{self._count}"

    def _store(self, array: np.ndarray, name: str) -> str:
        from onnx import numpy_helper

        full = f"{self.prefix}{name}"
        if full not in self._stored:
            self._stored.add(full)
            self.arrays.append(numpy_helper.from_array(array, full))
        return full


class Value:
    """A tensor in a graph that is being written.

    Args:
        graph: The graph.
        name: Its name there.
        dtype: Its type.
    """

    def __init__(self, graph: Graph, name: str, dtype: np.dtype[Any]) -> None:
        self.graph = graph
        self.name = name
        self.dtype = dtype

    def like(self, name: str, dtype: Any = None) -> "Value":  # noqa: ANN401
        """Another tensor, of the same type if none is given.

        Args:
            name: Its name.
            dtype: Its type.
        """
        return Value(self.graph, name, self.dtype if dtype is None else np.dtype(dtype))

    def apply(
        self,
        operator: str,
        *others: Operand,
        dtype: Any = None,  # noqa: ANN401
        **attributes: Any,  # noqa: ANN401
    ) -> "Value":
        """What an operator makes of this tensor and others.

        Args:
            operator: Its name.
            others: Further inputs; numbers become constants of this type.
            dtype: Type of the result, if it is another.
            attributes: Of the operator.
        """
        inputs = [self, *(self._value(other) for other in others)]
        return self.like(self.graph.call(operator, *inputs, **attributes)[0], dtype)

    def _value(self, other: Operand) -> "Value":
        return other if isinstance(other, Value) else self.graph.constant(other, self.dtype)

    def __add__(self, other: Operand) -> "Value":
        return self.apply("Add", other)

    def __radd__(self, other: Operand) -> "Value":
        return self._value(other) + self

    def __sub__(self, other: Operand) -> "Value":
        return self.apply("Sub", other)

    def __rsub__(self, other: Operand) -> "Value":
        return self._value(other) - self

    def __mul__(self, other: Operand) -> "Value":
        return self.apply("Mul", other)

    def __rmul__(self, other: Operand) -> "Value":
        return self.apply("Mul", other)

    def __truediv__(self, other: Operand) -> "Value":
        return self.apply("Div", other)

    def __rtruediv__(self, other: Operand) -> "Value":
        return self._value(other) / self

    def __neg__(self) -> "Value":
        return self.apply("Neg")

    def __matmul__(self, other: Operand) -> "Value":
        return self.apply("MatMul", other)

    def __lt__(self, other: "Value | float") -> "Value":
        return self.apply("Less", other, dtype=bool)

    def __gt__(self, other: "Value | float") -> "Value":
        return self.apply("Greater", other, dtype=bool)

    def __and__(self, other: "Value") -> "Value":
        return self.apply("And", other)

    def __or__(self, other: "Value") -> "Value":
        return self.apply("Or", other)

    def __invert__(self) -> "Value":
        return self.apply("Not")

    def exp(self) -> "Value":
        """eˣ."""
        return self.apply("Exp")

    def log(self) -> "Value":
        """log x."""
        return self.apply("Log")

    def sqrt(self) -> "Value":
        """√x."""
        return self.apply("Sqrt")

    def abs(self) -> "Value":
        """|x|."""
        return self.apply("Abs")

    def reciprocal(self) -> "Value":
        """1/x."""
        return self.apply("Reciprocal")

    def square(self) -> "Value":
        """x²."""
        return self * self

    def at_least(self, other: Operand) -> "Value":
        """The larger of both."""
        return self.apply("Max", other)

    def at_most(self, other: Operand) -> "Value":
        """The smaller of both."""
        return self.apply("Min", other)

    def between(self, low: float, high: float) -> "Value":
        """The nearest number from `low` to `high`."""
        if self.dtype == np.float32:
            return self.apply("Clip", low, high)
        return self.at_least(low).at_most(high)

    def equals(self, other: Operand) -> "Value":
        """Where both are the same."""
        return self.apply("Equal", other, dtype=bool)

    def where(self, chosen: "Value", other: Operand) -> "Value":
        """`chosen` where this is true, `other` elsewhere."""
        second = other if isinstance(other, Value) else self.graph.constant(other, chosen.dtype)
        return chosen.like(self.graph.call("Where", self, chosen, second)[0])

    def cast(self, dtype: Any) -> "Value":  # noqa: ANN401
        """The same numbers in another type."""
        from onnx import helper

        kind = np.dtype(dtype)
        return self.apply("Cast", dtype=kind, to=helper.np_dtype_to_tensor_dtype(kind))

    def sum(self, axis: int = -1, *, keepdims: bool = True) -> "Value":
        """Sum along an axis."""
        return self.graph.reduce("ReduceSum", self, axis, keepdims=keepdims)

    def mixed(self, shares: Sequence[float]) -> "Value":
        """Σ_j of shares times the parts along the first of three axes, which is left out."""
        graph = self.graph
        if graph.num_classes is None:
            parts = self if set(shares) == {1.0} else self * np.array(shares)[:, None, None]
            return parts.sum(0, keepdims=False)
        # a reduction along the first axis takes ten times as long as this product
        product = graph.constant([shares]) @ self.reshaped(len(shares), -1)
        left = self.apply("Shape", dtype=np.int64).slice(1, 3, 0)
        return product.apply("Reshape", left)

    def mean(self, axis: int = -1) -> "Value":
        """Mean along an axis."""
        return self.graph.reduce("ReduceMean", self, axis)

    def max(self, axis: int = -1, *, keepdims: bool = True) -> "Value":
        """Largest along an axis."""
        return self.graph.reduce("ReduceMax", self, axis, keepdims=keepdims)

    def min(self, axis: int = -1) -> "Value":
        """Smallest along an axis."""
        return self.graph.reduce("ReduceMin", self, axis)

    def log_sum_exp(self) -> "Value":
        """log Σ exp of each row, shape (B, 1)."""
        return self.graph.reduce("ReduceLogSumExp", self, -1)

    def argmax(self) -> "Value":
        """Which entry of each row is the largest, shape (B, 1)."""
        return self.apply("ArgMax", dtype=np.int64, axis=-1, keepdims=1)

    def at(self, index: "Value", axis: int = -1) -> "Value":
        """Entries by their places along an axis, as `torch.gather`."""
        return self.apply("GatherElements", index, axis=axis)

    def with_at(self, index: "Value", entries: "Value") -> "Value":
        """With other entries at some places of each row, as `torch.scatter`."""
        return self.apply("ScatterElements", index, entries, axis=-1)

    def rows_at(self, index: "Value") -> "Value":
        """Whole rows, by their numbers (B, 1): shape (B, …)."""
        return self.apply("Gather", index.squeezed(-1), axis=0)

    def times_transposed(self, other: "Value") -> "Value":
        """self · otherᵀ, for two matrices."""
        return self.apply("Gemm", other, transB=1)

    def squeezed(self, axis: int) -> "Value":
        """Without an axis that has one entry."""
        return self._axes("Squeeze", axis)

    def unsqueezed(self, axis: int) -> "Value":
        """With another axis, of one entry."""
        return self._axes("Unsqueeze", axis)

    def _axes(self, operator: str, axis: int) -> "Value":
        if self.graph.opset >= _SUM_AXES_AS_INPUT:
            return self.apply(operator, self.graph.constant([axis], np.int64))
        return self.apply(operator, axes=[axis])

    def reshaped(self, *shape: int) -> "Value":
        """In another shape; −1 stands for what is left, 0 for what it was."""
        return self.apply("Reshape", self.graph.constant(list(shape), np.int64))

    def transposed(self, *axes: int) -> "Value":
        """With its axes in another order."""
        return self.apply("Transpose", perm=list(axes))

    def slice(self, start: int, end: int, axis: int) -> "Value":
        """Some entries along an axis."""
        ends = (self.graph.constant([number], np.int64) for number in (start, end, axis))
        return self.apply("Slice", *ends)

    def parts(self, number: int, axis: int) -> "list[Value]":
        """Equal parts along an axis."""
        counted = {"num_outputs": number} if self.graph.opset >= _AXES_AS_INPUT else {}
        names = self.graph.call("Split", self, gives=number, axis=axis, **counted)
        return [self.like(name) for name in names]


def _read_by(node: Any) -> "Iterator[str]":  # noqa: ANN401
    """Names that a node reads, in its branches too."""
    yield from node.input
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from _read_by(inner)


def joined(values: "Sequence[Value]", axis: int) -> "Value":
    """Tensors one after another along an axis.

    Args:
        values: The tensors.
        axis: Along which.
    """
    first = values[0]
    return first.like(first.graph.call("Concat", *values, axis=axis)[0])
