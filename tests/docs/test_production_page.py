"""The lines of the production guide run as they are printed."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

import laplacebridge as lb

pytest.importorskip("onnxruntime", reason="needs the extra `onnx`")
pytest.importorskip("onnxscript", reason="needs the extra `onnx`")

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "production.md"


@pytest.mark.filterwarnings("ignore")  # of torch's exporter, about itself
def test_the_lines_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```py\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    first, second, _compiled, _exported = blocks  # these two have tests of their own
    torch.manual_seed(0)
    images = torch.randn(600, 64)
    labels = (images[:, :3] * 9).argmax(-1)
    model = nn.Linear(64, 3)
    with torch.no_grad():
        model.weight.zero_()
        model.weight[range(3), range(3)] = 9.0
    held = {
        "lb": lb,
        "torch": torch,
        "model": model,
        "train_loader": [(images[:200], labels[:200])],
        "val_loader": [(images[200:300], labels[200:300])],
        "images": images[300:],
        "labels": labels[300:],
        "names": ["a", "b", "c"],
        "pixels": images[:4].numpy(),
    }
    exec(first + second, held)  # noqa: S102
    answers = held["answers"]
    assert answers["lb_probabilities"].shape == (4, 3)
    assert answers["lb_decision"].shape == (4,)
    assert held["classifier"].decide(images[:4]).action.tolist() == answers["lb_decision"].tolist()
