"""Real models of other makers: their head is found, their outputs stay, answers agree."""

import importlib.util
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

import laplacebridge as lb

pytestmark = pytest.mark.crosscheck


def outputs(path, feed, names=None):
    session = onnxruntime.InferenceSession(str(path))
    names = names or [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(names, feed)))


def require_all_holds(path, feed, labels, tmp_path, **options):
    """The whole way: found, fitted, written, the same bits and the same answers."""
    model = lb.onnx.fit(path, [(feed, labels)], prior_precision=1.0, progress=False, **options)
    new = tmp_path / "new.onnx"
    names = model.write(new, outputs=["probabilities"])
    for size in (1, 7, 64):
        some = {name: np.resize(array, (size, *array.shape[1:])) for name, array in feed.items()}
        first = outputs(path, some)
        second = outputs(new, some, list(first))
        for name, value in first.items():
            same = value == second[name]
            assert same if isinstance(same, bool) else np.all(same), name
    mean = outputs(new, feed, names)[names[0]]
    np.testing.assert_allclose(mean, model.predict(feed).mean, atol=2e-6)
    return model


def test_magika(tmp_path):
    """File types by content, from JAX through tf2onnx."""
    spec = importlib.util.find_spec("magika") or pytest.skip("needs magika")
    path = Path(spec.origin).parent / "models" / "standard_v3_3" / "model.onnx"
    feed = {"bytes": np.random.default_rng(0).integers(0, 257, (16, 2048)).astype(np.int32)}
    model = require_all_holds(path, feed, np.arange(16), tmp_path, bridge=lb.laplace_bridge)
    assert model.head.weight.shape == (214, 512)
    assert model.head.relation == "softmax"


@pytest.mark.filterwarnings("ignore:.*has opset 9, and")
@pytest.mark.parametrize("zipmap", [True, False])
@pytest.mark.parametrize("kind", ["logistic", "binary", "network", "pipeline"])
def test_scikit_learn(kind, zipmap, tmp_path):
    skl2onnx = pytest.importorskip("skl2onnx")
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    inputs, labels = load_digits(return_X_y=True)
    inputs = (inputs / 16).astype(np.float32)
    labels = labels % 2 if kind == "binary" else labels
    estimator = {
        "logistic": LogisticRegression(max_iter=500),
        "binary": LogisticRegression(max_iter=500),
        "network": MLPClassifier((16,), max_iter=20),
        "pipeline": make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)),
    }[kind]
    with pytest.warns(UserWarning, match="converge") if kind == "network" else torch.no_grad():
        estimator.fit(inputs, labels)
    model = skl2onnx.to_onnx(estimator, inputs[:1], options={id(estimator): {"zipmap": zipmap}})
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    found = require_all_holds(
        path, {"X": inputs[:64]}, labels[:64], tmp_path, bridge=lb.laplace_bridge
    )
    logits = found.classifier.network.logits_at(
        torch.tensor(inputs)
        if kind in {"logistic", "binary"}
        else torch.zeros(1, found.head.num_features)
    )
    if kind in {"logistic", "binary"}:
        np.testing.assert_allclose(logits.softmax(-1), estimator.predict_proba(inputs), atol=1e-5)


class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU())
        self.head = nn.Linear(8, 5)

    def forward(self, images):
        return (self.head(self.body(images).mean((-2, -1))) / 1.7).softmax(-1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamo", [True, False])
def test_torchs_own_exporters(dynamo, tmp_path):
    pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    network, images = Pooled().eval(), torch.randn(8, 3, 16, 16)
    path = tmp_path / "model.onnx"
    shape = (
        {"dynamic_shapes": ({0: torch.export.Dim("batch")},)}
        if dynamo
        else {"dynamic_axes": {"x": {0: "batch"}}}
    )
    torch.onnx.export(
        network, (images,), path, dynamo=dynamo, input_names=["x"], verbose=False, **shape
    )
    model = require_all_holds(path, {"x": images.numpy()}, np.arange(8) % 5, tmp_path)
    expected = network.head.weight.detach().numpy() / 1.7
    np.testing.assert_allclose(model.head.weight, expected, rtol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_keras(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    keras = pytest.importorskip("keras")
    pytest.importorskip("onnxscript")
    network = keras.Sequential(
        [
            keras.layers.Input((6,)),
            keras.layers.Dense(12, activation="relu"),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(4, activation="softmax"),
        ]
    )
    network(np.zeros((1, 6)))
    path = tmp_path / "model.onnx"
    network.export(str(path), format="onnx", verbose=False)
    feed = lb.onnx.feeds.feed_of(
        lb.onnx.model.FileGraph(path), np.random.default_rng(0).standard_normal((8, 6))
    )
    model = require_all_holds(path, feed, np.arange(8) % 4, tmp_path)
    np.testing.assert_allclose(
        model.head.weight, keras.ops.convert_to_numpy(network.layers[-1].kernel).T
    )
