"""`laplacebridge serve`: what it refuses before it listens, several networks, and rules
that labelled predictions choose.
"""

import http.client
import json
import signal
import socket
import urllib.parse

import pytest
import torch
from serving import outputs_of, running, tensor
from small_network import FEATURES, examples
from typer.testing import CliRunner

import laplacebridge as lb
from laplacebridge.cli.main import app
from laplacebridge.serve import Policy, ServedClassifier, TensorSpec


@pytest.fixture
def refused(project, monkeypatch):
    monkeypatch.chdir(project)

    def call(*arguments):
        result = CliRunner().invoke(app, ["serve", *map(str, arguments)])
        assert result.exit_code in {1, 2}, result.output
        assert isinstance(result.exception, SystemExit)
        return result.stderr

    return call


def test_what_cannot_be_served_is_refused_before_it_listens(refused, model_options, project):
    file = "classifier.safetensors"
    network = model_options[:4]
    assert "name at least one" in refused()
    assert "there is no file" in refused("missing.safetensors")
    assert "--input" in refused(file, *network)
    assert "NAME:DATATYPE" in refused(file, *network, "--input", "x:FP31:5")
    assert "NAME:VERSION=FILE" in refused(f"={file}")
    assert "Two models" in refused(file, f"classifier={file}", *model_options)
    assert "whole number" in refused(f"digits:one={file}", *model_options)
    assert "letters" in refused(f"a/b={file}", *model_options)
    wrong = (*network, "--input", f"features:FP32:{FEATURES + 1}")
    assert "these inputs" in refused(file, *wrong)
    assert "to choose it by" in refused(file, *model_options, "--risk", "0.1")
    (project / "two.txt").write_text("cat\ndog")
    assert "2 names" in refused(file, *network, *model_options[4:6], "--classes", "two.txt")
    (project / "models.json").write_text(json.dumps([{"file": file, "modle": "x"}]))
    assert "modle" in refused("--models", "models.json")
    (project / "models.json").write_text("{")
    assert "JSON" in refused("--models", "models.json")


def test_an_address_that_cannot_be_had_is_an_error_in_a_sentence(refused, project):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        said = refused("head.safetensors", "--port", port)
    assert f"cannot listen on 127.0.0.1, port {port}" in " ".join(said.split())
    assert "Errno" not in said
    assert "nowhere.invalid" in refused("head.safetensors", "--host", "nowhere.invalid")


def test_a_token_that_is_set_and_empty_lets_nobody_in(refused, monkeypatch):
    for given in ("", " \n"):
        monkeypatch.setenv("LAPLACEBRIDGE_TOKEN", given)
        assert "set and empty" in " ".join(refused("head.safetensors").split())


def test_the_loopback_of_ipv6_names_of_any_script_and_two_signals(project, serve_command):
    token = {"LAPLACEBRIDGE_TOKEN": "schlüssel\n"}
    options = ("köln=head.safetensors", "--host", "::1")
    with running(*serve_command, *options, folder=project, **token) as server:
        connection = http.client.HTTPConnection("::1", server.port, timeout=30)
        for sent, status in (
            ("Bearer schlüssel", 200),
            ("bearer  schlüssel", 200),
            ("Bearer x", 401),
        ):
            header = {"Authorization": sent.encode()}
            connection.request("GET", "/v2/models/" + urllib.parse.quote("köln"), headers=header)
            reply = connection.getresponse()
            reply.read()
            assert reply.status == status
        connection.close()
        for _ in range(2):
            server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == 0
    assert "http://[::1]:" in server.lines[0]


def test_an_onnx_file_holds_its_network_and_rules(refused, model_options, tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"")
    assert "holds its network" in refused(tmp_path / "model.onnx", *model_options)
    for option in ("risk", "threshold", "unusual"):
        assert f"`{option}`" in refused(tmp_path / "model.onnx", f"--{option}", "0.1")


def test_a_classifier_is_served_by_the_rule_that_it_carries(classifier):
    inputs, labels = examples(300, seed=2)
    with torch.no_grad():
        prediction = classifier(inputs)
    rule = lb.selective.calibrate(lb.scores.msp, prediction, labels, risk=0.03)
    sets = lb.sets.calibrate(lb.sets.LeastAmbiguous(), prediction, labels, coverage=0.99)
    carried = {"max_set_size": 2, "unusual_above": 0.9, "class_names": ("cat", "dog", "owl")}
    carrying = classifier.with_rule(rule, sets=sets, **carried)
    served = ServedClassifier(carrying, [TensorSpec("x", "FP32", (-1, FEATURES))])
    found = served.answer({"x": inputs.numpy()}, frozenset())
    expected = carrying.decide(inputs)
    assert found["decision"].tolist() == [each.action for each in expected]
    assert served.split(found, [300])[0]["set"][0].max() in expected.sets.to_lists()[0]
    assert set(found["label_name"]) == {"cat", "dog", "owl"}
    assert Policy.of(carrying, unusual=0.5).unusual == 0.5
    assert Policy.of(classifier) == Policy()


class Sloped(torch.nn.Module):
    """Uses gradients by itself, as networks of energies do."""

    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(FEATURES, 3)

    def forward(self, inputs):
        with torch.enable_grad():
            leaf = inputs.detach().clone().requires_grad_()
            (slope,) = torch.autograd.grad(leaf.square().sum(), leaf)
        return self.head(slope.detach())


def test_a_network_that_uses_gradients_is_served_as_any_other():
    torch.manual_seed(0)
    fitted = lb.fit(Sloped(), [examples(100)[0]], prior_precision=1.0, progress=False)
    served = ServedClassifier(fitted, [TensorSpec("x", "FP32", (-1, FEATURES))])
    inputs = examples(20, seed=1)[0]
    found = served.answer({"x": inputs.numpy()}, frozenset())
    with torch.no_grad():
        assert found["label"].tolist() == fitted(inputs).label.tolist()


def test_several_networks_and_a_rule_that_labels_choose(project, serve_command, classifier):
    options = {
        "file": "classifier.safetensors",
        "model": "served_code:network",
        "weights": "weights.pt",
        "inputs": [f"features:FP32:{FEATURES}"],
    }
    entries = [
        {**options, "name": "careful", "version": 3, "calibrate": "labelled.npz", "risk": 0.03},
        {"file": "head.safetensors"},
    ]
    (project / "several.json").write_text(json.dumps(entries))
    inputs, _ = examples(100, seed=4)
    with running(*serve_command, "--models", "several.json", folder=project) as server:
        index = server.call("POST", "/v2/repository/index").json
        assert [(entry["name"], entry["version"]) for entry in index] == [
            ("careful", "3"),
            ("head", "1"),
        ]
        found = outputs_of(server.infer({"inputs": [tensor(inputs.tolist())]}, "careful"))
    held_out, labels = examples(300, seed=2)
    with torch.no_grad():
        calibration, prediction = classifier(held_out), classifier(inputs)
    rule = lb.selective.calibrate(
        lb.scores.msp,
        calibration,
        labels,
        risk=0.03,
        unusual=calibration.ood_quantile > 0.99,
    )
    decided = rule(
        prediction,
        sets=lb.sets.overlap_sets(prediction),
        max_set_size=2,
        unusual=prediction.ood_quantile > 0.99,
    )
    assert found["decision"] == [decision.action for decision in decided]
    assert found["reason"] == [decision.reason for decision in decided]
    assert len(set(found["decision"])) > 1


def test_the_project_file_names_network_classes_and_classifier(serve_command, project, tmp_path):
    text = f"""
model = "served_code:network"
weights = "{project}/weights.pt"
classes = "{project}/names.txt"
classifier = "{project}/classifier.safetensors"
"""
    (tmp_path / "served_code.py").write_text((project / "served_code.py").read_text())
    (tmp_path / "laplacebridge.toml").write_text(text)
    given = ("--input", f"x:FP32:{FEATURES}")
    rows = examples(3, seed=4)[0].tolist()
    for files, name in (
        ((), "classifier"),
        ((f"digits={project}/classifier.safetensors",), "digits"),
    ):
        with running(*serve_command, *files, *given, folder=tmp_path) as server:
            found = outputs_of(server.infer({"inputs": [tensor(rows, "x")]}, name))
        assert set(found["label_name"]) <= {"cat", "dog", "owl"}
        assert "head only" not in "".join(server.lines)


def test_a_head_that_is_served_without_its_network_is_said_at_the_start(
    serve_command, project, tmp_path
):
    file = project / "classifier.safetensors"
    (tmp_path / "laplacebridge.toml").write_text(f'classifier = "{file}"')
    with running(*serve_command, folder=tmp_path) as server:
        pass
    told = server.log()[0]
    assert told["event"] == "head only"
    assert "'classifier' takes the 16 features of its last layer" in told["message"]
