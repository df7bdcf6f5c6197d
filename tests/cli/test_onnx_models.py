"""`laplacebridge fit model.onnx` and `laplacebridge info model.onnx`."""

import json

import numpy as np
import onnx
import pytest
from onnx_builder import CLASSES, INPUTS, Builder, save
from onnx_models import plain
from onnx_refused import REFUSED
from typer.testing import CliRunner

from laplacebridge.cli.main import app


def run(*arguments):
    return CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.fixture
def files(tmp_path):
    """A model, training and held-out data."""
    path = save(plain(17), tmp_path)
    generator = np.random.default_rng(0)
    for name, count in (("train", 90), ("val", 60)):
        inputs = generator.standard_normal((count, INPUTS)).astype(np.float32)
        np.savez(tmp_path / f"{name}.npz", x=inputs, labels=np.arange(count) % CLASSES)
    return path, tmp_path / "train.npz", tmp_path / "val.npz"


@pytest.mark.filterwarnings("ignore:The network fits its training labels")
def test_fit_writes_a_model_with_its_uncertainty(files, tmp_path):
    model, train, val = files
    new = tmp_path / "with-uncertainty.onnx"
    result = run(
        "fit", model, train, "--validation", val, "-o", new, "--bridge", "laplace", "--json"
    )
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["head"] == "MatMul 'MatMul_2_0'"
    names = [each.name for each in onnx.load(new).graph.output]
    assert names[0] == "y"
    assert "lb_probabilities" in names


def test_fit_saves_the_classifier_of_the_head_under_another_suffix(files, tmp_path):
    model, train, _ = files
    new = tmp_path / "head.safetensors"
    assert run("fit", model, train, "-o", new, "-q", "--bridge", "laplace").exit_code == 0
    assert new.exists()


def test_data_that_do_not_fit_the_model_are_named(files, tmp_path):
    model, *_ = files
    np.savez(tmp_path / "other.npz", z=np.zeros((3, 2)))
    result = run("fit", model, tmp_path / "other.npz", "-o", tmp_path / "new.onnx")
    assert result.exit_code == 1
    assert "needs `x` (or `inputs`) and `labels`" in result.stderr
    assert "it holds `z` (3, 2)" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--layers", "*"], "torch networks"), ([], "needs training data")],
)
def test_wrong_command_lines_say_why(arguments, words, files, tmp_path):
    model, train, _ = files
    data = [train] if arguments else []
    result = run("fit", model, *data, *arguments, "-o", tmp_path / "new.onnx")
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())


def test_one_of_several_heads_is_named_by_an_option(files, tmp_path):
    _, train, _ = files
    path = save(REFUSED["two_heads"][0](Builder()), tmp_path)
    result = run("fit", path, train, "-o", tmp_path / "new.onnx")
    assert result.exit_code == 1
    assert "as `--head a`;" in " ".join(result.stderr.split())
    facts = json.loads(run("info", path, "--json").stdout)
    assert "as `--head a`;" in facts["why"]


def test_info_says_what_was_found(files):
    facts = json.loads(run("info", files[0], "--json").stdout)
    assert (facts["opset"], facts["classes"], facts["output_is"]) == (17, CLASSES, "softmax")


def test_info_says_why_nothing_was_found(tmp_path):
    path = save(REFUSED["several_labels_at_once"][0](Builder()), tmp_path)
    facts = json.loads(run("info", path, "--json").stdout)
    assert facts["head"] is None
    assert "sigmoid for each of 5 classes" in facts["why"]
