"""ONNX files with answers behind a real server: the same names, the same checks, and the
numbers of the library.
"""

import numpy as np
import pytest
import torch
from serving import outputs_of, running, tensor
from small_network import FEATURES, examples

import laplacebridge as lb
from laplacebridge.serve import ServedLabels

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
serving = pytest.importorskip("laplacebridge.serve.onnx_file")

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch's exporter, about itself
NAMES = ("cat", "dog", "owl")


@pytest.fixture(scope="module")
def ruled(classifier):
    """The classifier with a rule, sets and names."""
    inputs, labels = examples(300, seed=2)
    with torch.no_grad():
        prediction = classifier(inputs)
    return classifier.with_rule(
        lb.selective.calibrate(lb.scores.msp, prediction, labels, risk=0.03),
        sets=lb.sets.calibrate(lb.sets.LeastAmbiguous(), prediction, labels, coverage=0.9),
        max_set_size=2,
        unusual_above=0.99,
        class_names=NAMES,
    )


@pytest.fixture(scope="module")
def exported(ruled, tmp_path_factory):
    path = tmp_path_factory.mktemp("onnx") / "digits.onnx"
    ruled.network.model.eval()
    wanted = ["probabilities", "interval", "total", "ood_quantile", "set", "decision"]
    lb.export(ruled, path, examples(2)[0], outputs=wanted)
    return path


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A file of somebody else's, with answers; and how it was fitted."""
    from laplacebridge.onnx.examples import small_model

    path, inputs, labels = small_model()
    fitted = lb.onnx.fit(path, [(inputs, labels)], progress=False)
    target = tmp_path_factory.mktemp("written") / "foreign.onnx"
    fitted.write(target, outputs=["probabilities", "interval"], class_names=["a", "b", "c"])
    return target, fitted, inputs


@pytest.fixture(scope="module")
def onnx_server(exported, written, serve_command):
    files = (f"digits={exported}", f"foreign:3={written[0]}")
    with running(*serve_command, *files, "--threads", "1", folder=exported.parent) as server:
        yield server


def test_an_exported_classifier_answers_as_the_library_does(onnx_server, ruled):
    inputs, _ = examples(200, seed=6)
    asked = {"inputs": [tensor(inputs.tolist(), name="input")]}
    found = outputs_of(onnx_server.infer(asked))
    with torch.no_grad():
        expected, decisions = ruled(inputs), ruled.decide(inputs)
    label = expected.label.unsqueeze(-1)
    lower, upper = (bound.gather(-1, label).squeeze(-1) for bound in expected.interval(0.95))
    assert found["label"] == expected.label.tolist()
    assert found["label_name"] == [NAMES[index] for index in expected.label.tolist()]
    np.testing.assert_allclose(found["probability"], expected.mean.amax(-1), atol=1e-5)
    np.testing.assert_allclose(found["interval"], torch.stack([lower, upper], -1), atol=2e-4)
    np.testing.assert_allclose(found["ood_quantile"], expected.ood_quantile, atol=0.02)
    sets = [[each for each in row if each != -1] for row in found["set"]]
    assert sets == decisions.sets.to_lists()
    assert found["decision"] == [each.action for each in decisions]
    assert len(set(found["decision"])) > 1
    assert {"reason", "probabilities", "total", "logits"}.isdisjoint(found)


def test_more_is_given_on_request(onnx_server, ruled):
    inputs, _ = examples(7, seed=7)
    names = ["probabilities", "upper", "total", "top_labels", "top_probabilities", "logits"]
    asked = {
        "inputs": [tensor(inputs.tolist(), name="input")],
        "outputs": [{"name": name} for name in names],
    }
    found = outputs_of(onnx_server.infer(asked))
    with torch.no_grad():
        expected = ruled(inputs)
        logits = ruled.network.model(inputs)
    top = expected.mean.topk(3)
    assert list(found) == names
    np.testing.assert_allclose(found["probabilities"], expected.mean, atol=1e-5)
    np.testing.assert_allclose(found["upper"], expected.interval(0.95)[1], atol=2e-4)
    np.testing.assert_allclose(found["total"], expected.total, atol=1e-4)
    np.testing.assert_allclose(found["top_probabilities"], top.values, atol=1e-5)
    np.testing.assert_allclose(found["logits"], logits, atol=1e-5)
    assert found["top_labels"] == top.indices.tolist()


def test_a_model_of_somebody_else_answers_with_what_its_file_has(onnx_server, written):
    _, fitted, inputs = written
    about = onnx_server.get("/v2/models/foreign").json
    assert about["versions"] == ["3"]
    assert about["platform"] == "laplacebridge_onnxruntime"
    assert about["parameters"]["class_names"] == ["a", "b", "c"]
    name = about["inputs"][0]["name"]
    asked = {"inputs": [tensor(np.asarray(inputs).tolist(), name=name)]}
    found = outputs_of(onnx_server.infer(asked, "foreign"))
    assert set(found) == {"label", "label_name", "probability", "interval"}
    expected = fitted.predict(inputs)
    np.testing.assert_allclose(found["probability"], expected.mean.amax(-1), atol=1e-5)
    # an output of the network that is called as an answer is
    asked["outputs"] = [{"name": "probabilities"}, {"name": "network_probabilities"}]
    both = outputs_of(onnx_server.infer(asked, "foreign"))
    np.testing.assert_allclose(both["probabilities"], expected.mean, atol=1e-5)
    assert np.abs(np.subtract(both["network_probabilities"], expected.mean)).max() > 0.01


def test_requests_are_checked_by_the_same_function(onnx_server):
    good = {"inputs": [tensor([[0.0] * FEATURES], name="input")]}
    for changes, words in (
        ({"shape": [-1, FEATURES]}, "-1"),
        ({"datatype": "FP64"}, "FP32"),
        ({"data": [1e39, *[0.0] * (FEATURES - 1)]}, "finite"),
        ({"name": "pixels"}, "pixels"),
    ):
        reply = onnx_server.infer({"inputs": [{**good["inputs"][0], **changes}]})
        assert reply.status == 400
        assert words in reply.json["error"]
    beyond = onnx_server.infer({"inputs": [tensor([[3e38] * FEATURES], name="input")]})
    assert beyond.status == 400
    assert "not finite" in beyond.json["error"]
    assert onnx_server.infer(good).status == 200
    figures = onnx_server.get("/metrics").body.decode()
    assert 'laplacebridge_decisions_total{decision="' in figures


def test_a_file_of_a_fixed_batch_size_takes_any_number(written, tmp_path):
    path, fitted, inputs = written
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 4
    onnx.save(model, tmp_path / "fixed.onnx")
    served = serving.ServedOnnx(tmp_path / "fixed.onnx")
    assert served.inputs[0].shape[0] == -1
    rows = np.asarray(inputs, np.float32)[:7]
    found = served.answer({served.inputs[0].name: rows}, frozenset())
    np.testing.assert_allclose(found["probability"], fitted.predict(rows).mean.amax(-1), atol=1e-5)


def test_what_cannot_be_served_is_refused(written, tmp_path):
    from laplacebridge.onnx.examples import small_model

    with pytest.raises(lb.InputError, match="no answers of this library"):
        serving.ServedOnnx(small_model()[0])
    with pytest.raises(lb.InputError, match="2 names"):
        serving.ServedOnnx(written[0], class_names=["a", "b"])
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    with pytest.raises(lb.InputError, match="cannot be read"):
        serving.ServedOnnx(tmp_path / "broken.onnx")


@pytest.fixture(scope="module")
def labelled(several, tmp_path_factory):
    """A file of several labels at once, with how unusual an input is."""
    path = tmp_path_factory.mktemp("labels") / "labels.onnx"
    wanted = ["probabilities", "interval", "applies", "total", "ood_score", "ood_quantile"]
    lb.export(several[0], path, examples(2)[0], outputs=wanted)
    return path


def test_several_labels_are_answered_as_the_saved_classifier_answers(
    several, labelled, serve_command
):
    classifier = several[0]
    inputs = torch.cat([examples(40, seed=3)[0], torch.full((1, FEATURES), 60.0)])
    wanted = ServedLabels(classifier).answer({"features": inputs.numpy()}, frozenset({"total"}))
    with running(*serve_command, str(labelled), folder=labelled.parent) as server:
        asked = {"inputs": [tensor(inputs.tolist(), name="input")]}
        found = outputs_of(server.infer(asked, "labels"))
        more = {**asked, "outputs": [{"name": "total"}, {"name": "logits"}]}
        total = outputs_of(server.infer(more, "labels"))["total"]
        figures = server.get("/metrics").body.decode()
    assert list(found) == [
        "labels", "label_names", "probabilities", "lower", "upper", "ood_score", "ood_quantile",
        "decision", "reason",
    ]  # fmt: skip
    for name in ("labels", "label_names", "decision", "reason"):
        assert found[name] == wanted[name].tolist()
    assert (found["decision"][-1], found["reason"][-1]) == ("defer", "unusual")
    assert "answer" in found["decision"]
    assert len({row.count(-1) for row in found["labels"]}) > 1
    for name in ("probabilities", "lower", "upper"):
        np.testing.assert_allclose(found[name], wanted[name], atol=2e-4)
    np.testing.assert_allclose(total, wanted["total"], atol=1e-4)
    assert 'decision="defer"' in figures


def test_several_labels_without_more_than_probabilities_or_yes_and_no(several, tmp_path):
    classifier = several[0]
    rows = examples(30, seed=5)[0]
    applies = classifier(rows).applies.numpy()
    for answer in ("probabilities", "applies"):
        path = tmp_path / f"{answer}.onnx"
        lb.export(classifier, path, examples(2)[0], outputs=[answer])
        found = serving.ServedOnnx(path).answer({"input": rows.numpy()}, frozenset())
        chosen = [sorted(label for label in row if label >= 0) for row in found["labels"].tolist()]
        assert chosen == [row.nonzero()[0].tolist() for row in applies]
        assert "decision" not in found


def test_several_labels_of_a_file_of_somebody_else(tmp_path):
    from laplacebridge.onnx.examples import small_model

    path, inputs, labels = small_model()
    ones = np.stack([np.asarray(labels) == 0, np.asarray(labels) != 1, np.asarray(labels) == 2], -1)
    batches = [(inputs, ones.astype(np.float32))]
    fitted = lb.onnx.fit(path, batches, multi_label=True, progress=False)
    fitted.write(tmp_path / "foreign.onnx", outputs=["probabilities"], class_names=["a", "b", "c"])
    served = serving.ServedOnnx(tmp_path / "foreign.onnx")
    rows = np.asarray(inputs, np.float32)[:20]
    found = served.answer({served.inputs[0].name: rows}, frozenset())
    expected = fitted.predict(rows).mean
    np.testing.assert_allclose(found["probabilities"], expected, atol=1e-5)
    assert [len([name for name in row if name]) for row in found["label_names"]] == (
        (np.asarray(expected) > 0.5).sum(-1).tolist()
    )
