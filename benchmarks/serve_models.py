"""The servers that `bench_serve.py` loads: `python serve_models.py MODEL WAY` listens
on a free port of the loopback and says which.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import nn

import laplacebridge as lb
from laplacebridge.serve import Served, ServedClassifier, Settings, TensorSpec, run

CLASSES = {"cnn": 10, "mlp": 1000}
SHAPES = {"cnn": (3, 32, 32), "mlp": (256,)}
WAYS = ("answers", "one by one", "bare network", "onnx", "kserve")
EXAMPLES = 2000
LOGIT_SPREAD = 8.0


def network(name: str) -> nn.Sequential:
    """A network with random weights that is as sure as a trained one: sets of all
    classes would take longer to find than sets of one or two.
    """
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    if name == "mlp":
        layers += [nn.Linear(256, 512), nn.ReLU()]
    else:
        for inside, outside in ((3, 32), (32, 64), (64, 128)):
            layers += [nn.Conv2d(inside, outside, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        layers += [nn.Flatten(), nn.Linear(128 * 16, 256), nn.ReLU()]
    body = nn.Sequential(*layers).eval()
    with torch.no_grad():
        features = body(torch.randn(256, *SHAPES[name]))
        features, mean = features - features.mean(0), features.mean(0)
        head = nn.Linear(features.shape[1], CLASSES[name])
        head.weight.mul_(LOGIT_SPREAD / head(features).std())
        head.bias.copy_(-head.weight @ mean)
    return nn.Sequential(*body, head).eval()


def fitted(name: str) -> lb.Classifier:
    """A classifier with everything that a fit with held-out data gives."""
    model = network(name)
    inputs = torch.randn(EXAMPLES, *SHAPES[name])
    with torch.no_grad():
        labels = torch.distributions.Categorical(logits=model(inputs)).sample()
    half = EXAMPLES // 2
    return lb.fit(
        model,
        [(inputs[:half], labels[:half])],
        val_loader=[(inputs[half:], labels[half:])],
        progress=False,
    )


class Bare(Served):
    """The network alone: its most probable class, and what softmax says of it."""

    platform = "torch"
    outputs = (TensorSpec("label", "INT64", (-1,)), TensorSpec("probability", "FP32", (-1,)))
    default_outputs = ("label", "probability")

    def __init__(self, name: str) -> None:
        self.network = network(name)
        self.inputs = (TensorSpec("input", "FP32", (-1, *SHAPES[name])),)

    def answer(
        self, inputs: Mapping[str, np.ndarray], wanted: frozenset[str]
    ) -> dict[str, np.ndarray]:
        """Class and softmax."""
        with torch.no_grad():
            probability, label = (
                self.network(torch.from_numpy(inputs["input"].copy())).softmax(-1).max(-1)
            )
        return {"label": label.numpy(), "probability": probability.numpy()}


def served(name: str, way: str) -> Served:
    """One of the models, in one of the ways."""
    if way == "bare network":
        return Bare(name)
    classifier = fitted(name)
    if way != "onnx":
        return ServedClassifier(classifier, [TensorSpec("input", "FP32", (-1, *SHAPES[name]))])
    from laplacebridge.serve.onnx_file import ServedOnnx

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        wanted = ["probabilities", "top_interval", "label", "ood_score", "ood_quantile"]
        lb.export(classifier, path, torch.zeros(2, *SHAPES[name]), outputs=wanted)
        return ServedOnnx(path, threads=1)


def serve_by_kserve(model: Served, port: int) -> None:
    """The same model behind KServe's server, which says as ours does when it listens."""
    import kserve

    from laplacebridge.kserve import Model

    address = f"http://127.0.0.1:{port}"

    def is_ready() -> bool:
        try:
            urllib.request.urlopen(f"{address}/v2/models/model/ready", timeout=5).close()  # noqa: S310
        except OSError:
            return False
        return True

    def announce() -> None:
        while not is_ready():
            time.sleep(0.2)
        print(json.dumps({"event": "listening", "address": address}), file=sys.stderr, flush=True)

    threading.Thread(target=announce, daemon=True).start()
    kserve.ModelServer(http_port=port, workers=1, enable_grpc=False).start([Model("model", model)])


def main() -> None:
    """Serves until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=CLASSES)
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--port", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model = served(arguments.model, arguments.way)
    if arguments.way == "kserve":
        serve_by_kserve(model, arguments.port)
        return
    batch = 1 if arguments.way == "one by one" else Settings().max_batch
    settings = Settings(port=arguments.port, max_batch=batch, log_level="error")
    run({("model", "1"): model}, settings)


if __name__ == "__main__":
    main()
