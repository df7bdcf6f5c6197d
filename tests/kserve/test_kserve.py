"""A model behind KServe's own server, asked by Triton's clients over HTTP and gRPC, in
a network namespace that has nothing but a loopback.
"""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from small_network import FEATURES, examples

pytestmark = [pytest.mark.kserve, pytest.mark.crosscheck]
HELPERS = Path(__file__).parents[1] / "helpers"
NAMESPACE = ["unshare", "-n", "bash", "-c", 'ip link set lo up; exec "$@"', "--"]


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What clients saw."""
    for name in ("kserve", "tritonclient.http", "tritonclient.grpc"):
        if find_spec(name.partition(".")[0]) is None or find_spec(name) is None:
            pytest.skip(f"{name} is not installed")  # not imported: two of them exclude each other
    if subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode:  # noqa: S603
        pytest.skip("no network namespace can be made here")
    log = tmp_path_factory.mktemp("kserve") / "server.log"
    paths = os.pathsep.join([str(HELPERS), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(  # noqa: S603
        [*NAMESPACE, sys.executable, str(HELPERS / "kserve_client.py"), str(log)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:] + log.read_text()[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def expected():
    from laplacebridge.serve import Policy

    sys.path.insert(0, str(HELPERS))
    from kserve_server import classifier

    fitted = classifier()
    with torch.no_grad():
        prediction = fitted(examples(9, seed=5)[0])
    return prediction, Policy().decide(prediction)


@pytest.mark.parametrize(
    ("server", "form"), [("http", "json"), ("http", "binary"), ("grpc", "binary")]
)
def test_answers_are_those_of_the_library(seen, expected, server, form):
    prediction, decisions = expected
    found = seen[server][form]
    assert seen[server]["ready"]
    assert found["label"] == prediction.label.tolist()
    np.testing.assert_allclose(found["probabilities"], prediction.mean, atol=1e-5)
    assert np.shape(found["interval"]) == (9, 2)
    assert found["decision"] == [each.action for each in decisions]
    assert found["label_name"] == [("cat", "dog", "owl")[index] for index in found["label"]]
    assert len(found["set"]) == 9


def test_metadata_and_metrics_are_the_model_s(seen):
    about = seen["http"]["metadata"]
    assert about["inputs"] == [{"name": "features", "datatype": "FP32", "shape": [-1, FEATURES]}]
    assert {"label", "decision", "probabilities"} <= {each["name"] for each in about["outputs"]}
    assert seen["http"]["default"] == 9
    assert 'laplacebridge_batch_rows_count{model="digits",version="1"}' in seen["metrics"]


def test_what_is_wrong_is_refused_with_the_sentence_of_the_server(seen):
    over_http, over_grpc = seen["http"], seen["grpc"]
    assert "finite" in over_http["not finite"]
    assert over_http["not finite"].startswith("400")
    assert over_grpc["not finite"].startswith("StatusCode.INVALID_ARGUMENT")
    assert "finite" in over_grpc["not finite"]
    assert "pixels" in over_grpc["other name"]
    for name, words in {
        "open shape": "-1",
        "lying shape": "10 values",
        "other type": "FP32",
        "other name": "pixels",
    }.items():
        status, text = over_http[name]
        assert status == 400, text
        assert words in text


def test_sigterm_is_an_end(seen):
    assert seen["exit"] == 0
