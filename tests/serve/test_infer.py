"""A server answers what the library answers, in JSON and in the binary form, and says
what it has.
"""

import json
import struct

import numpy as np
import pytest
import torch
from serving import outputs_of, running, tensor
from small_network import CLASSES, FEATURES, examples

import laplacebridge as lb

ALL = ("probabilities", "lower", "upper", "total", "aleatoric", "epistemic", "top_labels")


@pytest.fixture(scope="module")
def inputs():
    return torch.cat([examples(6, seed=3)[0], torch.full((1, FEATURES), 40.0)])


@pytest.fixture(scope="module")
def expected(classifier, inputs):
    with torch.no_grad():
        return classifier(inputs)


def close(found, wanted, tolerance=1e-5):
    np.testing.assert_allclose(np.array(found), wanted.numpy(), rtol=tolerance, atol=1e-6)


def test_answers_by_default_are_those_of_the_library(server, inputs, expected):
    found = outputs_of(server.infer({"inputs": [tensor(inputs.tolist())]}))
    assert list(found) == [
        "label",
        "label_name",
        "probability",
        "interval",
        "set",
        "ood_score",
        "ood_quantile",
        "decision",
        "reason",
    ]
    label = expected.label
    assert found["label"] == label.tolist()
    assert found["label_name"] == [("cat", "dog", "owl")[index] for index in label]
    lower, upper = expected.interval(0.95)
    index = label.unsqueeze(-1)
    close(found["probability"], expected.mean.gather(-1, index).squeeze(-1))
    close(found["interval"], torch.cat([lower.gather(-1, index), upper.gather(-1, index)], -1))
    close(found["ood_score"], expected.ood_score)
    close(found["ood_quantile"], expected.ood_quantile)
    sets = lb.sets.overlap_sets(expected).to_lists()
    assert [[member for member in row if member != -1] for row in found["set"]] == sets
    assert found["decision"][-1] == "defer"
    assert found["reason"][-1] in {"unusual", "both"}
    for members, quantile, decision in zip(sets, found["ood_quantile"], found["decision"]):
        usual = "answer" if len(members) == 1 else "set" if len(members) == 2 else "defer"
        assert decision == ("defer" if quantile > 0.99 else usual)


def test_all_classes_come_when_asked_for(server, inputs, expected):
    asked = {"inputs": [tensor(inputs.tolist())], "outputs": [{"name": name} for name in ALL]}
    found = outputs_of(server.infer(asked))
    assert list(found) == list(ALL)
    lower, upper = expected.interval(0.95)
    for name, wanted in (("probabilities", expected.mean), ("lower", lower), ("upper", upper)):
        close(found[name], wanted)
    for name in ("total", "aleatoric", "epistemic"):
        close(found[name], getattr(expected, name), tolerance=1e-4)
    assert found["top_labels"] == expected.mean.topk(CLASSES).indices.tolist()


def test_the_binary_form_has_the_same_answers(server, inputs):
    content = inputs.numpy().astype("<f4").tobytes()
    entry = tensor(inputs.tolist(), data=None, parameters={"binary_data_size": len(content)})
    names = [
        {"name": name, "parameters": {"binary_data": True}} for name in ("probability", "decision")
    ]
    head = json.dumps(
        {"id": "7", "inputs": [entry], "outputs": [*names, {"name": "label"}]}
    ).encode()
    reply = server.infer(
        head + content, headers={"Inference-Header-Content-Length": str(len(head))}
    )
    assert reply.status == 200, reply.body
    length = int(reply.headers["inference-header-content-length"])
    about, rest = json.loads(reply.body[:length]), reply.body[length:]
    assert about["id"] == "7"
    sizes = [output.get("parameters", {}).get("binary_data_size", 0) for output in about["outputs"]]
    assert sum(sizes) == len(rest)
    usual = outputs_of(server.infer({"inputs": [tensor(inputs.tolist())]}))
    probability = np.frombuffer(rest[: sizes[0]], "<f4")
    np.testing.assert_allclose(probability, usual["probability"], rtol=1e-5)
    texts, rest = [], rest[sizes[0] :]
    while rest:
        (size,) = struct.unpack("<I", rest[:4])
        texts.append(rest[4 : 4 + size].decode())
        rest = rest[4 + size :]
    assert texts == usual["decision"]
    assert about["outputs"][2]["data"] == usual["label"]


def test_metadata_and_readiness(server):
    about = server.get("/v2").json
    assert about["name"] == "laplacebridge"
    assert about["version"] == lb.__version__
    assert "binary_tensor_data" in about["extensions"]
    for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/digits/ready"):
        assert server.get(path).status == 200
    model = server.get("/v2/models/digits").json
    assert model["versions"] == ["1", "2"]
    assert model["inputs"] == [{"name": "features", "datatype": "FP32", "shape": [-1, FEATURES]}]
    assert {"name": "probabilities", "datatype": "FP32", "shape": [-1, CLASSES]} in model["outputs"]
    assert model["parameters"]["class_names"] == ["cat", "dog", "owl"]
    index = server.call("POST", "/v2/repository/index").json
    assert [(entry["name"], entry["version"]) for entry in index] == [
        ("digits", "1"),
        ("digits", "2"),
    ]


def test_a_version_is_asked_for_by_its_number_and_the_highest_is_usual(server):
    asked = {"inputs": [tensor([[0.0] * FEATURES])]}
    assert server.infer(asked).json["model_version"] == "2"
    assert server.infer(asked, "digits/versions/1").json["model_version"] == "1"
    assert server.infer(asked, "digits/versions/3").status == 404


def test_figures_for_prometheus_grow(server):
    def figures():
        lines = server.get("/metrics").body.decode().splitlines()
        return {
            line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
            for line in lines
            if line[0] != "#"
        }

    before = figures()
    usual, far = [0.0] * FEATURES, [50.0] * FEATURES
    assert server.infer({"inputs": [tensor([usual, far])]}, "digits/versions/1").status == 200
    assert server.infer({}, "digits/versions/1").status == 400
    assert server.infer({}, "no-such-model").status == 404
    after = figures()

    def grown(name, **labels):
        rows = [
            key
            for key in after
            if key.startswith(f"laplacebridge_{name}{{")
            and all(f'{label}="{value}"' in key for label, value in labels.items())
        ]
        return sum(after[key] - before.get(key, 0.0) for key in rows)

    one = {"model": "digits", "version": "1"}
    assert grown("requests_total", code="200", **one) == 1
    assert grown("requests_total", code="400", **one) == 1
    assert grown("requests_total", code="404", model="unknown") == 1
    assert grown("request_seconds_count", **one) == 2
    assert grown("batch_rows_sum", **one) == 2
    assert grown("batch_requests_count", **one) == 1
    assert grown("decisions_total", decision="defer", **one) >= 1
    assert grown("decisions_total", **one) == 2
    assert grown("ood_quantile_count", **one) == 2
    assert grown("probability_count", **one) == 2
    assert not any("no-such-model" in key for key in after)


def test_logs_are_lines_of_json_without_inputs(server):
    secret = 1234.5678
    server.infer({"id": "my-id", "inputs": [tensor([[secret] * FEATURES])]})
    server.infer({"inputs": [tensor([[secret] * FEATURES], shape=[3, 3])]})
    server.infer({"inputs": [tensor([[secret * 1e4] * FEATURES])]})  # a warning for sharp answers
    server.get(f"/v2/models/{secret}")
    server.get("/v2/health/live")
    entries = server.log()
    assert {"time", "level", "event"} <= entries[-1].keys()
    answered = [entry for entry in entries if entry.get("rows") == 1]
    assert answered[-1]["status"] == 200
    assert answered[-1]["model"] == "digits"
    addresses = {entry["address"] for entry in entries if entry["event"] == "request"}
    assert {"/v2/models/{name}/infer", "/v2/models/{name}", "/v2/health/live"} <= addresses
    assert answered[-1]["milliseconds"] > 0
    assert [line for line in server.lines if not line.startswith("{")] == []
    assert not any("1234" in line for line in server.lines)


def test_a_head_alone_behind_a_token(project, serve_command):
    """A head takes features; without held-out data there is no quantile."""
    secret = {"authorization": "Bearer open-sesame"}
    token = {"LAPLACEBRIDGE_TOKEN": "open-sesame"}
    with running(*serve_command, "head.safetensors", folder=project, **token) as server:
        assert server.get("/v2/health/ready").status == 200
        for path in ("/v2", "/v2/models/head", "/metrics"):
            refused = server.get(path)
            assert refused.status == 401
            assert refused.headers["www-authenticate"] == "Bearer"
            assert server.get(path, authorization="Bearer wrong").status == 401
            assert server.get(path, **secret).status == 200
        asked = {"inputs": [tensor([[0.0] * 16])]}
        assert server.infer(asked, "head").status == 401
        about = server.get("/v2/models/head", **secret).json
        assert about["inputs"] == [{"name": "features", "datatype": "FP32", "shape": [-1, 16]}]
        found = outputs_of(server.infer(asked, "head", headers=secret))
        assert "ood_score" in found
        assert not {"ood_quantile", "label_name"} & found.keys()
        assert not any("open-sesame" in line for line in server.lines)
