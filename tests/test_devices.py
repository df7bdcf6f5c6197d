"""What a device computes stays there: run on one that has no numbers, where looking at
one fails.
"""

import ast
from pathlib import Path

import pytest
import torch
from accelerator import DEVICE, accelerator, empty, linear, reading
from torch import nn

import laplacebridge as lb
from laplacebridge import metrics, scores, sets
from laplacebridge.covariance import CenteredDiagonal, Dense, Diagonal, LowRank, SharedBasis
from laplacebridge.laplace import Diag, DiagKron, Full, Kron

BATCH, CLASSES = 5, 3
COVARIANCES = {
    "Diagonal": lambda: Diagonal(empty(BATCH, CLASSES)),
    "CenteredDiagonal": lambda: CenteredDiagonal(empty(BATCH, CLASSES)),
    "SharedBasis": lambda: SharedBasis(empty(BATCH, CLASSES), empty(CLASSES, CLASSES)),
    "LowRank": lambda: LowRank(empty(BATCH, CLASSES, 2)),
    "Dense": lambda: Dense(empty(BATCH, CLASSES, CLASSES)),
}
# Everything that computes on the CPU whatever device it is given: `docs/promises.md`
# has the same list.
ON_THE_CPU = {
    "bridges/factor_points.py": "fixed points, made when the library is imported",
    "beta.py": "quantiles and probabilities of Beta marginals, by SciPy",
    "laplace/examples.py": "images that are kept for a report",
    "laplace/label_statistics.py": "how many labels each class has",
    "laplace/distributed.py": "how many labels each class has",
    "laplace/loss.py": "weights of classes, as they are given",
    "laplace/network.py": "fingerprints of weights",
    "multi_label/prediction.py": "`MultiLabelPrediction.numpy`",
    "multi_label/sets.py": "thresholds of sets, when they are calibrated",
    "sets/conditional.py": "thresholds by class and group, when they are calibrated",
    "metrics/intervals.py": "bootstrap intervals of metrics",
    "metrics/resampling.py": "bootstrap intervals of metrics",
    "metrics/votes.py": "likelihood of several people's labels, by SciPy",
    "temperature.py": "temperature scaling, when it is fitted",
    "_quadrature.py": "exact references, for tests and benchmarks",
    "prediction.py": "`Prediction.numpy`",
    "selective/reviewing.py": "the order in which cases are looked at",
    "selective/selective_rule.py": "thresholds of rules, when they are calibrated",
}
# What writes files, pages and text, or speaks to libraries of arrays, is for the CPU by
# its nature.
WRITERS = (
    "cli/",
    "report/",
    "serve/",
    "onnx/",
    "sklearn/",
    "checkpoint/",
    "datasets.py",
    "_files.py",
    "_arrays.py",
    "_scoring.py",
    "_scoring_sources.py",
    "testing/",
)


@pytest.fixture(autouse=True)
def _device():
    with accelerator(), torch.no_grad():
        yield


def model():
    return nn.Sequential(linear(4, 6), nn.ReLU(), linear(6, CLASSES)).eval()


def batch():
    return empty(BATCH, 4), empty(BATCH, dtype=torch.int64)


def fitted(**options):
    with reading():  # a fit looks at its data
        return lb.fit(model(), [batch()], prior_precision=1.0, progress=False, **options)


def prediction():
    return fitted()(batch()[0])


def test_the_device_has_no_numbers_and_does_not_mix():
    with pytest.raises(RuntimeError):
        bool(empty(3).all())
    with pytest.raises(RuntimeError, match="device"):
        empty(3) + torch.ones(3)


@pytest.mark.parametrize("name", lb.bridges.BRIDGES)
@pytest.mark.parametrize("structure", COVARIANCES)
def test_bridges_wait_for_nothing(name, structure):
    bridge = lb.bridges.BRIDGES[name]
    # which rows share factors is a number that a search has to wait for; a fit's need none
    gaussian = lb.LogitGaussian(empty(BATCH, CLASSES), COVARIANCES[structure](), seek_factors=False)
    predicted = lb.predict(gaussian, bridge)
    for tensor in (
        bridge(gaussian).log_concentration,
        lb.bridges.mean_of(bridge)(gaussian),
        predicted.mean,
        predicted.log_odds_variance,
    ):
        assert tensor.device == DEVICE
        assert tensor.shape == (BATCH, CLASSES)


@pytest.mark.parametrize("kind", [Diag, Kron, DiagKron, Full])
@pytest.mark.parametrize("bridge", [lb.race_bridge, lb.laplace_bridge])
def test_classifiers_wait_for_nothing(kind, bridge):
    classifier = fitted(curvature=kind, bridge=bridge)
    classifier.posterior = classifier.posterior.with_temperature(1.5)
    inputs, _ = batch()
    assert classifier(inputs).mean.device == DEVICE
    assert classifier.probabilities(inputs).device == DEVICE
    assert classifier.logits(inputs).variance.device == DEVICE
    assert {tensor.device for tensor in classifier.posterior.buffers()} == {DEVICE}


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
@pytest.mark.parametrize("kind", [Diag, Kron])
def test_classifiers_of_several_layers_wait_for_nothing(kind):
    assert fitted(layers="*", curvature=kind)(batch()[0]).mean.device == DEVICE


def test_what_a_prediction_says_waits_for_nothing():
    predicted = prediction()
    given = [
        *predicted.interval(),
        predicted.probability_above(0.5),
        predicted.label,
        predicted.total,
        predicted.epistemic,
        predicted.aleatoric,
    ]
    assert {tensor.device for tensor in given} == {DEVICE}


@pytest.mark.parametrize(
    "score",
    [
        scores.msp,
        scores.mutual_information,
        scores.entropy_of_mean,
        scores.expected_entropy,
        scores.max_marginal_variance,
        scores.negative_log_total,
    ],
)
def test_scores_stay_where_predictions_are(score):
    predicted = prediction()
    with reading() as asked:
        assert score(predicted).device == DEVICE
    # that a prediction is sound
    assert asked <= {"_predictions.probabilities_of", "_checks.require_finite"}


@pytest.mark.parametrize(
    "metric", [metrics.accuracy, metrics.nll, metrics.brier, metrics.classwise_ece]
)
def test_metrics_are_computed_where_predictions_are(metric):
    predicted, labels = prediction(), batch()[1]
    with reading():
        assert isinstance(metric(predicted, labels), float)


def test_metrics_of_scores_are_computed_where_scores_are():
    with reading():
        assert isinstance(metrics.auroc(empty(BATCH), empty(BATCH)), float)
        assert isinstance(metrics.aurc(empty(BATCH), empty(BATCH, dtype=torch.bool)), float)


@pytest.mark.parametrize("rule", [sets.LeastAmbiguous(), sets.Mass(), sets.APS(), sets.RAPS()])
def test_sets_stay_where_predictions_are(rule):
    predicted = prediction()
    with reading():
        assert rule(predicted, 0.5).size.device == DEVICE


def test_all_that_computes_on_the_cpu_is_listed():
    root = Path(lb.__file__).parent
    found = {
        name
        for path in root.rglob("*.py")
        if not (name := path.relative_to(root).as_posix()).startswith(WRITERS)
        and any(
            isinstance(node, ast.Attribute) and node.attr in {"cpu", "numpy"}
            for node in ast.walk(ast.parse(path.read_text()))
            if not isinstance(getattr(node, "value", None), ast.Attribute)
        )
    }
    assert found == set(ON_THE_CPU)
    page = (Path(__file__).parents[1] / "docs" / "promises.md").read_text()
    for module in ON_THE_CPU:
        assert f"`{module}`" in page, module
