"""Accuracy and proper scores: values worked by hand, of Dirichlets and probabilities,
every type and many classes.
"""

import math

import pytest
import torch
from cases import seeded
from tensor_sizes import LargestTensor

import laplacebridge as lb
from laplacebridge import metrics

PROBABILITIES = torch.tensor(
    [[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.25, 0.5, 0.25], [0.4, 0.35, 0.25]], dtype=torch.float64
)
LABELS = torch.tensor([0, 1, 1, 2])
# whatever the total, the mean is the same
DIRICHLET = lb.Dirichlet(PROBABILITIES.log() + torch.tensor([[-30.0], [0.0], [3.0], [900.0]]))
BY_HAND = {
    "accuracy": (lambda prediction: metrics.accuracy(prediction, LABELS), 2 / 4),
    "top 2": (lambda prediction: metrics.top_k_accuracy(prediction, LABELS, k=2), 3 / 4),
    "nll": (lambda prediction: metrics.nll(prediction, LABELS), math.log(80) / 4),
    "brier": (
        lambda prediction: metrics.brier(prediction, LABELS),
        (0.38 + 1.14 + 0.375 + 0.845) / 4,
    ),
    "brier over classes": (
        lambda prediction: metrics.brier(prediction, LABELS, per_class_mean=True),
        (0.38 + 1.14 + 0.375 + 0.845) / 12,
    ),
    "mmc": (metrics.mmc, (0.5 + 0.7 + 0.5 + 0.4) / 4),
}
EVERY_METRIC = pytest.mark.parametrize("name", BY_HAND)


@EVERY_METRIC
@pytest.mark.parametrize(
    "prediction", [PROBABILITIES, DIRICHLET], ids=["probabilities", "dirichlet"]
)
def test_values_are_those_worked_by_hand(name, prediction):
    metric, value = BY_HAND[name]
    result = metric(prediction)
    assert isinstance(result, float)
    assert result == pytest.approx(value, rel=1e-12)


@EVERY_METRIC
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_narrow_types_give_the_value_of_what_they_hold(name, dtype):
    metric, _ = BY_HAND[name]
    narrow = PROBABILITIES.to(dtype)
    assert metric(narrow) == pytest.approx(
        metric(narrow.double() / narrow.double().sum(-1, keepdim=True)), rel=1e-2
    )
    logs = DIRICHLET[1:3].log_concentration.to(dtype)
    assert metrics.mmc(lb.Dirichlet(logs)) == pytest.approx(
        metrics.mmc(lb.Dirichlet(logs.double())), rel=1e-6
    )


def test_labels_may_be_a_list_or_any_integers():
    for labels in (LABELS.tolist(), LABELS.int(), LABELS.to(torch.uint8)):
        assert metrics.nll(PROBABILITIES, labels) == metrics.nll(PROBABILITIES, LABELS)


def test_predictions_that_carry_a_gradient_are_judged_like_others():
    learned = PROBABILITIES.clone().requires_grad_()
    for metric, value in BY_HAND.values():
        assert metric(learned) == pytest.approx(value, rel=1e-12)
    assert metrics.ece(learned, LABELS) == metrics.ece(PROBABILITIES, LABELS)
    assert metrics.classwise_ece(learned, LABELS) == metrics.classwise_ece(PROBABILITIES, LABELS)


def test_a_perfect_prediction_has_no_loss():
    sure = torch.eye(3)[LABELS]
    assert metrics.accuracy(sure, LABELS) == 1
    assert metrics.brier(sure, LABELS) == 0
    assert math.copysign(1, metrics.nll(sure, LABELS)) == 1  # 0.0 and not −0.0


def test_the_nll_of_a_dirichlet_is_finite_where_its_probability_underflows():
    dirichlet = lb.Dirichlet(torch.tensor([[0.0, -500.0]]))
    assert dirichlet.mean[0, 1] == 0
    assert metrics.nll(dirichlet, [1]) == pytest.approx(500, rel=1e-12)


def test_the_nll_of_a_dirichlet_keeps_its_digits_beside_huge_totals():
    dirichlet = lb.Dirichlet(torch.tensor([[20_000.0, 20_000.0]]))
    assert metrics.nll(dirichlet, [1]) == pytest.approx(math.log(2), abs=1e-11)


def test_the_nll_of_a_label_with_probability_zero_is_infinite():
    assert metrics.nll(torch.tensor([[1.0, 0.0], [0.5, 0.5]]), [1, 0]) == math.inf


def test_of_equally_probable_classes_the_first_counts():
    uniform = torch.full((3, 3), 1 / 3)
    assert metrics.accuracy(uniform, [0, 1, 2]) == pytest.approx(1 / 3)
    assert metrics.correct(uniform, [0, 1, 2]).tolist() == [True, False, False]
    assert metrics.top_k_accuracy(uniform, [0, 1, 2], k=2) == pytest.approx(2 / 3)


def test_top_1_is_the_accuracy_and_top_k_is_one():
    probabilities = torch.randn(200, 7, generator=seeded(0)).softmax(-1)
    labels = torch.randint(7, (200,), generator=seeded(1))
    shares = [metrics.top_k_accuracy(probabilities, labels, k=k) for k in range(1, 8)]
    assert shares[0] == metrics.accuracy(probabilities, labels)
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_correct_is_what_accuracy_is_the_mean_of():
    right = metrics.correct(DIRICHLET, LABELS)
    assert right.dtype == torch.bool
    assert right.tolist() == [True, False, True, False]


@pytest.mark.parametrize("k", [0, -1, 4])
def test_no_or_more_than_all_classes_are_refused(k):
    with pytest.raises(ValueError, match=f"needs k from 1 to K = 3; got k = {k}"):
        metrics.top_k_accuracy(PROBABILITIES, LABELS, k=k)


@pytest.mark.parametrize(
    "metric",
    [
        metrics.accuracy,
        metrics.top_k_accuracy,
        metrics.nll,
        metrics.brier,
        metrics.ece,
        metrics.adaptive_ece,
        metrics.classwise_ece,
    ],
)
def test_a_hundred_thousand_classes_need_no_tensor_larger_than_the_predictions(metric):
    logits = torch.randn(3, 100_000, generator=seeded(2))
    for prediction in (logits.softmax(-1), lb.Dirichlet(logits)):
        with LargestTensor() as watch:
            value = metric(prediction, [0, 5, 99_999])
        assert math.isfinite(value)
        assert watch.largest <= logits.numel()
