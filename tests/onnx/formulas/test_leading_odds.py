"""One-vs-rest of many classes in an ONNX graph, by itself."""

import numpy as np
import pytest
import torch

from laplacebridge.bridges import leading_odds as eager

pytest.importorskip("onnx", reason="needs the extra `onnx`")
pytest.importorskip("onnxruntime", reason="needs the extra `onnx`")

from onnx_formulas import session_of

from laplacebridge.onnx.formulas import leading_odds
from laplacebridge.onnx.formulas.covariances import Independent
from laplacebridge.onnx.formulas.nodes import Graph

CLASSES = 1000


@pytest.fixture(scope="module", params=[11, 18])
def session(request):
    graph = Graph(request.param, num_classes=CLASSES)
    mean, variance = [graph.value(name) for name in ("mean", "variance")]
    covariance = Independent(variance, CLASSES)
    odds = leading_odds.leading_odds(mean, [variance], CLASSES)
    found = [
        leading_odds.probabilities(odds, mean, covariance),
        leading_odds.variances(odds, mean, covariance),
    ]
    return session_of(graph, found, CLASSES, request.param)


@pytest.mark.parametrize(
    "variances", [(0.1, 0.1, 0.5), (0.1, 9.0, 0.5), (50.0, 1e4, 9.0)], ids=["led", "mixed", "full"]
)
def test_it_is_the_librarys_for_rows_that_are_led_and_for_others(session, variances):
    generator = torch.Generator().manual_seed(1)
    mean = 4 * torch.randn(3, CLASSES, generator=generator)
    variance = torch.rand(3, CLASSES, generator=generator) * torch.tensor(variances)[:, None]
    is_enough = eager.leading_odds(mean, variance).chances().is_enough
    assert is_enough.tolist() == [variance < 1 for variance in variances]
    found = session.run(None, {"mean": mean.numpy(), "variance": variance.numpy()})
    probabilities, spread = eager.many_probabilities_and_variances(mean, variance)
    np.testing.assert_allclose(found[0], probabilities.numpy(), atol=2e-6)
    np.testing.assert_allclose(found[1], spread.numpy(), rtol=2e-5)


def test_a_row_that_is_not_finite_leaves_others_alone(session):
    mean = 4 * torch.randn(2, CLASSES, generator=torch.Generator().manual_seed(2))
    variance = torch.full((2, CLASSES), 0.2)
    expected, spread = eager.many_probabilities_and_variances(mean, variance)
    mean[1, 3] = torch.nan
    found = session.run(None, {"mean": mean.numpy(), "variance": variance.numpy()})
    np.testing.assert_allclose(found[0][0], expected[0].numpy(), atol=2e-6)
    np.testing.assert_allclose(found[1][0], spread[0].numpy(), rtol=2e-5)
    assert np.isnan(found[0][1]).any()
