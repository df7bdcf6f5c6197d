"""The front door: fit a trained network, predict Dirichlets."""

import copy
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from cases import seeded
from small_network import CLASSES, FEATURES, examples, fit, loader
from torch import nn

import laplacebridge as lb
from laplacebridge.laplace import Diag, DiagKron, Full, Kron
from laplacebridge.laplace.memory import require_memory


@pytest.mark.parametrize("curvature", [Diag, Kron, DiagKron, Full])
def test_one_line_to_fit_one_to_predict(model, curvature):
    classifier = fit(model, curvature=curvature)
    inputs, labels = examples(200, seed=1)
    prediction = classifier(inputs)
    assert isinstance(prediction, lb.Prediction)
    assert (prediction.mean.argmax(-1) == labels).double().mean() > 0.85
    sampled = lb.links.monte_carlo(classifier.logits(inputs), num_samples=4000, generator=seeded(0))
    assert 0.5 * (prediction.mean - sampled).abs().sum(-1).mean() < 0.01


def test_a_fit_of_halves_is_a_fit_of_the_whole(model):
    inputs, labels = examples(400)
    halves = [[(inputs[:150], labels[:150])], [(inputs[150:], labels[150:])]]
    stopped = interruption(model, halves[0])
    whole = fit(model)
    continued = fit(model, halves[1], resume=stopped)
    torch.testing.assert_close(continued.logits(inputs).variance, whole.logits(inputs).variance)
    assert continued.evidence() == pytest.approx(whole.evidence(), rel=1e-9)
    from_sums = fit(model, halves[1], resume=stopped.curvature, prior_precision=0.7)
    torch.testing.assert_close(
        from_sums.logits(inputs).variance, whole.with_prior(0.7).logits(inputs).variance
    )
    with pytest.raises(ValueError, match="without their likelihood"):
        fit(model, halves[1], resume=stopped.curvature)


def interruption(model, batches):
    """What a fit raises that is stopped after some batches."""

    def interrupted():
        yield from batches
        raise KeyboardInterrupt

    with pytest.raises(lb.FitInterrupted) as stop:
        fit(model, interrupted())
    return stop.value


def test_an_interrupted_fit_leaves_the_model_as_it_was_and_keeps_its_sums(model):
    model.train()
    stopped = interruption(model, list(loader()))
    assert model.training
    assert stopped.curvature.num_examples == 400


def test_the_model_is_not_changed(model):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    classifier = fit(model)
    classifier.with_prior(3.0)(examples(5)[0])
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def test_features_alone_can_be_fitted(model):
    inputs, labels = examples(400)
    with torch.no_grad():
        features = nn.functional.relu(model[0](inputs))
    from_features = fit(model[3], [(features, labels)], prior_precision=0.5)
    from_network = fit(model, prior_precision=0.5)
    torch.testing.assert_close(from_features(features).mean, from_network(inputs).mean)


def test_another_prior_or_bridge_needs_no_new_fit(model):
    classifier = fit(model, prior_precision=1.0)
    inputs, _ = examples(5)
    assert (
        classifier.with_prior(100.0).logits(inputs).variance < classifier.logits(inputs).variance
    ).all()
    torch.testing.assert_close(
        classifier.with_bridge(lb.laplace_bridge)(inputs).mean,
        lb.laplace_bridge(classifier.logits(inputs)).mean,
    )
    assert classifier.bridge is lb.race_bridge


def test_many_classes_get_a_diagonal_class_factor():
    head = nn.Linear(4, 5000)
    classifier = fit(
        head, [(torch.randn(8, 4, generator=seeded(0)), torch.zeros(8).long())], prior_precision=1.0
    )
    assert "DiagKron" in repr(classifier)


def test_a_kronecker_factor_for_a_hundred_thousand_classes_is_refused_before_it_is_made():
    with pytest.raises(ValueError, match=r"Kron.*80\.\d GB.*DiagKron"):
        require_memory(Kron, 512, 100_000)
    require_memory(DiagKron, 512, 100_000)


def test_the_representation_says_what_it_is(model):
    text = repr(fit(model, prior_precision=2.0))
    for word in (
        "Sequential",
        "head '3'",
        "16 features",
        "K = 3",
        "KronPosterior",
        "prior precision 2",
        "race_bridge",
        "1.8 kB",
    ):
        assert word in text


def test_it_says_what_it_does_unless_asked_not_to(model, capsys):
    lb.fit(model, loader())
    spoken = capsys.readouterr()
    assert re.search(r"head '3' \(16 features\), 3 classes, Kron curvature, \d\.\d kB", spoken.err)
    assert "largest evidence" in spoken.err
    assert spoken.out == ""
    fit(model)
    silent = capsys.readouterr()
    assert silent.out + silent.err == ""


def test_one_hot_labels_and_mappings_are_understood(model):
    inputs, labels = examples(400)
    hot = nn.functional.one_hot(labels, CLASSES).float()
    assert fit(model, [(inputs, hot)]).evidence() == pytest.approx(
        fit(model, [(inputs, labels)]).evidence(), rel=1e-9
    )


def test_ignored_labels_are_left_out(model):
    inputs, labels = examples(400)
    masked = labels.clone()
    masked[100:] = -100
    classifier = fit(model, [(inputs, masked)], prior_precision=1.0)
    expected = fit(model, [(inputs[:100], labels[:100])], prior_precision=1.0)
    torch.testing.assert_close(classifier.logits(inputs).variance, expected.logits(inputs).variance)


def test_float64_and_half_precision_networks(model):
    inputs, labels = examples(400)
    wide = fit(copy.deepcopy(model).double(), [(inputs.double(), labels)], prior_precision=1.0)
    assert wide(inputs.double()).dtype == torch.float64
    for dtype in (torch.bfloat16, torch.float16):
        half = nn.Linear(FEATURES, CLASSES).to(dtype)
        classifier = fit(half, [(inputs.to(dtype), labels)], prior_precision=1.0)
        assert classifier(inputs.to(dtype)).mean.isfinite().all()


class TestBadInput:
    def test_an_empty_loader(self, model):
        with pytest.raises(ValueError, match="at least one batch"):
            fit(model, [])

    def test_a_batch_with_nan_is_named(self, model):
        batches = [(examples(4, seed)) for seed in range(9)]
        batches[7][0][2, 0] = float("nan")
        with pytest.raises(ValueError, match=r"Batch 7 \(counted from 0\).*row 2"):
            fit(model, batches)
        assert all(module.training == model.training for module in model.modules())

    def test_labels_beyond_the_classes(self, model):
        with pytest.raises(ValueError, match="labels from 0 to 7"):
            fit(model, [(examples(2)[0], torch.tensor([0, 7]))])

    def test_too_few_labels(self, model):
        with pytest.raises(lb.errors.ShapeError, match="1 labels for 4 predictions"):
            fit(model, [(examples(4)[0], torch.tensor([0]))])

    def test_labels_instead_of_inputs_say_so(self, model):
        inputs, labels = examples(4)
        with pytest.raises(ValueError, match=r"torch.int64 \(4,\).*right order"):
            fit(model, [(labels, inputs)])

    def test_no_labels_and_no_prior(self, model):
        with pytest.raises(ValueError, match="a way to choose the prior precision"):
            fit(model, [examples(4)[0]])
        assert fit(model, [examples(4)[0]], prior_precision=1.0).log_likelihood is None

    def test_the_evidence_needs_labels(self, model):
        with pytest.raises(ValueError, match="needs labels"):
            fit(model, [examples(4)[0]], prior_precision=1.0).evidence()

    def test_features_of_another_size(self, model):
        classifier = fit(model, prior_precision=1.0)
        with pytest.raises(lb.errors.ShapeError, match="16 features"):
            classifier.posterior(torch.zeros(2, 4))


@pytest.mark.parametrize("curvature", [Kron, Full])
def test_a_single_logit_gives_the_logistic_posterior_with_half_the_prior_precision(curvature):
    head = nn.Linear(FEATURES, 1, bias=False).double()
    inputs = torch.randn(
        1 if curvature is Kron else 40, FEATURES, generator=seeded(2), dtype=torch.float64
    )
    classifier = fit(
        head, [(inputs, torch.zeros(len(inputs)).long())], curvature=curvature, prior_precision=0.8
    )
    chance = head(inputs).detach().sigmoid()
    precision = (chance * (1 - chance) * inputs).T @ inputs + 0.4 * torch.eye(FEATURES).double()
    features = torch.randn(6, FEATURES, generator=seeded(3), dtype=torch.float64)
    expected = torch.einsum("bd,de,be->b", features, torch.linalg.inv(precision), features)
    matrix = classifier.posterior(features).covariance.to_dense()
    difference = matrix[:, 0, 0] + matrix[:, 1, 1] - 2 * matrix[:, 0, 1]
    torch.testing.assert_close(difference, expected)


@pytest.mark.parametrize(
    ("first", "name"),
    [("[torch.zeros(2, 3)]", "list"), ("LogisticRegression()", "LogisticRegression")],
)
def test_something_else_in_place_of_the_model_is_noticed(first, name):
    # in a process of its own: here the types of arguments are checked before the
    # function sees them
    code = (
        "import torch, laplacebridge as lb; from sklearn.linear_model import LogisticRegression; "
        f"lb.fit({first}, torch.nn.Linear(3, 2))"
    )
    result = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (
        f"needs a network first, an `nn.Module`, and a loader second; got {name} first"
        in result.stderr
    )
    if name == "LogisticRegression":
        assert "laplacebridge.sklearn.LaplaceBridgeClassifier(classifier)" in result.stderr
        return
    example = re.search(
        "`nn.Linear` with its weights, on batches of features: see `(.*)`", result.stderr
    )
    assert (Path(__file__).parents[2] / example[1]).exists()


def test_classes_without_a_training_example_are_named():
    torch.manual_seed(0)
    head, inputs = nn.Linear(3, 8), torch.randn(60, 3)
    some = [(inputs, torch.arange(60) % 8)]
    missing = [(inputs, torch.arange(60) % 2 + 1)]
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="No training example")
        lb.fit(head, some, prior_precision=1.0, progress=False)
        with pytest.raises(UserWarning, match=r"has class 0, 3, 4, 5, 6 and 1 more \(of 8"):
            lb.fit(head, missing, prior_precision=1.0, progress=False)
