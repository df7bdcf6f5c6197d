"""A large batch is predicted block by block, and gives what its rows give one by one."""

import pytest
import torch
from torch import nn

import laplacebridge as lb
from laplacebridge import _blocks

ROWS, CLASSES = 11, 3


@pytest.fixture(params=["several classes", "one logit", "half precision", "all layers"])
def fitted(request):
    """Networks whose logits serve as the mean, and such where the posterior or a
    linearisation gives it.
    """
    torch.manual_seed(0)
    outputs = 1 if request.param == "one logit" else CLASSES
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, outputs))
    inputs = torch.randn(ROWS, 4)
    if request.param == "half precision":
        model, inputs = model.bfloat16(), inputs.bfloat16()
    layers = "*" if request.param == "all layers" else None
    batches = [(inputs, torch.arange(ROWS) % 2)]
    return lb.fit(model, batches, layers=layers, prior_precision=1.0, progress=False), inputs


@pytest.mark.parametrize("bridge", [lb.race_bridge, lb.laplace_bridge])
def test_blocks_of_rows_give_what_the_whole_batch_gives(fitted, bridge, monkeypatch):
    classifier, inputs = fitted
    classifier = classifier.with_bridge(bridge)
    with torch.no_grad():
        whole, probabilities = classifier(inputs), classifier.probabilities(inputs)
        blocks = []
        monkeypatch.setattr(_blocks, "ELEMENTS_AT_ONCE", 4 * CLASSES)
        counted = classifier.with_bridge(
            lambda gaussian: blocks.append(len(gaussian)) or bridge(gaussian)
        )
        found = counted(inputs)
        torch.testing.assert_close(
            classifier.probabilities(inputs), probabilities, rtol=1e-5, atol=1e-6
        )
    assert len(blocks) > 1
    assert sum(blocks) == ROWS
    torch.testing.assert_close(
        found.dirichlet.log_concentration, whole.dirichlet.log_concentration, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(
    "bridge", [lb.race_bridge, lb.bridges.one_vs_rest_bridge, lb.laplace_bridge]
)
def test_probabilities_alone_are_those_of_the_dirichlets(fitted, bridge):
    classifier, inputs = fitted
    classifier = classifier.with_bridge(bridge)
    with torch.no_grad():
        torch.testing.assert_close(
            classifier.probabilities(inputs), classifier(inputs).mean, rtol=1e-5, atol=1e-6
        )


def test_the_gaussian_over_logits_has_the_mean_of_the_network(fitted):
    classifier, inputs = fitted
    with torch.no_grad():
        logits = classifier.network.model(inputs).float()
        mean = classifier.logits(inputs).mean
    expected = torch.cat([-logits / 2, logits / 2], -1) if logits.shape[1] == 1 else logits
    rounding = 2e-2 if inputs.dtype == torch.bfloat16 else 1e-6
    torch.testing.assert_close(mean, expected, rtol=rounding, atol=rounding)


def test_gradients_of_a_large_batch_flow_through_one_block(monkeypatch):
    torch.manual_seed(0)
    model, inputs = nn.Linear(4, CLASSES), torch.randn(ROWS, 4)
    classifier = lb.fit(model, [inputs], prior_precision=1.0, progress=False)
    monkeypatch.setattr(_blocks, "ELEMENTS_AT_ONCE", CLASSES)
    inputs.requires_grad_()
    classifier(inputs).mean[:, 0].sum().backward()
    assert inputs.grad.abs().min() > 0
