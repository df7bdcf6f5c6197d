"""Linear layers of an ONNX graph: matrix products with constant weights, in the forms in
which exporters write them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from laplacebridge.onnx.model import FileGraph, attribute
from laplacebridge.onnx.running import constant_value

LAST, SECOND, BEFORE_LAST = -1, 1, -2  # where classes or features are
CLASSIFIER = "LinearClassifier"
_FROM_INTEGERS = frozenset({"DequantizeLinear", "DequantizeBFP"})


@dataclass(frozen=True)
class Dequantise:
    """Scale and zero point of a tensor of integers, by the names of their tensors."""

    scale: str
    zero_point: str


@dataclass(frozen=True, eq=False)
class Linear:
    """A linear layer: logits = features · weight + bias.

    Attributes:
        node: The node that multiplies.
        features: The tensor that it takes.
        logits: The tensor that it gives; None if it keeps them to itself.
        weight: Shape (K, D); None if it can only be had by running the layer.
        bias: Shape (K,); of what the node adds itself.
        features_axis: Where in `features` the D features are; −1 also where all but the
            first dimension are features.
        logits_axis: Where in `logits` the K classes are.
        dequantise: How integers in `features` become numbers.
        is_quantised: Whether products are of integers, and so no more than near.
        class_labels: What the file calls its classes, if the layer says so.
        post_transform: What a `LinearClassifier` makes of the logits.
    """

    node: Any
    features: str
    logits: str | None
    weight: np.ndarray | None
    bias: np.ndarray | None = None
    features_axis: int = LAST
    logits_axis: int = LAST
    dequantise: Dequantise | None = None
    is_quantised: bool = False
    class_labels: tuple[Any, ...] = ()
    post_transform: str = ""


def linear_of(graph: FileGraph, node: Any) -> Linear | None:  # noqa: ANN401
    """A node as a linear layer with constant weights, or None.

    Args:
        graph: Its file.
        node: The node.
    """
    read = _READERS.get(node.op_type)
    found = None if read is None else read(graph, node)
    if found is None or graph.is_constant(found.features):
        return None
    return found


def is_product(node: Any) -> bool:  # noqa: ANN401
    """Whether a node is of a kind that can be a linear layer."""
    return node.op_type in _READERS


def _matmul(graph: FileGraph, node: Any) -> Linear | None:  # noqa: ANN401
    left, right = node.input[:2]
    alpha = attribute(node, "alpha", 1.0)
    turn_left, turn_right = (bool(attribute(node, name, 0)) for name in ("transA", "transB"))
    if attribute(node, "transBatchA", 0) or attribute(node, "transBatchB", 0):
        return None
    return _product(graph, node, (left, right), (turn_left, turn_right), alpha)


def _gemm(graph: FileGraph, node: Any) -> Linear | None:  # noqa: ANN401
    found = _matmul(graph, node)
    if found is None or len(node.input) < 3 or not node.input[2]:
        return found
    assert found.weight is not None  # noqa: S101
    if not graph.is_constant(node.input[2]):
        return None
    added = constant_value(graph, node.input[2]).astype(np.float64) * attribute(node, "beta", 1.0)
    bias = per_class(added, len(found.weight))
    return None if bias is None else replace(found, bias=bias)


def _product(
    graph: FileGraph,
    node: Any,  # noqa: ANN401
    names: tuple[str, str],
    turned: tuple[bool, bool],
    alpha: float,
) -> Linear | None:
    for side in (1, 0):
        if not graph.is_constant(names[side]):
            continue
        weight = _matrix(constant_value(graph, names[side]))
        if weight is None:
            return None
        weight = weight.T if turned[side] else weight
        features_turned = turned[1 - side]
        # runtimes multiply such weights, and such features, as integers
        makers = [graph.producers.get(names[0]), *graph.ancestors([names[side]]).values()]
        is_quantised = any(maker and maker.op_type in _FROM_INTEGERS for maker in makers)
        if side == 1:  # features · weight
            return Linear(
                node,
                names[0],
                node.output[0],
                alpha * weight.T,
                features_axis=BEFORE_LAST if features_turned else LAST,
                is_quantised=is_quantised,
            )
        return Linear(
            node,
            names[1],
            node.output[0],
            alpha * weight,
            features_axis=LAST if features_turned else BEFORE_LAST,
            logits_axis=BEFORE_LAST,
            is_quantised=is_quantised,
        )
    return None


def _matrix(value: np.ndarray) -> np.ndarray | None:
    """Weights as a matrix (D, K) in float64, if that is what they are."""
    if value.dtype.kind in "OSU":
        return None
    if value.ndim == 1:
        return value.astype(np.float64)[:, None]
    while value.ndim > 2 and value.shape[0] == 1:
        value = value[0]
    return value.astype(np.float64) if value.ndim == 2 else None


def _einsum(graph: FileGraph, node: Any) -> Linear | None:  # noqa: ANN401
    equation = attribute(node, "equation", "").replace(" ", "")
    left, arrow, given = equation.partition("->")
    letters = left.split(",")
    if len(node.input) != 2 or (not arrow and "." in left):
        return None
    if not arrow:  # the letters that stand once, in the order of the alphabet
        given = "".join(sorted(each for each in left if each != "," and left.count(each) == 1))
    for side in (1, 0):
        of_weight, of_features = letters[side], letters[1 - side]
        if not graph.is_constant(node.input[side]) or "." in of_weight:
            continue
        summed = [each for each in of_weight if each in of_features and each not in given]
        free = [each for each in of_weight if each in given and each not in of_features]
        if not summed or len(free) != 1 or len(of_weight) != len(summed) + 1:
            return None
        summed.sort(key=of_features.index)
        together = "".join(summed)  # several dimensions are one if they stand last
        if len(summed) > 1 and not of_features.endswith(together):
            return None
        axes = _axis(of_features, summed[-1]), _axis(given, free[0])
        if given.replace(free[0], "") != of_features.replace(together, "") or None in axes:
            return None
        weight = constant_value(graph, node.input[side]).astype(np.float64)
        weight = weight.transpose([of_weight.index(each) for each in (*free, *summed)])
        return Linear(
            node,
            node.input[1 - side],
            node.output[0],
            weight.reshape(len(weight), -1),
            features_axis=axes[0] or LAST,
            logits_axis=axes[1] or LAST,
        )
    return None


def _axis(letters: str, letter: str) -> int | None:
    for axis in (LAST, BEFORE_LAST):
        if len(letters) >= -axis and letters[axis] == letter:
            return axis
    return SECOND if letters[SECOND] == letter and "." not in letters else None


def _conv(graph: FileGraph, node: Any) -> Linear | None:  # noqa: ANN401
    """A convolution over one pixel, or over all pixels there are, is a linear layer; which
    of them is told by numbers.
    """
    if not all(graph.is_constant(name) for name in node.input[1:] if name):
        return None
    kernel = constant_value(graph, node.input[1])
    spatial = kernel.ndim - 2
    over_one = all(size == 1 for size in kernel.shape[2:])
    plain = (
        attribute(node, "group", 1) == 1
        and (over_one or attribute(node, "auto_pad", "NOTSET") in {"NOTSET", "VALID"})
        and not any(attribute(node, "pads", [0] * 2 * spatial))
    )
    if not plain or (over_one and any(step != 1 for step in attribute(node, "strides", [1]))):
        return None
    bias = None
    if len(node.input) > 2 and node.input[2]:
        bias = constant_value(graph, node.input[2]).astype(np.float64)
    return Linear(
        node,
        node.input[0],
        node.output[0],
        kernel.reshape(len(kernel), -1).astype(np.float64),
        bias,
        features_axis=SECOND if over_one else LAST,
        logits_axis=SECOND,
    )


def _linear_classifier(graph: FileGraph, node: Any) -> Linear | None:  # noqa: ANN401
    names = attribute(node, "classlabels_strings") or attribute(node, "classlabels_ints") or ()
    coefficients = np.asarray(attribute(node, "coefficients", []), np.float64)
    bias = np.asarray(attribute(node, "intercepts", []), np.float64)
    rows = len(bias) or len(names)
    if not rows or len(coefficients) % rows:
        return None
    return Linear(
        node,
        node.input[0],
        None,
        coefficients.reshape(rows, -1),
        bias if len(bias) else None,
        class_labels=tuple(names),
        post_transform=attribute(node, "post_transform", "NONE"),
    )


def _integer_product(graph: FileGraph, node: Any) -> Linear | None:  # noqa: ANN401
    """A product of integers made from numbers as they come: only running it tells what its
    weights are as numbers.
    """
    if not graph.is_constant(node.input[1]):
        return None
    maker = graph.producers.get(node.input[0])
    features = node.input[0]
    if maker is not None and maker.op_type == "DynamicQuantizeLinear":
        features = maker.input[0]
    elif node.op_type in {"MatMulInteger", "MatMulIntegerToFloat"}:
        return None
    logits = node.output[0]
    while node.op_type == "MatMulInteger":  # a cast, and one or two multiplications by scales
        takers = graph.consumers.get(logits, [])
        if len(takers) != 1 or takers[0].op_type not in {"Cast", "Mul"}:
            break
        others = [name for name in takers[0].input if name != logits]
        if takers[0].op_type == "Mul" and not (
            graph.is_constant(others[0]) or _is_scale(graph, others[0], maker)
        ):
            break
        logits = takers[0].output[0]
    return Linear(node, features, logits, None, is_quantised=True)


def _is_scale(graph: FileGraph, name: str, quantiser: Any) -> bool:  # noqa: ANN401
    """Whether a tensor is the scale of a quantised tensor, or a constant multiple of it."""
    if quantiser is not None and name == quantiser.output[1]:
        return True
    maker = graph.producers.get(name)
    return (
        maker is not None
        and maker.op_type == "Mul"
        and all(
            graph.is_constant(each) or _is_scale(graph, each, quantiser) for each in maker.input
        )
    )


def _quantised_product(graph: FileGraph, node: Any) -> Linear | None:  # noqa: ANN401
    """QLinearMatMul and QGemm: integers in, integers out, with scales from the file."""
    features, scale, zero_point, weight, weight_scale, weight_zero = node.input[:6]
    constants = [scale, zero_point, weight, weight_scale, weight_zero]
    if not all(graph.is_constant(name) for name in constants if name):
        return None
    if attribute(node, "transA", 0):
        return None
    integers = constant_value(graph, weight).astype(np.float64)
    turned = bool(attribute(node, "transB", 0))
    if integers.ndim != 2:
        return None
    matrix = integers if turned else integers.T  # (K, D)
    zero = constant_value(graph, weight_zero).astype(np.float64).reshape(-1, 1)
    scales = constant_value(graph, weight_scale).astype(np.float64).reshape(-1, 1)
    matrix = attribute(node, "alpha", 1.0) * (matrix - zero) * scales
    bias = None
    if node.op_type == "QGemm" and len(node.input) > 6 and node.input[6]:
        if not graph.is_constant(node.input[6]):
            return None
        added = constant_value(graph, node.input[6]).astype(np.float64).reshape(-1)
        bias = added * constant_value(graph, scale).astype(np.float64) * scales.reshape(-1)
        bias = np.broadcast_to(bias, (len(matrix),))
    return Linear(
        node,
        features,
        node.output[0],
        matrix,
        bias,
        dequantise=Dequantise(scale, zero_point),
        is_quantised=True,
    )


def per_class(value: np.ndarray, num_classes: int) -> np.ndarray | None:
    """A constant that is combined with logits as one number for each class; None if it is
    more than that.

    Args:
        value: The constant, of any shape.
        num_classes: K.
    """
    flat = value.astype(np.float64).reshape(-1)
    if flat.size == 1:
        return np.full(num_classes, flat[0])
    longest = max(value.shape)
    return flat if flat.size == longest == num_classes else None


_READERS: dict[str, Callable[[FileGraph, Any], Linear | None]] = {
    "MatMul": _matmul,
    "FusedMatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
    "Conv": _conv,
    CLASSIFIER: _linear_classifier,
    "MatMulInteger": _integer_product,
    "MatMulIntegerToFloat": _integer_product,
    "DynamicQuantizeMatMul": _integer_product,
    "MatMulNBits": _integer_product,
    "QLinearMatMul": _quantised_product,
    "QGemm": _quantised_product,
}
