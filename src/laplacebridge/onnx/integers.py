"""Linear layers of integers, as quantisers write them."""

from typing import Any

import numpy as np

from laplacebridge.onnx.linear import SECOND, Dequantise, Linear, is_plain_convolution
from laplacebridge.onnx.model import FileGraph, attribute
from laplacebridge.onnx.parts import constant_value

_IN_PARTS = frozenset({"MatMulInteger", "ConvInteger"})  # their scales are nodes of their own


def integer_product(graph: FileGraph, node: Any) -> Linear | None:  # noqa: ANN401
    """A product of integers made from numbers as they come: only running it tells what its
    weights are as numbers.

    Args:
        graph: Its file.
        node: The node.
    """
    if not graph.is_constant(node.input[1]):
        return None
    is_convolution = node.op_type == "ConvInteger"
    if is_convolution:
        kernel = constant_value(graph, node.input[1])
        if kernel[0, 0].size != 1 or not is_plain_convolution(node, kernel):
            return None
    maker = graph.producers.get(node.input[0])
    features = node.input[0]
    if maker is not None and maker.op_type == "DynamicQuantizeLinear":
        features = maker.input[0]
    elif node.op_type in _IN_PARTS | {"MatMulIntegerToFloat"}:
        return None
    logits = node.output[0]
    while node.op_type in _IN_PARTS:  # a cast, and one or two multiplications by scales
        takers = graph.consumers.get(logits, [])
        if len(takers) != 1 or takers[0].op_type not in {"Cast", "Mul"}:
            break
        others = [name for name in takers[0].input if name != logits]
        if takers[0].op_type == "Mul" and not (
            graph.is_constant(others[0]) or _is_scale(graph, others[0], maker)
        ):
            break
        logits = takers[0].output[0]
    if is_convolution:
        return Linear(
            node,
            features,
            logits,
            None,
            features_axis=SECOND,
            logits_axis=SECOND,
            is_quantised=True,
        )
    return Linear(node, features, logits, None, is_quantised=True)


def quantised_product(graph: FileGraph, node: Any) -> Linear | None:  # noqa: ANN401
    """QLinearMatMul and QGemm: integers in, integers out, with scales from the file.

    Args:
        graph: Its file.
        node: The node.
    """
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


def integer_convolution(graph: FileGraph, node: Any) -> Linear | None:  # noqa: ANN401
    """QLinearConv over one pixel: integers in, integers out.

    Args:
        graph: Its file.
        node: The node.
    """
    features, scale, zero_point, weight, weight_scale, weight_zero = node.input[:6]
    constants = [scale, zero_point, weight, weight_scale, weight_zero, *node.input[8:]]
    if not all(graph.is_constant(name) for name in constants if name):
        return None
    kernel = constant_value(graph, weight)
    if kernel[0, 0].size != 1 or not is_plain_convolution(node, kernel):
        return None
    zero, scales = (
        constant_value(graph, name).astype(np.float64).reshape(-1, 1)
        for name in (weight_zero, weight_scale)
    )
    matrix = (kernel.reshape(len(kernel), -1).astype(np.float64) - zero) * scales
    bias = None
    if len(node.input) > 8:
        of_features = constant_value(graph, scale).astype(np.float64)
        bias = constant_value(graph, node.input[8]) * of_features * scales.reshape(-1)
    return Linear(
        node,
        features,
        node.output[0],
        matrix,
        bias,
        features_axis=SECOND,
        logits_axis=SECOND,
        dequantise=Dequantise(scale, zero_point),
        is_quantised=True,
    )


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
