"""`laplacebridge fit` does what the library does, and says what it chose."""

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
from cli_project import MODEL, examples, fails, files_in, records, run_in

import laplacebridge as lb


def test_fit_saves_what_the_library_fits_and_says_what_it_chose(fitted, classifier, trained):
    assert fitted.result.returncode == 0
    assert fitted.result.stdout == ""
    inputs, labels = examples(200, seed=0)
    by_hand = lb.fit(trained, list(zip(inputs.split(256), labels.split(256))), progress=False)
    assert float(classifier.posterior.prior_precision) == float(by_hand.posterior.prior_precision)
    saved, fresh = classifier(inputs).dirichlet, by_hand(inputs).dirichlet
    torch.testing.assert_close(saved.log_concentration, fresh.log_concentration)
    right = (trained(inputs).argmax(-1) == labels).double().mean()
    told = (
        f"{fitted.path}: 8 features, 3 classes, training accuracy {right:.1%}, KronPosterior, prior"
        " precision "
    )
    assert fitted.result.stderr.startswith(told)
    assert fitted.result.stderr.endswith(
        f"race bridge, {fitted.path.stat().st_size / 1e3:.1f} kB\n"
    )


@pytest.mark.parametrize(
    "fit_options", [(), ("--layers", "*", "--prior-precision", "1")], ids=["head", "layers"]
)
def test_the_summary_has_the_accuracy_of_the_network_on_the_training_data(
    call, trained, tmp_path, fit_options
):
    options = ("--batch-size", "30", "--json", *fit_options, "-o", tmp_path / "c.safetensors")
    result = call("fit", "train.npz", *MODEL, *options)
    assert result.exit_code == 0, result.output
    inputs, labels = examples(200, seed=0)
    right = (trained(inputs).argmax(-1) == labels).double().mean().item()
    assert json.loads(result.stdout)["training_accuracy"] == pytest.approx(right)
    assert result.stderr == ""


def test_held_out_rows_may_be_a_table(call, folder, tmp_path):
    inputs, labels = examples(120, seed=5)
    rows = np.column_stack([inputs.numpy(), labels.numpy()])
    header = ",".join([*(f"x{number}" for number in range(inputs.shape[1])), "label"])
    kinds = [*["%.9g"] * inputs.shape[1], "%d"]
    np.savetxt(tmp_path / "val.csv", rows, kinds, delimiter=",", header=header, comments="")
    path = tmp_path / "c.safetensors"
    result = call("fit", "train.npz", *MODEL, "--validation", tmp_path / "val.csv", "-o", path)
    assert result.exit_code == 0, result.output
    assert path.exists()
    assert "width by 120 held-out labels" in result.stderr


def test_without_labels_no_accuracy_is_said(call, tmp_path):
    options = ("--prior-precision", "1", "-o", tmp_path / "c.safetensors")
    result = call("fit", "project_code:unlabelled", *MODEL, *options)
    assert result.exit_code == 0, result.output
    assert "accuracy" not in result.stderr


def test_a_network_without_its_weights_is_warned_about(run, tmp_path):
    options = ("--prior-precision", "1", "-q", "-o", tmp_path / "c.safetensors")
    result = run("fit", "train.npz", "--model", "project_code:network", *options)
    assert result.returncode == 0
    assert result.stderr.startswith("Warning: The network gets ")
    assert (
        "Is it trained, with its weights loaded (`--weights` on the command line)" in result.stderr
    )


@pytest.mark.filterwarnings("ignore:With 120 held-out labels")
def test_the_network_is_run_once_for_each_batch_and_once_to_find_its_head(call, tmp_path):
    model = ("--model", "project_code:counted_network", "--weights", "weights.pt")
    options = (
        "--validation",
        "held_out.npz",
        "--batch-size",
        "70",
        "-o",
        tmp_path / "c.safetensors",
    )
    result = call("fit", "train.npz", *model, *options)
    assert result.exit_code == 0, result.exception
    runs = sys.modules["project_code"].Counted.runs
    assert runs == [
        70,
        70,
        70,
        60,
        70,
        50,
    ]  # the first batch of three twice; then those of the validation data


def test_a_new_file_has_the_permissions_of_any_new_file(fitted, tmp_path):
    ordinary = tmp_path / "ordinary"
    ordinary.touch()
    assert fitted.path.stat().st_mode == ordinary.stat().st_mode


def test_fit_takes_every_choice_and_answers_with_json(run, trained, tmp_path):
    path = tmp_path / "other.safetensors"
    result = run(
        *(
            "fit",
            "project_code:Batches",
            *MODEL,
            "--curvature",
            "diag",
            "--bridge",
            "one-vs-rest",
            "--head",
            "2",
        ),
        *(
            "--validation",
            "held_out.npz",
            "--tune-temperature",
            "--batch-size",
            "50",
            "--json",
            "-o",
            path,
        ),
    )
    assert result.returncode == 0, result.stderr
    summary = json.loads(result.stdout)
    saved = lb.load(path, trained)
    assert summary["posterior"] == type(saved.posterior).__name__ == "DiagPosterior"
    assert summary["bridge"] == "one-vs-rest"
    assert saved.bridge is lb.bridges.one_vs_rest_bridge
    assert summary["prior_precision"] == float(saved.posterior.prior_precision)
    assert (
        summary["prior_chosen_by"] == "smallest negative log likelihood of 120 validation examples"
    )
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
    fcntl.ioctl(
        terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0)
    )  # a new one has no columns
    arguments = ["fit", "project_code:Batches", *MODEL, "-o", tmp_path / "c.safetensors"]
    result = run_in(
        folder, *arguments, capture_output=False, stdout=subprocess.PIPE, stderr=terminal
    )
    os.close(terminal)
    shown = os.read(screen, 100_000).decode()
    os.close(screen)
    assert result.returncode == 0
    assert "fitting: 100%" in shown
    assert "4/4 [" in shown
    assert "batch/s" in shown
    assert "fitting" not in result.stdout


def test_a_single_logit_is_two_classes_and_the_inputs_of_a_linear_model_are_its_features(
    call, tmp_path
):
    np.savez(tmp_path / "head.npz", weight=np.array([[1.0, -2.0]]), bias=np.array([0.5]))
    features = np.random.default_rng(0).normal(size=(40, 2))
    np.savez(
        tmp_path / "data.npz",
        inputs=features,
        labels=(features[:, 0] > 2 * features[:, 1]).astype(int),
    )
    path = tmp_path / "binary.safetensors"
    assert (
        call(
            "fit", tmp_path / "data.npz", "--head-only", tmp_path / "head.npz", "-o", path
        ).exit_code
        == 0
    )
    rows = records(call("predict", path, tmp_path / "data.npz", "-q").stdout)
    logit = features @ [1.0, -2.0] + 0.5
    assert [row["predicted"] for row in rows] == (logit > 0).astype(int).tolist()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("fit", "nowhere.npz", *MODEL), 2, ["DATA", "no file or folder nowhere.npz"]),
        (
            ("fit", "does_not_import:loader", *MODEL),
            1,
            ["Importing `does_not_import` failed", "no licence"],
        ),
        (
            ("fit", "project_code:unlabelled", *MODEL),
            1,
            ["project_code:unlabelled has no labels", "--prior-precision"],
        ),
        (("fit", "train.npz", *MODEL, "--priors", "1"), 2, ["No such option", "--priors"]),
    ],
    ids=["wrong path", "module that fails", "labels missing", "unknown option"],
)
def test_a_fit_that_cannot_be_done_says_why_and_writes_nothing(
    run, tmp_path, arguments, code, words
):
    result = run(*arguments, "-o", tmp_path / "c.safetensors")
    fails(result, code, *words)
    assert result.stdout == ""
    assert files_in(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("train.npz",), 2, ["--model or --head-only"]),
        (
            ("train.npz", "--model", "project_code:network", "--head-only", "head.npz"),
            2,
            ["--model or --head-only"],
        ),
        (
            ("train.npz", "--head-only", "head.npz", "--weights", "weights.pt"),
            2,
            ["--weights", "belong to a --model"],
        ),
        (("train.npz", "--head-only", "nowhere.npz"), 2, ["'nowhere.npz' does not exist"]),
        (
            ("train.npz", "--head-only", "train.npz"),
            1,
            ["needs `weight` of shape (K, D)", "'inputs': (200, 4)"],
        ),
        (
            ("train.npz", "--model", "project_code"),
            2,
            ["needs package.module:name", "'project_code'"],
        ),
        (("train.npz", "--model", "project_cod:network"), 2, ["no module 'project_cod'"]),
        (("train.npz", "--model", "project_code:nework"), 2, ["'project_code' has no 'nework'"]),
        (
            ("train.npz", "--model", "project_code:broken_factory"),
            1,
            ["failed: KeyError: 'missing'"],
        ),
        (
            ("train.npz", "--model", "project_code:unlabelled"),
            1,
            ["must return a torch.nn.Module", "list"],
        ),
        (
            ("train.npz", "--model", "project_code:ANSWER"),
            1,
            ["must be a function without arguments", "int"],
        ),
        (
            ("train.npz", "--model", "project_code:headless"),
            1,
            ["is not what the last linear layer"],
        ),
        (
            ("train.npz", "--model", "project_code:network", "--weights", "nowhere.pt"),
            2,
            ["'nowhere.pt' does not exist"],
        ),
        (
            ("train.npz", "--model", "project_code:wider_network", "--weights", "weights.pt"),
            1,
            ["(8, 4)", "(9, 4)"],
        ),
        (
            ("train.npz", "--model", "project_code:headless", "--weights", "weights.pt"),
            1,
            ["'2.weight', '2.bias' too"],
        ),
        (
            ("train.npz", *MODEL, "--curvature", "round"),
            2,
            ["'round' is not one of 'diag', 'kron'"],
        ),
        (("train.npz", *MODEL, "--head", "body"), 1, ["No linear layer called 'body'"]),
        (
            ("train.npz", *MODEL, "--device", "abacus"),
            2,
            ["--device", "'abacus' cannot be used here"],
        ),
        (("train.npz", *MODEL, "--prior-precision", "-1"), 2, ["needs a positive number"]),
        (("train.npz", *MODEL, "--tune-temperature"), 2, ["--tune-temperature", "--validation"]),
        (("-", *MODEL, "--validation", "-"), 2, ["cannot be read twice"]),
        (("train.npz", *MODEL, "--validation", "project_code:unlabelled"), 1, ["has no labels"]),
        (
            ("train.npz", *MODEL, "--classes", "two.txt"),
            1,
            ["has 3 classes, and --classes names 2"],
        ),
        (("train.npz", *MODEL, "--mean", "1,2"), 2, ["--mean", "one number or three"]),
        (("weights.pt", *MODEL), 2, ["weights.pt is not data"]),
        (("project_code:ANSWER", *MODEL), 1, ["must be a function"]),
        (
            ("project_code:failing", *MODEL),
            1,
            ["`project_code:failing` failed: KeyError: 'image_id'"],
        ),
        (
            ("head.npz", *MODEL),
            1,
            ["needs numbers under `inputs` or `features`", "`weight` (3, 8)"],
        ),
        (("test_features.npz", *MODEL), 1, ["could not run the first batch"]),
        (("empty", *MODEL), 1, ["pillow"]),
    ],
    ids=lambda value: None if isinstance(value, (int, list)) else " ".join(value),
)
def test_every_wrong_fit_has_its_message(
    call, folder, tmp_path, monkeypatch, arguments, code, words
):
    monkeypatch.setitem(sys.modules, "PIL", None)  # as if it were not installed
    (folder / "two.txt").write_text("cat\ndog\n")
    (folder / "empty").mkdir(exist_ok=True)
    fails(call("fit", *arguments, "-o", tmp_path / "c.safetensors"), code, *words)
    assert files_in(tmp_path) == []
