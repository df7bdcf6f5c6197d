"""Ways to choose the prior precision."""

import subprocess
import sys
import warnings

import jaxtyping
import pytest
import torch
from cases import seeded
from sklearn.datasets import load_wine, make_moons
from small_network import examples, fit, loader, trained
from torch import nn

import laplacebridge as lb
from laplacebridge.laplace import prior


@pytest.fixture
def classifier(model):
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
        choice = prior.by_validation(
            classifier.posterior, bridge, features, labels, candidates=candidates
        )
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

    choice = prior.by_validation(
        classifier.posterior, lb.race_bridge, features, labels, metric=brier
    )
    assert "brier" in choice.method


def test_the_papers_rule_gives_the_wanted_confidence(model):
    classifier = fit(model, curvature=lb.laplace.Diag, prior_precision=1.0)
    inputs, _ = examples(200)
    features = classifier.features(inputs).detach()
    candidates = [10 ** (exponent / 20) for exponent in range(-60, 61)]
    choice = prior.by_confidence(
        classifier.posterior, lb.race_bridge, features, drop=0.02, candidates=candidates
    )
    network = classifier.logits(inputs).mean.softmax(-1).amax(-1).mean()
    bridged = classifier.with_prior(choice.prior_precision)(inputs).mean.amax(-1).mean()
    assert (bridged / network).item() == pytest.approx(0.98, abs=2e-3)


def test_a_best_value_at_an_edge_is_a_warning(classifier):
    for candidates in ((1e4, 1e5), (1e-5, 1e-6)):
        with pytest.warns(
            UserWarning, match=r"lies at an edge of the candidates .*: the range may be too narrow"
        ):
            choice = prior.by_evidence(
                classifier.posterior, classifier.log_likelihood, candidates=candidates
            )
        assert choice.at_edge
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not prior.by_evidence(classifier.posterior, classifier.log_likelihood).at_edge


def test_the_default_is_validation_where_there_is_validation_data_and_evidence_where_not(model):
    assert "evidence" in fit(model).prior_choice.method
    assert "held-out labels" in fit(model, val_loader=loader(100, seed=4)).prior_choice.method
    likeliest = fit(model, val_loader=loader(100, seed=4), tune_temperature=True)
    assert "validation" in likeliest.prior_choice.method
    assert fit(model, prior_precision=0.3).prior_choice == prior.given(0.3)


def test_validation_data_must_have_labels_and_not_be_empty(model):
    with pytest.raises(ValueError, match="needs labels"):
        fit(model, val_loader=[examples(4)[0]])
    with pytest.raises(ValueError, match="the loader yielded none"):
        fit(model, val_loader=[])


def test_validation_data_that_the_network_explains_perfectly_ask_for_no_uncertainty(classifier):
    features = classifier.features(examples(50)[0]).detach()
    answers = classifier.posterior(features).mean.argmax(-1)
    with pytest.warns(
        UserWarning, match=r"the largest of the candidates: labels one at a time test the mean"
    ):
        choice = prior.by_validation(classifier.posterior, lb.race_bridge, features, answers)
    assert choice.prior_precision == prior.CANDIDATES[-1]
    with pytest.warns(
        UserWarning, match="range may be too narrow"
    ):  # nothing is known of what lies beyond
        prior.by_validation(
            classifier.posterior, lb.race_bridge, features, answers, candidates=(0.1, 1.0)
        )


def test_a_confidence_that_is_never_reached_says_nothing_of_the_data(classifier):
    features = classifier.features(examples(50)[0]).detach()
    with pytest.warns(UserWarning, match="range may be too narrow"):
        prior.by_confidence(classifier.posterior, lb.race_bridge, features, drop=-0.5)


def test_of_all_temperatures_only_the_chosen_one_is_warned_of(classifier):
    inputs, labels = examples(50)
    features = classifier.features(inputs).detach()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        choice = prior.by_validation(
            classifier.posterior,
            lb.race_bridge,
            features,
            labels,
            candidates=(1e5, 1e6),
            temperatures=(0.5, 1.0, 2.0),
        )
    assert len(caught) == 1
    assert "Intervals under this prior say nothing" in str(caught[0].message)
    assert choice.temperature in {0.5, 1.0, 2.0}


def test_labels_that_are_no_classes_or_too_few_are_refused(classifier, monkeypatch):
    features = classifier.features(examples(4)[0]).detach()
    with pytest.raises(ValueError, match="needs labels from 0 to 2; example 3 has 3"):
        prior.by_validation(classifier.posterior, lb.race_bridge, features, torch.arange(4))
    with pytest.raises(ValueError, match="needs labels from 0 to 2; example 2 has 3"):
        fit(classifier.network.model, val_loader=[(examples(4)[0], torch.arange(4) + 1)])
    monkeypatch.setattr(
        jaxtyping.config, "jaxtyping_disable", True
    )  # as for users, whose shapes nothing else checks
    with pytest.raises(
        lb.errors.ShapeError, match=r"each of 4 examples; got torch.int64 of shape \(3,\)"
    ):
        prior.by_validation(classifier.posterior, lb.race_bridge, features, torch.arange(3))


def test_scores_that_are_all_nan_choose_nothing(classifier):
    inputs, labels = examples(4)
    features = classifier.features(inputs).detach() * torch.nan
    with pytest.raises(ValueError, match=r"No prior precision has a finite score.*Look for NaN"):
        prior.by_validation(classifier.posterior, lb.race_bridge, features, labels)


def test_warnings_point_at_the_line_of_the_program_that_called(tmp_path):
    # in a process of its own: here the calls are wrapped by a checker of types
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    result = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)  # noqa: S603
    found = [line.split("\t") for line in result.stdout.splitlines()]
    source = PROGRAM.splitlines()
    assert [(file, source[int(line) - 1].split("  # ")[1]) for file, line, _ in found] == [
        (str(program), "evidence"),
        (str(program), "by evidence"),
        (str(program), "by validation"),
        (str(program), "by confidence"),
    ]
    assert found[0][2].startswith("Under the prior precision")
    assert all(message.startswith("The best prior precision") for _, _, message in found[1:])


PROGRAM = """
import warnings
import torch
import laplacebridge as lb
from laplacebridge.laplace import prior

features, labels = torch.eye(3), torch.arange(3)
batches = [(features, labels)]

def head(scale):
    linear = torch.nn.Linear(3, 3, bias=False)
    linear.load_state_dict({"weight": scale * torch.eye(3)})
    return linear

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    lb.fit(head(9), batches, progress=False)  # evidence
    classifier = lb.fit(head(2), batches, prior_precision=1.0, progress=False)
    posterior = classifier.posterior
    prior.by_evidence(posterior, classifier.log_likelihood, candidates=(1e4, 1e5))  # by evidence
    prior.by_validation(posterior, lb.race_bridge, features, labels, temperatures=(1.0, 2.0))  # by validation
    prior.by_confidence(posterior, lb.race_bridge, features, candidates=(1e4, 1e5))  # by confidence
for warning in caught:
    print(warning.filename, warning.lineno, warning.message, sep="\\t")
"""


def test_no_candidates_are_refused(classifier):
    with pytest.raises(ValueError, match="at least one candidate"):
        prior.by_evidence(classifier.posterior, 0.0, candidates=())


@pytest.mark.filterwarnings("ignore:The best prior precision")
def test_a_temperature_can_be_chosen_along_with_the_prior(model):
    inputs, labels = examples(200, seed=4)
    fitted = fit(model, prior_precision=1.0)
    plain = prior.by_validation(
        fitted.posterior, lb.race_bridge, fitted.features(inputs).detach(), labels
    )
    heated = fit(model, val_loader=loader(200, seed=4), tune_temperature=True)
    assert min(heated.prior_choice.scores) <= min(plain.scores)
    inputs, _ = examples(10)
    temperature = heated.prior_choice.temperature
    gaussian = heated.posterior.with_temperature(1.0)(heated.features(inputs))
    torch.testing.assert_close(heated.logits(inputs).mean, gaussian.mean / temperature)
    torch.testing.assert_close(heated.logits(inputs).variance, gaussian.variance / temperature**2)
    with pytest.raises(ValueError, match="val_loader"):
        fit(model, tune_temperature=True)
    with pytest.raises(ValueError, match="positive"):
        heated.posterior.with_temperature(0.0)


def test_a_prior_under_which_hardly_anything_is_known_is_warned_of():
    # few examples for many weights, fitted perfectly: the evidence then prefers a wide
    # prior
    generator, labels = seeded(0), torch.arange(60) % 5
    centers = 6 * torch.randn(5, 64, generator=generator)
    features = (centers[labels] + 3 * torch.randn(60, 64, generator=generator)).relu()
    head = trained(lambda: nn.Linear(64, 5), features, labels, learning_rate=1e-3)
    batches = [(features, labels)]
    with pytest.warns(
        UserWarning,
        match=r"confidence on training examples falls from 0\.\d+ to 0\.\d+.*val_loader",
    ):
        lb.fit(head, batches, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lb.fit(head, batches, prior_precision=100.0, progress=False)


def hidden_layer(num_inputs, num_classes):
    return nn.Sequential(nn.Linear(num_inputs, 32), nn.ReLU(), nn.Linear(32, num_classes))


def wine(seed):
    """scikit-learn's wine, standardised: 100 examples to train on and 78 to judge by."""
    measurements, classes = load_wine(return_X_y=True)
    order = torch.randperm(len(classes), generator=seeded(seed))
    inputs, labels = (
        torch.tensor(measurements, dtype=torch.float32)[order],
        torch.tensor(classes)[order],
    )
    inputs = (inputs - inputs[:100].mean(0)) / inputs[:100].std(0)
    return (inputs[:100], labels[:100]), (inputs[100:], labels[100:])


@pytest.mark.parametrize("seed", range(3))
def test_a_prior_that_makes_held_out_labels_much_less_likely_is_warned_of(seed):
    train, (inputs, labels) = wine(seed)
    network = trained(lambda: hidden_layer(13, 3), *train, seed=seed)
    with pytest.warns(UserWarning, match="confidence on training examples falls"):
        classifier = lb.fit(network, [train], progress=False)
    with torch.no_grad():
        before, after = (
            lb.metrics.nll(network(inputs).softmax(-1), labels),
            lb.metrics.nll(classifier(inputs), labels),
        )
    assert after > 1.3 * before  # the warning is right


def half_moons(seed):
    points, labels = make_moons(200, noise=0.2, random_state=seed)
    return torch.tensor(points, dtype=torch.float32), torch.tensor(labels)


@pytest.mark.parametrize("seed", range(3))
def test_a_prior_that_does_no_harm_is_not_warned_of(seed):
    train, (inputs, labels) = half_moons(seed), half_moons(seed + 10)
    network = trained(lambda: hidden_layer(2, 2), *train, seed=seed)
    classifier = lb.fit(network, [train], progress=False)  # a warning is an error here
    with torch.no_grad():
        alone = lb.metrics.nll(network(inputs).softmax(-1), labels)
        assert lb.metrics.nll(classifier(inputs), labels) < 1.05 * alone
