"""Calibration errors: bins by hand, equal confidences, and a second implementation with
loops.
"""

import itertools
from functools import partial

import numpy as np
import pytest
import torch
from cases import seeded

import laplacebridge as lb
from laplacebridge import metrics

ECE_OF_EACH_KIND = [metrics.ece, metrics.adaptive_ece, metrics.classwise_ece]


def binary(confidence, right, dtype=torch.float64):
    """Predictions of class 0 with these confidences (at least 1/2), and labels that
    make them right or wrong.
    """
    first = torch.tensor(confidence, dtype=dtype)
    return torch.stack([first, 1 - first], -1), [0 if hit else 1 for hit in right]


def random_predictions(num_examples=300, num_classes=4, seed=0):
    probabilities = (
        (2 * torch.randn(num_examples, num_classes, generator=seeded(seed))).double().softmax(-1)
    )
    return probabilities, torch.randint(num_classes, (num_examples,), generator=seeded(seed + 1))


def test_ece_weighs_the_gap_of_each_bin_by_its_examples():
    # (0.4, 0.6]: a gap of 0.02 in 2 examples; (0.6, 0.8]: 0.7 in 1; (0.8, 1]: 0.1 in 2
    prediction = binary([0.51, 0.53, 0.7, 0.9, 0.9], [True, False, False, True, True])
    assert metrics.ece(*prediction, num_bins=5) == pytest.approx(
        0.02 * 2 / 5 + 0.7 / 5 + 0.1 * 2 / 5, rel=1e-12
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_bin_holds_its_upper_edge_and_not_its_lower(dtype):
    # 0.6 is in (0.4, 0.6] with 0.55, and 0.8 alone in (0.6, 0.8]
    prediction = binary([0.55, 0.6, 0.8], [False, True, True], dtype)
    table = metrics.reliability(*prediction, num_bins=5)
    assert table.index.tolist() == [2, 3]
    assert table.count.tolist() == [2, 1]
    assert metrics.ece(*prediction, num_bins=5) == pytest.approx((0.15 + 0.2) / 3, rel=1e-6)


def test_certainty_is_in_the_last_bin_also_if_it_is_rounded_up():
    above = torch.tensor([[1 + 1e-6, 0.0], [1.0, 0.0]])
    assert metrics.reliability(above, [0, 0], num_bins=10).index.tolist() == [9]


def test_reliability_leaves_out_empty_bins_and_says_where_the_others_lie():
    table = metrics.reliability(*binary([0.55, 0.57, 0.95], [True, False, True]), num_bins=10)
    assert table.count.tolist() == [2, 1]
    for got, expected in (
        (table.lower, [0.5, 0.9]),
        (table.upper, [0.6, 1.0]),
        (table.confidence, [0.56, 0.95]),
        (table.accuracy, [0.5, 1.0]),
    ):
        torch.testing.assert_close(got, torch.tensor(expected, dtype=torch.float64))


def test_the_reliability_of_a_dirichlet_is_that_of_its_mean():
    probabilities, labels = random_predictions()
    ours = metrics.reliability(lb.Dirichlet(probabilities.log() + 5), labels)
    twin = metrics.reliability(probabilities, labels)
    torch.testing.assert_close(ours.confidence, twin.confidence)
    torch.testing.assert_close(ours.accuracy, twin.accuracy)
    assert int(ours.count.sum()) == len(labels)


@pytest.mark.parametrize("metric", ECE_OF_EACH_KIND)
def test_a_perfect_prediction_is_calibrated(metric):
    labels = torch.tensor([0, 2, 1, 2])
    assert metric(torch.eye(3)[labels], labels) == 0


@pytest.mark.parametrize("metric", ECE_OF_EACH_KIND)
def test_three_of_four_right_at_three_quarters_is_calibrated(metric):
    assert metric(*binary([0.75] * 4, [True, True, False, True])) == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize("metric", ECE_OF_EACH_KIND)
def test_one_bin_compares_overall_confidence_with_overall_accuracy(metric):
    prediction = binary([0.6, 0.7, 0.8], [True, False, False])
    assert metric(*prediction, num_bins=1) == pytest.approx(0.7 - 1 / 3, rel=1e-12)


def test_adaptive_bins_hold_the_same_number_of_examples():
    confidence, right = [0.9, 0.5, 0.7, 1.0, 0.6, 0.8], [False, False, True, True, True, True]
    # {0.5, 0.6}: 0.55 and 1/2; {0.7, 0.8}: 0.75 and 1; {0.9, 1}: 0.95 and 1/2
    prediction = binary(confidence, right)
    assert metrics.adaptive_ece(*prediction, num_bins=3) == pytest.approx(
        (0.05 + 0.25 + 0.45) / 3, rel=1e-12
    )


@pytest.mark.parametrize(("num_examples", "num_bins"), [(7, 3), (100, 15), (16, 15), (15, 15)])
def test_adaptive_bins_differ_by_at_most_one_example(num_examples, num_bins):
    confidence = (0.5 + 0.5 * torch.rand(num_examples, generator=seeded(3))).tolist()
    prediction = binary(confidence, [True] * num_examples)
    count = metrics.reliability(*prediction, num_bins=num_bins, binning=metrics.equal_mass).count
    assert len(count) == num_bins
    assert int(count.max() - count.min()) <= 1


def test_with_more_adaptive_bins_than_examples_each_has_its_own():
    prediction = binary([0.6, 0.8, 0.9], [True, False, True])
    assert metrics.adaptive_ece(*prediction, num_bins=50) == pytest.approx(
        (0.4 + 0.8 + 0.1) / 3, rel=1e-12
    )


def test_adaptive_bins_keep_equal_confidences_together_whatever_the_order():
    confidence, right = [0.6, 0.6, 0.6, 0.6, 0.9], [True, True, False, False, True]
    turned = [(confidence[by:] + confidence[:by], right[by:] + right[:by]) for by in range(5)]
    values = {metrics.adaptive_ece(*binary(*pair), num_bins=2) for pair in turned}
    assert len({round(value, 12) for value in values}) == 1
    assert values.pop() == pytest.approx((0.1 * 4 + 0.1) / 5, rel=1e-12)


def test_classwise_ece_averages_the_gaps_of_every_class():
    probabilities = torch.tensor(
        [[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.6, 0.2, 0.2]], dtype=torch.float64
    )
    # class 0: |1 − 1.2| and |0 − 0.2|; class 1: |1 − 0.7| and |1 − 0.5|; class 2: |0 −
    # 0.4|, each over 3 examples
    expected = (0.2 + 0.2 + 0.3 + 0.5 + 0.4) / 3 / 3
    assert metrics.classwise_ece(probabilities, [0, 1, 1], num_bins=2) == pytest.approx(
        expected, rel=1e-12
    )


def ece_by_loops(confidence, hits, edges):
    """Σ (n_b/n) |hits − confidence| over bins that hold their upper edge, the first
    also its lower.
    """
    total = 0.0
    for number, (low, high) in enumerate(itertools.pairwise(edges)):
        inside = (confidence > low) & (confidence <= high) | ((number == 0) & (confidence == low))
        if inside.any():
            total += inside.mean() * abs(hits[inside].mean() - confidence[inside].mean())
    return total


@pytest.mark.parametrize("num_bins", [1, 4, 15, 100])
def test_errors_are_those_of_loops_over_bins(num_bins):
    probabilities, labels = random_predictions()
    numbers, truth = probabilities.numpy(), labels.numpy()
    confidence, hits = numbers.max(1), (numbers.argmax(1) == truth).astype(float)
    edges = np.linspace(0, 1, num_bins + 1)
    assert metrics.ece(probabilities, labels, num_bins=num_bins) == pytest.approx(
        ece_by_loops(confidence, hits, edges), rel=1e-10
    )
    by_class = [ece_by_loops(numbers[:, k], (truth == k).astype(float), edges) for k in range(4)]
    assert metrics.classwise_ece(probabilities, labels, num_bins=num_bins) == pytest.approx(
        np.mean(by_class), rel=1e-10
    )
    order = np.argsort(confidence)
    gaps = [
        abs(hits[group].mean() - confidence[group].mean()) for group in np.split(order, num_bins)
    ]
    assert metrics.adaptive_ece(probabilities, labels, num_bins=num_bins) == pytest.approx(
        np.mean(gaps), rel=1e-10
    )


def test_a_calibrated_model_has_less_error_the_more_examples_there_are():
    errors = []
    for num_examples in (300, 30_000):
        probabilities = torch.randn(num_examples, 3, generator=seeded(5)).double().softmax(-1)
        labels = torch.multinomial(probabilities, 1, generator=seeded(6)).squeeze(-1)
        errors.append([metric(probabilities, labels) for metric in ECE_OF_EACH_KIND])
    few, many = errors
    assert all(later < 0.2 * earlier for earlier, later in zip(few, many))


@pytest.mark.parametrize("metric", [*ECE_OF_EACH_KIND, metrics.reliability])
def test_no_bins_are_refused(metric):
    with pytest.raises(ValueError, match=r"needs num_bins ≥ 1; got 0\. 15 is usual"):
        metric(*binary([0.7], [True]), num_bins=0)


def test_bins_that_begin_at_chance_need_two_classes():
    with pytest.raises(
        ValueError, match=r"two classes or more among labels and predictions.*all are class 0"
    ):
        metrics.ece(*binary([0.7, 0.9], [True, True]), from_chance=True)


def test_bins_above_every_example_are_refused():
    high = partial(metrics.equal_width, lowest=0.95)
    with pytest.raises(ValueError, match=r"confidence of at least 0.95.*the largest is 0.9\."):
        metrics.reliability(*binary([0.7, 0.9], [True, True]), binning=high)
