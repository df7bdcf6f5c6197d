"""`laplacebridge export`: the file answers as the classifier does."""

import json

import numpy as np
import onnx_cases
import pytest
from cli_project import examples, fails

pytest.importorskip("onnxruntime", reason="needs the extra `onnx`")
pytest.importorskip("onnxscript", reason="needs the extra `onnx`")
NETWORK = ("--model", "project_code:network", "--weights", "weights.pt")


def test_one_file_for_a_runtime(run, fitted, expected_prediction, tmp_path):
    path = tmp_path / "model.onnx"
    result = run(
        "export",
        fitted.path,
        "test.npz",
        *NETWORK,
        "--classes",
        "classes.txt",
        "--outputs",
        "probabilities, interval",
        "-o",
        path,
        "--json",
    )
    assert result.returncode == 0, result.stderr
    summary = json.loads(result.stdout)
    assert summary["outputs"] == ["logits", "lb_probabilities", "lb_lower", "lb_upper"]
    assert summary["bytes"] == path.stat().st_size
    session = onnx_cases.session_of(str(path))
    answers = onnx_cases.run(session, examples(60, seed=1).inputs)
    assert max(onnx_cases.differences(answers, expected_prediction).values()) < 1
    policy = session.get_modelmeta().custom_metadata_map["laplacebridge.policy"]
    assert json.loads(policy)["class_names"] == ["cat", "dog", "owl"]
    told = dict(line.split("  ", 1) for line in run("info", path).stdout.splitlines())
    assert told["class names"].strip() == "cat, dog, owl"
    assert told["laplacebridge outputs"].strip() == "probabilities, interval"
    assert told["laplacebridge policy"].strip() == "class names cat, dog, owl"
    assert np.isfinite(answers["logits"]).all()


def test_answers_that_do_not_exist_are_named(call, fitted, tmp_path):
    fails(
        call(
            "export",
            fitted.path,
            "test.npz",
            *NETWORK,
            "--outputs",
            "chances",
            "-o",
            tmp_path / "m.onnx",
        ),
        1,
        "There is no answer 'chances'; choose from probabilities",
    )
