"""Rules that know their score: they answer, name a set or defer, and refuse what does
not belong together.
"""

import dataclasses
import math

import pytest
import torch
from cases import seeded

import laplacebridge as lb
from laplacebridge import scores
from laplacebridge.selective import Action, Decision, SelectiveRule, calibrate
from laplacebridge.sets import ClassSets

PROBABILITIES = torch.tensor([[0.9, 0.05, 0.05], [0.1, 0.5, 0.4], [0.4, 0.3, 0.3], [0.3, 0.3, 0.4]])
SETS = ClassSets.from_lists([[0, 1], [1, 2], [0, 1, 2], []], num_classes=3)
RULE = SelectiveRule(scores.msp, threshold=0.2, num_examples=100, num_answered=50)


# calibration


def prediction_and_labels(num_examples=600):
    log = 3 * torch.randn(num_examples, 4, generator=seeded(0), dtype=torch.float64)
    return lb.Dirichlet(log), torch.multinomial(log.softmax(-1), 1, generator=seeded(1)).squeeze(-1)


@pytest.mark.parametrize(
    "score", (scores.SCORES | scores.DIRICHLET_SCORES).values(), ids=lambda score: score.__name__
)
def test_a_rule_goes_by_the_score_that_it_was_calibrated_with(score):
    prediction, labels = prediction_and_labels()
    rule = calibrate(score, prediction, labels, answer_share=0.5)
    answered = score(prediction) <= rule.threshold
    assert torch.equal(rule.answers(prediction), answered)
    assert torch.equal(rule(prediction).action == Action.ANSWER, answered)
    assert rule.num_answered == answered.sum() == 301
    assert rule.num_wrong == (answered & ~lb.metrics.correct(prediction, labels)).sum() > 0
    assert rule.score is score


def test_the_bound_on_the_risk_is_about_the_most_probable_class():
    prediction, labels = prediction_and_labels()
    rule = calibrate(scores.msp, prediction, labels, risk=0.3)
    wrong = ~lb.metrics.correct(prediction, labels)[rule.answers(prediction)]
    assert (rule.num_wrong, rule.num_answered) == (wrong.sum(), len(wrong))
    assert wrong.double().mean() < rule.risk_bound <= 0.3
    assert torch.equal(rule(prediction).answer, prediction.mean.argmax(-1))


def test_probabilities_are_as_good_as_dirichlets_and_labels_may_be_a_list():
    prediction, labels = prediction_and_labels()
    for aim in ({"risk": 0.3}, {"answer_share": 0.7}):
        rule = calibrate(scores.entropy_of_mean, prediction, labels, **aim)
        assert calibrate(scores.entropy_of_mean, prediction.mean, labels.tolist(), **aim) == rule


def test_a_score_of_logits_takes_logits():
    prediction, labels = prediction_and_labels()
    logits = prediction.log_concentration
    rule = calibrate(scores.energy, logits, labels, risk=0.35)
    assert torch.equal(rule(logits).answer, logits.argmax(-1))
    answered = scores.energy(logits) <= rule.threshold
    assert torch.equal(rule(logits).action == Action.ANSWER, answered)
    assert rule.num_wrong == (logits.argmax(-1) != labels)[answered].sum()


def test_one_aim_is_given_and_a_risk_needs_labels():
    prediction, labels = prediction_and_labels()
    with pytest.raises(ValueError, match="needs one of the two; got none"):
        calibrate(scores.msp, prediction, labels)
    with pytest.raises(ValueError, match="needs one of the two; got both"):
        calibrate(scores.msp, prediction, labels, risk=0.1, answer_share=0.9)
    with pytest.raises(
        ValueError, match=r"needs labels to bound the error rate by 0\.1; got none.*answer_share"
    ):
        calibrate(scores.msp, prediction, risk=0.1)


def test_labels_are_classes_of_the_predictions():
    prediction, labels = prediction_and_labels()
    for aim in ({"risk": 0.3}, {"answer_share": 0.7}):
        with pytest.raises(
            lb.errors.ShapeError, match="one integer label for each of 600 examples"
        ):
            calibrate(scores.msp, prediction, labels[:5], **aim)
        with pytest.raises(ValueError, match="labels from 0 to 3; example 0 has 7"):
            calibrate(scores.msp, prediction, torch.full_like(labels, 7), **aim)


def test_a_score_gives_one_number_for_each_example():
    with pytest.raises(lb.errors.ShapeError, match="one score for each of 4 predictions; got 3"):
        dataclasses.replace(RULE, score=lambda prediction: scores.msp(prediction)[:3])(
            PROBABILITIES
        )
    with pytest.raises(lb.errors.ShapeError, match="one score for each of 4 predictions; got 3"):
        calibrate(lambda prediction: scores.msp(prediction)[:3], PROBABILITIES, answer_share=0.5)
    with pytest.raises(lb.errors.ShapeError, match=r"tensor of shape \(B\)"):
        calibrate(lambda prediction: prediction, PROBABILITIES, answer_share=0.5)


def test_a_prediction_without_a_largest_class_is_refused():
    rule = dataclasses.replace(RULE, score=lambda prediction: torch.zeros(len(prediction)))
    with pytest.raises(ValueError, match="example 1 is NaN"):
        rule(torch.tensor([[0.5, 0.5], [math.nan, 0.5]]))
    with pytest.raises(lb.errors.ShapeError, match="at least K = 2 classes"):
        rule(torch.ones(3, 1))


# decisions


def test_examples_are_answered_or_deferred():
    decisions = RULE(PROBABILITIES)
    assert decisions.action.tolist() == [Action.ANSWER, Action.DEFER, Action.DEFER, Action.DEFER]
    assert decisions.answer.tolist() == [0, 1, 0, 2]
    deferred = ("defer", [], "ambiguous")
    assert decisions.to_lists() == [("answer", [0], ""), deferred, deferred, deferred]


def test_small_sets_stand_in_for_answers_but_not_empty_ones_or_all_classes():
    decisions = RULE(PROBABILITIES, sets=SETS)
    deferred = ("defer", [], "ambiguous")
    assert list(decisions) == [
        ("answer", [0], ""),
        ("set", [1, 2], "ambiguous"),
        deferred,
        deferred,
    ]
    assert len(decisions) == 4
    assert isinstance(decisions.to_lists()[1], Decision)


def test_the_largest_set_worth_naming_is_a_choice():
    chosen = {
        size: [decision.action for decision in RULE(PROBABILITIES, sets=SETS, max_set_size=size)]
        for size in (2, 3)
    }
    assert chosen[2] == ["answer", "set", "defer", "defer"]
    assert chosen[3] == ["answer", "set", "set", "defer"]


def test_a_dirichlet_is_decided_like_its_mean():
    dirichlet = lb.Dirichlet(PROBABILITIES.log())
    assert RULE(dirichlet, sets=SETS).to_lists() == RULE(PROBABILITIES, sets=SETS).to_lists()


def test_a_prediction_is_calibrated_and_decided_like_its_dirichlet():
    dirichlet, labels = prediction_and_labels()
    prediction = lb.Prediction(dirichlet, torch.ones_like(dirichlet.log_concentration))
    rule = calibrate(scores.mutual_information, prediction, labels, risk=0.35)
    assert rule == calibrate(scores.mutual_information, dirichlet, labels, risk=0.35)
    assert rule(prediction).to_lists() == rule(dirichlet).to_lists()


def test_a_score_equal_to_the_threshold_is_answered():
    rule = SelectiveRule(lambda prediction: prediction[:, 0], 0.5, 10, 5)
    given = torch.tensor([[0.5, 1.0], [0.500001, 1.0], [-math.inf, 1.0]])
    assert rule.answers(given).tolist() == [True, False, True]


def test_predictions_and_sets_are_of_the_same_examples():
    with pytest.raises(
        lb.errors.ShapeError,
        match="a set for each of 4 predictions of 3 classes; got 2 sets of 3 classes",
    ):
        RULE(PROBABILITIES, sets=SETS[:2])
    with pytest.raises(lb.errors.ShapeError, match="got 4 sets of 7 classes"):
        RULE(PROBABILITIES, sets=ClassSets.from_lists([[0]] * 4, num_classes=7))


def test_one_class_is_not_named_where_the_rule_refused_to_answer_with_it():
    singletons = ClassSets.from_lists([[0], [1], [0], [2]], num_classes=3)
    actions = [decision.action for decision in RULE(PROBABILITIES, sets=singletons)]
    assert actions == ["answer", "defer", "defer", "defer"]


def test_a_largest_set_needs_sets_and_more_than_a_class():
    with pytest.raises(
        ValueError, match="needs sets and a largest size of at least 2; got no sets"
    ):
        RULE(PROBABILITIES, max_set_size=2)
    for size in (0, 1):
        with pytest.raises(
            ValueError, match=f"needs sets and a largest size of at least 2; got {size}"
        ):
            RULE(PROBABILITIES, sets=SETS, max_set_size=size)


def test_a_rule_is_a_value_that_says_what_it_promises():
    assert dataclasses.replace(RULE) == RULE
    assert repr(RULE) == "SelectiveRule(msp ≤ 0.2: answers 50.0% of 100 examples)"
    bounded = dataclasses.replace(RULE, risk_bound=0.016, confidence=0.95)
    assert "at most 1.60% of answers wrong with 95% confidence" in repr(bounded)
    with pytest.raises(dataclasses.FrozenInstanceError):
        RULE.threshold = 1.0


def test_unusual_inputs_are_deferred_and_each_decision_says_why():
    unusual = torch.tensor([True, True, False, False])
    decisions = RULE(PROBABILITIES, sets=SETS, unusual=unusual)
    assert [decision.action for decision in decisions] == ["defer"] * 4
    assert decisions.reasons() == ["unusual", "both", "ambiguous", "ambiguous"]
    none = RULE(PROBABILITIES, unusual=torch.zeros(4, dtype=torch.bool))
    assert none.reasons() == ["", "ambiguous", "ambiguous", "ambiguous"]


def test_what_is_unusual_is_left_out_of_the_calibration():
    dirichlet, labels = prediction_and_labels()
    unusual = torch.arange(len(labels)) % 3 == 0
    rule = calibrate(scores.msp, dirichlet, labels, risk=0.4, unusual=unusual)
    usual = (~unusual).nonzero().squeeze(-1)
    assert rule == calibrate(scores.msp, dirichlet[usual], labels[usual], risk=0.4)
    assert rule.num_examples == len(usual)


@pytest.mark.parametrize("unusual", [torch.zeros(3, dtype=torch.bool), torch.zeros(4)])
def test_unusual_is_true_or_false_for_each_example(unusual):
    with pytest.raises(lb.errors.ShapeError, match=r"ood_quantile > 0\.99"):
        RULE(PROBABILITIES, unusual=unusual)


def test_a_call_without_a_score_is_told_to_give_one():
    unchecked = calibrate
    while hasattr(unchecked, "__wrapped__"):  # before the tests' own check of types
        unchecked = unchecked.__wrapped__
    for given in (PROBABILITIES, "msp"):
        with pytest.raises(lb.errors.InputTypeError, match=r"a function.*lb\.scores\.msp"):
            unchecked(given, PROBABILITIES, answer_share=0.5)
