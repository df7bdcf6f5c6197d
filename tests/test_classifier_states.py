"""A classifier is an ordinary module: copied, pickled, loaded, run under autocast; it
depends on its inputs.
"""

import copy
import pickle
from dataclasses import dataclass

import pytest
import torch
from cases import CURVATURES
from torch import nn

import laplacebridge as lb

EXAMPLES, CLASSES = 12, 3


@pytest.fixture
def data():
    torch.manual_seed(0)
    return torch.randn(EXAMPLES, 4), torch.arange(EXAMPLES) % CLASSES


@pytest.fixture
def model(data):
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, CLASSES))


def fitted(model, data, **options):
    return lb.fit(model, [data], **{"prior_precision": 1.0, "progress": False, **options})


@pytest.mark.parametrize("kind", CURVATURES)
def test_is_copied_and_pickled_after_predicting_with_gradients(model, data, kind):
    classifier = fitted(model, data, curvature=kind)
    before = classifier(data[0]).mean
    for again in (
        copy.deepcopy(classifier),
        pickle.loads(pickle.dumps(classifier)),  # noqa: S301
    ):
        torch.testing.assert_close(again(data[0]).mean, before)


def test_is_pickled_without_the_code_it_was_compiled_to(model, data):
    classifier = fitted(model, data)
    classifier.compile(backend="eager")
    again = pickle.loads(pickle.dumps(classifier))  # noqa: S301  # our own bytes
    torch.testing.assert_close(again(data[0]).mean, fitted(model, data)(data[0]).mean)


@pytest.mark.parametrize("kind", CURVATURES)
def test_takes_prior_and_temperature_from_a_state(model, data, kind):
    other = fitted(model, data, curvature=kind, prior_precision=5.0)
    other.posterior = other.posterior.with_temperature(3.0)
    classifier = fitted(model, (2 * data[0], data[1]), curvature=kind)
    classifier(data[0])
    classifier.load_state_dict(other.state_dict())
    torch.testing.assert_close(
        classifier(data[0]).dirichlet.log_concentration, other(data[0]).dirichlet.log_concentration
    )


@pytest.mark.parametrize("kind", CURVATURES)
def test_autocast_is_for_the_network_only(data, kind):
    model = nn.Linear(
        4, CLASSES
    )  # whose features are the inputs, so that half precision has nothing to round
    with torch.no_grad():
        expected = fitted(model, data, curvature=kind)(data[0]).dirichlet.log_concentration
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = fitted(model, data, curvature=kind)(data[0]).dirichlet.log_concentration
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_carries_a_gradient_only_where_the_features_do(data):
    inputs, labels = data
    classifier = fitted(nn.Linear(4, CLASSES), (inputs, labels))
    assert not classifier(inputs).mean.requires_grad
    assert classifier(inputs.requires_grad_()).mean.requires_grad


@pytest.mark.parametrize("shape", ["squeezed", "by pairs"])
def test_networks_may_reshape_what_the_head_gives(data, shape):
    class Reshaping(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 4)

        def forward(self, inputs):
            logits = self.head(inputs)
            return logits.squeeze() if shape == "squeezed" else logits.view(-1, 2, 2)

    torch.manual_seed(0)
    model, inputs = Reshaping(), data[0]
    with torch.no_grad():
        classifier = lb.fit(model, [inputs[:-1], inputs[-1:]], prior_precision=1.0, progress=False)
        plain = lb.fit(model.head, [inputs], prior_precision=1.0, progress=False)
        for rows in (inputs, inputs[:1]):
            torch.testing.assert_close(classifier(rows).mean, plain(rows).mean)


def test_pixels_of_one_image_are_those_of_an_image_among_others():
    class Squeezing(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Conv2d(3, 4, 1)

        def forward(self, images):
            return self.head(images).squeeze(0)

    torch.manual_seed(0)
    images = torch.randn(
        5, 3, 4, 4
    )  # as many classes as rows and columns, so that a mix-up has the same shape
    with torch.no_grad():
        classifier = lb.fit(Squeezing(), [images], prior_precision=1.0, progress=False)
        torch.testing.assert_close(classifier(images[:1]).mean, classifier(images[:2]).mean[:16])


def test_a_bridge_may_be_an_object_that_cannot_be_hashed(model, data):
    @dataclass
    class Custom:
        def __call__(self, gaussian):
            return lb.race_bridge(gaussian)

    classifier = fitted(model, data, bridge=Custom())
    torch.testing.assert_close(classifier.probabilities(data[0]), classifier(data[0]).mean)


@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_inputs_that_are_not_finite_are_named(model, data, broken):
    inputs = data[0].clone()
    inputs[3, 1] = broken
    model[1] = nn.Identity()  # tanh would make one of infinity
    classifier = fitted(model, data)
    for predict in (classifier, classifier.probabilities):
        with (
            torch.no_grad(),
            pytest.raises(ValueError, match=r"not finite of 1 rows: 3 \(counted from 0\)"),
        ):
            predict(inputs)


@pytest.mark.parametrize("layers", [None, "*"])
def test_answers_of_a_network_with_trainable_weights_are_arrays_at_once(data, layers):
    inputs, labels = data
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, CLASSES))
    classifier = fitted(model, (inputs, labels), layers=layers)
    prediction = classifier(inputs)
    assert prediction.mean.numpy().shape == (len(inputs), CLASSES)
    assert classifier.probabilities(inputs).numpy().shape == (len(inputs), CLASSES)
    assert not classifier.logits(inputs).mean.requires_grad
    if layers is None:
        assert classifier(inputs.clone().requires_grad_()).mean.requires_grad
