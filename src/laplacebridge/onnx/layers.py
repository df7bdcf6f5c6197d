"""Linear layers of an ONNX graph: matrix products with constant weights, in the forms in
which exporters write them.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from laplacebridge.onnx.integers import integer_convolution, integer_product, quantised_product
from laplacebridge.onnx.linear import (
    BEFORE_LAST,
    CLASSIFIER,
    LAST,
    SECOND,
    Linear,
    is_plain_convolution,
    per_class,
)
from laplacebridge.onnx.model import FileGraph, attribute
from laplacebridge.onnx.parts import constant_value

OPTIMISED = "com.microsoft.nchwc"  # with weights in an order that suits one processor
_FROM_INTEGERS = frozenset({"DequantizeLinear", "DequantizeBFP"})


def linear_of(graph: FileGraph, node: Any) -> Linear | None:  # noqa: ANN401
    """A node as a linear layer with constant weights, or None.

    Args:
        graph: Its file.
        node: The node.
    """
    read = None if node.domain == OPTIMISED else _READERS.get(node.op_type)
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
    if not is_plain_convolution(node, kernel):
        return None
    over_one = all(size == 1 for size in kernel.shape[2:])
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
    transform, weight = attribute(node, "post_transform", "NONE"), coefficients.reshape(rows, -1)
    # as scikit-learn's logistic regression is written: rows −z and z, of which z is the logit
    is_doubled = rows == 2 and np.array_equal(weight[0], -weight[1])
    if is_doubled and not np.any(bias[:1] + bias[1:]) and not transform.startswith("SOFTMAX"):
        weight, bias = weight[1:], bias[1:]
    return Linear(
        node,
        node.input[0],
        None,
        weight,
        bias if len(bias) else None,
        class_labels=tuple(names),
        post_transform=transform,
    )


_READERS: dict[str, Callable[[FileGraph, Any], Linear | None]] = {
    "MatMul": _matmul,
    "FusedMatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
    "Conv": _conv,
    CLASSIFIER: _linear_classifier,
    "MatMulInteger": integer_product,
    "MatMulIntegerToFloat": integer_product,
    "DynamicQuantizeMatMul": integer_product,
    "MatMulNBits": integer_product,
    "ConvInteger": integer_product,
    "QLinearMatMul": quantised_product,
    "QGemm": quantised_product,
    "QLinearConv": integer_convolution,
}
