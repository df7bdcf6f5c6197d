"""What an output is of the logits, by numbers: what stands between is run on drawn ones."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from laplacebridge.errors import HeadNotFoundError, LaplaceBridgeError
from laplacebridge.onnx import tail
from laplacebridge.onnx.bounds import bounds_logits
from laplacebridge.onnx.following import Step
from laplacebridge.onnx.linear import Linear
from laplacebridge.onnx.model import FileGraph, before_packing, named
from laplacebridge.onnx.parts import Part
from laplacebridge.onnx.refusals import WITHOUT_IT, why_unrelated
from laplacebridge.onnx.running import Runner
from laplacebridge.onnx.tail import Pair, Relation, rows_along
from laplacebridge.onnx.verifying import is_near_only, tolerance

_PROBE_SIZES = (1.0, 4.0)  # of synthetic logits, beside those of the user's batch
_FAR, _FAR_OF_HALVES = 1e4, 1e3  # as large as no bound in a graph that is meant to act


def relation_to(
    graph: FileGraph,
    feed: Mapping[str, np.ndarray],
    output: str,
    linear: Linear,
    step: Step,
    axis: int,
    values: Mapping[str, Any],
) -> Relation:
    """What the output is of the logits.

    Args:
        graph: The file.
        feed: Every input.
        output: The output.
        linear: The layer.
        step: The tensor of its logits.
        axis: Where classes lie in that.
        values: Tensors by name.

    Raises:
        HeadNotFoundError: If it is nothing that is known.
    """
    classes, logits = len(step.weight(linear)), values[step.tensor]
    room = tolerance(linear, [step], logits)
    rows = rows_along(logits, classes, axis)
    assert rows is not None  # noqa: S101
    end = output if step.tensor == output else before_packing(graph, output)
    real = Pair(rows.astype(np.float64), values[end])
    far: list[Pair] = []
    probe = None
    if step.tensor == end:
        pairs, nodes = [real], []
    else:
        part = Part(graph, [step.tensor], [end])
        nodes = part.nodes
        beside = Runner(graph, names=part.needed).run(feed, part.needed) if part.needed else {}
        probe = _Probe(part, step.tensor, end, logits, classes, axis, beside)
        pairs = [*probe.pairs(), real]
        if not is_near_only(linear, [step]):
            far = probe.far_pairs()
    relation = judged(graph, output, named(linear.node), pairs, nodes, room, far)
    if relation.kind == tail.LABEL and probe is not None and tail.renames(nodes):
        return replace(relation, labels=probe.labels())
    return relation


def judged(
    graph: FileGraph,
    output: str,
    name: str,
    pairs: Sequence[Pair],
    nodes: Sequence[Any],
    room: float,
    far: Sequence[Pair] = (),
) -> Relation:
    """What an output is of the logits, by pairs of both.

    Args:
        graph: The file.
        output: The output.
        name: The linear layer, for messages.
        pairs: Logits and outputs, the last of the user's own feed.
        nodes: What stands between.
        room: What counts as rounding.
        far: Pairs of logits that are larger than any real ones.

    Raises:
        HeadNotFoundError: If it is nothing that is known, or what is known only by chance.
    """
    relation = tail.relation_of(pairs, room)
    begin = f"Output '{output}' of {graph.path} cannot be covered:"
    if relation is None:
        raise HeadNotFoundError(f"{begin} {why_unrelated(graph, name, pairs, nodes, room)}")
    bound = bounds_logits(graph, nodes, relation.kind)
    if bound is not None:
        raise HeadNotFoundError(
            f"{begin} {named(bound)} bounds what the last linear layer, {name}, gives before it"
            f" becomes probabilities. {WITHOUT_IT}"
        )
    if not tail.holds_far_away(relation, far, room):
        listed = ", ".join(node.op_type for node in nodes)
        raise HeadNotFoundError(
            f"{begin} {listed} behind the last linear layer, {name}, make something else of large"
            f" logits than of small ones. {WITHOUT_IT}"
        )
    if relation.kind == tail.LOGITS and tail.are_probabilities(pairs[-1].logits):
        raise HeadNotFoundError(
            f"{begin} the last linear layer, {name}, gives probabilities already, rows that sum to"
            " one; what is needed is a linear layer that gives logits, before the softmax."
        )
    if relation.scale < 0 and tail.are_negative_logarithms(pairs[-1]):
        raise HeadNotFoundError(
            f"{begin} it is the negative logarithm of probabilities, where the least is the most"
            " probable. Export the model with the logits or probabilities as its output."
        )
    return relation


class _Probe:
    """What follows the logits, run on drawn ones.

    Args:
        part: The nodes.
        tensor: The logits.
        output: What is made of them.
        logits: Real ones.
        classes: Numbers in a row of them.
        axis: Where these lie.
        beside: What else the nodes need.
    """

    def __init__(
        self,
        part: Part,
        tensor: str,
        output: str,
        logits: np.ndarray,
        classes: int,
        axis: int,
        beside: Mapping[str, np.ndarray],
    ) -> None:
        self._part, self._tensor, self._output, self._beside = part, tensor, output, beside
        self._logits, self._classes, self._axis = logits, classes, axis
        self._generator = np.random.default_rng(0)

    def pairs(self) -> list[Pair]:
        """Moderate logits, large ones, and as large as real ones. None if the nodes do not
        run by themselves.
        """
        largest = float(np.abs(self._logits).max()) if self._logits.size else 1.0
        sizes = (*_PROBE_SIZES, min(largest, 50.0))
        found = [self._pair(self._drawn(size)) for size in sizes]
        return [pair for pair in found if pair is not None] if None not in found else []

    def far_pairs(self) -> list[Pair]:
        """Logits far above zero and far below, as long as what is made of them is finite."""
        size = _FAR_OF_HALVES if self._logits.dtype == np.float16 else _FAR
        drawn = self._drawn(size)
        found = [self._pair((drawn + shift).astype(drawn.dtype)) for shift in (0.0, -4 * size)]
        return [pair for pair in found if pair is not None and tail.is_finite(pair)]

    def labels(self) -> tuple[Any, ...]:
        """What labels call each class; empty if by their places."""
        number, count = max(2, self._classes), self._logits.size // self._classes
        names: list[Any] = []
        while len(names) < number:
            best = (len(names) + np.arange(count)) % number
            rows = 2.0 * best[:, None] - 1 if self._classes == 1 else np.eye(number)[best]
            pair = self._pair(self._as_logits(rows))
            array = None if pair is None else tail.as_array(pair.output)
            if array is None:
                return ()
            names += array.reshape(-1).tolist()
        return () if names[:number] == list(range(number)) else tuple(names[:number])

    def _as_logits(self, rows: np.ndarray) -> np.ndarray:
        """Rows of classes as they lie in the tensor of logits."""
        shape = self._logits.shape
        if self._axis in {-1, len(shape) - 1} or self._classes == 1:
            made = rows.reshape(shape)
        else:
            others = [size for axis, size in enumerate(shape) if axis != self._axis % len(shape)]
            made = np.moveaxis(rows.reshape(*others, self._classes), -1, self._axis)
        return made.astype(self._logits.dtype)

    def _drawn(self, size: float) -> np.ndarray:
        drawn = size * self._generator.uniform(-1.7, 1.7, self._logits.shape)
        return drawn.astype(self._logits.dtype)

    def _pair(self, drawn: np.ndarray) -> Pair | None:
        rows = rows_along(drawn, self._classes, self._axis)
        assert rows is not None  # noqa: S101
        try:
            given = self._part.run({self._tensor: drawn}, self._beside)
        except LaplaceBridgeError:
            return None
        return Pair(rows.astype(np.float64), given[self._output])
