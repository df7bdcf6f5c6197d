"""`fit --shard` in several processes, and `merge`: the classifier of the whole."""

import json

import numpy as np
import pytest
import torch
from cli_project import MODEL, examples, fails, run_in

import laplacebridge as lb


def test_shards_of_two_processes_merge_to_the_classifier_of_the_whole(
    folder, run, trained, tmp_path
):
    parts = [tmp_path / f"part{number}.safetensors" for number in (1, 2)]
    for number, part in enumerate(parts, start=1):
        batches = ("train.npz", "--batch-size", "32", "--shard", f"{number}/2")
        result = run_in(folder, "fit", *batches, *MODEL, "-o", part, "--json")
        assert result.returncode == 0, result.stderr
        assert json.loads(result.stdout)["shard"] == f"{number}/2"
    whole, together = tmp_path / "whole.safetensors", tmp_path / "together.safetensors"
    held_out = ("--validation", "held_out.npz")
    assert run("merge", *parts, *MODEL, *held_out, "-o", together).returncode == 0
    options = ("--batch-size", "32", *held_out)
    assert run("fit", "train.npz", *options, *MODEL, "-o", whole).returncode == 0
    inputs = examples(60, seed=1).inputs
    with torch.no_grad():
        one, other = (lb.load(path, trained)(inputs) for path in (whole, together))
    assert torch.allclose(one.mean, other.mean, atol=1e-6)
    assert torch.allclose(one.log_odds_variance, other.log_odds_variance, rtol=1e-4)


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "a/b", "1/0", "-1/2"])
def test_a_shard_that_is_none_is_refused(call, shard, tmp_path):
    output = tmp_path / "part.safetensors"
    result = call("fit", "train.npz", "--shard", shard, *MODEL, "-o", output)
    assert result.exit_code == 2
    assert "counted from 1" in result.stderr
    assert not output.exists()


def test_a_missing_shard_and_options_of_a_whole_fit_are_refused(call, tmp_path):
    part = tmp_path / "part.safetensors"
    assert call("fit", "train.npz", "--shard", "1/2", *MODEL, "-o", part).exit_code == 0
    result = call("merge", part, *MODEL, "-o", tmp_path / "classifier.safetensors")
    fails(result, 1, "are missing: 2")
    whole = ("--validation", "held_out.npz")
    result = call("fit", "train.npz", "--shard", "2/2", *whole, *MODEL, "-o", tmp_path / "x")
    assert result.exit_code == 2
    assert "laplacebridge merge" in result.stderr


def test_held_out_names_of_fewer_classes_are_refused_before_anything_is_saved(
    call, folder, tmp_path
):
    part, output = tmp_path / "part.safetensors", tmp_path / "classifier.safetensors"
    assert call("fit", "train.npz", "--shard", "1/1", *MODEL, "-o", part).exit_code == 0
    data = np.load(folder / "held_out.npz")
    known = data["labels"] < 2
    names = np.array(["cat", "dog"])[data["labels"][known]]
    np.savez(tmp_path / "two.npz", inputs=data["inputs"][known], labels=names)
    result = call("merge", part, *MODEL, "--validation", tmp_path / "two.npz", "-o", output)
    fails(result, 1, "The model has 3 classes", "names 2")
    assert not output.exists()
