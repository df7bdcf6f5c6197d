"""Predictions that are read back, from files and from pipes."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from cli_project import fails, records

import laplacebridge as lb
from laplacebridge.sets import overlap_sets


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
    result = subprocess.run(  # noqa: S602
        script, cwd=folder, shell=True, capture_output=True, text=True, check=False
    )
    assert len(records(result.stdout)) == json.loads(result.stderr)["sets"] == 60


def test_predictions_that_are_cut_off_cannot_become_sets(call, fitted):
    short = call("predict", fitted.path, "test_features.npz", "--top", "2", "-q").stdout
    fails(call("sets", "-", text=short), 1, "line 1", "(no --top)")


@pytest.mark.filterwarnings("always:.*very predictions")
@pytest.mark.parametrize(
    "command", [("sets",), ("decide", "--answer-share", "0.5")], ids=["sets", "decide"]
)
def test_a_calibration_with_what_is_decided_about_is_warned_about(
    call, prediction, labelled, tmp_path, command
):
    name, *options = command
    copy = tmp_path / "copy.npz"
    copy.write_bytes(prediction.read_bytes())
    for same in (prediction, copy):
        result = call(name, prediction, "--calibrate", same, *options)
        assert result.exit_code == 0, result.output
        assert (
            f"Warning: {same} holds the very predictions that it is to be applied to"
            in result.stderr
        )
    assert "Warning" not in call(name, prediction, "--calibrate", labelled, *options).stderr


def test_text_is_not_read_back(call, tmp_path):
    (tmp_path / "p.csv").write_text("row,predicted\n0,1\n")
    fails(call("sets", tmp_path / "p.csv"), 1, "p.csv is text", "-o predictions.npz")
