"""The race of many classes in an ONNX graph, by itself."""

import numpy as np
import pytest
import torch

from laplacebridge.bridges import leading as eager
from laplacebridge.bridges.race import NUM_NODES

pytest.importorskip("onnx", reason="needs the extra `onnx`")
pytest.importorskip("onnxruntime", reason="needs the extra `onnx`")

from onnx_formulas import session_of

from laplacebridge.onnx.formulas import leading
from laplacebridge.onnx.formulas.nodes import Graph

CLASSES = 1000


@pytest.fixture(scope="module")
def session():
    graph = Graph(13, num_classes=CLASSES)
    given = [graph.value(name) for name in ("mean", "variance")]
    found = leading.expected_softmax(*given, CLASSES)
    return session_of(graph, [found], CLASSES, 13)


@pytest.mark.parametrize(
    "variances", [(0.1, 0.1, 0.5), (0.1, 9.0, 0.5), (50.0, 1e4, 9.0)], ids=["led", "mixed", "full"]
)
def test_it_is_the_librarys_for_rows_that_are_led_and_for_others(session, variances):
    generator = torch.Generator().manual_seed(1)
    mean = 4 * torch.randn(3, CLASSES, generator=generator)
    variance = torch.rand(3, CLASSES, generator=generator) * torch.tensor(variances)[:, None]
    _, is_enough = eager.leading_race(mean, variance, num_nodes=NUM_NODES)
    assert is_enough.tolist() == [variance < 1 for variance in variances]
    feed = {"mean": mean.numpy(), "variance": variance.numpy()}
    (found,) = session.run(None, feed)
    expected = eager.expected_softmax(mean, variance, num_nodes=NUM_NODES)
    np.testing.assert_allclose(found, expected.numpy(), atol=2e-6)


def test_a_row_that_is_not_finite_leaves_others_alone(session):
    mean = torch.randn(2, CLASSES)
    variance = torch.full((2, CLASSES), 0.2)
    expected = eager.expected_softmax(mean, variance, num_nodes=NUM_NODES)
    mean[1, 3] = torch.nan
    (found,) = session.run(None, {"mean": mean.numpy(), "variance": variance.numpy()})
    np.testing.assert_allclose(found[0], expected[0].numpy(), atol=2e-6)
    assert np.isnan(found[1]).any()
