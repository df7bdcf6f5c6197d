"""What labels say about a network: counted once, for every layout of predictions; and
when it has learnt nothing.
"""

import warnings

import pytest
import torch
from cases import seeded
from torch import nn

import laplacebridge as lb
from laplacebridge.laplace.label_statistics import LabelStatistics


def statistics(class_counts, num_correct, log_likelihood=-1.0):
    return LabelStatistics(
        log_likelihood,
        num_correct,
        torch.tensor(class_counts),
        squared_error=0.5,
        fourth_power=0.25,
    )


def made(network):
    """A network with the same weights every time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return network()


def fitted(model, inputs, labels, **choices):
    return lb.fit(model, [(inputs, labels)], prior_precision=1.0, progress=False, **choices).labels


@pytest.mark.parametrize(
    ("class_counts", "num_correct", "is_near"),
    [
        ([90, 10], 90, True),  # always the commonest class
        ([90, 10], 92, False),
        ([50, 50], 54, True),
        ([50, 50], 56, False),
        ([5, 5], 0, False),
    ],
    ids=["commonest", "more than the commonest", "chance", "more than chance", "too few to tell"],
)
def test_chance_is_the_share_of_the_commonest_class(class_counts, num_correct, is_near):
    assert statistics(class_counts, num_correct).is_near_chance() == is_near


def test_parts_add_and_a_likelihood_that_is_not_known_stays_so():
    both = statistics([3, 1], 2) + statistics([1, 1], 1)
    assert (both.log_likelihood, both.num_correct, both.class_counts.tolist()) == (-2.0, 3, [4, 2])
    assert (both.accuracy, both.commonest_share) == (0.5, 4 / 6)
    assert (both.squared_error, both.fourth_power) == (1.0, 0.5)
    assert (both + statistics([1, 0], 0, log_likelihood=None)).log_likelihood is None


LAYOUTS = {
    "examples": (lambda: nn.Linear(4, 3), (12, 4), (12,), -1),
    "tokens": (lambda: nn.Linear(4, 3), (2, 5, 4), (2, 5), -1),
    "as many tokens as classes": (lambda: nn.Linear(4, 3), (2, 3, 4), (2, 3), -1),
    "pixels": (lambda: nn.Conv2d(4, 3, 1), (2, 4, 5, 6), (2, 5, 6), 1),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_answers_are_counted_for_every_layout_of_predictions(layout):
    network, shape, label_shape, class_dimension = LAYOUTS[layout]
    model, generator = made(network), seeded(1)
    inputs, labels = (
        torch.randn(shape, generator=generator),
        torch.randint(3, label_shape, generator=generator),
    )
    found = fitted(model, inputs, labels)
    assert (
        found.accuracy == (model(inputs).argmax(class_dimension) == labels).double().mean().item()
    )
    assert found.class_counts.tolist() == torch.bincount(labels.flatten(), minlength=3).tolist()


@pytest.mark.parametrize("squeezed", [True, False])
def test_a_single_logit_stands_for_two_classes(squeezed):
    model = made(lambda: nn.Sequential(nn.Linear(4, 1), *([nn.Flatten(0)] if squeezed else [])))
    inputs, labels = torch.randn(20, 4, generator=seeded(2)), torch.arange(20) % 2
    found = fitted(model, inputs, labels)
    assert found.accuracy == ((model(inputs).flatten() > 0) == labels.bool()).double().mean().item()


@pytest.mark.parametrize("layers", [None, "*"], ids=["head", "layers"])
def test_labels_that_stand_for_none_are_not_counted_and_one_hot_ones_are(layers, monkeypatch):
    monkeypatch.setattr(
        "laplacebridge._blocks.BYTES_AT_ONCE", 1
    )  # several layers: one example at a time
    model = made(lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)))
    inputs, labels = torch.randn(12, 4, generator=seeded(3)), torch.arange(12) % 3
    kept = torch.arange(12) % 4 != 0
    found = fitted(model, inputs, torch.where(kept, labels, -100), layers=layers)
    assert found.num_labels == 9
    assert found.accuracy == (model(inputs).argmax(-1) == labels)[kept].double().mean().item()
    one_hot = fitted(model, inputs, nn.functional.one_hot(labels).float(), layers=layers)
    assert one_hot.accuracy == (model(inputs).argmax(-1) == labels).double().mean().item()
    assert not model._forward_hooks  # the network is left as it was


def test_an_untrained_network_is_warned_about_and_a_trained_one_is_not():
    inputs, labels = torch.eye(3).repeat(20, 1), torch.arange(60) % 3
    model = nn.Linear(3, 3, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.roll(torch.eye(3), 1, 0))  # always the next class
    with pytest.warns(
        UserWarning, match=r"gets 0\.0% of the training labels right, .* 33\.3% .* commonest class"
    ):
        fitted(model, inputs, labels)
    with torch.no_grad():
        model.weight.copy_(torch.eye(3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fitted(model, inputs, labels).accuracy == 1
