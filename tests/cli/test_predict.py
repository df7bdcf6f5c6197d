"""`laplacebridge predict` writes what the library predicts, in every format."""

import csv
import json

import numpy as np
import pytest
import torch
from cli_project import MODEL, examples, fails, files_in, records

import laplacebridge as lb
from laplacebridge.sets import overlap_sets


def interval_of_label(prediction, level):
    return [
        end.gather(-1, prediction.label.unsqueeze(-1)).squeeze(-1)
        for end in prediction.interval(level)
    ]


def test_predict_writes_json_lines_with_everything_asked_for(
    run, fitted, expected, expected_prediction
):
    result = run(
        *(
            "predict",
            fitted.path,
            "test.npz",
            *MODEL,
            "--classes",
            "classes.txt",
            "--threshold",
            "0.05",
        ),
        *("--scores", "msp,mutual_information", "--batch-size", "7"),
    )
    assert result.returncode == 0, result.stderr
    rows = records(result.stdout)
    assert [row["row"] for row in rows] == list(range(60))
    labels = examples(60, seed=1).labels.tolist()
    assert [row["label"] for row in rows] == labels
    assert [row["label_name"] for row in rows] == [("cat", "dog", "owl")[label] for label in labels]
    assert [row["predicted"] for row in rows] == expected.mean.argmax(-1).tolist()
    assert rows[0]["predicted_name"] == ("cat", "dog", "owl")[rows[0]["predicted"]]
    np.testing.assert_allclose([row["probabilities"] for row in rows], expected.mean, rtol=2e-5)
    np.testing.assert_allclose([row["total"] for row in rows], expected.total, rtol=2e-4)
    np.testing.assert_allclose([row["log_total"] for row in rows], expected.log_total, rtol=1e-4)
    information = expected.mutual_information()
    np.testing.assert_allclose([row["mutual_information"] for row in rows], information, rtol=1e-3)
    assert [row["set"] for row in rows] == overlap_sets(expected, 0.05).to_names(
        ["cat", "dog", "owl"]
    )
    low, high = interval_of_label(expected_prediction, 0.95)
    np.testing.assert_allclose([row["interval_low"] for row in rows], low, rtol=1e-3)
    np.testing.assert_allclose([row["interval_high"] for row in rows], high, rtol=1e-3)
    assert "entropy_of_mean" not in rows[0]
    right = (expected.mean.argmax(-1) == examples(60, seed=1).labels).double().mean()
    assert result.stderr == f"standard output: 60 predictions, {right:.1%} of 60 labels right\n"


def test_predict_writes_the_most_probable_classes_as_csv(call, fitted, expected, tmp_path):
    path = tmp_path / "prediction.csv"
    result = call(
        "predict",
        fitted.path,
        "test.npz",
        *MODEL,
        "--top",
        "2",
        "--threshold",
        "0.05",
        "-o",
        path,
        "--json",
    )
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {
        "output": str(path),
        "rows": 60,
        "labelled": 60,
        "accuracy": float(
            (expected.mean.argmax(-1) == examples(60, seed=1).labels).double().mean()
        ),
    }
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    top = expected.mean.topk(2)
    assert [[int(row["top_1"]), int(row["top_2"])] for row in rows] == top.indices.tolist()
    np.testing.assert_allclose(
        [float(row["top_2_probability"]) for row in rows], top.values[:, 1], rtol=2e-5
    )
    assert [row["set"] for row in rows] == [
        ";".join(map(str, members)) for members in overlap_sets(expected, 0.05).to_lists()
    ]


@pytest.mark.parametrize("level", [0.5, 0], ids=["narrower", "none"])
def test_the_interval_of_the_predicted_class_can_be_chosen_and_left_out(
    call, fitted, expected_prediction, tmp_path, level
):
    path = tmp_path / "prediction.npz"
    text = call(
        "predict", fitted.path, "test_features.npz", "--interval", level, "--format", "csv", "-q"
    )
    arrays = call("predict", fitted.path, "test_features.npz", "--interval", level, "-o", path)
    assert (text.exit_code, arrays.exit_code) == (0, 0)
    rows = list(csv.DictReader(text.stdout.splitlines()))
    with np.load(path) as file:
        held = dict(file)
    assert ("interval_low" in rows[0]) == ("interval_low" in held) == (level > 0)
    if level:
        low, high = interval_of_label(expected_prediction, level)
        for name, ends in (("interval_low", low), ("interval_high", high)):
            np.testing.assert_allclose(held[name], ends, rtol=1e-4)
            np.testing.assert_allclose([float(row[name]) for row in rows], ends, rtol=1e-4)


def test_csv_without_top_has_a_column_for_every_class(call, fitted, expected):
    result = call(
        "predict",
        fitted.path,
        "test.npz",
        *MODEL,
        "--classes",
        "classes.txt",
        "--format",
        "csv",
        "--quiet",
    )
    rows = list(csv.DictReader(result.stdout.splitlines()))
    np.testing.assert_allclose(
        [float(row["p_owl"]) for row in rows], expected.mean[:, 2], rtol=2e-5
    )
    assert result.stderr == ""


def test_predict_from_features_needs_no_model_and_npz_holds_every_digit(prediction, expected):
    with np.load(prediction, allow_pickle=False) as file:
        held = dict(file)
    features_prediction = torch.from_numpy(held["log_concentration"])
    torch.testing.assert_close(
        features_prediction, expected.log_concentration, rtol=1e-5, atol=1e-5
    )
    np.testing.assert_array_equal(held["probabilities"], lb.Dirichlet(features_prediction).mean)
    np.testing.assert_allclose(held["total"], expected.total, rtol=1e-4)
    np.testing.assert_array_equal(held["labels"], examples(60, seed=1).labels)
    assert held["class_names"].tolist() == ["cat", "dog", "owl"]
    assert {"score_msp", "score_entropy_of_mean", "score_mutual_information"} <= held.keys()


def test_another_bridge_can_be_chosen_when_predicting(call, fitted, classifier):
    result = call("predict", fitted.path, "test.npz", *MODEL, "--bridge", "laplace-norm", "-q")
    other = classifier.with_bridge(lb.bridges.laplace_bridge_norm)(examples(60, seed=1).inputs)
    found = [row["probabilities"] for row in records(result.stdout)]
    np.testing.assert_allclose(found, other.mean.detach(), rtol=2e-5)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("test.npz",), 2, ["has inputs, which need the network"]),
        (("train_features.npz", "--head-only", "other_head.npz"), 1, ["belongs to another model"]),
        (
            ("test.npz", "--model", "project_code:headless"),
            1,
            ["belongs to another model", "No linear layer"],
        ),
        (("test.npz", *MODEL, "--head-only", "head.npz"), 2, ["not both"]),
        (
            ("test_features.npz", "--scores", "msp,luck"),
            2,
            ["--scores", "'luck' is not one of msp"],
        ),
        (
            ("test_features.npz", "--top", "2", "--format", "npz"),
            2,
            ["--top", "npz holds all classes"],
        ),
        (
            ("test_features.npz", "--format", "xml"),
            2,
            ["'xml' is not one of 'jsonl', 'csv', 'npz'"],
        ),
        (("test_features.npz", "-o", "prediction.xml"), 2, ["does not say what to write"]),
        (("test_features.npz", "-o", "nowhere/p.csv"), 2, ["no folder nowhere"]),
        (
            ("test_features.npz", "-o", "classes.txt", "--format", "csv"),
            2,
            ["classes.txt exists", "--force"],
        ),
        (("test_features.npz", "-o", ".", "--format", "csv"), 2, ["is a folder"]),
        (("test_features.npz", "--threshold", "2"), 2, ["--threshold"]),
        (("test_features.npz", "--interval", "1"), 2, ["--interval"]),
        (("test_features.npz", "--bridge", "golden"), 2, ["'golden' is not one of 'race'"]),
        (("bad_labels.npz",), 1, ["labels from 0 to 7", "3 classes"]),
        (("float_labels.npz",), 1, ["one integer or name in `labels`", "float64"]),
        (("objects.npz",), 1, ["never unpickled"]),
        (("nan.npz",), 1, ["not finite"]),
    ],
    ids=lambda value: None if isinstance(value, (int, list)) else " ".join(value),
)
def test_every_wrong_prediction_has_its_message(call, folder, fitted, arguments, code, words):
    np.savez(folder / "other_head.npz", weight=np.ones((3, 8)), bias=np.zeros(3))
    features = np.zeros((2, 8), dtype=np.float32)
    np.savez(folder / "bad_labels.npz", features=features, labels=[0, 7])
    np.savez(folder / "float_labels.npz", features=features, labels=[0.0, 1.0])
    np.savez(folder / "nan.npz", features=np.full((2, 8), np.nan))
    np.savez(folder / "objects.npz", features=np.array([{}, {}]), labels=[0, 1])
    before = files_in(folder)
    fails(call("predict", fitted.path, *arguments), code, *words)
    assert files_in(folder) == before


def test_predictions_say_how_unusual_their_inputs_are(prediction, expected_prediction):
    with np.load(prediction) as file:
        np.testing.assert_allclose(
            file["score_ood_score"], expected_prediction.ood_score, rtol=1e-4, atol=1e-5
        )
