"""Classifiers behind a real server on the loopback."""

import numpy as np
import pytest
import torch
from serving import running
from small_network import CLASSES, FEATURES, examples, trained
from torch import nn

import laplacebridge as lb

NAMES = ("cat", "dog", "owl")
LABEL_NAMES = ("red", "round", "large", "old")
CODE = f"""
from torch import nn

def network():
    return nn.Sequential(nn.Linear({FEATURES}, 16), nn.ReLU(), nn.Linear(16, {CLASSES}))
"""


@pytest.fixture(scope="session")
def network():
    return trained(
        lambda: nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, CLASSES)),
        *examples(400),
        steps=150,
    )


@pytest.fixture(scope="session")
def classifier(network):
    return lb.fit(network, [examples(400)], val_loader=[examples(200, seed=1)], progress=False)


@pytest.fixture(scope="session")
def project(tmp_path_factory, network, classifier):
    """A folder with a network, two classifiers, names and labelled predictions."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "served_code.py").write_text(CODE)
    (folder / "names.txt").write_text("\n".join(NAMES))
    torch.save(network.state_dict(), folder / "weights.pt")
    lb.save(classifier, folder / "classifier.safetensors")
    plain = lb.fit(
        network[2], [network[:2](examples(400)[0]).detach()], prior_precision=1.0, progress=False
    )
    lb.save(plain, folder / "head.safetensors")
    inputs, labels = examples(300, seed=2)
    with torch.no_grad():
        prediction = classifier(inputs)
    np.savez(
        folder / "labelled.npz",
        log_concentration=prediction.dirichlet.log_concentration.numpy(),
        labels=labels.numpy(),
        score_ood_quantile=prediction.ood_quantile.numpy(),
    )
    return folder


@pytest.fixture(scope="session")
def several():
    """A head of four labels, with held-out data."""
    torch.manual_seed(0)
    head = nn.Linear(FEATURES, len(LABEL_NAMES))
    inputs = examples(400)[0]
    with torch.no_grad():
        labels = torch.bernoulli(head(inputs).sigmoid())
    half = len(inputs) // 2
    fitted = lb.fit(
        head,
        [(inputs[:half], labels[:half])],
        val_loader=[(inputs[half:], labels[half:])],
        multi_label=True,
        progress=False,
    )
    return fitted.with_rule(class_names=LABEL_NAMES), inputs, labels


SERVE = ("-m", "laplacebridge", "serve", "--port", "0")
MODEL = (
    "--model",
    "served_code:network",
    "--weights",
    "weights.pt",
    "--input",
    f"features:FP32:{FEATURES}",
    "--classes",
    "names.txt",
)


@pytest.fixture(scope="session")
def serve_command():
    """A server on a free port."""
    return SERVE


@pytest.fixture(scope="session")
def model_options():
    """The network of the project."""
    return MODEL


@pytest.fixture(scope="session")
def server(project):
    """Two versions of one model, and small limits."""
    limits = ("--max-megabytes", "1", "--timeout", "20")
    files = ("digits=classifier.safetensors", "digits:2=classifier.safetensors")
    with running(*SERVE, *files, *MODEL, *limits, folder=project) as started:
        yield started
