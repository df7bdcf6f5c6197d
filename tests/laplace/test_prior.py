"""Ways to choose the prior precision."""

import warnings
from dataclasses import replace

import pytest
import torch
from cases import seeded
from test_fit import examples, fit, loader, model  # noqa: F401  (a fixture)
from torch import nn

import laplacebridge as lb
from laplacebridge.laplace import prior
from laplacebridge.paper.data import DataSet
from laplacebridge.paper.train import MNIST, train


@pytest.fixture
def classifier(model):  # noqa: F811
    return fit(model, prior_precision=1.0)


def test_evidence_picks_the_largest(classifier):
    choice = prior.by_evidence(classifier.posterior, classifier.log_likelihood)
    evidences = [classifier.with_prior(candidate).evidence() for candidate in prior.CANDIDATES]
    assert choice.prior_precision == prior.CANDIDATES[evidences.index(max(evidences))]
    assert list(choice.scores) == pytest.approx([-value for value in evidences])


@pytest.mark.filterwarnings("ignore:The best prior precision")
def test_validation_picks_the_smallest_loss_of_the_bridge_that_will_predict(classifier):
    inputs, labels = examples(150, seed=3)
    features = classifier.features(inputs).detach()
    candidates = (0.01, 0.3, 3.0, 100.0)
    for bridge in (lb.race_bridge, lb.laplace_bridge):
        choice = prior.by_validation(classifier.posterior, bridge, features, labels, candidates=candidates)
        losses = []
        for candidate in candidates:
            mean = classifier.with_prior(candidate).with_bridge(bridge)(inputs).mean
            losses.append(torch.nn.functional.nll_loss(mean.double().log(), labels).item())
        assert list(choice.scores) == pytest.approx(losses, rel=1e-5)
        assert choice.prior_precision == candidates[losses.index(min(losses))]


@pytest.mark.filterwarnings("ignore:The best prior precision")
def test_any_metric_can_judge(classifier):
    inputs, labels = examples(150, seed=3)
    features = classifier.features(inputs).detach()

    def brier(probabilities, labels):
        hot = torch.nn.functional.one_hot(labels, probabilities.shape[-1])
        return float((probabilities - hot).square().sum(-1).mean())

    choice = prior.by_validation(classifier.posterior, lb.race_bridge, features, labels, metric=brier)
    assert "brier" in choice.method


def test_the_papers_rule_gives_the_wanted_confidence(model):  # noqa: F811
    classifier = fit(model, curvature=lb.Diag, prior_precision=1.0)
    inputs, _ = examples(200)
    features = classifier.features(inputs).detach()
    candidates = [10 ** (exponent / 20) for exponent in range(-60, 61)]
    choice = prior.by_confidence(classifier.posterior, lb.race_bridge, features, drop=0.02, candidates=candidates)
    network = classifier.logits(inputs).mean.softmax(-1).amax(-1).mean()
    bridged = classifier.with_prior(choice.prior_precision)(inputs).mean.amax(-1).mean()
    assert (bridged / network).item() == pytest.approx(0.98, abs=2e-3)


def test_a_best_value_at_an_edge_is_a_warning(classifier):
    with pytest.warns(UserWarning, match="at an edge"):
        choice = prior.by_evidence(classifier.posterior, classifier.log_likelihood, candidates=(1e4, 1e5))
    assert choice.at_edge
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not prior.by_evidence(classifier.posterior, classifier.log_likelihood).at_edge


def test_the_default_is_validation_where_there_is_validation_data_and_evidence_where_not(model):  # noqa: F811
    assert "evidence" in fit(model).choice.method
    assert "validation" in fit(model, val_loader=loader(100, seed=4)).choice.method
    assert fit(model, prior_precision=0.3).choice == prior.given(0.3)


def test_validation_data_must_have_labels_and_not_be_empty(model):  # noqa: F811
    with pytest.raises(ValueError, match="needs labels"):
        fit(model, val_loader=[examples(4)[0]])
    with pytest.raises(ValueError, match="yielded no batches"):
        fit(model, val_loader=[])


def test_no_candidates_are_refused(classifier):
    with pytest.raises(ValueError, match="at least one candidate"):
        prior.by_evidence(classifier.posterior, 0.0, candidates=())


@pytest.mark.filterwarnings("ignore:The best prior precision")
def test_a_temperature_can_be_chosen_along_with_the_prior(model):  # noqa: F811
    plain = fit(model, val_loader=loader(200, seed=4))
    heated = fit(model, val_loader=loader(200, seed=4), temperature=True)
    assert min(heated.choice.scores) <= min(plain.choice.scores)
    inputs, _ = examples(10)
    temperature = heated.choice.temperature
    gaussian = heated.posterior.with_temperature(1.0)(heated.features(inputs))
    torch.testing.assert_close(heated.logits(inputs).mean, gaussian.mean / temperature)
    torch.testing.assert_close(heated.logits(inputs).variance, gaussian.variance / temperature**2)
    with pytest.raises(ValueError, match="val_loader"):
        fit(model, temperature=True)
    with pytest.raises(ValueError, match="positive"):
        heated.posterior.with_temperature(0.0)


def test_a_prior_under_which_hardly_anything_is_known_is_warned_of(tmp_path):
    # few examples for many weights, fitted perfectly: the evidence then prefers a wide prior
    generator, labels = seeded(0), torch.arange(60) % 5
    centers = 6 * torch.randn(5, 64, generator=generator)
    features = (centers[labels] + 3 * torch.randn(60, 64, generator=generator)).relu()
    head = nn.Linear(64, 5)
    data = DataSet("clusters", features, labels, tuple("abcde"))
    train(head, data, replace(MNIST, epochs=300), cache=tmp_path, progress=False)
    batches = [(features, labels)]
    with pytest.warns(UserWarning, match=r"confidence on training examples falls from 0\.\d+ to 0\.\d+.*val_loader"):
        lb.fit(head, batches, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lb.fit(head, batches, prior_precision=100.0, progress=False)
