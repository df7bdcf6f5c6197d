"""`laplacebridge info` says what is in a file."""

import json

import torch
from cli_project import fails
from safetensors.torch import save_file

import laplacebridge as lb


def test_info_names_the_versions(run):
    result = run("info")
    assert result.returncode == 0
    for name in ("laplacebridge", "torch", "python", "system", "threads"):
        assert any(line.startswith(name) for line in result.stdout.splitlines())


def test_info_says_what_is_in_a_file(run, fitted, trained, prediction):
    told = json.loads(run("info", fitted.path, "--json").stdout)
    assert (told["classes"], told["features"], told["head"]) == (3, 8, "2")
    assert (told["posterior"], told["bridge"]) == ("KronPosterior", "race")
    assert told["prior_chosen_by"] == "largest evidence of the training data"
    assert told["training_accuracy"] == lb.load(fitted.path, trained).labels.accuracy > 0.5
    lines = run("info", prediction).stdout.splitlines()
    assert "rows         60" in lines
    assert "class names  cat, dog, owl" in lines
    assert "labels       yes" in lines


def test_info_refuses_what_it_does_not_know(call, folder, tmp_path):
    save_file({"weight": torch.ones(2, 2)}, tmp_path / "other.safetensors")
    fails(call("info", tmp_path / "other.safetensors"), 1, "not a classifier saved by")
    fails(call("info", "classes.txt"), 1, "cannot be read as a safetensors file")
