"""Files of other kinds in the place of a classifier, and networks without their
weights.
"""

import pytest
import torch
from cli_project import MODEL, fails

PLACE = "The first argument is the classifier, data come after it:"


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("test.npz", [".npz file of arrays", PLACE, "predict classifier.safetensors test.npz"]),
        ("weights.pt", ["weights that torch saved", "--weights weights.pt"]),
        ("classes.txt", ["looks like text", PLACE]),
    ],
)
def test_files_of_other_kinds_are_named(call, file, words):
    fails(call("predict", file, "test.npz", *MODEL), 1, f"{file} is no saved classifier", *words)


def test_pages_and_onnx_models_are_named(call, tmp_path):
    page, model = tmp_path / "report.html", tmp_path / "out.onnx"
    page.write_text("\n<!DOCTYPE html>\n<p>" + "ä" * 2000, encoding="utf-8")
    fails(call("info", page), 1, "looks like an HTML page", "browser")
    model.write_bytes(b"\x08\x08\x12\x07pytorch\x00\xff")
    told = ["an ONNX model", "ONNX Runtime", f"`laplacebridge serve {model}`"]
    fails(call("predict", model, "test_features.npz"), 1, *told)


@pytest.mark.parametrize("end", [0, 5, 100, -10])
def test_a_damaged_classifier_is_called_damaged(call, fitted, tmp_path, end):
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(fitted.path.read_bytes()[:end])
    fails(call("info", cut), 1, "damaged, cut short or of another format")


def test_weights_that_are_missing_are_named(call, fitted, tmp_path):
    result = call("predict", fitted.path, "test.npz", "--model", "project_code:network")
    fails(result, 1, "belongs to another model", "Is `--weights` missing?", "project_code:network")
    given = call("serve", fitted.path, "--model", "project_code:network", "--input", "x:FP32:4")
    fails(given, 1, "Is `--weights` missing?")
    other = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    torch.save(other.state_dict(), tmp_path / "other.pt")
    weights = ("--model", "project_code:network", "--weights", tmp_path / "other.pt")
    result = call("predict", fitted.path, "test.npz", *weights)
    fails(result, 1, "belongs to another model")
    assert "missing" not in result.stderr
