"""Classifiers to export, as a network of one linear layer, and the graph of that layer."""

import functools
from typing import Any

import numpy as np
import torch
from torch import nn

import laplacebridge as lb
from laplacebridge import laplace

CURVATURES = {
    "diag": laplace.Diag,
    "kron": laplace.Kron,
    "diag_kron": laplace.DiagKron,
    "full": laplace.Full,
}
NUM_FEATURES = 12


def classifier_of(
    curvature: str, bridge: str = "race", classes: int = 10, **options: Any
) -> lb.Classifier:
    """A classifier of a linear head whose labels come from the head itself."""
    return _fitted(curvature, classes, **options).with_bridge(lb.bridges.BRIDGES[bridge])


@functools.cache
def _fitted(
    curvature: str,
    classes: int,
    *,
    held_out: bool = True,
    features: int = NUM_FEATURES,
    bias: bool = True,
) -> lb.Classifier:
    generator = torch.Generator().manual_seed(classes)
    with torch.random.fork_rng():
        torch.manual_seed(classes)
        head = nn.Linear(features, classes, bias=bias)
    with torch.no_grad():
        head.weight.mul_(3)

    def batch(rows: int, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
        inputs = torch.randn(rows, features, generator=generator)
        chances = (head(inputs) / temperature).softmax(-1).detach()
        return inputs, torch.multinomial(chances, 1, generator=generator).squeeze(-1)

    return lb.fit(
        head,
        [batch(200, 1.0), batch(200, 1.0)],
        val_loader=[batch(200, 1.5)] if held_out else None,
        prior_precision=None if held_out else 1.0,
        curvature=CURVATURES[curvature],
        progress=False,
    )


def head_graph(head: nn.Linear, opset: int = 17) -> Any:
    """An ONNX model of a linear layer: `x` → `logits`."""
    from onnx import TensorProto, helper, numpy_helper

    classes, features = head.weight.shape
    arrays = {"W": head.weight} | ({} if head.bias is None else {"b": head.bias})
    node = helper.make_node("Gemm", ["x", *arrays], ["logits"], transB=1)
    graph = helper.make_graph(
        [node],
        "head",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", features])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", classes])],
        [numpy_helper.from_array(value.detach().numpy(), name) for name, value in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def session_of(model: Any) -> Any:
    """A session of ONNX Runtime for a model or a file, on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    content = model if isinstance(model, str) else model.SerializeToString()
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def run(session: Any, inputs: torch.Tensor | np.ndarray) -> dict[str, np.ndarray]:
    """What a session answers, by the names of the outputs."""
    names = [output.name for output in session.get_outputs()]
    (given,) = session.get_inputs()
    return dict(zip(names, session.run(None, {given.name: np.asarray(inputs)})))


def differences(
    answers: dict[str, np.ndarray], prediction: lb.Prediction, level: float = 0.95
) -> dict[str, float]:
    """The largest difference of each answer, in units of what parity allows: mean 2e-6,
    log α 1e-4, interval 1e-4, epistemic part 1e-4 relative or 1e-6 absolute.
    """
    lower, upper = prediction.interval(level)
    expected = {
        "probabilities": (prediction.mean, 2e-6),
        "lower": (lower, 1e-4),
        "upper": (upper, 1e-4),
        "total": (prediction.total, 1e-5),
        "aleatoric": (prediction.aleatoric, 1e-5),
        "log_concentration": (prediction.dirichlet.log_concentration, 1e-4),
        "epistemic": (prediction.epistemic, 1e-6),
    }
    if prediction.unusual is not None:
        expected["ood_score"] = (prediction.ood_score, 1e-4)
    found = {}
    for name, (value, allowed) in expected.items():
        if f"lb_{name}" not in answers:
            continue
        wanted = value.detach().double().numpy()
        difference = np.abs(answers[f"lb_{name}"] - wanted)
        if name in {"epistemic", "aleatoric"}:  # one is what the other leaves of the total
            allowed = np.maximum(allowed, 1e-4 * prediction.epistemic.detach().double().numpy())
        if name == "ood_score":
            allowed = allowed * np.maximum(1, wanted)
        if name in {"log_concentration", "probabilities"}:  # logits of 20 are rounded to 2e-6
            size = np.abs(prediction.dirichlet.log_concentration.detach().numpy())
            allowed = allowed * np.maximum(1, size.max(-1, keepdims=True) / 10)
        found[name] = float((difference / allowed).max())
    return found
