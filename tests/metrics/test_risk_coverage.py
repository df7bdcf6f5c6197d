"""Risk and coverage: worked by hand, and ties against the average over every order."""

import itertools
import math

import pytest
import torch
from cases import seeded

import laplacebridge as lb
from laplacebridge import metrics


def test_examples_are_answered_from_the_least_unusual():
    scores, right = torch.tensor([0.9, 0.1, 0.5, 0.3]), torch.tensor([False, True, False, True])
    curve = metrics.risk_coverage_curve(scores, right)
    assert curve.coverage.tolist() == [0.25, 0.5, 0.75, 1]
    torch.testing.assert_close(curve.risk, torch.tensor([0, 0, 1 / 3, 1 / 2], dtype=torch.float64))
    torch.testing.assert_close(curve.threshold, torch.tensor([0.1, 0.3, 0.5, 0.9]).double())
    assert metrics.aurc(scores, right) == pytest.approx((0 + 0 + 1 / 3 + 1 / 2) / 4, rel=1e-14)


def test_equal_scores_are_answered_in_every_order_on_average():
    scores, right = [0.2, 0.2, 0.7, 0.2, 0.7], [True, False, True, False, False]
    risks = []
    for order in itertools.permutations(range(5)):
        if [scores[place] for place in order] == sorted(scores):
            wrong = torch.tensor([not right[place] for place in order]).double()
            risks.append(wrong.cumsum(0) / torch.arange(1, 6))
    curve = metrics.risk_coverage_curve(torch.tensor(scores), torch.tensor(right))
    torch.testing.assert_close(curve.risk, torch.stack(risks).mean(0))


def test_the_order_of_examples_makes_no_difference():
    scores = torch.randint(5, (60,), generator=seeded(0)).double()
    right = torch.rand(60, generator=seeded(1)) < 0.7
    shuffled = torch.randperm(60, generator=seeded(2))
    assert metrics.aurc(scores[shuffled], right[shuffled]) == pytest.approx(
        metrics.aurc(scores, right), rel=1e-13
    )


def test_a_score_that_knows_nothing_has_the_error_rate():
    right = torch.tensor([True, False, True, True])
    assert metrics.aurc(torch.zeros(4), right) == pytest.approx(0.25, rel=1e-14)


def test_the_area_is_zero_without_errors_and_one_with_errors_only():
    scores = torch.randn(10, generator=seeded(3))
    assert metrics.aurc(scores, torch.ones(10, dtype=torch.bool)) == 0
    assert metrics.aurc(scores, torch.zeros(10, dtype=torch.bool)) == 1


def test_the_last_risk_is_the_error_rate():
    scores, right = torch.randn(50, generator=seeded(4)), torch.rand(50, generator=seeded(5)) < 0.8
    risk = metrics.risk_coverage_curve(scores, right).risk
    assert risk[-1].item() == pytest.approx(1 - right.double().mean().item(), rel=1e-13)


def test_infinite_scores_come_first_and_last():
    scores, right = torch.tensor([math.inf, 0.0, -math.inf]), torch.tensor([False, True, True])
    assert metrics.risk_coverage_curve(scores, right).risk.tolist() == pytest.approx([0, 0, 1 / 3])


@pytest.mark.parametrize("metric", [metrics.aurc, metrics.risk_coverage_curve])
def test_what_is_not_a_score_and_a_truth_value_for_each_example_is_refused(metric):
    right = torch.ones(3, dtype=torch.bool)
    with pytest.raises(
        lb.errors.ShapeError,
        match=r"truth value for each of 3 examples; got torch.int64 of shape \(3,\)",
    ):
        metric(torch.ones(3), torch.ones(3, dtype=torch.long))
    with pytest.raises(
        lb.errors.ShapeError,
        match=r"truth value for each of 2 examples; got torch.bool of shape \(3,\)",
    ):
        metric(torch.ones(2), right)
    with pytest.raises(lb.errors.ShapeError, match="at least one example; got none"):
        metric(torch.ones(0), right[:0])
    with pytest.raises(ValueError, match="needs numbers; example 2 is NaN"):
        metric(torch.tensor([0.0, 1.0, math.nan]), right)
