"""The risk is bounded in every group, and for every class that is answered."""

import numpy as np
import pytest
import torch

import laplacebridge as lb
from laplacebridge.scores import msp
from laplacebridge.selective import Action, calibrate, calibrate_by_class, calibrate_by_group

RISK = 0.2


def uneven(number, generator, hard="night"):
    """Three classes. Many labels are another: of every fourth example, at night; or
    where class 2 looks most probable.
    """
    probabilities = (6 * torch.randn(number, 3, generator=generator).double()).softmax(-1)
    labels = torch.multinomial(probabilities, 1, generator=generator).squeeze(-1)
    groups = ["night" if row % 4 == 0 else "day" for row in range(number)]
    at_night = torch.arange(number) % 4 == 0
    noisy = at_night if hard == "night" else probabilities.argmax(-1) == 2
    noisy &= torch.rand(number, generator=generator) < 0.2
    other = torch.randint(3, (number,), generator=generator)
    return probabilities, torch.where(noisy, other, labels), groups


def largest_rate(decisions, labels, groups):
    """The largest error rate among answers over groups."""
    answered = (decisions.action == Action.ANSWER).numpy()
    wrong = (decisions.answer != labels).numpy()
    groups = np.array(groups)
    rates = [
        wrong[answered & (groups == group)].mean()
        for group in np.unique(groups)
        if (answered & (groups == group)).any()
    ]
    return max(rates, default=0.0)


def failures(make, groups_of, hard):
    """How often the true rate of some group, over many fresh examples, is above the
    risk.
    """
    generator = torch.Generator().manual_seed(0)
    fresh, truth, fresh_groups = uneven(30_000, generator, hard)
    found = []
    for _ in range(40):
        known, labels, groups = uneven(3000, generator, hard)
        decisions = make(known, labels, groups)(fresh, fresh_groups)
        found.append(largest_rate(decisions, truth, groups_of(decisions, fresh_groups)) > RISK)
    return np.mean(found)


def in_groups(decisions, groups):
    return groups


def in_classes(decisions, groups):
    return decisions.answer.tolist()


@pytest.mark.filterwarnings("ignore:A risk of 0.2 cannot be promised")  # in one of forty sets
def test_the_risk_holds_in_every_group_where_the_average_hides_one():
    def averaged(known, labels, groups):
        rule = calibrate(msp, known, labels, risk=RISK)
        return lambda fresh, _: rule(fresh)

    def by_group(known, labels, groups):
        return calibrate_by_group(msp, known, labels, groups, risk=RISK)

    assert failures(averaged, in_groups, "night") > 0.5
    assert failures(by_group, in_groups, "night") <= 0.05


@pytest.mark.filterwarnings("ignore:A risk of 0.2 cannot be promised")
def test_the_risk_holds_for_every_class_that_is_answered():
    def averaged(known, labels, groups):
        rule = calibrate(msp, known, labels, risk=RISK)
        return lambda fresh, _: rule(fresh)

    def by_class(known, labels, groups):
        rule = calibrate_by_class(msp, known, labels, risk=RISK)
        return lambda fresh, _: rule(fresh)

    assert failures(averaged, in_classes, "class") > 0.5
    assert failures(by_class, in_classes, "class") <= 0.05


def test_all_bounds_hold_together():
    known, labels, groups = uneven(3000, torch.Generator().manual_seed(0))
    rule = calibrate_by_group(msp, known, labels, groups, risk=RISK)
    assert rule.by_group["day"].confidence == pytest.approx(0.975)  # 1 − 0.05/2


def test_a_group_that_cannot_be_promised_anything_is_never_answered():
    known, labels, groups = uneven(3000, torch.Generator().manual_seed(0))
    groups[:20] = ["dawn"] * 20
    with pytest.warns(
        UserWarning, match="cannot be promised for 'dawn' .1 of 3., which will never"
    ):
        rule = calibrate_by_group(msp, known, labels, groups, risk=RISK)
    assert rule.by_group["dawn"] is None
    assert not rule.answers(known[:20], groups[:20]).any()
    assert rule.answers(known, groups).any()


def test_a_class_that_was_never_answered_before_is_not_answered_now():
    known, _, _ = uneven(3000, torch.Generator().manual_seed(0))
    two = known[:, :2] / known[:, :2].sum(-1, keepdim=True)
    three = torch.cat([0.999 * two, torch.full((len(two), 1), 0.001)], -1)
    rule = calibrate_by_class(msp, three, three.argmax(-1), risk=RISK)
    assert set(rule.by_group) == {0, 1}
    assert rule.answers(torch.tensor([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])).tolist() == [False, True]


def test_sets_and_unusual_inputs_go_as_with_one_rule():
    known, labels, groups = uneven(3000, torch.Generator().manual_seed(0))
    unusual = torch.arange(3000) < 30
    rule = calibrate_by_group(msp, known, labels, groups, risk=RISK, unusual=unusual)
    decisions = rule(known, groups, unusual=unusual, sets=lb.sets.Mass()(known, 0.9))
    assert (decisions.action[:30] == Action.DEFER).all()
    assert {"answer", "set", "defer"} == {each.action for each in decisions}
    assert set(decisions.reasons()[30:]) == {"", "ambiguous"}
    counted = sum(each.num_examples for each in rule.by_group.values())
    assert counted == 2970  # unusual ones are left out


def test_groups_are_given_where_they_are_needed_and_known():
    known, labels, groups = uneven(3000, torch.Generator().manual_seed(0))
    rule = calibrate_by_group(msp, known, labels, groups, risk=RISK)
    with pytest.raises(lb.InputError, match="the group of each example: 'night', 'day'"):
        rule(known)
    with pytest.raises(lb.InputError, match="got 'noon'"):
        rule(known[:1], ["noon"])
    with pytest.raises(lb.errors.ShapeError, match="each of 3000 examples"):
        calibrate_by_group(msp, known, labels, ["day"], risk=RISK)
    with pytest.raises(lb.InputError, match="between 0 and 1; got 2"):
        calibrate_by_group(msp, known, labels, groups, risk=2.0)
    by_class = calibrate_by_class(msp, known, labels, risk=RISK)
    with pytest.raises(lb.InputError, match="no groups"):
        by_class(known, groups)


def test_arrays_give_what_tensors_give():
    known, labels, groups = uneven(3000, torch.Generator().manual_seed(0))
    rule = calibrate_by_group(msp, known.numpy(), labels.numpy(), np.array(groups), risk=RISK)
    tensors = calibrate_by_group(msp, known, labels, groups, risk=RISK)
    answered = rule.answers(known.numpy(), np.array(groups))
    assert isinstance(answered, np.ndarray)
    np.testing.assert_array_equal(answered, tensors.answers(known, groups).numpy())
