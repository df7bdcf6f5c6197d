"""What a device computes stays there, and is what the CPU computes: run on a device
that is played, where whoever needs a number fails or is noted.

`test_devices.py` runs it in a process of its own, all of which the device changes.
"""

import copy

import pytest
import torch
from accelerator import DEVICE, WaitingError, accelerator, reading
from cases import seeded
from small_network import CLASSES, FEATURES, examples
from torch import nn

import laplacebridge as lb
from laplacebridge import metrics, scores, selective, sets
from laplacebridge.covariance import CenteredDiagonal, Dense, Diagonal, LowRank, SharedBasis
from laplacebridge.laplace import Diag, DiagKron, Full, Kron

BATCH = 40
CPU = torch.device("cpu")


def random(*shape, seed=0):
    return torch.randn(*shape, generator=seeded(seed))


COVARIANCES = {
    "Diagonal": lambda on: Diagonal(on(random(BATCH, CLASSES).square())),
    "CenteredDiagonal": lambda on: CenteredDiagonal(on(random(BATCH, CLASSES).square())),
    "SharedBasis": lambda on: SharedBasis(
        on(random(BATCH, CLASSES).square()), on(random(CLASSES, CLASSES, seed=1))
    ),
    "LowRank": lambda on: LowRank(on(random(BATCH, CLASSES, 2))),
    "Dense": lambda on: Dense(on((r := random(BATCH, CLASSES, CLASSES)) @ r.mT)),
}


@pytest.fixture(autouse=True)
def _device():
    with accelerator():
        yield


def on(tensor):
    return tensor.to(DEVICE)


def same(played, real, **tolerances):
    """Compares numbers, after it has seen that the first are on the device."""
    assert played.device == DEVICE
    torch.testing.assert_close(played.detach().numbers, real.detach(), **tolerances)


def fitted(model, device=CPU, *, val=None, **options):
    """A classifier, and the functions that asked for numbers in its fit."""
    network = copy.deepcopy(model).to(device)
    batches = [tuple(each.to(device) for each in examples(200, seed)) for seed in (2, 3)]
    held_out = None if val is None else [tuple(each.to(device) for each in examples(val, 4))]
    if val is None:
        options.setdefault("prior_precision", 1.0)
    with reading() as asked:
        classifier = lb.fit(network, batches, val_loader=held_out, progress=False, **options)
    return classifier, asked


@pytest.fixture
def predictions(model):
    """The same prediction on the device and on the CPU, and its labels."""
    inputs, labels = examples(BATCH, seed=5)
    played, real = (fitted(model, device)[0] for device in (DEVICE, CPU))
    return played(on(inputs)), real(inputs), labels


def test_the_device_gives_no_numbers_and_does_not_mix():
    with pytest.raises(WaitingError):
        bool(on(torch.ones(3)).all())
    with pytest.raises(WaitingError):
        on(torch.ones(3)).cpu()
    with pytest.raises(RuntimeError, match="same device"):
        on(torch.ones(3)) + torch.ones(3)
    with pytest.raises(RuntimeError):
        on(torch.ones(3)).numpy()


@pytest.mark.parametrize("name", lb.bridges.BRIDGES)
@pytest.mark.parametrize("structure", COVARIANCES)
def test_bridges_wait_for_nothing(name, structure):
    bridge, mean = lb.bridges.BRIDGES[name], random(BATCH, CLASSES, seed=2)
    # which rows share factors is a number that a search has to wait for; a fit's need none
    played, real = (
        lb.LogitGaussian(move(mean), COVARIANCES[structure](move), seek_factors=False)
        for move in (on, lambda tensor: tensor)
    )
    predicted, expected = lb.predict(played, bridge), lb.predict(real, bridge)
    same(bridge(played).log_concentration, bridge(real).log_concentration)
    same(lb.bridges.mean_of(bridge)(played), lb.bridges.mean_of(bridge)(real))
    same(predicted.mean, expected.mean)
    same(predicted.log_odds_variance, expected.log_odds_variance)


@pytest.mark.parametrize("kind", [Diag, Kron, DiagKron, Full])
@pytest.mark.parametrize("bridge", [lb.race_bridge, lb.laplace_bridge])
def test_classifiers_wait_for_nothing(model, kind, bridge):
    inputs, _ = examples(BATCH, seed=5)
    played, real = (
        fitted(model, device, curvature=kind, bridge=bridge)[0] for device in (DEVICE, CPU)
    )
    for classifier in (played, real):
        classifier.posterior = classifier.posterior.with_temperature(1.5)
    close = {"rtol": 1e-3, "atol": 1e-5}
    same(played(on(inputs)).mean, real(inputs).mean, **close)
    same(played.probabilities(on(inputs)), real.probabilities(inputs), **close)
    same(played.logits(on(inputs)).variance, real.logits(inputs).variance, **close)
    assert {tensor.device for tensor in played.posterior.buffers()} == {DEVICE}


@pytest.mark.parametrize("kind", [Diag, Kron])
def test_classifiers_of_several_layers_wait_for_nothing(model, kind):
    inputs, _ = examples(BATCH, seed=5)
    played, real = (fitted(model, each, layers="*", curvature=kind)[0] for each in (DEVICE, CPU))
    same(played(on(inputs)).mean, real(inputs).mean, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"curvature": Full},
        {"tune_temperature": True, "bridge": lb.laplace_bridge},  # many candidates
    ],
)
@pytest.mark.filterwarnings("ignore:The best prior precision")
def test_a_fit_that_chooses_gives_the_same_on_a_device(model, options):
    inputs, _ = examples(BATCH, seed=5)
    (played, asked), (real, _) = (fitted(model, each, val=50, **options) for each in (DEVICE, CPU))
    # a fit checks, counts and chooses; bridges, covariances and scores do not
    assert {place.split(".")[0] for place in asked} <= {
        "_checks",
        "_predictions",
        "_values",
        "laplace",
        "metrics",
    }
    assert {tensor.device for tensor in played.posterior.buffers()} == {DEVICE}
    prediction, expected = played(on(inputs)), real(inputs)  # waits for nothing
    for name in ("mean", "log_odds_variance", "ood_quantile"):
        same(getattr(prediction, name), getattr(expected, name), rtol=1e-2, atol=1e-4)


def test_what_a_prediction_says_waits_for_nothing(predictions):
    played, real, _ = predictions
    for name in ("label", "total", "epistemic", "aleatoric"):
        same(getattr(played, name), getattr(real, name), rtol=1e-3, atol=1e-5)
    for given, expected in zip(played.interval(), real.interval()):
        same(given, expected, rtol=1e-3, atol=1e-5)
    same(played.probability_above(0.5), real.probability_above(0.5), rtol=1e-3, atol=1e-5)


def test_beta_quantiles_are_scipys_and_come_back(predictions):
    real = predictions[1].dirichlet.marginal(0)
    with reading():  # a class that there is not would be named
        played = predictions[0].dirichlet.marginal(0)
    with reading() as asked:
        found = (*played.interval(), played.cdf(0.5))
    for given, expected in zip(found, (*real.interval(), real.cdf(0.5))):
        same(given, expected, rtol=1e-3, atol=1e-4)
    assert {place.split(".")[0] for place in asked} == {"beta"}


ALL_SCORES = {**scores.SCORES, **scores.DIRICHLET_SCORES}


@pytest.mark.parametrize("name", ALL_SCORES)
def test_scores_stay_where_predictions_are(predictions, name):
    played, real, _ = predictions
    with reading() as asked:
        score = ALL_SCORES[name](played)
    same(score, ALL_SCORES[name](real), rtol=1e-3, atol=1e-4)
    # that a prediction is sound
    assert asked <= {"_predictions.probabilities_of", "_checks.require_finite"}


@pytest.mark.parametrize("name", scores.LOGIT_SCORES)
def test_scores_of_logits_stay_where_they_are(name):
    logits = random(BATCH, CLASSES)
    with reading() as asked:
        score = scores.LOGIT_SCORES[name](on(logits))
    same(score, scores.LOGIT_SCORES[name](logits))
    assert asked <= {"_checks.require_finite"}


FEATURE_SCORES = {
    "ash": lambda features, train, labels, head: scores.ash(features.relu(), head),
    "knn": lambda features, train, labels, head: scores.knn(features, train, neighbours=5),
    "mahalanobis": lambda features, train, labels, head: scores.mahalanobis(
        features, train, labels
    ),
    "mahalanobis_plus_plus": lambda features, train, labels, head: scores.mahalanobis_plus_plus(
        features, train, labels
    ),
    "react": lambda features, train, labels, head: scores.react(features, train, head),
    "relative_mahalanobis": lambda features, train, labels, head: scores.relative_mahalanobis(
        features, train, labels
    ),
    "vim": lambda features, train, labels, head: scores.vim(features, train, head, dimension=2),
}


@pytest.mark.parametrize("name", FEATURE_SCORES)
def test_scores_of_features_stay_where_they_are(name):
    features, _ = examples(BATCH, seed=5)
    train, labels = examples(200)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        head = nn.Linear(FEATURES, CLASSES)
    score = FEATURE_SCORES[name]
    with reading():
        played = score(on(features), on(train), on(labels), copy.deepcopy(head).to(DEVICE))
    same(played, score(features, train, labels, head), rtol=1e-3, atol=1e-4)


METRICS = ("accuracy", "nll", "brier", "ece", "adaptive_ece", "classwise_ece", "top_k_accuracy")


@pytest.mark.parametrize("name", METRICS)
def test_metrics_are_computed_where_predictions_are(predictions, name):
    played, real, labels = predictions
    options = {"k": 2} if name == "top_k_accuracy" else {}
    with reading():
        found = getattr(metrics, name)(played, on(labels), **options)
    assert found == pytest.approx(getattr(metrics, name)(real, labels, **options), abs=1e-4)


@pytest.mark.parametrize("name", ["auroc", "aupr", "fpr_at_tpr"])
def test_metrics_of_scores_are_computed_where_scores_are(name):
    usual, unusual = random(BATCH), random(BATCH, seed=1) + 1
    metric = getattr(metrics, name)
    with reading():
        found = metric(on(usual), on(unusual))
        interval = metrics.bootstrap(
            metric, on(usual), on(unusual), num_resamples=40, generator=seeded(0), paired=False
        )
    assert found == pytest.approx(metric(usual, unusual))
    assert interval.low <= found <= interval.high


def test_metrics_of_decisions_are_computed_where_they_are():
    score, right = random(BATCH), random(BATCH, seed=1) > 0
    with reading():
        assert metrics.aurc(on(score), on(right)) == pytest.approx(metrics.aurc(score, right))
        curve = metrics.risk_coverage_curve(on(score), on(right))
    same(curve.risk, metrics.risk_coverage_curve(score, right).risk)


def test_likelihoods_of_votes_are_the_same(predictions):
    played, real, labels = predictions
    votes = nn.functional.one_hot(labels, CLASSES) * 2
    with reading():
        found = metrics.dirichlet_multinomial_nll(played, on(votes))
    assert found == pytest.approx(metrics.dirichlet_multinomial_nll(real, votes), abs=1e-4)


RULES = {
    "LeastAmbiguous": sets.LeastAmbiguous,
    "Mass": sets.Mass,
    "APS": lambda: sets.APS(None),
    "RAPS": lambda: sets.RAPS(generator=None),
    "TopK": sets.TopK,
    "Overlap": sets.Overlap,
}


@pytest.mark.parametrize("name", RULES)
def test_sets_stay_where_predictions_are(predictions, name):
    played, real, labels = predictions
    with reading():
        found = sets.calibrate(RULES[name](), played, on(labels), coverage=0.8)(played)
        by_class = sets.calibrate_by_class(RULES[name](), played, on(labels), coverage=0.8)
        found_by_class = by_class(played)
        by_group = sets.calibrate_by_group(
            RULES[name](), played, on(labels), on(labels % 2), coverage=0.8
        )
        found_by_group = by_group(played, on(labels % 2))
        coverage = metrics.coverage(found, on(labels)), metrics.mean_set_size(found)
    expected = sets.calibrate(RULES[name](), real, labels, coverage=0.8)(real)
    same(found.size, expected.size)
    same(found.classes, expected.classes)
    assert coverage == (metrics.coverage(expected, labels), metrics.mean_set_size(expected))
    by_class = sets.calibrate_by_class(RULES[name](), real, labels, coverage=0.8)
    same(found_by_class.size, by_class(real).size)
    by_group = sets.calibrate_by_group(RULES[name](), real, labels, labels % 2, coverage=0.8)
    same(found_by_group.size, by_group(real, labels % 2).size)


def test_decisions_stay_where_predictions_are(predictions):
    played, real, labels = predictions
    with reading():
        rule = selective.calibrate(scores.msp, played, on(labels), answer_share=0.6)
        found = rule(played)
        cases = selective.review(played, 5)
    expected = selective.calibrate(scores.msp, real, labels, answer_share=0.6)(real)
    same(found.action, expected.action)
    assert [case.row for case in cases] == [case.row for case in selective.review(real, 5)]
