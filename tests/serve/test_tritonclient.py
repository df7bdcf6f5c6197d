"""Triton's own client, written by nobody here: JSON, the binary form, metadata and
readiness.
"""

import numpy as np
import pytest
import torch
from small_network import FEATURES, examples

pytestmark = [
    pytest.mark.crosscheck,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def http():
    return pytest.importorskip("tritonclient.http")


@pytest.fixture
def client(http, server):
    with http.InferenceServerClient(f"127.0.0.1:{server.port}") as opened:
        yield opened


def test_metadata_and_readiness(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("digits")
    assert client.is_model_ready("digits", "2")
    assert not client.is_model_ready("digits", "7")
    assert client.get_server_metadata()["name"] == "laplacebridge"
    about = client.get_model_metadata("digits")
    assert about["inputs"][0]["shape"] == [-1, FEATURES]
    assert [entry["state"] for entry in client.get_model_repository_index()] == ["READY", "READY"]


@pytest.mark.parametrize("binary_in", [False, True])
@pytest.mark.parametrize("binary_out", [False, True])
def test_answers_are_those_of_the_library(http, client, classifier, binary_in, binary_out):
    inputs, _ = examples(9, seed=5)
    given = http.InferInput("features", list(inputs.shape), "FP32")
    given.set_data_from_numpy(inputs.numpy(), binary_data=binary_in)
    names = ("label", "probabilities", "interval", "decision", "label_name", "set")
    wanted = [http.InferRequestedOutput(name, binary_data=binary_out) for name in names]
    result = client.infer("digits", [given], outputs=wanted, request_id="41", timeout=10_000_000)
    with torch.no_grad():
        expected = classifier(inputs)
    assert result.get_response()["id"] == "41"
    np.testing.assert_array_equal(result.as_numpy("label"), expected.label.numpy())
    np.testing.assert_allclose(result.as_numpy("probabilities"), expected.mean, atol=1e-5)
    decisions = [
        each.decode() if isinstance(each, bytes) else each for each in result.as_numpy("decision")
    ]
    assert set(decisions) <= {"answer", "set", "defer"}
    assert result.as_numpy("set").shape[0] == 9
    default = client.infer("digits", [given])
    assert default.as_numpy("probability").shape == (9,)
    assert default.as_numpy("probabilities") is None


def test_what_is_wrong_is_an_exception_with_the_sentence(http, client):
    given = http.InferInput("features", [1, FEATURES], "FP32")
    given.set_data_from_numpy(np.full((1, FEATURES), np.nan, np.float32))
    with pytest.raises(Exception, match="finite") as caught:
        client.infer("digits", [given])
    assert caught.value.status() == "400"
    with pytest.raises(Exception, match="no model 'cats'"):
        client.infer("cats", [given])
