"""A small model for examples."""

import tempfile
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

_OPSET, _FORMAT = 17, 8


def small_model() -> tuple[str, np.ndarray, np.ndarray]:
    """An ONNX file of a classifier, with inputs and labels that it was trained on.

    Returns:
        The path, in a temporary folder; inputs (60, 4); labels of three classes.
    """
    generator = np.random.default_rng(0)
    labels = np.arange(60) % 3
    inputs = (generator.standard_normal((60, 4)) + 2 * np.eye(3, 4)[labels]).astype(np.float32)
    layer = generator.standard_normal((4, 8)).astype(np.float32)
    hidden = np.maximum(inputs @ layer, 0)
    targets = 4 * np.eye(3)[labels]
    weight = np.linalg.lstsq(hidden, targets, rcond=None)[0].astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["inputs", "layer"], ["product"]),
        helper.make_node("Relu", ["product"], ["features"]),
        helper.make_node("MatMul", ["features", "weight"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("inputs", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(layer, "layer"), numpy_helper.from_array(weight, "weight")],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_FORMAT
    )
    path = Path(tempfile.mkdtemp()) / "model.onnx"
    save(model, path)
    return str(path), inputs, labels
