"""Decisions, sets, costs and intervals on the test data: what is promised is what is
found, where it is known.
"""

import pytest
import torch
from cases import seeded

import laplacebridge as lb
from laplacebridge.report._findings import decisions, intervals
from laplacebridge.report._findings import unusual as unusual_inputs
from laplacebridge.report._findings.halves import Halves, share
from laplacebridge.selective import Action

N, K = 4000, 4


def calibrated(count=N, seed=0):
    """Probabilities that come true as often as they say."""
    logits = 2 * torch.randn(count, K, generator=seeded(seed), dtype=torch.float64)
    probabilities = logits.softmax(-1)
    labels = torch.multinomial(probabilities, 1, generator=seeded(seed + 1)).squeeze(-1)
    return probabilities, labels


def decided(risk=0.1, unusual=None):
    probabilities, labels = calibrated()
    halves = Halves.of(N, 0)
    sets = halves.sets(probabilities, labels, 0.9)
    found = decisions.decide(probabilities, labels, halves, sets, risk=risk, unusual=unusual)
    return probabilities, labels, halves, sets, found


def test_halves_share_no_example_and_leave_out_none():
    halves = Halves.of(11, 3)
    assert sorted([*halves.first.tolist(), *halves.second.tolist()]) == list(range(11))
    assert halves.fewest == 5
    assert halves.coverage_for(0.5) == 5 / 6  # as much as five examples can promise
    assert [Halves.of(1000, 0).coverage_for(each) for each in (0.5, 0.93, 0.999)] == [
        0.9,
        0.95,
        0.99,
    ]


def test_sets_hold_the_label_as_often_as_was_asked_on_examples_that_did_not_choose_them():
    _, _, _, sets, _ = decided()
    assert sets.held.double().mean().item() == pytest.approx(0.9, abs=0.015)
    assert sets.sizes.min() >= 1


def test_a_half_is_decided_about_by_the_other_alone():
    """Labels of one half, all made wrong, change the decisions about the other half
    only.
    """
    probabilities, labels, halves, sets, found = decided()
    wrong = labels.clone()
    wrong[halves.first] = (probabilities[halves.first].argmax(-1) + 1) % K
    other = decisions.decide(probabilities, wrong, halves, sets, risk=0.3, unusual=None)
    assert other.chosen is None  # the first half allows no rule
    assert found.chosen is not None


def test_errors_found_are_below_what_is_promised_and_allowed():
    *_, found = decided(risk=0.1)
    assert [rule.risk for rule in found.rules] == sorted({rule.risk for rule in found.rules})
    for rule in found.rules:
        assert rule.promised <= rule.risk
        assert rule.wrong.low <= rule.promised
        shares = (rule.answered, rule.named, rule.deferred)
        assert sum(part.estimate for part in shares) == pytest.approx(1)
    assert found.chosen.risk == 0.1
    answered = [rule.answered.estimate for rule in found.rules]
    assert answered[-1] > answered[0]
    assert set(found.impossible) | {rule.risk for rule in found.rules} <= {*decisions.RISKS, 0.1}


def test_unusual_inputs_go_to_a_person_whatever_their_label_seems_to_be():
    unusual = torch.arange(N) % 4 == 0
    *_, found = decided(unusual=unusual)
    assert (found.chosen.action[unusual] == Action.DEFER).all()
    assert found.chosen.unusual == 0.25
    assert found.chosen.deferred.estimate >= 0.25


def test_the_cheapest_threshold_of_calibrated_probabilities_is_the_ratio_of_costs():
    probabilities, labels = calibrated(40_000)
    right = probabilities.argmax(-1) == labels
    doubt = 1 - probabilities.amax(-1)
    cost = decisions.cheapest(doubt, right, Halves.of(40_000, 0), decisions.Costs(10.0, 3.0))
    assert cost.threshold == pytest.approx(0.3, abs=0.06)
    assert cost.per_case < min(cost.answer_all, cost.defer_all)
    assert cost.answer_all == pytest.approx(10 * (~right).double().mean().item())
    best = min(
        10 * wrong + 3 * (1 - answered)
        for wrong, answered in zip(cost.wrong_shares, cost.answered_shares)
    )
    assert cost.per_case == pytest.approx(best, rel=0.05)
    dear = decisions.cheapest(doubt, right, Halves.of(40_000, 0), decisions.Costs(1.0, 0.0))
    assert dear.answered == pytest.approx(0, abs=0.02)


def test_a_share_has_its_exact_interval():
    assert share(0, 0) is None
    assert (share(0, 59).low, round(share(0, 59).high, 3)) == (0.0, 0.061)
    assert (round(share(59, 59).low, 3), share(59, 59).high) == (0.939, 1.0)


def prediction_of(error, seed=5, count=3000):
    """Predictions off by a Gaussian error in common, which their variances state or
    not.
    """
    truth = torch.randn(count, 1, generator=seeded(seed), dtype=torch.float64) * 1.5
    labels = (torch.rand(count, 1, generator=seeded(seed + 1)) > truth.sigmoid()).long().squeeze(-1)
    mean = torch.stack([(truth + error).sigmoid(), (-truth - error).sigmoid()], -1).squeeze(1)
    return mean, labels, truth


@pytest.mark.parametrize(("variance", "agrees"), [(1.0, True), (1e-4, False)])
def test_intervals_agree_with_labels_if_they_are_as_wide_as_the_error(variance, agrees):
    mean, labels, _ = prediction_of(error=0.6)
    prediction = lb.Prediction(
        lb.Dirichlet(mean.log() + 3), torch.full_like(mean, variance, dtype=mean.dtype)
    )
    check = intervals.check_intervals(prediction, labels)
    assert len(check.bins) == 10
    assert (check.num_agreeing >= 9) == agrees
    assert check.votes is None


@pytest.mark.parametrize(("variance", "holds"), [(0.25, True), (1e-4, False)])
def test_votes_tell_whether_intervals_are_as_wide_as_the_error(variance, holds):
    count = 3000
    truth = torch.randn(count, generator=seeded(7), dtype=torch.float64) * 1.5
    seen = truth + 0.5 * torch.randn(count, generator=seeded(8), dtype=torch.float64)
    votes = torch.zeros(count, 2, dtype=torch.long)
    votes[:, 0] = torch.binomial(
        torch.full((count,), 20.0).double(), truth.sigmoid(), generator=seeded(9)
    ).long()
    votes[:, 1] = 20 - votes[:, 0]
    mean = torch.stack([seen.sigmoid(), (-seen).sigmoid()], -1)
    prediction = lb.Prediction(lb.Dirichlet(mean.log() + 3), torch.full_like(mean, variance))
    check = intervals.check_intervals(prediction, votes.argmax(-1), votes)
    assert check.num_votes == 20 * count
    assert (check.votes.estimate > 0.9) == holds


def test_alarms_are_false_about_as_often_as_stated_and_need_enough_held_out_inputs():
    score = torch.randn(2000, generator=seeded(1))
    reference = torch.randn(5000, generator=seeded(2)).sort().values
    base = lb.Prediction(lb.Dirichlet(torch.zeros(2000, 3)), torch.ones(2000, 3))
    prediction = lb.Prediction(
        base.dirichlet, base.log_odds_variance, lb.unusual.Unusual(score, reference)
    )
    strange = lb.Prediction(
        base.dirichlet, base.log_odds_variance, lb.unusual.Unusual(score + 3, reference)
    )
    found = unusual_inputs.alarms(prediction, {"strange": strange})
    assert [alarm.stated for alarm in found] == list(unusual_inputs.ALARM_RATES)
    for alarm in found:
        assert alarm.false.low <= alarm.stated <= alarm.false.high + 0.005
        assert alarm.noticed["strange"].estimate > 0.7
    few = lb.unusual.Unusual(score, reference[:30])
    short = lb.Prediction(base.dirichlet, base.log_odds_variance, few)
    assert [alarm.stated for alarm in unusual_inputs.alarms(short, {})] == [0.05, 0.1]
    assert unusual_inputs.alarms(base, {}) == ()
