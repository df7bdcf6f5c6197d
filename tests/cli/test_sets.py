"""`laplacebridge sets`: sets and thresholds are those of the library."""

import csv
import json

import numpy as np
import pytest
import torch
from cli_project import fails, records

import laplacebridge as lb
from laplacebridge.sets import APS, LeastAmbiguous, Overlap, calibrate, overlap_sets


def test_sets_say_their_sizes_and_whether_they_hold_the_labels(run, prediction):
    result = run("sets", prediction, "--threshold", "0.01", "--max-size", "2")
    assert result.returncode == 0, result.stderr
    with np.load(prediction) as file:
        sets = overlap_sets(lb.Dirichlet(torch.from_numpy(file["log_concentration"])), 0.01, 2)
        labels = file["labels"]
        inside = sets.contains(torch.from_numpy(labels))
    rows = records(result.stdout)
    assert [row["set"] for row in rows] == sets.to_names(["cat", "dog", "owl"])
    assert [row["size"] for row in rows] == sets.size.tolist()
    assert [row["label"] for row in rows] == [("cat", "dog", "owl")[label] for label in labels]
    assert [row["covered"] for row in rows] == inside.tolist()
    assert f"they hold {inside.double().mean():.1%} of the labels" in result.stderr


@pytest.mark.parametrize(
    ("options", "rule"),
    [([], LeastAmbiguous), (["--rule", "aps"], APS), (["--rule", "overlap"], Overlap)],
)
def test_calibrated_sets_have_the_threshold_of_the_library(
    call, prediction, labelled, tmp_path, options, rule
):
    path = tmp_path / "sets.csv"
    asked = ["sets", prediction, "--calibrate", labelled, "--coverage", "0.95", *options]
    result = call(*asked, "--json", "-o", path)
    assert result.exit_code == 0, result.stderr
    summary = json.loads(result.stdout)
    with np.load(labelled) as file:
        dirichlet = lb.Dirichlet(torch.from_numpy(file["log_concentration"]))
        calibrated = calibrate(rule(), dirichlet, torch.from_numpy(file["labels"]), coverage=0.95)
    assert summary["threshold"] == calibrated.threshold
    assert summary["coverage_interval"] == list(calibrated.coverage_interval())
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == summary["sets"] == 60
    assert np.mean([row["covered"] == "True" for row in rows]) == summary["coverage"]
    assert np.mean([int(row["size"]) for row in rows]) == summary["mean_size"]
    said = call(*asked).stderr
    assert (
        f"the calibration promises at least {calibrated.coverage_interval()[0]:.1%} (97.5 % chance)"
        in said
    )


def test_an_empty_set_does_not_hold_its_label(call, folder, tmp_path):
    sure = np.log(np.array([[98.0, 1, 1]] * 36 + [[34.0, 33, 33]] * 4))
    labels = np.zeros(40, dtype=np.int64)
    np.savez(tmp_path / "given.npz", log_concentration=sure, labels=labels)
    np.savez(tmp_path / "other.npz", log_concentration=sure[:-3], labels=labels[:-3])
    options = ("--calibrate", tmp_path / "other.npz", "--coverage", "0.9", "--json", "-q")
    result = call("sets", tmp_path / "given.npz", *options)
    assert result.exit_code == 0, result.stderr
    rows = records(result.stdout)
    assert [row["covered"] for row in rows] == [row["size"] > 0 for row in rows]
    assert json.loads(result.stderr)["coverage"] == 0.9  # four of forty are empty


def test_without_a_coverage_nine_in_ten_sets_hold_the_label(call, prediction, labelled):
    options = ("--calibrate", labelled, "--json", "-q")
    usual, asked = (
        json.loads(call("sets", prediction, *options, *more).stderr)
        for more in ((), ("--coverage", "0.9"))
    )
    assert usual == asked


def test_labels_that_stand_for_none_are_left_out_of_coverage(call, fitted, folder, tmp_path):
    with np.load(folder / "test_features.npz") as file:
        labels = np.where(np.arange(60) % 2 == 0, file["labels"], -100)
        np.savez(tmp_path / "half.npz", features=file["features"], labels=labels)
    result = call("predict", fitted.path, tmp_path / "half.npz", "-o", tmp_path / "p.npz")
    assert "of 30 labels right" in result.stderr
    rows = records(call("sets", tmp_path / "p.npz", "-q").stdout)
    assert (
        [row["label"] is None for row in rows]
        == [row["covered"] is None for row in rows]
        == [False, True] * 30
    )


@pytest.mark.filterwarnings("ignore:.*very predictions")
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("nowhere.npz",), 2, ["PREDICTION", "no file nowhere.npz"]),
        (("test.npz",), 1, ["needs `log_concentration`", "inputs"]),
        (("{prediction}", "--threshold", "0.1", "--calibrate", "{prediction}"), 2, ["--threshold"]),
        (
            ("{prediction}", "--coverage", "0.99"),
            2,
            ["--coverage: needs labelled", "--calibrate", "promises no coverage"],
        ),
        (
            ("{prediction}", "--calibrate", "unlabelled.npz"),
            1,
            ["needs `labels` to calibrate with"],
        ),
        (
            ("{prediction}", "--calibrate", "{prediction}", "--coverage", "0.999"),
            1,
            ["needs at least 999 examples"],
        ),
        (("{prediction}", "--classes", "two.txt"), 1, ["3 classes; got 2 names"]),
        (("{prediction}", "--max-size", "0"), 2, ["--max-size"]),
        (("{prediction}", "--coverage", "95"), 2, ["--coverage", "share", "got 95", "give 0.95"]),
        (("{prediction}", "--threshold", "nan"), 2, ["--threshold", "share", "got nan"]),
    ],
    ids=lambda value: None if isinstance(value, (int, list)) else " ".join(value),
)
def test_every_wrong_set_has_its_message(call, folder, prediction, arguments, code, words):
    (folder / "two.txt").write_text("cat\ndog\n")
    np.savez(folder / "unlabelled.npz", log_concentration=np.zeros((4, 3)))
    fails(call("sets", *(part.format(prediction=prediction) for part in arguments)), code, *words)


def test_options_that_do_not_go_together_are_refused(call, prediction, labelled):
    for options, said in (
        (["--rule", "lac"], "--calibrate labelled.npz"),
        (["--never-empty"], "--calibrate labelled.npz"),
        (["--rule", "best", "--calibrate", labelled], "one of lac"),
        (["--max-size", "3", "--calibrate", labelled], "--rule overlap"),
    ):
        result = call("sets", prediction, *options)
        assert result.exit_code != 0
        assert said in " ".join(result.stderr.replace("│", " ").split())
