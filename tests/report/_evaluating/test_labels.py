"""A report on several labels at once: figures of each label, guarantees, alarms, page."""

import json
import math
import warnings
from dataclasses import replace
from xml.etree import ElementTree

import pytest
import torch
from cases import seeded
from torch import nn

import laplacebridge as lb
from laplacebridge.multi_label import per_label
from laplacebridge.report import LabelEvaluation, evaluate

NUM_LABELS, NUM_FEATURES = 3, 5


def problem(seed, number):
    """Labels drawn from a head, which so is the true one."""
    weight = 2 * torch.randn(NUM_LABELS, NUM_FEATURES, generator=seeded(99))
    inputs = torch.randn(number, NUM_FEATURES, generator=seeded(seed))
    chance = (inputs @ weight.T).sigmoid()
    labels = (torch.rand(chance.shape, generator=seeded(seed + 1)) < chance).float()
    return weight, inputs, labels


@pytest.fixture(scope="module")
def judged():
    weight, inputs, labels = problem(0, 400)
    head = nn.Linear(NUM_FEATURES, NUM_LABELS, bias=False)
    head.weight.data.copy_(weight)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a head that is the true one asks for little width
        classifier = lb.fit(
            head,
            [(inputs, labels)],
            val_loader=[problem(10, 400)[1:]],
            multi_label=True,
            progress=False,
        )
    _, inputs, labels = problem(20, 1000)
    found = classifier.report(
        [(inputs[:300], labels[:300]), (inputs[300:], labels[300:])],
        ood={"far": [9 * inputs[:100]]},
        class_names=["rain", "<snow>", "fog"],
        progress=False,
    )
    return classifier, inputs, labels, found


def test_each_label_has_its_own_figures(judged):
    classifier, inputs, labels, found = judged
    assert isinstance(found, LabelEvaluation)
    prediction = classifier(inputs)
    for name in ("nll", "brier", "ece"):
        expected = per_label(getattr(lb.metrics, name), prediction, labels)
        shown = torch.tensor([getattr(row, name) for row in found.rows], dtype=torch.float64)
        torch.testing.assert_close(shown, expected, rtol=1e-5, atol=1e-6)
    assert [row.applies.estimate for row in found.rows] == pytest.approx(
        labels.mean(0).tolist(), rel=1e-6
    )
    right = (prediction.applies == labels.bool()).all(-1).float().mean()
    assert found.all_right.estimate == pytest.approx(float(right), rel=1e-6)
    # the true head: intervals and guarantees hold up to chance
    assert all(row.coverage.high >= found.asked for row in found.rows)
    assert sum(row.agreeing for row in found.rows) >= 0.8 * sum(row.groups for row in found.rows)
    assert 0.01 < found.false_alarms.estimate < 0.1
    assert found.noticed["far"].estimate > 0.9


def test_the_page_is_well_formed_and_says_it_in_words(judged, tmp_path):
    *_, found = judged
    page = found.save(tmp_path / "labels.html").read_text(encoding="utf-8")
    ElementTree.fromstring(page.partition("<!DOCTYPE html>")[2])  # noqa: S314 - our own page
    assert "&lt;snow&gt;" in page
    assert "<snow>" not in page
    assert found.headline.split(".")[0] in page
    record = json.loads(found.save(tmp_path / "labels.json").read_text(encoding="utf-8"))
    assert [row["name"] for row in record["labels"]] == ["rain", "<snow>", "fog"]


def test_what_is_missing_is_said(judged):
    classifier, inputs, labels, _ = judged
    with pytest.raises(lb.InputError, match="A report needs labels"):
        evaluate(classifier, [inputs], progress=False)
    with pytest.raises(lb.InputError, match=r"cost_wrong=.*several labels at once"):
        evaluate(classifier, [(inputs, labels)], cost_wrong=3.0, progress=False)
    with pytest.raises(lb.errors.ShapeError, match="each of 3 classes"):
        evaluate(classifier, [(inputs, labels)], class_names=["rain"], progress=False)
    without = lb.fit(
        classifier.network.model,
        [(inputs, labels)],
        multi_label=True,
        prior_precision=1.0,
        progress=False,
    )
    found = evaluate(without, [(inputs, labels)], progress=False)
    assert found.false_alarms is None
    assert "without held-out data" in found.headline
    assert "without held-out data" in found.to_html()


def test_numbers_that_json_does_not_have_and_names_that_come_twice(judged):
    *_, found = judged
    endless = replace(found.rows[0], nll=math.inf, name="fog")
    page = replace(found, rows=(endless, *found.rows[1:]))
    record = page.to_dict()
    assert record["labels"][0]["nll"] is None
    assert record["not_finite"] == ["labels.0.nll is inf"]
    assert page.to_html().count("<h3>fog</h3>") == 2
