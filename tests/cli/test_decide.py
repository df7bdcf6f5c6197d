"""`laplacebridge decide`: rules and decisions are those of the library, in every
format.
"""

import csv
import json
import re

import numpy as np
import pytest
import torch
from cli_project import fails, records

import laplacebridge as lb
from laplacebridge import scores, selective

NAMES = ("cat", "dog", "owl")


def read(path):
    with np.load(path) as file:
        return lb.Dirichlet(torch.from_numpy(file["log_concentration"])), torch.from_numpy(
            file["labels"]
        )


def test_decisions_are_those_of_the_rule_for_a_risk(run, prediction, labelled):
    result = run(
        "decide", prediction, "--calibrate", labelled, "--risk", "0.2", "--confidence", "0.9"
    )
    assert result.returncode == 0, result.stderr
    (validation, known), (new, labels) = read(labelled), read(prediction)
    rule = selective.calibrate(scores.msp, validation, known, risk=0.2, confidence=0.9)
    expected = rule(new, sets=lb.sets.overlap_sets(new, 0.05), max_set_size=2).to_lists()
    rows = records(result.stdout)
    assert [row["row"] for row in rows] == list(range(60))
    assert [row["action"] for row in rows] == [decision.action for decision in expected]
    assert [row["classes"] for row in rows] == [
        [NAMES[member] for member in each.classes] for each in expected
    ]
    assert [row["label"] for row in rows] == [NAMES[label] for label in labels]
    assert {row["score_name"] for row in rows} == {"msp"}
    np.testing.assert_allclose([row["score_threshold"] for row in rows], rule.threshold, rtol=1e-6)
    np.testing.assert_allclose([row["score"] for row in rows], scores.msp(new), rtol=1e-5)
    for row, decision in zip(rows, expected):
        assert row["covered"] == (row["label"] in row["classes"] if decision.classes else None)
    assert f"; answered where msp is at most {rule.threshold:.4g};" in result.stderr
    assert (
        f"the calibration promises at most {rule.risk_bound:.1%} wrong answers (90% confidence)"
        in result.stderr
    )


def test_a_share_of_answers_needs_no_labels_and_its_summary_counts_every_action(
    call, prediction, labelled, tmp_path
):
    with np.load(labelled) as file:
        np.savez(tmp_path / "unlabelled.npz", log_concentration=file["log_concentration"])
    path = tmp_path / "decisions.csv"
    options = (
        "--answer-share",
        "0.6",
        "--score",
        "mutual_information",
        "--threshold",
        "0.01",
        "--json",
        "-o",
        path,
    )
    result = call("decide", prediction, "--calibrate", tmp_path / "unlabelled.npz", *options)
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    validation, (new, labels) = read(labelled)[0], read(prediction)
    rule = selective.calibrate(scores.mutual_information, validation, answer_share=0.6)
    decisions = rule(new, sets=lb.sets.overlap_sets(new, 0.01), max_set_size=2).to_lists()
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["action"] for row in rows] == [decision.action for decision in decisions]
    assert [row["classes"] for row in rows] == [
        ";".join(NAMES[k] for k in each.classes) for each in decisions
    ]
    for action in ("answer", "set", "defer"):
        assert summary[action] == sum(decision.action == action for decision in decisions) > 0
    assert summary["score_threshold"] == pytest.approx(rule.threshold)
    assert (summary["risk_bound"], summary["calibration_examples"]) == (None, 120)
    for action, entry, wanted in (
        ("answer", "wrong_answers", False),
        ("set", "sets_with_label", True),
    ):
        held = [
            label in each.classes
            for each, label in zip(decisions, labels.tolist())
            if each.action == action
        ]
        assert summary[entry] == pytest.approx(held.count(wanted) / len(held))


def test_without_sets_everything_is_answered_or_deferred_and_npz_holds_arrays(
    call, prediction, labelled, tmp_path
):
    path = tmp_path / "decisions.npz"
    result = call(
        "decide",
        prediction,
        "--calibrate",
        labelled,
        "--answer-share",
        "0.5",
        "--max-set-size",
        "0",
        "-o",
        path,
    )
    assert result.exit_code == 0, result.output
    assert re.search(r"\d% answered, 0\.0% answered with a set, \d.*% deferred", result.stderr)
    with np.load(path, allow_pickle=False) as file:
        held = dict(file)
    (validation, _), (new, labels) = read(labelled), read(prediction)
    rule = selective.calibrate(scores.msp, validation, answer_share=0.5)
    np.testing.assert_array_equal(held["action"], rule(new).action)
    np.testing.assert_array_equal(held["answer"], new.mean.argmax(-1))
    np.testing.assert_array_equal(held["labels"], labels)
    assert (held["score_name"].item(), held["score_threshold"].item()) == ("msp", rule.threshold)
    assert set(held["action"].tolist()) == {0, 2}
    assert "set_classes" not in held


def test_a_set_of_all_classes_is_not_named(call, tmp_path):
    alike = np.array([[2.0, 1.9], [2.0, 2.0], [6.0, 1.0], [1.0, 6.0]])
    np.savez(tmp_path / "two.npz", log_concentration=alike)
    np.savez(tmp_path / "reversed.npz", log_concentration=alike[::-1])
    options = ("--answer-share", "0.5", "--max-set-size", "5", "-q")
    result = call(
        "decide", tmp_path / "two.npz", "--calibrate", tmp_path / "reversed.npz", *options
    )
    rows = [(row["action"], row["classes"]) for row in records(result.stdout)]
    assert rows == [("answer", [0]), ("defer", []), ("answer", [0]), ("answer", [1])]


def test_a_rule_that_answers_everything_has_valid_json(call, prediction, labelled):
    result = call("decide", prediction, "--calibrate", labelled, "--risk", "0.9", "--json")
    summary = json.loads(
        result.stderr, parse_constant=pytest.fail
    )  # the rows are on standard output
    assert (summary["score_threshold"], summary["answer"]) == (None, 60)
    assert {row["action"] for row in records(result.stdout)} == {"answer"}


def test_predictions_may_come_through_a_pipe_and_without_labels(call, fitted, labelled, folder):
    np.savez(folder / "new.npz", features=np.load(folder / "test_features.npz")["features"])
    predicted = call("predict", fitted.path, "new.npz", "-q")
    result = call(
        "decide", "-", "--calibrate", labelled, "--answer-share", "0.8", text=predicted.stdout
    )
    assert result.exit_code == 0, result.output
    rows = records(result.stdout)
    assert len(rows) == 60
    assert "label" not in rows[0]
    assert "wrong" not in result.stderr


@pytest.mark.filterwarnings("ignore:.*very predictions")
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("{prediction}",), 2, ["--calibrate"]),
        (("nowhere.npz", "--calibrate", "{prediction}"), 2, ["PREDICTION", "no file nowhere.npz"]),
        (
            ("{prediction}", "--calibrate", "nowhere.npz"),
            2,
            ["--calibrate", "'nowhere.npz' does not exist"],
        ),
        (("{prediction}", "--calibrate", "bare.npz"), 1, ["needs `labels` to calibrate with"]),
        (
            ("{prediction}", "--calibrate", "two.npz"),
            1,
            ["has 2 classes, and the predictions have 3"],
        ),
        (
            ("{prediction}", "--calibrate", "{prediction}"),
            1,
            [
                "Error: --risk needs at least 117 examples",
                "got 60",
                "laplacebridge review {prediction} --number 10",
            ],
        ),
        (
            (
                "{prediction}",
                "--calibrate",
                "{prediction}",
                "--risk",
                "0.1",
                "--answer-share",
                "0.5",
            ),
            2,
            ["--risk or"],
        ),
        (
            ("{prediction}", "--calibrate", "{prediction}", "--answer-share", "0.99"),
            1,
            ["Error: --answer-share needs at least 99 examples"],
        ),
        (("{prediction}", "--calibrate", "{prediction}", "--risk", "2"), 2, ["--risk"]),
        (
            ("{prediction}", "--calibrate", "{prediction}", "--score", "luck"),
            2,
            ["'luck' is not one of 'msp'"],
        ),
        (
            ("{prediction}", "--calibrate", "{prediction}", "-o", "decisions.xml"),
            2,
            ["does not say what to write"],
        ),
    ],
    ids=lambda value: None if isinstance(value, (int, list)) else " ".join(value),
)
def test_every_wrong_decision_has_its_message(call, folder, prediction, arguments, code, words):
    np.savez(folder / "bare.npz", log_concentration=np.zeros((4, 3)))
    np.savez(folder / "two.npz", log_concentration=np.zeros((4, 2)), labels=np.zeros(4, dtype=int))
    result = call("decide", *(part.format(prediction=prediction) for part in arguments))
    fails(result, code, *(word.format(prediction=prediction) for word in words))
    assert "lb." not in result.stderr


def with_quantiles(source, path):
    """Predictions as a classifier fitted with held-out data gives them."""
    with np.load(source) as file:
        arrays = dict(file)
    quantiles = np.linspace(0, 1, len(arrays["labels"]))
    np.savez(path, **arrays, score_ood_quantile=quantiles)
    return path, quantiles


def test_unusual_inputs_are_deferred_with_their_reason(run, prediction, labelled, tmp_path):
    path, quantiles = with_quantiles(prediction, tmp_path / "prediction.npz")
    calibration, _ = with_quantiles(labelled, tmp_path / "labelled.npz")
    result = run("decide", path, "--calibrate", calibration, "--risk", "0.5", "--unusual", "0.8")
    assert result.returncode == 0, result.stderr
    rows = records(result.stdout)
    for row, quantile in zip(rows, quantiles):
        assert (row["reason"] in {"unusual", "both"}) == (quantile > 0.8)
        assert (row["action"] == "answer") == (row["reason"] == "")
    assert f"{int((quantiles > 0.8).sum())} deferred as unusual" in result.stderr


def test_files_without_quantiles_cannot_say_what_is_unusual(run, prediction, labelled, tmp_path):
    with np.load(prediction) as file:
        arrays = {name: array for name, array in file.items() if "ood" not in name}
    np.savez(tmp_path / "plain.npz", **arrays)
    result = run(
        "decide",
        tmp_path / "plain.npz",
        "--calibrate",
        labelled,
        "--risk",
        "0.5",
        "--unusual",
        "0.9",
    )
    assert result.returncode != 0
    assert "score_ood_quantile" in result.stderr


@pytest.fixture
def carrying(classifier, labelled, tmp_path):
    """A saved classifier that carries a rule and sets."""
    validation, known = read(labelled)
    full = classifier.with_rule(
        selective.calibrate(scores.entropy_of_mean, validation, answer_share=0.5),
        sets=lb.sets.calibrate(lb.sets.LeastAmbiguous(), validation, known, coverage=0.8),
        class_names=NAMES,
    )
    lb.save(full, tmp_path / "carrying.safetensors")
    return full, tmp_path / "carrying.safetensors"


def test_a_classifier_that_carries_its_rule_needs_no_calibration(call, prediction, carrying):
    full, path = carrying
    result = call("decide", prediction, "--classifier", path)
    assert result.exit_code == 0, result.stderr
    rows, (new, _) = records(result.stdout), read(prediction)
    rule, sets = full.policy.rule, full.policy.sets
    expected = rule(new, sets=sets(new)).to_lists()
    assert [row["action"] for row in rows] == [decision.action for decision in expected]
    assert len({row["action"] for row in rows}) > 1
    assert [row["classes"] for row in rows] == [
        [NAMES[member] for member in each.classes] for each in expected
    ]
    assert {row["score_name"] for row in rows} == {"entropy_of_mean"}


def test_a_rule_comes_from_one_place(call, prediction, carrying, labelled, fitted):
    _, path = carrying
    fails(call("decide", prediction), 2, "--calibrate or --classifier")
    for option, value in {
        "--risk": "0.1",
        "--score": "msp",
        "--confidence": "0.95",
        "--max-set-size": "2",
        "--threshold": "0.05",
    }.items():
        result = call("decide", prediction, "--classifier", path, option, value)
        fails(result, 2, option, "leave this out")
    fails(call("decide", prediction, "--classifier", fitted.path), 1, "carries no rule")
