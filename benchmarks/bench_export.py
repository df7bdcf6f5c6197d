"""What uncertainty costs in production: a network alone and with every answer in ONNX
Runtime, and the same classifier in torch, as it is, compiled, and as a compiled file.

    python benchmarks/bench_export.py            # writes benchmarks/results/export.json
    python benchmarks/bench_export.py --quick    # one small network, prints only

One thread, float32. The usual answers: probabilities and an interval for every class,
total, epistemic and aleatoric part; from a thousand classes on the interval of the most
probable alone, and the file with all of them beside it. A CNN with 10 classes and 32 x
32 pixels, an MLP 512–512–1000, a network of 5 MB that reads lines of text, 6,000
classes at each of 20 time steps, and magika, a model that somebody else made, if its
package is there. Compiled code is timed with one bridge, and needs a C++ compiler.
Ratios are within one
run: all forms of a network take turns. Some five minutes, two of them for compiling.
"""

import importlib.util
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from timing import Row, chosen, digits, run, target, timed
from torch import Tensor, nn

import laplacebridge as lb

BRIDGES = ("one-vs-rest", "race")
BATCHES = (1, 64)
BARE = "network in ONNX Runtime"
WHOLE = "with uncertainty in ONNX Runtime"
ALL_INTERVALS = "with all intervals in ONNX Runtime"
EVERY = ("probabilities", "interval", "total", "epistemic", "aleatoric")
MANY = 1000
LINES = "lines of text, K = 6000, 20 steps"


def cnn() -> tuple[nn.Module, tuple[int, ...]]:
    """A small network for images, 20 million multiplications for each."""
    body = [nn.Conv2d(3, 32, 3, 1, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU()]
    body += [nn.Conv2d(64, 128, 3, 2, 1), nn.ReLU(), nn.Conv2d(128, 128, 3, 1, 1), nn.ReLU()]
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)), (
        3,
        32,
        32,
    )


def mlp() -> tuple[nn.Module, tuple[int, ...]]:
    """A network whose head is half of it."""
    layers = [nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(512, 1000)), (512,)


NETWORKS: dict[str, Callable[[], tuple[nn.Module, tuple[int, ...]]]] = {
    "CNN, K = 10": cnn,
    "MLP, K = 1000": mlp,
}


class TextLines(nn.Module):
    """Convolutions, a recurrent layer and a head of 6,000 classes for each of 20 places
    of an image 80 pixels wide.
    """

    def __init__(self) -> None:
        super().__init__()
        layers = [nn.Conv2d(3, 32, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2)]
        layers += [nn.Conv2d(32, 64, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2)]
        layers += [nn.Conv2d(64, 128, 3, 1, 1), nn.ReLU(), nn.Conv2d(128, 192, 3, 1, 1), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.along = nn.GRU(192, 64, bidirectional=True, batch_first=True)
        self.head = nn.Linear(128, 6000)

    def forward(self, images: Tensor) -> Tensor:
        """Logits, shape (B, T, K)."""
        return self.head(self.along(self.body(images).mean(2).transpose(1, 2))[0])


def fitted(name: str, bridge: str, examples: int) -> tuple[lb.Classifier, Tensor]:
    """A classifier of random images or features, whose labels are drawn from the
    network itself, so that it is as sure as trained ones are.
    """
    torch.manual_seed(0)
    network, shape = NETWORKS[name]()
    network.eval()
    inputs = torch.randn(2 * examples, *shape)
    head, logits = network[-1], network(inputs)
    scale = 4 / (logits - logits.mean(0)).std()
    head.weight.mul_(scale)
    head.bias.copy_(-scale * (logits - head.bias).mean(0))
    labels = torch.distributions.Categorical(logits=network(inputs)).sample()
    classifier = lb.fit(
        network,
        [(inputs[:examples], labels[:examples])],
        val_loader=[(inputs[examples:], labels[examples:])],
        bridge=lb.bridges.BRIDGES[bridge],
        progress=False,
    )
    return classifier, inputs[:64]


def session_of(path: Path) -> onnxruntime.InferenceSession:
    """A session on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def answers_of(classifier: lb.Classifier) -> Callable[[Tensor], tuple[Any, ...]]:
    """The usual answers of a classifier in torch."""

    def answer(inputs: Tensor) -> tuple[Any, ...]:
        prediction = classifier(inputs)
        parts = (prediction.total, prediction.epistemic, prediction.aleatoric)
        return (prediction.mean, *prediction.interval(), *parts)

    return answer


def compiled_answers(classifier: lb.Classifier) -> Callable[[Tensor], tuple[Any, ...]]:
    """The same by `torch.compile`, of the classifier alone: its parts follow as they
    are.
    """
    torch.compiler.reset()
    classifier.compile()
    return answers_of(classifier)


def of_network(name: str, bridge: str, folder: Path, *, quick: bool) -> list[Row]:
    """Every form of one network with one bridge."""
    classifier, inputs = fitted(name, bridge, 200 if quick else 1000)
    paths = {form: folder / f"{form}.onnx" for form in ("bare", "whole")}
    lb.export(classifier, paths["bare"], inputs[:2], outputs=[])
    lb.export(classifier, paths["whole"], inputs[:2])
    bare, whole = (session_of(path) for path in paths.values())
    network, eager = classifier.network.model, answers_of(classifier)
    forms: dict[str, Callable[[Tensor], object]] = {
        BARE: lambda rows: bare.run(None, {"input": rows.numpy()}),
        WHOLE: lambda rows: whole.run(None, {"input": rows.numpy()}),
        "network in torch": network,
        "with uncertainty in torch": eager,
    }
    if classifier.num_classes >= MANY:
        lb.export(classifier, folder / "all.onnx", inputs[:2], outputs=EVERY)
        every = session_of(folder / "all.onnx")
        forms[ALL_INTERVALS] = lambda rows: every.run(None, {"input": rows.numpy()})
    if not quick and bridge == BRIDGES[0]:  # compiling takes minutes
        again, _ = fitted(name, bridge, 1000)
        forms["with uncertainty, torch.compile"] = compiled_answers(again)
        if shutil.which("g++"):
            lb.export(classifier, folder / "model.pt2", inputs[:2])
            forms["with uncertainty, AOTInductor"] = torch._inductor.aoti_load_package(
                str(folder / "model.pt2")
            )
    about = {
        "network": name,
        "bridge": bridge,
        "nodes added": _nodes(paths["whole"]) - _nodes(paths["bare"]),
        "MB of the network": digits(paths["bare"].stat().st_size / 1e6, 3),
        "MB with uncertainty": digits(paths["whole"].stat().st_size / 1e6, 3),
    }
    return _rows(about, forms, inputs, quick=quick)


def of_magika(bridge: str, folder: Path, *, quick: bool) -> list[Row]:
    """A model of file types by content, extended as a file."""
    spec = importlib.util.find_spec("magika")
    if spec is None or spec.origin is None:
        return []
    path = Path(spec.origin).parent / "models" / "standard_v3_3" / "model.onnx"
    content = np.random.default_rng(0).integers(0, 257, (64, 2048)).astype(np.int32)
    model = lb.onnx.fit(
        path,
        [({"bytes": content}, np.arange(64))],
        prior_precision=1.0,
        bridge=lb.bridges.BRIDGES[bridge],
        progress=False,
    )
    new = folder / "magika.onnx"
    model.write(new)
    bare, whole = session_of(path), session_of(new)
    forms: dict[str, Callable[[Tensor], object]] = {
        BARE: lambda rows: bare.run(None, {"bytes": rows.numpy()}),
        WHOLE: lambda rows: whole.run(None, {"bytes": rows.numpy()}),
    }
    about = {
        "network": "magika, K = 214",
        "bridge": bridge,
        "nodes added": _nodes(new) - _nodes(path),
        "MB of the network": digits(path.stat().st_size / 1e6, 3),
        "MB with uncertainty": digits(new.stat().st_size / 1e6, 3),
    }
    return _rows(about, forms, torch.from_numpy(content), quick=quick)


def of_text_lines(bridge: str, folder: Path, *, quick: bool) -> list[Row]:
    """Many classes at every time step, extended as a file. Labels are drawn from the
    network itself.
    """
    torch.manual_seed(0)
    network, images = TextLines().eval(), torch.randn(60, 3, 48, 80)
    logits, head = network(images), network.head
    scale = 4 / (logits - logits.mean((0, 1))).std()
    head.weight.mul_(scale)
    head.bias.copy_(-scale * (logits - head.bias).mean((0, 1)))
    labels = torch.distributions.Categorical(logits=network(images)).sample()
    path, new = folder / "lines.onnx", folder / "lines-with-uncertainty.onnx"
    torch.onnx.export(
        network,
        (images[:2],),
        path,
        input_names=["input"],
        dynamic_axes={"input": {0: "batch"}},
        dynamo=False,
    )
    train, val = (
        [({"input": images[some].numpy()}, labels[some].numpy())]
        for some in (slice(0, 40), slice(40, 60))
    )
    model = lb.onnx.fit(path, train, val=val, bridge=lb.bridges.BRIDGES[bridge], progress=False)
    model.write(new)
    model.write(folder / "all.onnx", outputs=EVERY)
    bare, whole, every = (session_of(file) for file in (path, new, folder / "all.onnx"))
    forms: dict[str, Callable[[Tensor], object]] = {
        BARE: lambda rows: bare.run(None, {"input": rows.numpy()}),
        WHOLE: lambda rows: whole.run(None, {"input": rows.numpy()}),
        ALL_INTERVALS: lambda rows: every.run(None, {"input": rows.numpy()}),
    }
    about = {
        "network": LINES,
        "bridge": bridge,
        "nodes added": _nodes(new) - _nodes(path),
        "MB of the network": digits(path.stat().st_size / 1e6, 3),
        "MB with uncertainty": digits(new.stat().st_size / 1e6, 3),
    }
    return _rows(about, forms, images, quick=quick, batches=BATCHES[:1])


def _rows(
    about: Row,
    forms: dict[str, Callable[[Tensor], object]],
    inputs: Tensor,
    *,
    quick: bool,
    batches: tuple[int, ...] = BATCHES,
) -> list[Row]:
    rows = []
    for batch in batches:
        some = inputs[:batch]
        calls = {name: partial(form, some) for name, form in forms.items()}
        taken = timed(calls, budget=0.2 if quick else 3.0)
        rows += [
            {
                **about,
                "examples": batch,
                "form": name,
                **timing.row(unit="ms", scale=1e3),
                "times the bare network": digits(timing.best / taken[BARE].best, 3),
            }
            for name, timing in taken.items()
        ]
    return rows


def _nodes(path: Path) -> int:
    return len(onnx.load(path, load_external_data=False).graph.node)


def measured(quick: bool) -> dict[str, Any]:
    """All rows, and the targets."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for bridge in BRIDGES[:1] if quick else BRIDGES:
            for network in list(NETWORKS)[:1] if quick else NETWORKS:
                rows += of_network(network, bridge, folder, quick=quick)
            if not quick:
                rows += of_text_lines(bridge, folder, quick=quick)
                rows += of_magika(bridge, folder, quick=quick)
    goals = (
        ("CNN, K = 10", 64, 1.05),
        ("CNN, K = 10", 1, 2.0),
        ("MLP, K = 1000", 64, 4.0),
        (LINES, 1, 1.6),
        ("magika, K = 214", 1, 1.2),
    )
    targets = [
        target(
            f"{network}, B = {batch}: one-vs-rest in ONNX Runtime over the bare network",
            row["times the bare network"],
            most=most,
        )
        for network, batch, most in goals
        for row in chosen(rows, network=network, examples=batch, form=WHOLE, bridge="one-vs-rest")
    ]
    nodes = max((row["nodes added"] for row in chosen(rows, bridge="one-vs-rest")), default=0)
    targets.append(target("nodes added by one-vs-rest, usual answers", nodes, most=300))
    return {"rows": rows, "targets": targets}


if __name__ == "__main__":
    run(__doc__ or "", __file__, measured)
