"""A report from probabilities alone, of classifiers that this library does not fit."""

import json
from importlib import resources
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import laplacebridge as lb
from laplacebridge.report import evaluate

sklearn = pytest.importorskip("sklearn")
from sklearn.datasets import load_breast_cancer, load_digits  # noqa: E402
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier  # noqa: E402
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss  # noqa: E402
from sklearn.model_selection import train_test_split  # noqa: E402

FORESTS = {
    "forest": lambda: RandomForestClassifier(60, random_state=0),
    "boosting": lambda: HistGradientBoostingClassifier(max_iter=20, random_state=0),
}


@pytest.fixture(scope="module", params=list(FORESTS))
def judged(request):
    data = load_digits()
    inputs, test, labels, truth = train_test_split(
        data.data, data.target, test_size=0.4, random_state=0, stratify=data.target
    )
    probabilities = FORESTS[request.param]().fit(inputs, labels).predict_proba(test)
    return probabilities, truth, evaluate(probabilities, truth)


def test_the_figures_are_those_of_scikit_learn(judged):
    probabilities, truth, found = judged
    row = found.own_row
    assert row.accuracy == accuracy_score(truth, probabilities.argmax(-1))
    impossible = (probabilities[np.arange(len(truth)), truth] == 0).any()  # scikit-learn clips
    expected = np.inf if impossible else log_loss(truth, probabilities)
    assert row.nll == pytest.approx(expected, rel=1e-9)
    one_vs_rest = [brier_score_loss(truth == label, probabilities[:, label]) for label in range(10)]
    assert row.brier == pytest.approx(sum(one_vs_rest), rel=1e-9)
    assert row.ece == lb.metrics.ece(probabilities, truth)


def test_sets_and_rules_keep_what_they_promise(judged):
    _, truth, found = judged
    assert found.sets.coverage > found.own_row.accuracy
    assert abs(float(found.sets.held.mean()) - found.sets.coverage) < 0.02
    assert found.decisions.chosen.risk == 0.05
    assert found.decisions.chosen.wrong.estimate <= 0.05
    assert found.decisions.chosen.answered.estimate > 0.8
    assert sum(row.count for row in found.classes) == len(truth)


def test_what_it_cannot_have_is_said_and_left_out(judged):
    probabilities, truth, found = judged
    assert found.intervals is None
    assert "no intervals" in found.verdict
    assert "cannot be noticed by probabilities alone" in found.headline
    assert found.unmet(["accuracy>0.9"]) == []
    assert "not measured" in found.unmet(["intervals>0.5"])[0]
    for option in ({"ood": [probabilities]}, {"validation": [probabilities]}):
        with pytest.raises(lb.InputError, match="last linear layer"):
            evaluate(probabilities, truth, **option)


def test_the_page_and_the_record(judged, tmp_path):
    _, _, found = judged
    page = found.save(tmp_path / "report.html").read_text(encoding="utf-8")
    ElementTree.fromstring(page.partition("<!DOCTYPE html>")[2])  # noqa: S314 - our own page
    assert "Two kinds of uncertainty" not in page
    assert "Reliability" in page
    record = json.loads(found.save(tmp_path / "report.json").read_text(encoding="utf-8"))
    schema = json.loads(resources.files("laplacebridge.report").joinpath("schema.json").read_text())
    validator = pytest.importorskip("jsonschema")
    validator.validate(record, schema)
    assert record["intervals"] is None


def test_a_probability_of_zero_for_a_label_is_spoken_of():
    data = load_breast_cancer()
    inputs, test, labels, truth = train_test_split(
        data.data, data.target, test_size=0.4, random_state=0, stratify=data.target
    )
    forest = RandomForestClassifier(20, random_state=0).fit(inputs, labels)
    found = evaluate(forest.predict_proba(test), truth, class_names=data.target_names)
    assert found.own_row.nll == np.inf
    assert "a probability of exactly zero" in " ".join(found.advice.sentences)
    assert "nll is inf" in " ".join(found.to_dict()["not_finite"])


def test_labels_may_be_names():
    probabilities = np.array([[0.9, 0.1], [0.2, 0.8]] * 20)
    names = np.array(["no", "yes"] * 20)
    found = evaluate(probabilities, names, class_names=["no", "yes"])
    assert found.own_row.accuracy == 1
    with pytest.raises(lb.InputError, match=r"got 'no'.*classes_"):
        evaluate(probabilities, names)
    with pytest.raises(lb.errors.ShapeError, match="name for each of 2 classes"):
        evaluate(probabilities, names, class_names=["no"])
    with pytest.raises(lb.InputError, match="add up to 1"):
        evaluate(torch.ones(40, 2), torch.zeros(40, dtype=torch.long))


def test_names_that_are_numbers_are_looked_up_and_not_taken_for_columns():
    probabilities = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]] * 20)
    first, second = np.array([1, 2] * 20), np.array([0, 1] * 20)  # the third class never comes
    by_name = evaluate(probabilities, first, class_names=np.array([1, 2, 3]))
    assert by_name.own_row.accuracy == 1
    assert evaluate(probabilities, second).own_row.accuracy == 1
    assert evaluate(probabilities, second, class_names=["a", "b", "c"]).own_row.accuracy == 1
    as_objects = evaluate(probabilities, first.astype(object), class_names=np.array([1, 2, 3]))
    assert as_objects.own_row.accuracy == 1
