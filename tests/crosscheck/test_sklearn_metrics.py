"""scikit-learn computes the same metrics where both have them."""

import inspect

import numpy as np
import pytest
import sklearn.metrics
import torch
from cases import seeded

import laplacebridge as lb
from laplacebridge import metrics


@pytest.fixture(params=[2, 3, 10], ids="{} classes".format)
def predictions(request):
    logits = 2 * torch.randn(250, request.param, generator=seeded(0), dtype=torch.float64)
    labels = torch.multinomial((0.5 * logits).softmax(-1), 1, generator=seeded(1)).squeeze(-1)
    return logits.softmax(-1), labels


@pytest.fixture(params=[None, 1], ids=["different scores", "scores with ties"])
def scores(request):
    id_scores, ood_scores = (
        torch.randn(130, generator=seeded(2)),
        1 + torch.randn(70, generator=seeded(3)),
    )
    if request.param is not None:
        id_scores, ood_scores = (
            id_scores.round(decimals=request.param),
            ood_scores.round(decimals=request.param),
        )
    truth = np.repeat([0, 1], [130, 70])
    return id_scores, ood_scores, truth, torch.cat([id_scores, ood_scores]).numpy()


def test_accuracy(predictions):
    probabilities, labels = predictions
    expected = sklearn.metrics.accuracy_score(labels, probabilities.argmax(-1))
    assert metrics.accuracy(probabilities, labels) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_top_k_accuracy(k):
    probabilities = torch.randn(250, 10, generator=seeded(4), dtype=torch.float64).softmax(-1)
    labels = torch.randint(10, (250,), generator=seeded(5))
    expected = sklearn.metrics.top_k_accuracy_score(labels, probabilities, k=k, labels=range(10))
    assert metrics.top_k_accuracy(probabilities, labels, k=k) == pytest.approx(expected, rel=1e-14)


def test_nll(predictions):
    probabilities, labels = predictions
    expected = sklearn.metrics.log_loss(labels, probabilities, labels=range(probabilities.shape[1]))
    assert metrics.nll(probabilities, labels) == pytest.approx(expected, rel=1e-12)
    assert metrics.nll(lb.Dirichlet(probabilities.log() + 2), labels) == pytest.approx(
        expected, rel=1e-12
    )


HAS_MANY_CLASSES = "scale_by_half" in inspect.signature(sklearn.metrics.brier_score_loss).parameters


@pytest.mark.skipif(
    not HAS_MANY_CLASSES, reason="this scikit-learn knows the Brier score of two classes only"
)
def test_brier_score(predictions):
    probabilities, labels = predictions
    classes = range(probabilities.shape[1])
    expected = sklearn.metrics.brier_score_loss(
        labels, probabilities, labels=classes, scale_by_half=False
    )
    assert metrics.brier(probabilities, labels) == pytest.approx(expected, rel=1e-12)


def test_brier_score_as_a_squared_error(predictions):
    probabilities, labels = predictions
    one_hot = np.eye(probabilities.shape[1])[labels]
    expected = sklearn.metrics.mean_squared_error(one_hot, probabilities)
    assert metrics.brier(probabilities, labels, per_class_mean=True) == pytest.approx(
        expected, rel=1e-12
    )
    assert metrics.brier(probabilities, labels) == pytest.approx(
        expected * probabilities.shape[1], rel=1e-12
    )


def test_auroc(scores):
    id_scores, ood_scores, truth, together = scores
    expected = sklearn.metrics.roc_auc_score(truth, together)
    assert metrics.auroc(id_scores, ood_scores) == pytest.approx(expected, rel=1e-12)


def test_average_precision(scores):
    id_scores, ood_scores, truth, together = scores
    expected = sklearn.metrics.average_precision_score(truth, together)
    assert metrics.aupr(id_scores, ood_scores) == pytest.approx(expected, rel=1e-12)
    turned = sklearn.metrics.average_precision_score(1 - truth, -together)
    assert metrics.aupr(id_scores, ood_scores, id_positive=True) == pytest.approx(turned, rel=1e-12)
