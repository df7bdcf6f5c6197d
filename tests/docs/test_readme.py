"""The README's example runs as it stands, and gives the numbers it shows."""

import re
import warnings
from pathlib import Path

import torch

import laplacebridge as lb

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
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an untrained network may want a prior at the edge
        exec(blocks()[0], names)  # noqa: S102
    assert isinstance(names["prediction"], lb.Prediction)
    assert names["lower"].shape == names["upper"].shape == names["prediction"].mean.shape
    exec(blocks()[1], names)  # noqa: S102  (a decision for every image)
    assert len(names["sets"]) == len(names["strange"]) == 20
    assert (tmp_path / "classifier.safetensors").exists()


def test_the_lines_without_a_network_give_what_their_comments_say():
    block = blocks()[2]
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
