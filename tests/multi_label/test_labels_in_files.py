"""Several labels at once in files for production: they answer as the classifier does."""

import json
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx_cases
import pytest
import torch
from cases import seeded
from torch import nn

import laplacebridge as lb
from laplacebridge.laplace import Diag, DiagKron
from laplacebridge.multi_label import logistic_normal_mean

onnx = pytest.importorskip("onnx", reason="needs the extra `onnx`")
pytest.importorskip("onnxruntime", reason="needs the extra `onnx`")
pytest.importorskip("onnxscript", reason="needs the extra `onnx`")

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch's exporter, about itself
NUM_LABELS, NUM_FEATURES = 5, 6
SCRIPT = Path(__file__).parents[1] / "compile_labels.py"
EVERYTHING = (
    *("probabilities", "interval", "applies", "total", "epistemic", "aleatoric"),
    *("ood_score", "ood_quantile"),
)


def examples(number, seed):
    generator = seeded(seed)
    inputs = torch.randn(number, NUM_FEATURES, generator=generator)
    truth = inputs @ torch.randn(NUM_FEATURES, NUM_LABELS, generator=seeded(9)) - 1
    return inputs, (torch.rand(truth.shape, generator=generator) < truth.sigmoid()).float()


@pytest.fixture(scope="module", params=[False, True], ids=["logits", "sigmoids"])
def network(request):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        body = [nn.Linear(NUM_FEATURES, 16), nn.Tanh(), nn.Linear(16, NUM_LABELS)]
        model = nn.Sequential(*body)
        inputs, labels = examples(200, seed=0)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(100):
            optimizer.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(model(inputs), labels).backward()
            optimizer.step()
    return nn.Sequential(*body, nn.Sigmoid()) if request.param else model


def fitted(model, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return lb.fit(model, [examples(200, 0)], multi_label=True, progress=False, **options)


def answers(path, inputs):
    session = onnx_cases.session_of(str(path))
    names = [output.name for output in session.get_outputs()]
    (name,) = (given.name for given in session.get_inputs())
    return dict(zip(names, session.run(names, {name: inputs.numpy()})))


@pytest.mark.parametrize("held_out", [True, False])
@pytest.mark.parametrize("curvature", [None, Diag, DiagKron])
def test_a_file_answers_as_the_classifier_does(network, curvature, held_out, tmp_path):
    how = {"val_loader": [examples(300, 1)]} if held_out else {"prior_precision": 0.1}
    classifier = fitted(network, curvature=curvature, **how)
    path = tmp_path / "labels.onnx"
    wanted = EVERYTHING if held_out else EVERYTHING[:-1]
    lb.export(classifier, path, examples(1, 2)[0], outputs=wanted)
    inputs = examples(90, 3)[0]
    # far away too, where variances are large and predictions fade
    inputs = torch.cat([inputs, 5 * inputs, 100 * inputs, torch.zeros_like(inputs[:1])])
    found, expected = answers(path, inputs), classifier(inputs).numpy()
    expected["probabilities"] = expected.pop("mean")
    assert {f"lb_{name}" for name in expected} | {"logits"} == set(found)
    for name in ("probabilities", "total", "aleatoric", "epistemic", "lower", "upper"):
        np.testing.assert_allclose(found[f"lb_{name}"], expected[name], rtol=0, atol=2e-5)
    np.testing.assert_array_equal(found["lb_applies"], expected["applies"])
    np.testing.assert_allclose(found["lb_ood_score"], expected["ood_score"], rtol=1e-4, atol=1e-4)


def test_the_mean_has_the_digits_of_float32():
    from onnx import helper

    from laplacebridge.onnx.formulas.labels import logistic_normal_mean as written
    from laplacebridge.onnx.formulas.nodes import Graph

    means = -torch.cat([torch.zeros(1), torch.logspace(-3, 1.8, 60)])
    variances = torch.cat([torch.zeros(1), torch.logspace(-4, 4, 80)])
    mean, variance = (part.flatten() for part in torch.meshgrid(means, variances, indexing="ij"))
    graph = Graph(18)
    value = written(graph.value("mean"), graph.value("variance"))
    kind = onnx.TensorProto.FLOAT
    given = [
        helper.make_tensor_value_info(name, kind, [None, None]) for name in ("mean", "variance")
    ]
    out = [helper.make_tensor_value_info(value.name, kind, [None, None])]
    whole = helper.make_graph(graph.nodes, "mean", given, out, graph.arrays)
    model = helper.make_model(whole, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    session = onnx_cases.session_of(model)
    feed = {"mean": mean[:, None].numpy(), "variance": variance[:, None].numpy()}
    found = torch.from_numpy(session.run(None, feed)[0])[:, 0].double()
    expected = logistic_normal_mean(mean, variance)[0].exp()
    torch.testing.assert_close(found, expected, rtol=2e-5, atol=1e-37)


def test_squares_that_leave_the_range_of_float32_are_bounded(tmp_path):
    torch.manual_seed(0)
    head, inputs = nn.Linear(4, 3), torch.randn(60, 4)
    labels = torch.bernoulli(head(inputs).sigmoid().detach())
    classifier = lb.fit(head, [(inputs, labels)], multi_label=True, progress=False)
    lb.export(classifier, tmp_path / "labels.onnx", inputs[:2])
    for answer in answers(tmp_path / "labels.onnx", 1e30 * inputs).values():
        assert np.isfinite(answer).all()


def test_rows_that_are_not_finite_answer_nan_and_no_label(network, tmp_path):
    classifier = fitted(network, prior_precision=1.0)
    lb.export(classifier, tmp_path / "labels.onnx", examples(2, 2)[0])
    inputs = examples(3, 3)[0]
    inputs[1, 2] = torch.nan
    found = answers(tmp_path / "labels.onnx", inputs)
    broken = np.isnan(found["lb_probabilities"]).all(-1)
    assert (broken.tolist(), found["lb_applies"][1].any()) == ([False, True, False], False)
    about = {entry.key: entry.value for entry in onnx.load(tmp_path / "labels.onnx").metadata_props}
    assert json.loads(about["laplacebridge.multi_label"]) is True


@pytest.mark.parametrize("name", ["label", "set", "decision", "top_interval", "nonsense"])
def test_answers_of_one_class_are_refused(network, name, tmp_path):
    classifier = fitted(network, prior_precision=1.0)
    words = "There is no answer" if name == "nonsense" else "several labels at once"
    with pytest.raises(lb.InputError, match=words):
        lb.export(classifier, tmp_path / "labels.onnx", examples(2, 2)[0], outputs=[name])
    raced = classifier.with_bridge(lb.race_bridge)
    with pytest.raises(lb.InputError, match=r"lb\.multi_label\.logistic_bridge"):
        lb.export(raced, tmp_path / "labels.onnx", examples(2, 2)[0])


def test_a_model_of_another_library_is_fitted_with_its_labels(network, tmp_path):
    if isinstance(network[-1], nn.Sigmoid):
        pytest.skip("a file must have its logits")
    inputs, labels = examples(200, 0)
    plain = tmp_path / "plain.onnx"
    torch.onnx.export(
        network, (inputs,), str(plain), dynamo=True, verbose=False, external_data=False,
        dynamic_shapes=({0: torch.export.Dim("batch")},),
    )  # fmt: skip
    options = {"multi_label": True, "prior_precision": 1.0, "progress": False}
    model = lb.onnx.fit(plain, [(inputs.numpy(), labels.numpy())], **options)
    model.write(tmp_path / "labels.onnx")
    expected = fitted(network, prior_precision=1.0)(inputs)
    found = answers(tmp_path / "labels.onnx", inputs)
    np.testing.assert_allclose(found["lb_probabilities"], expected.mean, rtol=0, atol=1e-5)
    np.testing.assert_allclose(found["lb_epistemic"], expected.epistemic, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_a_compiled_file_answers_as_the_classifier_does(tmp_path):
    command = [sys.executable, "-W", "ignore", str(SCRIPT), str(tmp_path / "labels.pt2")]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert finished.returncode == 0, finished.stderr[-2000:]
    found = json.loads(finished.stdout.splitlines()[-1])
    assert found.pop("rows without an answer") == [3]
    assert len(found) == 8
    assert max(found.values()) < 1e-4, found
