"""`torch.export` takes a fitted classifier as it is, and gives what the classifier
gives.
"""

import json
import subprocess
import sys
from pathlib import Path

import onnx_cases
import pytest
import torch
from torch.utils import _pytree

import laplacebridge as lb

SCRIPT = Path(__file__).with_name("export_classifier.py")
TRACED, STRICT = "kron:one-vs-rest:10:traced", "full:laplace:2:strict"
# Before, torch's compiler of Python could not follow how the head is watched.
needs_strict = pytest.mark.skipif(
    torch.torch_version.TorchVersion(torch.__version__) < (2, 13),
    reason="`torch.export(strict=True)` of a classifier needs torch 2.13",
)


def differences(*cases):
    command = [sys.executable, str(SCRIPT), *cases]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert finished.returncode == 0, finished.stderr[-2000:]
    return json.loads(finished.stdout.splitlines()[-1])


@pytest.mark.parametrize("case", [TRACED, pytest.param(STRICT, marks=needs_strict)])
def test_exported_classifiers_answer_exactly_what_they_answered(case):
    assert differences(case) == {case: 0}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["traced", pytest.param("strict", marks=needs_strict)])
@pytest.mark.parametrize("bridge", lb.bridges.BRIDGES)
@pytest.mark.parametrize("curvature", onnx_cases.CURVATURES)
def test_every_structure_and_bridge_can_be_exported(curvature, bridge, mode):
    case = f"{curvature}:{bridge}:10:{mode}"
    assert differences(case) == {case: 0}


@pytest.mark.slow
@pytest.mark.parametrize("curvature", onnx_cases.CURVATURES)
def test_two_classes_and_a_thousand_can_be_exported(curvature):
    found = differences(*(f"{curvature}:one-vs-rest:{size}:traced" for size in (2, 1000)))
    assert len(found) == 2
    assert max(found.values()) == 0, found


def test_predictions_are_trees_of_tensors():
    prediction = onnx_cases.classifier_of("diag")(torch.zeros(3, onnx_cases.NUM_FEATURES))
    leaves, structure = _pytree.tree_flatten(prediction)
    assert len(leaves) == 4
    again = _pytree.tree_unflatten(leaves, structure)
    assert isinstance(again, lb.Prediction)
    assert again.dirichlet.log_concentration is prediction.dirichlet.log_concentration
    moved = _pytree.tree_map(lambda tensor: tensor.double(), prediction)
    assert moved.dtype == torch.float64
