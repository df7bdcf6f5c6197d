"""Votes in place of labels: they choose temperature and width of a fit."""

import pytest
import torch
from torch import nn

import laplacebridge as lb
from laplacebridge.metrics import dirichlet_multinomial_nll

CLASSES, VOTERS = 3, 20


def voted(number, error, seed):
    """Examples on which people vote as logits say that are off by a random error."""
    generator = torch.Generator().manual_seed(seed)
    inputs = 2 * torch.randn(number, CLASSES, generator=generator)
    off = error * torch.randn(number, CLASSES, generator=generator)
    probabilities = (inputs + off).softmax(-1)
    drawn = probabilities.multinomial(VOTERS, replacement=True, generator=generator)
    return inputs, torch.nn.functional.one_hot(drawn, CLASSES).sum(1)


def network():
    model = nn.Linear(CLASSES, CLASSES)
    with torch.no_grad():
        model.weight.copy_(torch.eye(CLASSES))
        model.bias.zero_()
    return model.eval()


def fitted(error):
    inputs, votes = voted(800, error, 0)
    train_inputs, train_votes = voted(800, error, 1)
    return lb.fit(
        network(),
        [(train_inputs, train_votes.argmax(-1))],
        val_loader=[(inputs[:500], votes[:500]), (inputs[500:], votes[500:])],
        progress=False,
    )


@pytest.mark.parametrize("error", [0.0, 0.5, 1.0])
def test_width_is_that_of_the_votes(error):
    classifier = fitted(error)
    found = classifier.prior_choice.width
    assert found.num_votes == 800 * VOTERS
    assert "16000 votes on 800 held-out examples" in found.described(CLASSES)
    inputs, votes = voted(2000, error, 2)
    prediction = classifier(inputs)
    truth = voted_probabilities(error)
    lower, upper = prediction.interval(0.9)
    inside = ((truth >= lower) & (truth <= upper)).float().mean()
    if error:
        assert 0.82 < float(inside) < 0.96
        plain = dirichlet_multinomial_nll(classifier.with_prior(1e4)(inputs), votes)
        assert dirichlet_multinomial_nll(prediction, votes) < plain - 0.005
    else:
        assert float((upper - lower).mean()) < 0.1


def voted_probabilities(error):
    generator = torch.Generator().manual_seed(2)
    inputs = 2 * torch.randn(2000, CLASSES, generator=generator)
    return (inputs + error * torch.randn(2000, CLASSES, generator=generator)).softmax(-1)


def test_batches_of_single_labels_are_single_votes():
    inputs, votes = voted(300, 0.5, 0)
    single = votes.argmax(-1)
    loader = [(inputs[:200], votes[:200]), (inputs[200:], single[200:])]
    classifier = lb.fit(network(), [(inputs, single)], val_loader=loader, progress=False)
    assert classifier.prior_choice.width.num_votes == 200 * VOTERS + 100


def test_an_example_without_votes_is_left_out():
    inputs, votes = voted(300, 0.5, 0)
    votes[7] = 0
    classifier = lb.fit(network(), [(inputs, votes)], val_loader=[(inputs, votes)], progress=False)
    assert classifier.prior_choice.width.num_labels == 299
    assert classifier.labels.num_labels == 299


def test_votes_on_other_classes_are_refused():
    inputs, votes = voted(300, 0.5, 0)
    more = torch.cat([votes, torch.zeros(300, 1, dtype=votes.dtype)], -1)
    with pytest.raises(lb.errors.LaplaceBridgeError, match="votes on 4 classes; the model has 3"):
        lb.fit(network(), [(inputs, votes)], val_loader=[(inputs, more)], progress=False)


def test_the_choice_is_saved(tmp_path):
    classifier = fitted(0.5)
    lb.save(classifier, tmp_path / "voted.safetensors")
    loaded = lb.load(tmp_path / "voted.safetensors", network())
    assert loaded.prior_choice.width == classifier.prior_choice.width
