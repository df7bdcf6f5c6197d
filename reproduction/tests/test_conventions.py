"""The conventions behind the paper's numbers, against a second implementation and
values worked by hand.
"""

import math
from functools import partial

import numpy as np
import pytest
import torch
from cases import gaussian, seeded

import laplacebridge as lb
from laplacebridge import metrics
from laplacebridge_reproduction import conventions


def published_ece(probabilities, labels, num_bins=100):
    """The authors' definition: bins from chance among the classes seen, nominal
    centres, rows below left out.
    """
    predicted = probabilities.argmax(1)
    lowest = 1 / len(set(labels) | set(predicted))
    confidence = probabilities.max(1)
    edges = np.linspace(lowest, 1, num_bins + 1)
    centers = np.linspace(lowest + 1 / (2 * num_bins), 1 - 1 / (2 * num_bins), num_bins)
    total, counted = 0.0, 0
    for number in range(num_bins):
        above = confidence >= edges[number]
        below = confidence <= 1 if number == num_bins - 1 else confidence < edges[number + 1]
        inside = above & below
        if inside.any():
            accuracy = np.mean(predicted[inside] == labels[inside])
            total += inside.sum() * abs(accuracy - centers[number])
            counted += inside.sum()
    return total / counted


def predictions(num_examples, num_classes, spread, seed=0):
    logits = spread * torch.randn(
        num_examples, num_classes, generator=seeded(seed), dtype=torch.float64
    )
    return logits.softmax(-1), torch.randint(
        num_classes, (num_examples,), generator=seeded(seed + 1)
    )


@pytest.mark.parametrize("spread", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("num_classes", [2, 10, 100])
def test_ece_is_the_authors_definition(num_classes, spread):
    probabilities, labels = predictions(400, num_classes, spread)
    expected = published_ece(probabilities.numpy(), labels.numpy())
    assert conventions.ece(probabilities, labels) == pytest.approx(expected, rel=1e-10)


def test_ece_counts_classes_that_occur_and_leaves_out_less_confidence_than_their_chance():
    # two of ten classes occur: bins begin at 1/2, and the second row is left out
    probabilities = torch.full((3, 10), 0.0, dtype=torch.float64)
    probabilities[:, :2] = torch.tensor([[0.753, 0.247], [0.4, 0.3], [0.1, 0.9026]])
    probabilities[1, 2], probabilities[2, 0] = 0.3, 0.0974
    labels = torch.tensor([1, 0, 1])
    # bins are 0.005 wide: 0.753 in number 50, wrong; 0.9026 in number 80, right;
    # centres from 0.505 to 0.995
    step = (0.995 - 0.505) / 99
    expected = ((0.505 + 50 * step) + (1 - (0.505 + 80 * step))) / 2
    assert conventions.ece(probabilities, labels) == pytest.approx(expected, rel=1e-12)
    assert published_ece(probabilities.numpy(), labels.numpy()) == pytest.approx(
        expected, rel=1e-12
    )


def test_ece_out_of_distribution_is_about_confidence_less_chance():
    probabilities, labels = predictions(
        20_000, 10, 3.0
    )  # labels that have nothing to do with the prediction
    assert conventions.ece(probabilities, labels) == pytest.approx(
        metrics.mmc(probabilities) - 0.1, abs=0.01
    )


def test_the_brier_score_is_averaged_over_classes_too():
    probabilities, labels = predictions(50, 10, 2.0)
    one_hot = np.eye(10)[labels.numpy()]
    expected = np.mean((probabilities.numpy() - one_hot) ** 2)
    assert conventions.brier(probabilities, labels) == pytest.approx(expected, rel=1e-12)
    assert metrics.brier(probabilities, labels) == pytest.approx(10 * expected, rel=1e-12)


def test_detection_is_by_the_maximum_probability_with_the_usual_examples_positive():
    inside, outside = (predictions(80, 5, spread)[0] for spread in (3.0, 1.0))
    confident, unsure = inside.amax(-1), outside.amax(-1)
    pairs = (confident[:, None] > unsure[None]).double().mean().item()
    scores = conventions.score(inside), conventions.score(outside)
    assert metrics.auroc(*scores) == pytest.approx(pairs, rel=1e-12)
    expected = np.mean(unsure.numpy() >= np.percentile(confident.numpy(), 5))
    assert conventions.fpr95(*scores) == pytest.approx(expected, rel=1e-12)


def test_maxima_that_round_to_one_are_ties():
    sure = lb.Dirichlet(torch.tensor([[40.0, 0.0], [80.0, 0.0]]))
    assert conventions.score(sure).tolist() == [-1, -1]
    assert metrics.auroc(conventions.score(sure[0]), conventions.score(sure[1])) == 0.5


def test_labels_of_more_classes_are_clipped():
    assert conventions.labels_outside(torch.arange(100), 10).tolist() == [*range(10), *[9] * 90]
    assert conventions.labels_outside(torch.tensor([7, 3]), 10).tolist() == [7, 3]


def test_labels_that_are_no_integers_are_refused():
    with pytest.raises(
        lb.errors.ShapeError, match=r"needs integers; got torch.float32.*argmax\(-1\)"
    ):
        conventions.labels_outside(torch.tensor([1.0]), 10)


def test_an_overlap_on_one_side_is_half_the_threshold():
    assert conventions.overlap_threshold(0.01) == 0.02
    assert conventions.overlap_threshold(0.5) == 1
    for outside in (-0.1, 0.6, math.nan):
        with pytest.raises(ValueError, match=r"from 0 to 0\.5; got"):
            conventions.overlap_threshold(outside)


def test_their_sets_are_one_sided_quantiles_and_stop_at_ten_classes():
    overlap = 0.1
    log = torch.randn(40, 30, generator=seeded(3), dtype=torch.float64) + 1
    dirichlet = lb.Dirichlet(log)
    ranked = log.argsort(-1, descending=True)
    expected = []
    for row in range(40):
        marginals = [dirichlet[row].marginal(int(index)) for index in ranked[row]]
        bound = marginals[0].quantile(overlap)
        length = next(
            (place for place, each in enumerate(marginals) if each.quantile(1 - overlap) < bound),
            30,
        )
        expected.append(ranked[row, : min(length, 10)].tolist())
    threshold = conventions.overlap_threshold(overlap)
    sets = lb.sets.overlap_sets(dirichlet, threshold=threshold, max_size=conventions.MAX_SET_SIZE)
    assert sets.to_lists() == expected
    assert {len(members) for members in expected} >= {10}
    assert min(len(members) for members in expected) < 10


def test_settings_are_those_of_the_tables():
    assert conventions.PRIOR_PRECISION == 5e-4
    assert conventions.PRIOR_PRECISIONS["MNIST"] == (5e-4, 5e-4)
    assert conventions.NUM_SAMPLES == 100


def test_methods_are_those_of_the_tables():
    logits = gaussian("dense", 0, 6, 4)
    samples = lb.links.monte_carlo(logits, num_samples=100, generator=seeded(1))
    assert torch.equal(conventions.monte_carlo(logits, generator=seeded(1)), samples)
    corrected = partial(lb.bridges.pull_back, average=True, only_large=False)
    for method, marginals in (
        (conventions.lb, lb.bridges.condition(logits)),
        (conventions.lb_norm, corrected(lb.bridges.condition(logits))),
    ):
        # Eq. 7 written out
        mean, variance = marginals.mean, marginals.variance
        alpha = (1 - 2 / 4 + mean.exp() / 16 * (-mean).exp().sum(-1, keepdim=True)) / variance
        torch.testing.assert_close(method(logits).concentration, alpha)
    scaled = logits.mean / torch.sqrt(1 + math.pi / 8 * logits.variance)
    torch.testing.assert_close(conventions.probit(logits), scaled.softmax(-1))
