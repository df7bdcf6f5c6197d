"""Whether a linear layer is a head, by numbers: its features times its weights are the
logits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from laplacebridge.errors import HeadNotFoundError, LaplaceBridgeError
from laplacebridge.onnx.following import Step, replayed
from laplacebridge.onnx.linear import SECOND, Linear
from laplacebridge.onnx.model import FileGraph, before_packing, named
from laplacebridge.onnx.parts import Part, constant_value
from laplacebridge.onnx.running import Extension, Runner
from laplacebridge.onnx.tail import rows_along

# Largest differences that count as rounding: of probabilities, and of logits relative to
# their range.
FLOAT, _HALF, _INTEGERS = 1e-3, 2e-2, 1e-1
_ROWS_AT_ONCE = 512


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
    ends = (output, before_packing(graph, output))
    names = list(dict.fromkeys([*by_name, *(step.tensor for step in steps), *ends]))
    try:
        return Runner(graph, names=names, extend=both).run(feed, names)
    except LaplaceBridgeError:
        runnable = [step for step in steps if not step.replay or _runs(graph, feed, linear, step)]
        if len(runnable) == len(steps):
            raise
        # what chooses classes cannot always choose among features
        return values_of(graph, feed, linear, runnable, output)


def _runs(graph: FileGraph, feed: Mapping[str, np.ndarray], linear: Linear, step: Step) -> bool:
    """Whether the nodes of a step can be run on features."""
    extension, name = chosen(linear, step)
    try:
        Runner(graph, names=[name], extend=extension).run(feed, [name])
    except LaplaceBridgeError:
        return False
    return True


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
    room = tolerance(linear, steps, values[linear.features])
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
                difference = _difference(found, expected, is_near_only(linear, steps))
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


def tolerance(linear: Linear, steps: Sequence[Step], features: np.ndarray) -> float:
    """Which differences are rounding.

    Args:
        linear: The layer.
        steps: What follows it.
        features: A tensor, whose type tells.
    """
    if is_near_only(linear, steps):
        return _INTEGERS
    return _HALF if features.dtype == np.float16 else FLOAT


def is_near_only(linear: Linear, steps: Sequence[Step]) -> bool:
    """Whether integers are somewhere, so that numbers are no more than near.

    Args:
        linear: The layer.
        steps: What follows it.
    """
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
    if is_near_only(linear, steps):
        return "8-bit"
    types = [each.dtype for each in (features, logits) if each.dtype.kind == "f"]
    return str(min(types, key=lambda dtype: dtype.itemsize))
