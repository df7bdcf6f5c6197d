"""Several labels at once behind an address: which apply, how probable each is, and what
has no meaning for them.
"""

import numpy as np
import pytest
import torch
from serving import outputs_of, running, tensor
from small_network import FEATURES, examples
from torch import nn
from typer.testing import CliRunner

import laplacebridge as lb
from laplacebridge.cli.main import app
from laplacebridge.serve import ServedClassifier, ServedLabels, TensorSpec

NAMES = ("red", "round", "large", "old")


def lists(rows):
    return [[member for member in row if member not in {-1, ""}] for row in rows]


def test_labels_come_by_default_with_probabilities_and_bounds(several, tmp_path):
    classifier, _, _ = several
    lb.save(classifier, tmp_path / "labels.safetensors")
    inputs = torch.cat([examples(6, seed=3)[0], torch.full((1, FEATURES), 60.0)])
    with torch.no_grad():
        expected = classifier(inputs)
    command = ("-m", "laplacebridge", "serve", "--port", "0", "labels.safetensors")
    with running(*command, folder=tmp_path) as server:
        found = outputs_of(server.infer({"inputs": [tensor(inputs.tolist())]}, "labels"))
        one = outputs_of(server.infer({"inputs": [tensor(inputs[:1].tolist())]}, "labels"))
        about = server.get("/v2/models/labels").json
        figures = server.get("/metrics").body.decode()
    assert list(found) == [
        "labels", "label_names", "probabilities", "lower", "upper", "ood_score", "ood_quantile",
        "decision", "reason",
    ]  # fmt: skip
    for labels, names, mean, applies in zip(
        lists(found["labels"]), lists(found["label_names"]), expected.mean, expected.applies
    ):
        assert sorted(labels) == applies.nonzero().flatten().tolist()
        assert labels == sorted(labels, key=lambda label: -float(mean[label]))
        assert names == [NAMES[label] for label in labels]
    assert len({len(row) for row in lists(found["labels"])}) > 1
    lower, upper = expected.interval(0.95)
    for name, wanted in (("probabilities", expected.mean), ("lower", lower), ("upper", upper)):
        np.testing.assert_allclose(found[name], wanted.numpy(), atol=1e-5)
    assert (found["decision"][-1], found["reason"][-1]) == ("defer", "unusual")
    assert "answer" in found["decision"]
    assert lists(one["labels"]) == lists(found["labels"][:1])
    assert about["parameters"]["class_names"] == list(NAMES)
    assert 'decision="defer"' in figures


def test_calibrated_sets_name_the_labels_that_are_open(several):
    classifier, inputs, labels = several
    with torch.no_grad():
        prediction = classifier(inputs)
    sets = lb.multi_label.calibrate(prediction, labels, coverage=0.95)
    served = ServedLabels(classifier, sets=sets)
    found = served.answer({"features": inputs.numpy()}, frozenset({"total"}))
    applying, unclear = sets(prediction)
    assert [set(row) for row in lists(found["open"].tolist())] == [
        set(row.nonzero().flatten().tolist()) for row in unclear
    ]
    assert (found["labels"] != -1).sum() == applying.sum()
    assert 0 < unclear.sum() < unclear.numel()
    assert found["total"].shape == (len(inputs), len(NAMES))


def test_a_threshold_chooses_what_applies_and_a_limit_what_is_deferred(several):
    classifier, inputs, _ = several
    content = {"features": inputs.numpy()}
    strict = ServedLabels(classifier, threshold=0.9).answer(content, frozenset())
    usual = ServedLabels(classifier).answer(content, frozenset())
    assert (strict["labels"] != -1).sum() == (strict["probabilities"] > 0.9).sum()
    assert (strict["labels"] != -1).sum() < (usual["labels"] != -1).sum()
    carrying = ServedLabels(classifier.with_rule(unusual_above=0.5))
    deferred = carrying.answer(content, frozenset())["decision"] == "defer"
    assert deferred.tolist() == (usual["ood_quantile"] > 0.5).tolist()
    assert 0 < deferred.sum() < len(inputs)


def test_what_is_for_one_class_is_refused(several, tmp_path, monkeypatch):
    classifier, inputs, _ = several
    with pytest.raises(lb.InputError, match="ServedLabels"):
        ServedClassifier(classifier)
    one = lb.fit(nn.Linear(4, 3), [torch.eye(4)], prior_precision=1.0, progress=False)
    with pytest.raises(lb.InputError, match="ServedClassifier"):
        ServedLabels(one, [TensorSpec("x", "FP32", (-1, 4))])
    with pytest.raises(lb.InputError, match="threshold"):
        ServedLabels(classifier, threshold=50.0)
    monkeypatch.chdir(tmp_path)
    lb.save(classifier, "labels.safetensors")
    np.savez("labelled.npz", features=inputs.numpy())
    options = (
        ("calibrate", "labelled.npz"),
        ("risk", 0.1),
        ("threshold", 0.1),
        ("max-set-size", 3),
    )
    for option, value in options:
        given = ["serve", "labels.safetensors", f"--{option}", str(value)]
        result = CliRunner().invoke(app, given)
        assert result.exit_code == 1
        assert "several labels" in result.stderr
        assert option.replace("-", "_") in result.stderr


def test_a_label_needs_a_name_because_an_empty_one_stands_for_none(several):
    classifier, _, _ = several
    with pytest.raises(lb.InputError, match="Label 2 has an empty name"):
        ServedLabels(classifier, class_names=["red", "round", "", "old"])


def test_places_before_one_that_is_filled_are_kept(several):
    served = ServedLabels(several[0])
    names = np.array([["", "red"], ["old", ""], ["", ""]], dtype=object)
    parts = served.split({"label_names": names}, [1, 1, 1])
    assert [part["label_names"].tolist() for part in parts] == [[["", "red"]], [["old"]], [[""]]]
