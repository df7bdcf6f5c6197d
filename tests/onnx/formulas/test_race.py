"""The race in an ONNX graph, by itself."""

import math

import numpy as np
import pytest
import torch

from laplacebridge.bridges.race import race_probabilities

onnx = pytest.importorskip("onnx", reason="needs the extra `onnx`")
onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra `onnx`")

from laplacebridge.onnx.formulas import race  # noqa: E402
from laplacebridge.onnx.formulas.nodes import Graph  # noqa: E402


def session(num_classes, opset=17):
    graph = Graph(opset)
    mean, variance = (graph.value(name) for name in ("mean", "variance"))
    found = race.race_probabilities(mean, variance, num_classes)
    kind, shape = onnx.TensorProto.FLOAT, ["rows", num_classes]
    given = [onnx.helper.make_tensor_value_info(name, kind, shape) for name in ("mean", "variance")]
    gives = [onnx.helper.make_tensor_value_info(found.name, kind, shape)]
    whole = onnx.helper.make_graph(graph.nodes, "race", given, gives, graph.arrays)
    model = onnx.helper.make_model(whole, opset_imports=[onnx.helper.make_opsetid("", opset)])
    model.ir_version = 9
    return onnxruntime.InferenceSession(model.SerializeToString())


@pytest.mark.parametrize("num_classes", [2, 3, 30])
@pytest.mark.parametrize("largest", [1.0, 1e3, 1e6, 1e12])
def test_it_is_the_librarys_whatever_the_widest_variance(num_classes, largest):
    generator = torch.Generator().manual_seed(num_classes)
    mean = 2 * torch.randn(40, num_classes, generator=generator)
    variance = torch.rand(40, num_classes, generator=generator) + 0.1
    places = torch.randint(num_classes, (40, 1), generator=generator)
    variance = variance.scatter(1, places, largest)
    feed = {"mean": mean.numpy(), "variance": variance.numpy()}
    (found,) = session(num_classes).run(None, feed)
    expected = race_probabilities(mean, variance)
    np.testing.assert_allclose(found, expected.numpy(), atol=2e-5)
    if math.isclose(largest, 1e12):
        assert abs(found[np.arange(40), places[:, 0].numpy()] - 0.5).max() < 0.02
