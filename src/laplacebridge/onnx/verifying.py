"""Whether a linear layer is a head, by numbers: its features times its weights are the
logits, and what follows makes probabilities of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from laplacebridge.errors import HeadNotFoundError, LaplaceBridgeError
from laplacebridge.onnx import tail
from laplacebridge.onnx.following import Step, replayed
from laplacebridge.onnx.linear import SECOND, Linear
from laplacebridge.onnx.model import FileGraph, named
from laplacebridge.onnx.refusals import WITHOUT_IT, why_unrelated
from laplacebridge.onnx.running import Extension, Part, Runner, constant_value
from laplacebridge.onnx.tail import Pair, Relation, rows_along

# Largest differences that count as rounding: of probabilities, and of logits relative to
# their range.
FLOAT, _HALF, _INTEGERS = 1e-3, 2e-2, 1e-1
_PROBE_SIZES = (1.0, 4.0)  # of synthetic logits, beside those of the user's batch
_ROWS_AT_ONCE = 512
_FAR, _FAR_OF_HALVES = 1e4, 1e3  # as large as no bound in a graph that is meant to act
_SAME_VALUES = frozenset({
    "QuantizeLinear", "DequantizeLinear", "Identity", "Squeeze", "Unsqueeze", "Flatten", "Reshape",
})  # fmt: skip


def values_of(
    graph: FileGraph,
    feed: Mapping[str, np.ndarray],
    linear: Linear,
    steps: Sequence[Step],
    output: str,
) -> dict[str, Any]:
    """Features, those that each step has chosen of them, logits and the output.

    Args:
        graph: The file.
        feed: Every input.
        linear: The layer.
        steps: Tensors of logits.
        output: The output.

    Raises:
        LaplaceBridgeError: If the model cannot run on the feed.
    """
    by_name = {name: made for made, name in (chosen(linear, step) for step in steps)}
    both = Extension()
    for extension in by_name.values():
        both.nodes += extension.nodes
    ends = (output, before_rounding(graph, output))
    names = list(dict.fromkeys([*by_name, *(step.tensor for step in steps), *ends]))
    try:
        return Runner(graph, names=names, extend=both).run(feed, names)
    except LaplaceBridgeError:
        plain = [step for step in steps if not step.replay]
        if len(plain) == len(steps):
            raise
        # what chooses classes cannot always choose among features
        return values_of(graph, feed, linear, plain, output)


def chosen(linear: Linear, step: Step) -> tuple[Extension, str]:
    """Nodes that give the features of a step, and the name of what they give.

    Args:
        linear: The layer.
        step: A tensor of logits.
    """
    made = "_".join(node.output[0] for node in step.replay)
    return replayed(step, linear.features, f"lb_verify_{made}_")


def probed(
    graph: FileGraph, linear: Linear, feed: Mapping[str, np.ndarray], features: np.ndarray
) -> Linear:
    """A layer with weights that running it on unit vectors tells.

    Args:
        graph: The file.
        linear: The layer, without weights.
        feed: Every input.
        features: Its features on that feed.
    """
    assert linear.logits is not None  # noqa: S101
    part = Part(graph, [linear.features], [linear.logits])
    beside = Runner(graph, names=part.needed).run(feed, part.needed) if part.needed else {}
    is_last = linear.features_axis != SECOND
    size = features.shape[-1 if is_last else SECOND]
    ones = [1] * (features.ndim - 2)

    def logits_at(rows: np.ndarray) -> np.ndarray:
        shape = (*ones, size) if is_last else (size, *ones)
        shaped = rows.reshape(len(rows), *shape).astype(features.dtype)
        (given,) = part.run({linear.features: shaped}, beside).values()
        return given.reshape(len(rows), -1).astype(np.float64)

    at_zero = logits_at(np.zeros((2, size)))[0]
    blocks = [
        logits_at(np.eye(size)[start : start + _ROWS_AT_ONCE]) - at_zero
        for start in range(0, size, _ROWS_AT_ONCE)
    ]
    return replace(linear, weight=np.concatenate(blocks).T, bias=at_zero)


def verified(
    graph: FileGraph, linear: Linear, steps: Sequence[Step], values: Mapping[str, Any]
) -> tuple[Step, int, int, float]:
    """The last tensor that is the layer's logits by numbers, where its classes lie, where
    features do, and how near.

    Args:
        graph: The file.
        linear: The layer.
        steps: Tensors that may be its logits.
        values: All of them, and features.

    Raises:
        HeadNotFoundError: If none is.
    """
    assert linear.weight is not None  # noqa: S101
    size = linear.weight.shape[1]
    if not all(
        np.isfinite(each).all()
        for each in (linear.weight, *(part for step in steps for part in (step.scale, step.shift)))
    ):
        raise HeadNotFoundError(
            f"The weights or biases of {named(linear.node)} in {graph.path} are not all finite, as"
            " where -inf rules a class out. Leave such classes out of the layer, or give them a"
            " large negative bias, as -1e9."
        )
    room = _tolerance(linear, steps, values[linear.features])
    nearest = np.inf
    for step in reversed(steps):
        if step.tensor not in values or chosen(linear, step)[1] not in values:
            continue
        logits, weight = values[step.tensor], step.weight(linear)
        features = dequantised(graph, linear, values[chosen(linear, step)[1]])
        for features_axis in _axes(linear.features_axis, features.shape, size):
            rows = rows_along(features, size, features_axis)
            if rows is None or logits.dtype.kind != "f":
                continue
            expected = step.scale * (rows.astype(np.float64) @ weight.T) + step.shift
            for axis in _axes(linear.logits_axis, logits.shape, len(weight)):
                found = rows_along(logits, len(weight), axis)
                if found is None or found.shape != expected.shape:
                    continue
                difference = _difference(found, expected, _is_near_only(linear, steps))
                if difference <= room:
                    return step, axis, features_axis, difference
                nearest = min(nearest, difference)
    if linear.node.op_type == "Conv":
        raise HeadNotFoundError(
            f"The last layer of {graph.path} before output is {named(linear.node)}, a convolution"
            " over several pixels, which is no linear layer of one feature vector. Only"
            " convolutions over one pixel, or over all there are, can be covered."
        )
    if all(values[step.tensor].dtype.kind in "iu" for step in steps if step.tensor in values):
        raise HeadNotFoundError(
            f"The logits of {named(linear.node)} in {graph.path} are integers that never become"
            " numbers again. Quantise without the last activation, or in the format that has"
            " QuantizeLinear and DequantizeLinear between nodes (`QuantFormat.QDQ`)."
        )
    reason = (
        "a value that is not finite"
        if not np.isfinite(nearest)
        else f"off by {nearest:.1%} of their range"
    )
    raise HeadNotFoundError(
        f"The tensors of {named(linear.node)} in {graph.path} are not its features times its"
        f" weights on this feed: {reason}. Is the feed made of real, finite inputs?"
    )


def _axes(usual: int, shape: tuple[int, ...], size: int) -> list[int]:
    """Where numbers of a row may lie, the likeliest first: dimensions of just that size
    before several that are read as one, because numbers cannot tell (K, 1) from (1, K).
    """
    axes = dict.fromkeys([usual, -1, 1, -2])
    return sorted(axes, key=lambda axis: shape[axis : axis + 1 or None] != (size,))


def _difference(found: np.ndarray, expected: np.ndarray, is_near_only: bool) -> float:
    """The largest difference relative to the range; of 8 bits, which may be cut off at the
    ends of what they hold, the usual difference relative to the usual size.
    """
    apart = found.astype(np.float64) - expected
    if is_near_only:
        return float(np.sqrt((apart**2).mean()) / (np.sqrt((expected**2).mean()) or 1.0))
    return float(np.abs(apart).max()) / (float(np.abs(expected).max()) or 1.0)


def dequantised(graph: FileGraph, linear: Linear, features: np.ndarray) -> np.ndarray:
    """Features as numbers, where the graph has integers.

    Args:
        graph: The file.
        linear: The layer that takes them.
        features: The tensor.
    """
    if linear.dequantise is None:
        return features
    zero = constant_value(graph, linear.dequantise.zero_point).astype(np.float64)
    scale = constant_value(graph, linear.dequantise.scale).astype(np.float64)
    return (features.astype(np.float64) - zero) * scale


def _tolerance(linear: Linear, steps: Sequence[Step], features: np.ndarray) -> float:
    if _is_near_only(linear, steps):
        return _INTEGERS
    return _HALF if features.dtype == np.float16 else FLOAT


def _is_near_only(linear: Linear, steps: Sequence[Step]) -> bool:
    quantises = any(step.node is not None and "Quantize" in step.node.op_type for step in steps)
    return linear.is_quantised or quantises


def precision_of(
    linear: Linear, steps: Sequence[Step], features: np.ndarray, logits: np.ndarray
) -> str:
    """How exact logits are: "8-bit", or the coarser type of features and logits.

    Args:
        linear: The layer.
        steps: What follows it.
        features: Its features.
        logits: Its logits.
    """
    if _is_near_only(linear, steps):
        return "8-bit"
    return min(str(features.dtype), str(logits.dtype), key=lambda name: int(name[5:]))


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
    room = _tolerance(linear, [step], logits)
    rows = rows_along(logits, classes, axis)
    assert rows is not None  # noqa: S101
    end = output if step.tensor == output else before_rounding(graph, output)
    real = Pair(rows.astype(np.float64), values[end])
    far: list[Pair] = []
    if step.tensor == end:
        pairs, nodes = [real], []
    else:
        part = Part(graph, [step.tensor], [end])
        nodes = part.nodes
        beside = Runner(graph, names=part.needed).run(feed, part.needed) if part.needed else {}
        probe = _Probe(part, step.tensor, end, logits, classes, axis, beside)
        pairs = [*probe.pairs(), real]
        if not _is_near_only(linear, [step]):
            far = probe.far_pairs()
    return judged(graph, output, named(linear.node), pairs, nodes, room, far)


def before_rounding(graph: FileGraph, output: str) -> str:
    """An output before it was made integers and numbers again, which cuts off what is
    larger than its calibration saw.

    Args:
        graph: The file.
        output: The output.
    """
    name, shown = output, output
    while (maker := graph.producers.get(name)) is not None and maker.op_type in _SAME_VALUES:
        name = maker.input[0]
        if maker.op_type == "QuantizeLinear":
            shown = name
    return shown


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
    bound = tail.bounds_logits(graph, nodes, relation.kind)
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
