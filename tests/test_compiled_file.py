"""`lb.export` to a compiled file, which torch runs without this library."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import onnx_cases
import pytest
import torch

import laplacebridge as lb

SCRIPT = Path(__file__).with_name("compile_file.py")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_a_compiled_file_answers_and_decides_as_the_classifier_does(tmp_path):
    command = [sys.executable, "-W", "ignore", str(SCRIPT), str(tmp_path / "model.pt2")]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert finished.returncode == 0, finished.stderr[-2000:]
    found = json.loads(finished.stdout.splitlines()[-1])
    assert found["names"][:2] == ["logits", "lb_probabilities"]
    assert found["bridge"] == "laplace"
    for name in ("probabilities", "top_lower"):
        assert found[name] < 2e-6, found
    assert all(found[f"same {rows}"] for rows in (1, 7, 64))
    assert found["deferred"] == 2
    assert found["nan rows"] == [5]
    assert len(found["actions"]) > 1


def test_without_a_compiler_it_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    classifier = onnx_cases.classifier_of("diag")
    inputs = torch.zeros(2, onnx_cases.NUM_FEATURES)
    with pytest.raises(lb.LaplaceBridgeError, match=r"C\+\+ compiler.*model\.onnx"):
        lb.export(classifier, tmp_path / "model.pt2", inputs)


def test_half_precision_is_for_onnx(tmp_path):
    classifier = onnx_cases.classifier_of("diag")
    with pytest.raises(lb.InputError, match="float16"):
        lb.export(
            classifier,
            tmp_path / "m.pt2",
            torch.zeros(2, onnx_cases.NUM_FEATURES),
            float16=True,
        )
