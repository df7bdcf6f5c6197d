"""AUROC, AUPR and FPR95: worked by hand, by comparing every pair, and at ties and
infinities.
"""

import math

import numpy as np
import pytest
import torch
from cases import seeded

import laplacebridge as lb
from laplacebridge import metrics

INF = math.inf


def rounded_scores(seed, num_id=70, num_ood=50):
    """With many ties."""
    id_scores = (2 * torch.randn(num_id, generator=seeded(seed))).round() / 2
    return id_scores, (2 * torch.randn(num_ood, generator=seeded(seed + 1)) + 1).round() / 2


def test_auroc_is_the_share_of_pairs_in_order_with_ties_counted_half():
    # pairs: 0.3 above 0.1 and 0.2; 0.4 above 0.1 and 0.2 and equal to 0.4; 0.9 above
    # all three
    id_scores, ood_scores = torch.tensor([0.1, 0.2, 0.4]), torch.tensor([0.3, 0.4, 0.9])
    assert metrics.auroc(id_scores, ood_scores) == (2 + 2.5 + 3) / 9


@pytest.mark.parametrize("seed", range(3))
def test_auroc_is_what_comparing_every_pair_gives(seed):
    id_scores, ood_scores = rounded_scores(seed)
    difference = ood_scores[:, None] - id_scores[None]
    expected = ((difference > 0).double() + 0.5 * (difference == 0).double()).mean().item()
    assert metrics.auroc(id_scores, ood_scores) == pytest.approx(expected, rel=1e-14)


def test_exchanging_the_sides_turns_the_auroc():
    id_scores, ood_scores = rounded_scores(4)
    assert metrics.auroc(ood_scores, id_scores) == pytest.approx(
        1 - metrics.auroc(id_scores, ood_scores), rel=1e-14
    )


def test_a_rising_function_of_the_scores_changes_neither_area():
    id_scores, ood_scores = (scores.double() for scores in rounded_scores(5))
    for metric in (metrics.auroc, metrics.aupr):
        assert metric(id_scores.exp(), ood_scores.exp()) == metric(id_scores, ood_scores)


def test_a_constant_score_detects_nothing():
    id_scores, ood_scores = torch.ones(30), torch.ones(10)
    assert metrics.auroc(id_scores, ood_scores) == 0.5
    assert metrics.aupr(id_scores, ood_scores) == 0.25
    assert metrics.aupr(id_scores, ood_scores, id_positive=True) == 0.75
    assert metrics.fpr_at_tpr(id_scores, ood_scores) == 1


def test_separated_scores_detect_everything():
    id_scores, ood_scores = torch.arange(5.0), torch.arange(5.0, 9.0)
    assert metrics.auroc(id_scores, ood_scores) == 1
    assert metrics.aupr(id_scores, ood_scores) == 1
    assert metrics.aupr(id_scores, ood_scores, id_positive=True) == 1
    assert metrics.fpr_at_tpr(id_scores, ood_scores) == 0


def test_infinite_scores_are_the_most_and_the_least_unusual():
    id_scores, ood_scores = torch.tensor([-INF, 0.0, INF]), torch.tensor([1.0, INF])
    # 1 is above two of three; ∞ above two and equal to one
    assert metrics.auroc(id_scores, ood_scores) == (2 + 2.5) / 6
    # threshold ∞: precision 2/3; threshold 1: 2/3
    assert metrics.aupr(id_scores, ood_scores) == pytest.approx((1 / 2 + 2 / 3) / 2)


@pytest.mark.parametrize(
    ("id_scores", "threshold_passes"),
    [
        ([-INF, -INF, 0.0], [-INF]),  # between −∞ and −∞
        ([-INF, INF], [-INF]),  # between −∞ and ∞
        ([0.0, 0.0, INF], [-INF, 0.0, 5.0, INF]),  # between 0 and ∞
        ([INF, INF], [-INF, 0.0, 5.0, INF]),
    ],
)
def test_the_threshold_between_infinite_scores_is_infinite(id_scores, threshold_passes):
    ood_scores = torch.tensor([-INF, 0.0, 5.0, INF])
    tpr = 0.4 if id_scores[0] == -INF else 0.9
    assert (
        metrics.fpr_at_tpr(torch.tensor(id_scores), ood_scores, tpr=tpr)
        == len(threshold_passes) / 4
    )


def test_average_precision_adds_precision_times_the_step_in_recall():
    id_scores, ood_scores = torch.tensor([0.1, 0.35]), torch.tensor([0.3, 0.9])
    # from the top: 0.9 (1/1), 0.35, 0.3 (2/3)
    assert metrics.aupr(id_scores, ood_scores) == pytest.approx((1 + 2 / 3) / 2, rel=1e-14)
    # from the bottom: 0.1 (1/1), 0.3, 0.35 (2/3)
    assert metrics.aupr(id_scores, ood_scores, id_positive=True) == pytest.approx(
        (1 + 2 / 3) / 2, rel=1e-14
    )
    # from the top: 0.9 (1/1), then 0.35 twice OOD and once ID (3/4)
    ood_scores = torch.tensor([0.9, 0.35, 0.35])
    assert metrics.aupr(id_scores, ood_scores) == pytest.approx((1 + 2 * 3 / 4) / 3, rel=1e-14)


def test_fpr_is_the_share_of_confidence_outside_that_reaches_the_fifth_percentile_inside():
    generator = np.random.default_rng(0)
    for num_id in (20, 21, 100, 333):
        confident, unsure = generator.random(num_id), 0.8 * generator.random(57)
        expected = np.mean(unsure >= np.percentile(confident, 5))
        got = metrics.fpr_at_tpr(torch.from_numpy(-confident), torch.from_numpy(-unsure))
        assert got == pytest.approx(expected, rel=1e-14)


def test_a_score_equal_to_the_threshold_passes():
    # the 0.95 quantile of 0 … 20 is 19
    assert metrics.fpr_at_tpr(
        torch.arange(21.0), torch.tensor([18.9, 19.0, 19.1])
    ) == pytest.approx(2 / 3)


def test_the_threshold_that_lets_all_pass_is_the_largest_score_inside():
    assert metrics.fpr_at_tpr(
        torch.tensor([1.0, 3.0]), torch.tensor([2.0, 3.0, 4.0]), tpr=1.0
    ) == pytest.approx(2 / 3)


def test_one_example_of_each_kind_is_enough():
    id_scores, ood_scores = torch.tensor([1.0]), torch.tensor([2.0])
    assert metrics.auroc(id_scores, ood_scores) == 1
    assert metrics.aupr(id_scores, ood_scores) == 1
    assert metrics.fpr_at_tpr(id_scores, ood_scores) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_narrow_scores_are_judged_as_the_numbers_they_hold(dtype):
    id_scores, ood_scores = (scores.to(dtype) for scores in rounded_scores(6))
    for metric in (metrics.auroc, metrics.aupr, metrics.fpr_at_tpr):
        assert metric(id_scores, ood_scores) == metric(id_scores.double(), ood_scores.double())


DETECTION = pytest.mark.parametrize("metric", [metrics.auroc, metrics.aupr, metrics.fpr_at_tpr])


@DETECTION
def test_one_kind_alone_is_refused_because_nothing_is_compared(metric):
    some, none = torch.ones(3), torch.ones(0)
    for id_scores, ood_scores, counts in (
        (some, none, "3 and 0"),
        (none, some, "0 and 3"),
        (none, none, "0 and 0"),
    ):
        with pytest.raises(
            lb.errors.ShapeError,
            match=f"scores of both kinds.*not defined for one alone; got {counts}",
        ):
            metric(id_scores, ood_scores)


@DETECTION
def test_scores_that_are_not_numbers_are_refused(metric):
    some, bad = torch.ones(3), torch.tensor([0.0, math.nan])
    for id_scores, ood_scores in ((some, bad), (bad, some)):
        with pytest.raises(ValueError, match="needs numbers; example 1 is NaN"):
            metric(id_scores, ood_scores)


@DETECTION
def test_scores_of_another_shape_are_refused(metric):
    with pytest.raises(lb.errors.ShapeError, match=r"shape \(B\); got shape \(3, 2\)"):
        metric(torch.ones(3), torch.ones(3, 2))


@pytest.mark.parametrize("tpr", [0.0, -0.5, 1.1, math.nan])
def test_a_share_outside_zero_to_one_is_refused(tpr):
    with pytest.raises(ValueError, match=f"above 0 and at most 1; got {tpr}. 0.95 is usual"):
        metrics.fpr_at_tpr(torch.ones(3), torch.ones(3), tpr=tpr)
