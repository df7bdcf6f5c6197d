"""What goes wrong is said in one message: no traceback, the right exit code, and no file that is half written."""

import resource
import subprocess
import sys

import numpy as np
import pytest
import torch
from cli_project import run_in
from safetensors.torch import save_file
from torch import nn

MODEL = ("--model", "project_code:network", "--weights", "weights.pt")


def files_in(folder):
    return sorted(path.name for path in folder.iterdir())


def error_lines(text):
    return [line for line in text.splitlines() if line.startswith("Error: ")]


def fails(result, code, *words):
    """Requires an exit code and one message on standard error that has all the words."""
    assert result.returncode == code, result.stderr
    assert len(error_lines(result.stderr)) == 1
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("fit", "nowhere.npz", *MODEL), 2, ["DATA", "no file or folder nowhere.npz"]),
        (("fit", "does_not_import:loader", *MODEL), 1, ["Importing `does_not_import` failed", "no licence"]),
        (("fit", "project_code:unlabelled", *MODEL), 1, ["project_code:unlabelled has no labels", "--prior-precision"]),
        (("fit", "train.npz", *MODEL, "--priors", "1"), 2, ["No such option", "--priors"]),
    ],
    ids=["wrong path", "module that fails", "labels missing", "unknown option"],
)
def test_a_fit_that_cannot_be_done_says_why_and_writes_nothing(run, tmp_path, arguments, code, words):
    result = run(*arguments, "-o", tmp_path / "c.safetensors")
    fails(result, code, *words)
    assert result.stdout == ""
    assert files_in(tmp_path) == []


def test_damaged_weights_are_refused(run, folder, tmp_path):
    (tmp_path / "cut.pt").write_bytes((folder / "weights.pt").read_bytes()[:700])
    result = run(
        *("fit", "train.npz", "--model", "project_code:network", "--weights", tmp_path / "cut.pt"),
        *("-o", tmp_path / "c.safetensors"),
    )
    fails(result, 1, "cut.pt cannot be read as a state dict")
    assert files_in(tmp_path) == ["cut.pt"]


def test_a_classifier_of_another_model_is_refused(run, fitted, tmp_path):
    torch.save(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).state_dict(), tmp_path / "other.pt")
    weights = ("--model", "project_code:network", "--weights", tmp_path / "other.pt")
    result = run("predict", fitted.path, "test.npz", *weights, "-o", tmp_path / "p.jsonl")
    fails(result, 1, "belongs to another model", "Load the weights that it was fitted to")
    assert files_in(tmp_path) == ["other.pt"]


@pytest.mark.parametrize("command", ["fit", "predict"])
def test_a_full_disk_leaves_the_old_file_as_it_was(folder, fitted, tmp_path, command):
    old = tmp_path / ("old.safetensors" if command == "fit" else "old.jsonl")
    old.write_text("precious")
    arguments = ["train.npz", *MODEL] if command == "fit" else [fitted.path, "test.npz", *MODEL]
    limit = 1024  # bytes that a file may have in that process
    result = run_in(
        *(folder, command, *arguments, "--force", "-o", old),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    fails(result, 1, old.name, "File too large")
    assert result.stdout == ""
    assert old.read_text() == "precious"
    assert files_in(tmp_path) == [old.name]


@pytest.mark.parametrize("to_device", [True, False], ids=["as a file", "as standard output"])
def test_an_output_that_takes_nothing_is_a_failure(run, fitted, to_device):
    arguments = ["predict", fitted.path, "test_features.npz"]
    with open("/dev/full", "w", encoding="utf-8") as full:
        if to_device:
            result = run(*arguments, "-o", "/dev/full", "--format", "csv")
        else:
            result = run(*arguments, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    fails(result, 1, "No space left on device")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", ["fit", "predict"])
def test_an_interruption_ends_without_a_traceback_or_a_file(run, fitted, tmp_path, command):
    given = [] if command == "fit" else [fitted.path]
    name = "c.safetensors" if command == "fit" else "p.jsonl"
    result = run(command, *given, "project_code:interrupted", *MODEL, "-o", tmp_path / name)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "Interrupted.\n")
    assert files_in(tmp_path) == []


def test_a_reader_that_leaves_ends_the_command_quietly(folder, fitted):
    np.savez(folder / "huge.npz", features=np.zeros((3000, 8), dtype=np.float32))
    script = f"'{sys.executable}' -m laplacebridge predict '{fitted.path}' huge.npz --quiet | head -n 1"
    result = subprocess.run(script, cwd=folder, shell=True, capture_output=True, text=True, check=False)  # noqa: S602
    assert len(result.stdout.splitlines()) == 1
    assert result.stderr == ""


def test_traceback_shows_where_an_error_came_from(run, tmp_path):
    result = run("--traceback", "fit", "project_code:failing", *MODEL, "-o", tmp_path / "c.safetensors")
    assert result.returncode == 1
    assert "KeyError: 'image_id'" in result.stderr
    assert "project_code.py" in result.stderr


def called_fails(result, code, *words):
    assert result.exit_code == code, (result.output, result.exception)
    assert isinstance(result.exception, SystemExit)
    assert len(error_lines(result.stderr)) == 1
    for word in words:
        assert word in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("train.npz",), 2, ["--model or --head-only"]),
        (("train.npz", "--model", "project_code:network", "--head-only", "head.npz"), 2, ["--model or --head-only"]),
        (("train.npz", "--head-only", "head.npz", "--weights", "weights.pt"), 2, ["--weights", "belong to a --model"]),
        (("train.npz", "--head-only", "nowhere.npz"), 2, ["no file nowhere.npz"]),
        (("train.npz", "--head-only", "train.npz"), 1, ["needs `weight` of shape (K, D)", "'inputs': (200, 4)"]),
        (("train.npz", "--model", "project_code"), 2, ["needs package.module:name", "'project_code'"]),
        (("train.npz", "--model", "project_cod:network"), 2, ["no module 'project_cod'"]),
        (("train.npz", "--model", "project_code:nework"), 2, ["'project_code' has no 'nework'"]),
        (("train.npz", "--model", "project_code:broken_factory"), 1, ["failed: KeyError: 'missing'"]),
        (("train.npz", "--model", "project_code:unlabelled"), 1, ["must return a torch.nn.Module", "list"]),
        (("train.npz", "--model", "project_code:ANSWER"), 1, ["must be a function without arguments", "int"]),
        (("train.npz", "--model", "project_code:headless"), 1, ["is not what the last linear layer"]),
        (("train.npz", "--model", "project_code:network", "--weights", "nowhere.pt"), 2, ["no file nowhere.pt"]),
        (("train.npz", "--model", "project_code:wider_network", "--weights", "weights.pt"), 1, ["(8, 4)", "(9, 4)"]),
        (("train.npz", "--model", "project_code:headless", "--weights", "weights.pt"), 1, ["'2.weight', '2.bias' too"]),
        (("train.npz", *MODEL, "--curvature", "round"), 2, ["'round' is not one of diag, kron"]),
        (("train.npz", *MODEL, "--head", "body"), 1, ["No linear layer called 'body'"]),
        (("train.npz", *MODEL, "--device", "abacus"), 2, ["--device", "'abacus' cannot be used here"]),
        (("train.npz", *MODEL, "--prior-precision", "-1"), 2, ["needs a positive number"]),
        (("train.npz", *MODEL, "--temperature"), 2, ["--temperature", "--validation"]),
        (("-", *MODEL, "--validation", "-"), 2, ["cannot be read twice"]),
        (("train.npz", *MODEL, "--validation", "project_code:unlabelled"), 1, ["has no labels"]),
        (("train.npz", *MODEL, "--classes", "two.txt"), 1, ["has 3 classes, and --classes names 2"]),
        (("train.npz", *MODEL, "--mean", "1,2"), 2, ["--mean", "one number or three"]),
        (("weights.pt", *MODEL), 2, ["weights.pt is not data"]),
        (("project_code:ANSWER", *MODEL), 1, ["must be a function"]),
        (("project_code:failing", *MODEL), 1, ["`project_code:failing` failed: KeyError: 'image_id'"]),
        (("head.npz", *MODEL), 1, ["needs numbers under `inputs` or `features`", "`weight` (3, 8)"]),
        (("test_features.npz", *MODEL), 1, ["could not run the first batch"]),
        (("empty", *MODEL), 1, ["pillow"]),
    ],
    ids=lambda value: None if isinstance(value, (int, list)) else " ".join(value),
)
def test_every_wrong_fit_has_its_message(call, folder, tmp_path, monkeypatch, arguments, code, words):
    monkeypatch.setitem(sys.modules, "PIL", None)  # as if it were not installed
    (folder / "two.txt").write_text("cat\ndog\n")
    (folder / "empty").mkdir(exist_ok=True)
    called_fails(call("fit", *arguments, "-o", tmp_path / "c.safetensors"), code, *words)
    assert files_in(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("test.npz",), 2, ["has inputs, which need the network"]),
        (("train_features.npz", "--head-only", "other_head.npz"), 1, ["belongs to another model"]),
        (("test.npz", "--model", "project_code:headless"), 1, ["belongs to another model", "No linear layer"]),
        (("test.npz", *MODEL, "--head-only", "head.npz"), 2, ["not both"]),
        (("test_features.npz", "--scores", "msp,luck"), 2, ["--scores", "'luck' is not one of msp"]),
        (("test_features.npz", "--top", "2", "--format", "npz"), 2, ["--top", "npz holds all classes"]),
        (("test_features.npz", "--format", "xml"), 2, ["'xml' is not one of jsonl, csv, npz"]),
        (("test_features.npz", "-o", "prediction.xml"), 2, ["does not say what to write"]),
        (("test_features.npz", "-o", "nowhere/p.csv"), 2, ["no folder nowhere"]),
        (("test_features.npz", "-o", "classes.txt", "--format", "csv"), 2, ["classes.txt exists", "--force"]),
        (("test_features.npz", "-o", ".", "--format", "csv"), 2, ["is a folder"]),
        (("test_features.npz", "--threshold", "2"), 2, ["--threshold"]),
        (("test_features.npz", "--interval", "1"), 2, ["--interval"]),
        (("test_features.npz", "--bridge", "golden"), 2, ["'golden' is not one of race"]),
        (("bad_labels.npz",), 1, ["label 7", "3 classes"]),
        (("float_labels.npz",), 1, ["one integer in `labels`", "float64"]),
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
    called_fails(call("predict", fitted.path, *arguments), code, *words)
    assert files_in(folder) == before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["standard input needs at least one example"]),
        ("1,2\n1,2,3\n", ["line 2", "needs 2 numbers", "has 3"]),
        ("[1, 2]\noops\n", ["line 2", "'oops'"]),
        ("[1, 2]\n", ["could not run batch 0", "takes 8 features"]),
        ('{"pixels": [1, 2]}\n', ["line 1", "`features`"]),
        ("a,label\n1,cat\n", ["line 2"]),
    ],
    ids=["empty", "ragged", "not json", "too few", "other name", "label that is no number"],
)
def test_every_wrong_row_on_standard_input_has_its_message(call, fitted, text, words):
    called_fails(call("predict", fitted.path, "-", text=text), 1, *words)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("nowhere.npz",), 2, ["PREDICTION", "no file nowhere.npz"]),
        (("test.npz",), 1, ["needs `log_concentration`", "inputs"]),
        (("{prediction}", "--threshold", "0.1", "--calibrate", "{prediction}"), 2, ["--threshold"]),
        (("{prediction}", "--calibrate", "unlabelled.npz"), 1, ["needs `labels` to calibrate with"]),
        (("{prediction}", "--calibrate", "{prediction}", "--coverage", "0.999"), 1, ["needs at least 999 examples"]),
        (("{prediction}", "--classes", "two.txt"), 1, ["3 classes; got 2 names"]),
        (("{prediction}", "--max-size", "0"), 2, ["--max-size"]),
    ],
    ids=lambda value: None if isinstance(value, (int, list)) else " ".join(value),
)
def test_every_wrong_set_has_its_message(call, folder, prediction, arguments, code, words):
    (folder / "two.txt").write_text("cat\ndog\n")
    np.savez(folder / "unlabelled.npz", log_concentration=np.zeros((4, 3)))
    called_fails(call("sets", *(part.format(prediction=prediction) for part in arguments)), code, *words)


def test_predictions_that_are_cut_off_cannot_become_sets(call, fitted):
    short = call("predict", fitted.path, "test_features.npz", "--top", "2", "-q").stdout
    called_fails(call("sets", "-", text=short), 1, "line 1", "(no --top)")


def test_info_refuses_what_it_does_not_know(call, folder, tmp_path):
    save_file({"weight": torch.ones(2, 2)}, tmp_path / "other.safetensors")
    called_fails(call("info", tmp_path / "other.safetensors"), 1, "not a classifier saved by")
    called_fails(call("info", "classes.txt"), 1, "cannot be read as a safetensors file")


def test_pickled_models_are_never_unpickled(call, tmp_path):
    torch.save(nn.Linear(2, 2), tmp_path / "model.pt")
    result = call("fit", "train.npz", *MODEL[:2], "--weights", tmp_path / "model.pt", "-o", tmp_path / "c.safetensors")
    called_fails(result, 1, "never unpickled", "model.state_dict()")
