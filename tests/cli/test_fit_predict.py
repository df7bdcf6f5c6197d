"""`fit`, `predict`, `sets` and `info` do what the library does, in every format."""

import csv
import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import numpy as np
import pytest
import torch
from cli_project import examples, run_in
from safetensors.torch import save_file

import laplacebridge as lb
from laplacebridge.cli.images import ImageBatches, Preparation
from laplacebridge.sets import Overlap, calibrate, overlap_sets

MODEL = ("--model", "project_code:network", "--weights", "weights.pt")


@pytest.fixture(scope="module")
def classifier(fitted, trained):
    return lb.load(fitted.path, trained)


@pytest.fixture(scope="module")
def expected(classifier):
    with torch.no_grad():
        return classifier(examples(60, seed=1).inputs)


def records(text):
    return [json.loads(line) for line in text.splitlines()]


def test_fit_saves_what_the_library_fits_and_says_what_it_chose(fitted, classifier, trained):
    assert fitted.result.returncode == 0
    assert fitted.result.stdout == ""
    inputs, labels = examples(200, seed=0)
    by_hand = lb.fit(trained, list(zip(inputs.split(256), labels.split(256))), progress=False)
    assert float(classifier.posterior.prior_precision) == float(by_hand.posterior.prior_precision)
    torch.testing.assert_close(
        classifier(inputs).dirichlet.log_concentration, by_hand(inputs).dirichlet.log_concentration
    )
    right = (trained(inputs).argmax(-1) == labels).double().mean()
    told = f"{fitted.path}: 8 features, 3 classes, training accuracy {right:.1%}, KronPosterior, prior precision "
    assert fitted.result.stderr.startswith(told)
    assert fitted.result.stderr.endswith(f"race bridge, {fitted.path.stat().st_size / 1e3:.1f} kB\n")


def test_a_new_file_has_the_permissions_of_any_new_file(fitted, tmp_path):
    ordinary = tmp_path / "ordinary"
    ordinary.touch()
    assert fitted.path.stat().st_mode == ordinary.stat().st_mode


def test_fit_takes_every_choice_and_answers_with_json(run, trained, tmp_path):
    path = tmp_path / "other.safetensors"
    result = run(
        *("fit", "project_code:Batches", *MODEL, "--curvature", "diag", "--bridge", "one-vs-rest", "--head", "2"),
        *("--validation", "held_out.npz", "--temperature", "--batch-size", "50", "--json", "-o", path),
    )
    assert result.returncode == 0, result.stderr
    summary = json.loads(result.stdout)
    saved = lb.load(path, trained)
    assert summary["posterior"] == type(saved.posterior).__name__ == "DiagPosterior"
    assert summary["bridge"] == "one-vs-rest"
    assert saved.bridge is lb.one_vs_rest_bridge
    assert summary["prior_precision"] == float(saved.posterior.prior_precision)
    assert summary["prior_chosen_by"] == "smallest negative log likelihood of 120 validation examples"
    assert summary["temperature"] == float(saved.posterior.temperature)
    assert summary["bytes"] == path.stat().st_size


def test_the_current_folder_can_be_imported_from_and_quiet_says_nothing(folder, tmp_path):
    command = Path(sys.executable).with_name("laplacebridge")
    arguments = ["fit", "project_code:Batches", *MODEL, "--quiet", "-o", tmp_path / "c.safetensors"]
    result = subprocess.run(  # noqa: S603
        [command, *arguments], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert (tmp_path / "c.safetensors").is_file()


def test_a_terminal_sees_a_progress_bar_with_the_time_left(folder, tmp_path):
    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))  # a new one has no columns
    arguments = ["fit", "project_code:Batches", *MODEL, "-o", tmp_path / "c.safetensors"]
    result = run_in(folder, *arguments, capture_output=False, stdout=subprocess.PIPE, stderr=terminal)
    os.close(terminal)
    shown = os.read(screen, 100_000).decode()
    os.close(screen)
    assert result.returncode == 0
    assert "fitting: 100%" in shown
    assert "4/4 [" in shown
    assert "batch/s" in shown
    assert "fitting" not in result.stdout


def test_predict_writes_json_lines_with_everything_asked_for(run, fitted, expected):
    result = run(
        *("predict", fitted.path, "test.npz", *MODEL, "--classes", "classes.txt", "--threshold", "0.05"),
        *("--scores", "msp,mutual_information", "--batch-size", "7"),
    )
    assert result.returncode == 0, result.stderr
    rows = records(result.stdout)
    assert [row["row"] for row in rows] == list(range(60))
    assert [row["label"] for row in rows] == examples(60, seed=1).labels.tolist()
    assert [row["predicted"] for row in rows] == expected.mean.argmax(-1).tolist()
    assert rows[0]["predicted_name"] == ("cat", "dog", "owl")[rows[0]["predicted"]]
    np.testing.assert_allclose([row["probabilities"] for row in rows], expected.mean, rtol=2e-5)
    np.testing.assert_allclose([row["total"] for row in rows], expected.total, rtol=2e-4)
    np.testing.assert_allclose([row["log_total"] for row in rows], expected.log_total, rtol=1e-4)
    information = expected.mutual_information()
    np.testing.assert_allclose([row["mutual_information"] for row in rows], information, rtol=1e-3)
    assert [row["set"] for row in rows] == overlap_sets(expected, 0.05).to_names(["cat", "dog", "owl"])
    low, high = expected.marginal(expected.mean.argmax(-1)).interval(0.95)
    np.testing.assert_allclose([row["interval_low"] for row in rows], low, rtol=1e-3)
    np.testing.assert_allclose([row["interval_high"] for row in rows], high, rtol=1e-3)
    assert "entropy_of_mean" not in rows[0]
    right = (expected.mean.argmax(-1) == examples(60, seed=1).labels).double().mean()
    assert result.stderr == f"standard output: 60 predictions, {right:.1%} of 60 labels right\n"


def test_predict_writes_the_most_probable_classes_as_csv(call, fitted, expected, tmp_path):
    path = tmp_path / "prediction.csv"
    result = call("predict", fitted.path, "test.npz", *MODEL, "--top", "2", "--threshold", "0.05", "-o", path, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {
        "output": str(path),
        "rows": 60,
        "labelled": 60,
        "accuracy": float((expected.mean.argmax(-1) == examples(60, seed=1).labels).double().mean()),
    }
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    top = expected.mean.topk(2)
    assert [[int(row["top_1"]), int(row["top_2"])] for row in rows] == top.indices.tolist()
    np.testing.assert_allclose([float(row["top_2_probability"]) for row in rows], top.values[:, 1], rtol=2e-5)
    assert [row["set"] for row in rows] == [
        ";".join(map(str, members)) for members in overlap_sets(expected, 0.05).to_lists()
    ]


@pytest.mark.parametrize("level", [0.5, 0], ids=["narrower", "none"])
def test_the_interval_of_the_predicted_class_can_be_chosen_and_left_out(call, fitted, tmp_path, level):
    path = tmp_path / "prediction.npz"
    text = call("predict", fitted.path, "test_features.npz", "--interval", level, "--format", "csv", "-q")
    arrays = call("predict", fitted.path, "test_features.npz", "--interval", level, "-o", path)
    assert (text.exit_code, arrays.exit_code) == (0, 0)
    rows = list(csv.DictReader(text.stdout.splitlines()))
    with np.load(path) as file:
        held = dict(file)
    assert ("interval_low" in rows[0]) == ("interval_low" in held) == (level > 0)
    if level:
        dirichlet = lb.Dirichlet(torch.from_numpy(held["log_concentration"]))
        low, high = dirichlet.marginal(dirichlet.mean.argmax(-1)).interval(level)
        for name, ends in (("interval_low", low), ("interval_high", high)):
            np.testing.assert_allclose(held[name], ends, rtol=1e-4)
            np.testing.assert_allclose([float(row[name]) for row in rows], ends, rtol=1e-4)


def test_csv_without_top_has_a_column_for_every_class(call, fitted, expected):
    result = call("predict", fitted.path, "test.npz", *MODEL, "--classes", "classes.txt", "--format", "csv", "--quiet")
    rows = list(csv.DictReader(result.stdout.splitlines()))
    np.testing.assert_allclose([float(row["p_owl"]) for row in rows], expected.mean[:, 2], rtol=2e-5)
    assert result.stderr == ""


def test_predict_from_features_needs_no_model_and_npz_holds_every_digit(prediction, expected):
    with np.load(prediction, allow_pickle=False) as file:
        held = dict(file)
    features_prediction = torch.from_numpy(held["log_concentration"])
    torch.testing.assert_close(features_prediction, expected.log_concentration, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(held["probabilities"], lb.Dirichlet(features_prediction).mean)
    np.testing.assert_allclose(held["total"], expected.total, rtol=1e-4)
    np.testing.assert_array_equal(held["labels"], examples(60, seed=1).labels)
    assert held["class_names"].tolist() == ["cat", "dog", "owl"]
    assert {"score_msp", "score_entropy_of_mean", "score_mutual_information"} <= held.keys()


def test_a_head_alone_is_fitted_to_features_like_its_network_to_inputs(call, fitted, expected, tmp_path):
    path = tmp_path / "head.safetensors"
    assert call("fit", "train_features.npz", "--head-only", "head.npz", "-o", path).exit_code == 0
    for classifier in (path, fitted.path):
        result = call("predict", classifier, "test_features.npz", "--head-only", "head.npz", "-q")
        assert result.exit_code == 0, result.output
        found = [row["log_total"] for row in records(result.stdout)]
        np.testing.assert_allclose(found, expected.log_total, rtol=1e-3)


@pytest.mark.parametrize("layout", ["csv", "csv with names", "lists", "objects"])
def test_features_come_from_standard_input(call, fitted, expected, folder, layout):
    with np.load(folder / "test_features.npz") as file:
        features, labels = file["features"].tolist(), file["labels"].tolist()
    lines = {
        "csv": [",".join(map(str, row)) for row in features],
        "csv with names": [
            "label," + ",".join(f"f{index}" for index in range(8)),
            *(f"{label}," + ",".join(map(str, row)) for row, label in zip(features, labels)),
        ],
        "lists": [json.dumps(row) for row in features],
        "objects": [json.dumps({"features": row, "label": label}) for row, label in zip(features, labels)],
    }[layout]
    result = call("predict", fitted.path, "-", "--batch-size", "50", "--quiet", text="\n".join(lines))
    assert result.exit_code == 0, result.output
    rows = records(result.stdout)
    np.testing.assert_allclose([row["probabilities"] for row in rows], expected.mean, rtol=2e-5)
    has_labels = layout in {"csv with names", "objects"}
    assert [row.get("label") for row in rows] == (labels if has_labels else [None] * 60)


def test_another_bridge_can_be_chosen_when_predicting(call, fitted, classifier):
    result = call("predict", fitted.path, "test.npz", *MODEL, "--bridge", "laplace-norm", "-q")
    other = classifier.with_bridge(lb.laplace_bridge_norm)(examples(60, seed=1).inputs)
    found = [row["probabilities"] for row in records(result.stdout)]
    np.testing.assert_allclose(found, other.mean.detach(), rtol=2e-5)


@pytest.mark.parametrize("format_name", ["jsonl", "npz"])
def test_sets_read_predictions_from_a_pipe(call, prediction, fitted, format_name):
    predicted = call("predict", fitted.path, "test_features.npz", "--format", format_name, "-q")
    result = call("sets", "-", "--quiet", text=predicted.stdout_bytes)
    assert (result.exit_code, result.stderr) == (0, "")
    with np.load(prediction) as file:
        sets = overlap_sets(lb.Dirichlet(torch.from_numpy(file["log_concentration"])), 0.05)
    assert [row["set"] for row in records(result.stdout)] == sets.to_lists()


def test_predict_and_sets_work_in_a_pipe(folder, fitted):
    command = f"'{sys.executable}' -m laplacebridge"
    script = f"{command} predict '{fitted.path}' test_features.npz -q | {command} sets - --json"
    result = subprocess.run(script, cwd=folder, shell=True, capture_output=True, text=True, check=False)  # noqa: S602
    assert len(records(result.stdout)) == json.loads(result.stderr)["sets"] == 60


def test_sets_say_their_sizes_and_whether_they_hold_the_labels(run, prediction):
    result = run("sets", prediction, "--threshold", "0.01", "--max-size", "2")
    assert result.returncode == 0, result.stderr
    with np.load(prediction) as file:
        sets = overlap_sets(lb.Dirichlet(torch.from_numpy(file["log_concentration"])), 0.01, 2)
        inside = sets.contains(torch.from_numpy(file["labels"]))
    rows = records(result.stdout)
    assert [row["set"] for row in rows] == sets.to_names(["cat", "dog", "owl"])
    assert [row["size"] for row in rows] == sets.size.tolist()
    assert [row["covered"] for row in rows] == inside.tolist()
    assert f"they hold {inside.double().mean():.1%} of the labels" in result.stderr


def test_calibrated_sets_have_the_threshold_of_the_library(run, call, prediction, fitted, tmp_path):
    labelled, path = tmp_path / "labelled.npz", tmp_path / "sets.csv"
    assert call("predict", fitted.path, "held_out_features.npz", "-o", labelled).exit_code == 0
    result = run("sets", prediction, "--calibrate", labelled, "--coverage", "0.95", "--json", "-o", path)
    assert result.returncode == 0, result.stderr
    summary = json.loads(result.stdout)
    with np.load(labelled) as file:
        dirichlet = lb.Dirichlet(torch.from_numpy(file["log_concentration"]))
        calibrated = calibrate(Overlap(), dirichlet, torch.from_numpy(file["labels"]), coverage=0.95)
    assert summary["threshold"] == calibrated.threshold
    assert summary["coverage_interval"] == list(calibrated.coverage_interval())
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == summary["sets"] == 60
    assert np.mean([row["covered"] == "True" for row in rows]) == summary["coverage"]
    assert np.mean([int(row["size"]) for row in rows]) == summary["mean_size"]
    said = call("sets", prediction, "--calibrate", labelled, "--coverage", "0.95").stderr
    assert f"the calibration promises at least {calibrated.coverage_interval()[0]:.1%} (97.5 % chance)" in said


def test_info_says_what_is_in_a_file(run, fitted, prediction):
    told = json.loads(run("info", fitted.path, "--json").stdout)
    assert (told["classes"], told["features"], told["head"]) == (3, 8, "2")
    assert (told["posterior"], told["bridge"]) == ("KronPosterior", "race")
    assert told["prior_chosen_by"] == "largest evidence of the training data"
    lines = run("info", prediction).stdout.splitlines()
    assert "rows         60" in lines
    assert "class names  cat, dog, owl" in lines
    assert "labels       yes" in lines


def test_the_seed_repeats_loaders_that_draw_random_numbers(call, fitted):
    answers = [
        call("predict", fitted.path, "project_code:noisy", *MODEL, "--seed", seed, "-q").stdout for seed in (1, 1, 2)
    ]
    assert answers[0] == answers[1] != answers[2]


def test_labels_that_stand_for_none_are_left_out_of_coverage(call, fitted, folder, tmp_path):
    with np.load(folder / "test_features.npz") as file:
        labels = np.where(np.arange(60) % 2 == 0, file["labels"], -100)
        np.savez(tmp_path / "half.npz", features=file["features"], labels=labels)
    result = call("predict", fitted.path, tmp_path / "half.npz", "-o", tmp_path / "p.npz")
    assert "of 30 labels right" in result.stderr
    rows = records(call("sets", tmp_path / "p.npz", "-q").stdout)
    assert [row["label"] is None for row in rows] == [row["covered"] is None for row in rows] == [False, True] * 30


def test_a_single_logit_is_two_classes_and_the_inputs_of_a_linear_model_are_its_features(call, tmp_path):
    np.savez(tmp_path / "head.npz", weight=np.array([[1.0, -2.0]]), bias=np.array([0.5]))
    features = np.random.default_rng(0).normal(size=(40, 2))
    np.savez(tmp_path / "data.npz", inputs=features, labels=(features[:, 0] > 2 * features[:, 1]).astype(int))
    path = tmp_path / "binary.safetensors"
    assert call("fit", tmp_path / "data.npz", "--head-only", tmp_path / "head.npz", "-o", path).exit_code == 0
    rows = records(call("predict", path, tmp_path / "data.npz", "-q").stdout)
    logit = features @ [1.0, -2.0] + 0.5
    assert [row["predicted"] for row in rows] == (logit > 0).astype(int).tolist()


@pytest.mark.filterwarnings("ignore:The network gets")  # nobody trained it
def test_images_of_a_folder_are_read_by_class_in_order(call, folder, tmp_path):
    image = pytest.importorskip("PIL.Image")
    (folder / "image_network.py").write_text(
        "from torch import nn\nnetwork = lambda: nn.Sequential(nn.Flatten(), nn.Linear(12, 2))\n"
    )
    for name, color in (("dog", (0, 255, 0)), ("cat", (255, 0, 51))):
        (tmp_path / "images" / name).mkdir(parents=True)
        for index in range(3):
            image.new("RGB", (6 + index, 4), color).save(tmp_path / "images" / name / f"{index}.png")
    options = ("--model", "image_network:network", "--size", "2", "--seed", "3")
    path = tmp_path / "classifier.safetensors"
    assert call("fit", tmp_path / "images", *options, "-o", path).exit_code == 0
    result = call("predict", path, tmp_path / "images", *options, "-q")
    rows = records(result.stdout)
    assert [row["name"] for row in rows] == [f"{name}/{index}.png" for name in ("cat", "dog") for index in range(3)]
    assert [row["label"] for row in rows] == [0, 0, 0, 1, 1, 1]
    prepared = Preparation(2, (0.5,), (0.5, 1.0, 0.1))
    batches = ImageBatches(tmp_path / "images", class_names=["owl", "dog", "cat"], preparation=prepared, batch_size=4)
    images, labels = next(iter(batches))
    assert labels.tolist() == [2, 2, 2, 1]
    torch.testing.assert_close(images[0], torch.tensor([1.0, -0.5, -3.0]).view(3, 1, 1).expand(3, 2, 2))


def test_safetensors_weights_of_a_compiled_network_are_understood(call, folder, trained, tmp_path):
    save_file({f"_orig_mod.{key}": value for key, value in trained.state_dict().items()}, tmp_path / "w.safetensors")
    weights = ("--model", "project_code:network", "--weights", tmp_path / "w.safetensors")
    result = call("fit", "train.npz", *weights, "-o", tmp_path / "c.safetensors")
    assert result.exit_code == 0, result.output
    assert lb.load(tmp_path / "c.safetensors", trained).num_classes == 3
