"""The same input, seed and machine give the same bits; other batch sizes nearly the
same numbers.
"""

import pytest
import torch
from cases import CURVATURES
from small_network import examples, fit, loader, trained_network
from torch import nn

import laplacebridge as lb
from laplacebridge.bridges import BRIDGES

# Largest difference of means between one batch and examples one by one, in float32.
BETWEEN_BATCH_SIZES = 1e-5


def answers(classifier, inputs):
    with torch.no_grad():
        prediction = classifier(inputs)
        return torch.cat(
            [prediction.dirichlet.log_concentration, prediction.mean, *prediction.interval()]
        )


@pytest.mark.parametrize("kind", CURVATURES)
@pytest.mark.parametrize("layers", [None, "*"])
def test_two_fits_give_the_same_bits(kind, layers):
    if layers and kind not in {lb.laplace.Diag, lb.laplace.Kron}:
        pytest.skip("not a curvature of several layers")
    model, inputs = trained_network(), examples(50, seed=3)[0]
    first, second = (
        answers(fit(model, val_loader=loader(100, seed=1), curvature=kind, layers=layers), inputs)
        for _ in range(2)
    )
    assert torch.equal(first, second)


@pytest.mark.parametrize("name", BRIDGES)
def test_two_calls_give_the_same_bits(name):
    classifier, inputs = fit(trained_network(), bridge=BRIDGES[name]), examples(50, seed=3)[0]
    assert torch.equal(answers(classifier, inputs), answers(classifier, inputs))


@pytest.mark.parametrize("kind", CURVATURES)
def test_a_saved_classifier_gives_the_same_bits(kind, tmp_path):
    model, inputs = trained_network(), examples(50, seed=3)[0]
    classifier = fit(model, val_loader=loader(100, seed=1), curvature=kind)
    lb.save(classifier, tmp_path / "classifier.safetensors")
    loaded = lb.load(tmp_path / "classifier.safetensors", model)
    assert torch.equal(answers(loaded, inputs), answers(classifier, inputs))
    lb.save(loaded, tmp_path / "again.safetensors")
    again = lb.load(tmp_path / "again.safetensors", model)
    assert torch.equal(answers(again, inputs), answers(classifier, inputs))


@pytest.mark.parametrize("kind", CURVATURES)
def test_a_saved_classifier_of_many_features_gives_the_same_bits(kind, tmp_path):
    # so many that products are blocked, and round by the layout of their factors
    generator = torch.Generator().manual_seed(0)
    head, features = nn.Linear(65, 7), torch.randn(300, 65, generator=generator)
    classifier = fit(head, [features], curvature=kind, prior_precision=0.1)
    lb.save(classifier, tmp_path / "classifier.safetensors")
    loaded = lb.load(tmp_path / "classifier.safetensors", head)
    assert torch.equal(answers(loaded, features), answers(classifier, features))


@pytest.mark.parametrize("name", BRIDGES)
def test_batch_sizes_change_rounding_alone(name):
    classifier, inputs = fit(trained_network(), bridge=BRIDGES[name]), examples(200, seed=3)[0]
    with torch.no_grad():
        together = classifier(inputs).mean
        apart = torch.cat([classifier(row).mean for row in inputs.split(1)])
    difference = (together - apart).abs().max().item()
    assert difference <= BETWEEN_BATCH_SIZES, difference


def test_samples_follow_their_seed():
    classifier, inputs = fit(trained_network()), examples(5)[0]
    with torch.no_grad():
        dirichlet = classifier(inputs).dirichlet
        first, second = (
            dirichlet.sample(7, generator=torch.Generator().manual_seed(3)) for _ in range(2)
        )
    assert torch.equal(first, second)
