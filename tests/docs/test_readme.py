"""The README's example runs as it stands, and gives the numbers it shows."""

import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from cli_project import MODULE, examples, files_in, trained_network
from typer.testing import CliRunner

import laplacebridge as lb
from laplacebridge.cli.main import app

README = Path(__file__).parents[2] / "README.md"


def blocks():
    return re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_the_lines_for_a_network_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    images, labels = torch.randn(20, 4), torch.arange(20) % 3
    loader = [(images, labels)]
    names = {
        "lb": lb,
        "torch": torch,
        "model": model,
        "train_loader": loader,
        "val_loader": loader,
        "images": images,
        "names": ["cat", "dog", "owl"],
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an untrained network may want a prior at the edge
        exec(blocks()[0], names)  # noqa: S102
    assert isinstance(names["prediction"], lb.Prediction)
    assert names["lower"].shape == names["upper"].shape == names["prediction"].mean.shape
    exec(blocks()[2], names)  # noqa: S102  (a decision for every image)
    assert len(names["sets"]) == len(names["strange"]) == 20
    assert (tmp_path / "classifier.safetensors").exists()
    pytest.importorskip("onnx")
    exec(blocks()[3], names)  # noqa: S102
    outputs = pytest.importorskip("onnxruntime").InferenceSession("model.onnx").get_outputs()
    assert {"logits", "lb_probabilities", "lb_lower", "lb_decision"} <= {
        output.name for output in outputs
    }


@pytest.mark.filterwarnings("ignore:With .* held-out labels:UserWarning")
def test_the_lines_for_scikit_learn_run():
    linear_model = pytest.importorskip("sklearn.linear_model")
    inputs, labels = examples(200, seed=0)
    names = {
        "estimator": linear_model.LogisticRegression(),
        "X": inputs.numpy(),
        "y": np.array(["cat", "dog", "owl"])[labels],
        "X_new": examples(30, seed=1).inputs.numpy(),
    }
    exec(blocks()[1], names)  # noqa: S102
    assert names["lower"].shape == (30, 3)
    assert len(names["model"].review(names["X_new"], n=10)) == 10


def test_the_commands_run(tmp_path, monkeypatch):
    """All of them, in the order of the page, with its project file."""
    text = README.read_text(encoding="utf-8")
    (tmp_path / "laplacebridge.toml").write_text(
        re.search(r"```toml\n(.*?)```", text, re.DOTALL)[1]
    )
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "network.py").write_text(MODULE.replace("def network", "def build"))
    torch.save(trained_network().state_dict(), tmp_path / "weights.pt")
    for seed, (name, count) in enumerate(
        {"train": 200, "val": 150, "test": 150, "other": 400}.items()
    ):
        inputs, labels = examples(count, seed=seed)
        np.savez(tmp_path / f"{name}.npz", inputs=inputs.numpy(), labels=labels.numpy())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for module in ("project", "project.network"):  # others may be called so too
        monkeypatch.delitem(sys.modules, module, raising=False)
    commands = re.findall(r"^ {4}laplacebridge (.*)$", text, re.MULTILINE)
    assert len(commands) == 9
    for command in commands:
        words = command.replace("--risk 0.05", "--risk 0.2").split()  # its network is not so good
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, (command, result.output)
    assert {"classifier.safetensors", "predictions.npz", "report.html"} <= set(files_in(tmp_path))


def test_the_lines_without_a_network_give_what_their_comments_say():
    block = blocks()[4]
    names: dict[str, object] = {}
    exec(block, names)  # noqa: S102  (the project's own example)
    prediction = names["prediction"]
    shown = torch.tensor(
        [float(number) for number in re.findall(r"tensor\(\[\[(.*?)\]\]\):", block)[0].split(",")]
    )
    torch.testing.assert_close(prediction.mean[0], shown, atol=5e-5, rtol=0)
    ends = (
        float(number) for number in re.search(r"lies between ([\d.]+) and ([\d.]+)", block).groups()
    )
    for end, expected in zip(prediction.interval(0.95), ends):
        assert abs(end[0, 0].item() - expected) < 5e-4
    nats = float(re.search(r"in nats: ([\d.]+)", block).group(1))
    assert abs(prediction.epistemic.item() - nats) < 5e-4
    torch.testing.assert_close(prediction.dirichlet.mean, lb.race_bridge(names["gaussian"]).mean)
