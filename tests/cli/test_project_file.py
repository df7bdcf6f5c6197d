"""`laplacebridge.toml`: commands need not be told what it says, and options win."""

import json

import numpy as np
import pytest
import torch
from cli_project import examples, fails, records
from torch import nn

import laplacebridge as lb
from laplacebridge.cli.project_file import KEYS, NAME, defaults
from laplacebridge.report.table import TEMPERATURE

PROJECT = """
model = "project_code:network"
weights = "weights.pt"
train = "train.npz"
validation = "held_out.npz"
test = "test.npz"
classes = "classes.txt"
classifier = "{folder}/classifier.safetensors"
batch-size = 64
"""


@pytest.fixture
def project(folder, tmp_path):
    """The file in the project's folder, for one test."""
    path = folder / NAME

    def write(text):
        path.write_text(text.replace("{folder}", str(tmp_path)))

    write(PROJECT)
    yield write
    path.unlink()


def test_commands_need_not_be_told_what_it_says(call, project, tmp_path):
    told = call("fit", "-q")
    assert told.exit_code == 0, told.output
    assert (tmp_path / "classifier.safetensors").is_file()
    predicted = call("predict", "-q")
    assert predicted.exit_code == 0, predicted.output
    rows = records(predicted.stdout)
    assert len(rows) == 60
    assert {row["predicted_name"] for row in rows} <= {"cat", "dog", "owl"}
    everything = call(
        *("predict", tmp_path / "classifier.safetensors", "test.npz", "-q"),
        *("--model", "project_code:network", "--weights", "weights.pt", "--classes", "classes.txt"),
    )
    assert everything.stdout == predicted.stdout


def test_a_classifier_that_exists_is_called_as_in_the_file(call, project, tmp_path):
    (tmp_path / "classifier.safetensors").touch()
    (tmp_path / "other.safetensors").touch()
    told = ["`classifier` in laplacebridge.toml", "classifier.safetensors exists", "--force"]
    fails(call("fit"), 2, *told)
    fails(call("merge", "train.npz"), 2, *told)
    given = call("fit", "-o", tmp_path / "other.safetensors")
    fails(given, 2, "--output", "other.safetensors exists")
    assert "laplacebridge.toml" not in given.stderr


def test_what_is_given_wins(call, project, fitted, tmp_path):
    (tmp_path / "others.txt").write_text("a\nb\nc\n")
    result = call(
        "predict", fitted.path, "held_out.npz", "--classes", tmp_path / "others.txt", "-q"
    )
    rows = records(result.stdout)
    assert len(rows) == 120
    assert {row["predicted_name"] for row in rows} <= {"a", "b", "c"}


def test_a_head_that_is_given_takes_the_network_of_the_file_out(call, project, fitted):
    result = call("predict", fitted.path, "test_features.npz", "--head-only", "head.npz", "-q")
    assert result.exit_code == 0, result.output
    with np.load("test_features.npz") as file:
        assert len(records(result.stdout)) == len(file["labels"])


@pytest.mark.parametrize(
    ("command", "given", "kept"),
    [
        ("export", ["-o", "model.onnx"], True),
        ("export", ["--output", "model.onnx", "-q"], True),
        ("export", ["--output=model.onnx"], True),
        ("export", ["-omodel.onnx"], True),
        ("fit", ["model.onnx", "-o", "fitted.onnx"], False),
        ("fit", ["-q", "model.onnx"], False),
        ("export", ["--model=other:network", "-o", "model.onnx"], False),
    ],
)
def test_only_a_network_that_is_read_takes_the_network_of_the_file_out(
    project, folder, monkeypatch, command, given, kept
):
    monkeypatch.chdir(folder)
    assert ({"model", "weights"} <= defaults(command, given).keys()) is kept


def methods(call, *arguments):
    result = call("report", *arguments, "--json")
    assert result.exit_code == 0, result.output
    return {row["method"] for row in json.loads(result.stdout)["rows"]}


def test_a_report_compares_with_temperature_scaling_on_the_validation_data(
    call, project, fitted, tmp_path
):
    page = ("-o", tmp_path / "r.html", "--force")
    assert TEMPERATURE in methods(call, fitted.path, *page)
    features = (fitted.path, "test_features.npz", "--head-only", "head.npz")
    assert TEMPERATURE not in methods(call, *features, *page)
    told = call("report", *features, *page)
    assert "No temperature scaling to compare with: give --validation." in told.stderr


def test_validation_data_of_the_file_do_not_keep_several_labels_from_a_report(
    call, project, tmp_path
):
    inputs, labels = examples(100, seed=3)
    torch.manual_seed(0)
    fitted = lb.fit(
        nn.Linear(4, 3),
        [(inputs, nn.functional.one_hot(labels, 3).float())],
        multi_label=True,
        prior_precision=1.0,
        progress=False,
    )
    lb.save(fitted, tmp_path / "labels.safetensors")
    data = tmp_path / "data.npz"
    np.savez(data, features=inputs.numpy(), labels=nn.functional.one_hot(labels, 3).numpy())
    project(f'validation = "{data}"')
    arguments = (tmp_path / "labels.safetensors", data, "-o", tmp_path / "r.html")
    fails(
        call("report", *arguments, "--validation", "test.npz"), 2, "--validation", "several labels"
    )
    result = call("report", *arguments)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("classifier", "given", "found"),
    [
        ("a.safetensors", [], {"model", "weights", "files", "classes"}),
        ("a.safetensors", ["digits=b.safetensors"], {"model", "weights", "files", "classes"}),
        ("a.safetensors", ["digits=b.onnx"], {"files", "classes"}),
        ("a.safetensors", ["--models", "models.json"], set()),
        ("a.onnx", [], {"files", "classes"}),
        ("a.onnx", ["b.safetensors"], {"model", "weights", "files", "classes"}),
    ],
)
def test_a_server_gets_the_network_of_what_it_serves(
    project, folder, monkeypatch, classifier, given, found
):
    monkeypatch.chdir(folder)
    project(f'model = "a:b"\nweights = "w"\nclasses = "c"\nclassifier = "{classifier}"')
    assert defaults("serve", given).keys() == found
    assert defaults("serve", given).get("files", [classifier]) == [classifier]


def test_images_are_prepared_alike_by_every_command_that_reads_them(project, folder, monkeypatch):
    monkeypatch.chdir(folder)
    project("size = 32\nmean = 0.5\nstd = [0.1, 0.2, 0.3]")
    for command in ("fit", "predict", "score"):
        found = defaults(command, [])
        assert found == {"size": 32, "mean": "0.5", "std": "0.1,0.2,0.3"}, command


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('wieghts = "weights.pt"', ["has 'wieghts'", "Is 'weights' meant?"]),
        ("[data]\ntrain = 'x'", ["has 'data'", "may have model, weights"]),
        ("model = 3", ["a text in quotes for 'model'; got 3"]),
        ("batch-size = 'many'", ["a whole number for 'batch-size'"]),
        ("mean = ['a']", ["a number or three for 'mean'"]),
        ("model = ", ["is no TOML"]),
    ],
)
def test_what_nobody_knows_is_refused(call, project, text, words):
    project(text)
    fails(call("predict"), 1, NAME, *words)


def test_help_and_other_commands_do_not_read_it(call, project):
    project("model = ")
    assert call("predict", "--help").exit_code == 0
    assert call("info").exit_code == 0


def test_numbers_for_each_colour_are_joined(call, project):
    project('mean = [0.5, 0.4, 0.3]\nstd = 0.2\nclassifier = "absent"\ntest = "x"')
    fails(call("predict"), 2, "absent")


def test_every_key_is_a_parameter_of_its_commands():
    from typer.main import get_command

    from laplacebridge.cli.main import app

    commands = get_command(app).commands
    for places in KEYS.values():
        for command, parameter in places.items():
            assert parameter in {each.name for each in commands[command].params}, (command, KEYS)
