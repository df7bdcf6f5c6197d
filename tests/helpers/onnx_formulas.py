"""Formulas of ONNX graphs, run by themselves."""

import onnx
import onnxruntime


def session_of(graph, found, classes, opset):
    """A session that gives some values of a graph for means and variances of logits."""
    kind, shape = onnx.TensorProto.FLOAT, ["rows", classes]
    info = onnx.helper.make_tensor_value_info
    nodes, arrays = graph.needed([value.name for value in found])
    whole = onnx.helper.make_graph(
        nodes,
        "formulas",
        [info(name, kind, shape) for name in ("mean", "variance")],
        [info(value.name, kind, shape) for value in found],
        arrays,
    )
    model = onnx.helper.make_model(whole, opset_imports=[onnx.helper.make_opsetid("", opset)])
    model.ir_version = 8
    onnx.checker.check_model(model, full_check=True)
    return onnxruntime.InferenceSession(model.SerializeToString())
