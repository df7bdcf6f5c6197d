"""A classifier carries its rule, its sets and its names; files hold them."""

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

import laplacebridge as lb
from laplacebridge import selective, sets
from laplacebridge.selective import Policy

NAMES = ("cat", "dog", "fish")


@pytest.fixture(scope="module")
def classifier():
    torch.manual_seed(0)
    head = nn.Linear(4, 3)
    inputs, labels = torch.randn(200, 4), torch.randint(3, (200,))
    return lb.fit(head, [(inputs, labels)], val_loader=[(inputs[:80], labels[:80])], progress=False)


@pytest.fixture(scope="module")
def calibration(classifier):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(200, 4, generator=generator)
    return inputs, classifier(inputs), torch.randint(3, (200,), generator=generator)


def ready(classifier, calibration):
    _, prediction, labels = calibration
    return classifier.with_rule(
        selective.calibrate(lb.scores.mutual_information, prediction, answer_share=0.6),
        sets=sets.calibrate(sets.LeastAmbiguous(), prediction, labels, coverage=0.8),
        max_set_size=2,
        unusual_above=0.95,
        class_names=NAMES,
        preprocessing="divide by 255",
    )


def test_decisions_are_those_of_rule_sets_and_quantiles_by_hand(classifier, calibration):
    inputs, prediction, _ = calibration
    full = ready(classifier, calibration)
    expected = full.policy.rule(
        prediction,
        sets=full.policy.sets(prediction),
        max_set_size=2,
        unusual=prediction.ood_quantile > 0.95,
    )
    found = full.decide(inputs)
    assert found.to_lists() == expected.to_lists()
    assert {decision.action for decision in found} == {"answer", "set", "defer"}


def test_a_saved_classifier_decides_as_it_did(classifier, calibration, tmp_path):
    full, inputs = ready(classifier, calibration), calibration[0]
    lb.save(full, tmp_path / "full.safetensors")
    again = lb.load(tmp_path / "full.safetensors", classifier.network.model)
    assert again.policy == full.policy
    assert again.class_names == NAMES
    assert again.policy.preprocessing == "divide by 255"
    assert again.decide(inputs).to_lists() == full.decide(inputs).to_lists()


def test_a_file_without_a_policy_is_as_it_was(classifier, tmp_path):
    lb.save(classifier, tmp_path / "bare.safetensors")
    assert lb.load(tmp_path / "bare.safetensors").policy is None


def test_what_is_not_given_stays(classifier, calibration):
    full = ready(classifier, calibration)
    renamed = full.with_rule(class_names=("a", "b", "c"))
    assert renamed.policy.rule is full.policy.rule
    assert renamed.class_names == ("a", "b", "c")
    assert full.with_bridge(lb.bridges.one_vs_rest_bridge).policy == full.policy


@pytest.mark.parametrize(
    "rule",
    [
        sets.TopK(),
        sets.Mass(),
        sets.LeastAmbiguous(),
        sets.Overlap(),
        sets.APS(None),
        sets.RAPS(0.1, 2, None),
        sets.RAPS(),
        sets.APS(),
    ],
)
def test_every_rule_for_sets_comes_back_from_text(rule, calibration):
    calibrated = sets.calibrate(rule, calibration[1], calibration[2], coverage=0.8)
    again = Policy.from_text(Policy(sets=calibrated).to_text()).sets
    assert type(again.rule) is type(rule)
    assert again == calibrated
    assert getattr(again.rule, "generator", None) is None or rule.generator is not None


def test_a_rule_that_answers_everything_comes_back(calibration):
    rule = selective.SelectiveRule(lb.scores.msp, float("inf"), 10, 10)
    text = Policy(rule).to_text()
    assert "Infinity" not in text
    assert Policy.from_text(text).rule == rule


def test_what_no_file_can_hold_is_refused(classifier, calibration, tmp_path):
    own = selective.calibrate(lambda p: lb.scores.msp(p), calibration[1], answer_share=0.5)
    with pytest.raises(lb.InputError, match="keep it beside the file"):
        lb.save(classifier.with_rule(own), tmp_path / "own.safetensors")


def test_bad_rules_are_refused_when_given(classifier):
    with pytest.raises(lb.InputError, match="a name for each of 3 classes"):
        classifier.with_rule(class_names=["a"])
    with pytest.warns(UserWarning, match="'a' comes more than once"):
        classifier.with_rule(class_names=["a", "b", "a"])
    with pytest.raises(lb.errors.InputTypeError, match="got the text 'abc'"):
        classifier.with_rule(class_names="abc")
    with pytest.raises(lb.InputError, match="from 0 to 1"):
        classifier.with_rule(unusual_above=99.0)
    uncalibrated = object.__new__(Policy)  # past the checks of types that tests switch on
    uncalibrated.__dict__.update(rule=None, sets=sets.LeastAmbiguous(), unusual_above=None)
    with pytest.raises(lb.errors.InputTypeError, match=r"lb\.sets\.calibrate"):
        uncalibrated.__post_init__()
    of_logits = selective.SelectiveRule(lb.scores.energy, 0.0, 10, 10)
    with pytest.raises(lb.InputError, match="of logits"):
        classifier.with_rule(of_logits)
    with pytest.raises(lb.InputError, match="Decisions need a rule"):
        classifier.decide(torch.zeros(1, 4))


def test_a_damaged_policy_is_refused(classifier, calibration, tmp_path):
    from laplacebridge._files import checksum, read_safetensors, write_safetensors

    path = tmp_path / "full.safetensors"
    lb.save(ready(classifier, calibration), path)
    tensors, metadata = read_safetensors(path)
    metadata = {name: text for name, text in metadata.items() if name != "sha256"}
    for damage in ("{", json.dumps({"class_names": ["a"]}), json.dumps([1])):
        changed = metadata | {"policy": damage}
        write_safetensors(path, tensors, {**changed, "sha256": checksum(tensors, changed)})
        with pytest.raises(lb.CheckpointError, match="not a sound classifier"):
            lb.load(path)


def test_tokens_are_decided_one_by_one(classifier, calibration):
    full, inputs = ready(classifier, calibration), calibration[0]
    texts = replace(classifier(inputs), row_shape=(40, 5))
    expected = full.decide(inputs)
    assert full.policy(texts).to_lists() == expected.to_lists()
    unusual = texts.ood_quantile > 0.95  # of shape (40, 5)
    found = full.policy.rule(texts, unusual=unusual)
    assert torch.equal(found.unusual, unusual.flatten())
    with pytest.raises(lb.errors.ShapeError, match="each of 200 predictions"):
        full.policy.rule(texts, unusual=unusual[:20])


@pytest.mark.parametrize("size", [0, 1])
def test_sets_that_could_not_be_named_are_refused(classifier, size):
    with pytest.raises(lb.InputError, match="at least 2"):
        classifier.with_rule(max_set_size=size)


def test_a_rule_for_each_group_or_class_is_refused_with_the_reason(calibration):
    _, prediction, labels = calibration
    groups = ["day", "night"] * 100
    by_group = sets.calibrate_by_group(
        sets.LeastAmbiguous(), prediction, labels, groups, coverage=0.8
    )
    by_class = sets.calibrate_by_class(sets.LeastAmbiguous(), prediction, labels, coverage=0.8)
    risk = selective.ConditionalRule({"day": None, "night": None}, risk=0.1, confidence=0.9)
    for given in ({"rule": risk}, {"sets": by_group}, {"sets": by_class}):
        policy = object.__new__(Policy)  # past the checks of types that tests switch on
        policy.__dict__.update({"rule": None, "sets": None, "unusual_above": None, **given})
        name = type(next(iter(given.values()))).__name__
        with pytest.raises(lb.errors.InputTypeError, match=rf"{name}, which has one for each"):
            policy.__post_init__()
