"""The project's folder with a module, trained weights and data; a fitted classifier and
predictions.
"""

import subprocess
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from cli_project import MODULE, examples, run_in, trained_network
from typer.testing import CliRunner

import laplacebridge as lb
from laplacebridge.cli.main import app


@pytest.fixture(scope="session")
def trained():
    return trained_network()


@pytest.fixture(scope="session")
def folder(tmp_path_factory, trained):
    """The folder that commands are run in."""
    home = tmp_path_factory.mktemp("project")
    (home / "project_code.py").write_text(MODULE)
    (home / "does_not_import.py").write_text("raise RuntimeError('no licence')\n")
    (home / "classes.txt").write_text("cat\ndog\nowl\n")
    torch.save(
        {"epoch": 3, "state_dict": {f"module.{k}": v for k, v in trained.state_dict().items()}},
        home / "weights.pt",
    )
    for name, count, seed in (("train", 200, 0), ("test", 60, 1), ("held_out", 120, 2)):
        inputs, labels = examples(count, seed=seed)
        features = trained[:2](inputs).detach()
        np.savez(home / f"{name}.npz", inputs=inputs.double().numpy(), labels=labels.numpy())
        np.savez(home / f"{name}_features.npz", features=features.numpy(), labels=labels.numpy())
    np.savez(
        home / "head.npz",
        weight=trained[2].weight.detach().numpy(),
        bias=trained[2].bias.detach().numpy(),
    )
    return home


@pytest.fixture(scope="session")
def run(folder):
    return lambda *arguments, **settings: run_in(folder, *arguments, **settings)


@pytest.fixture
def call(folder, monkeypatch):
    """Runs the command in this process, for what needs no process of its own."""
    monkeypatch.chdir(folder)

    def called(*arguments, text=None):
        return CliRunner().invoke(
            app, [str(argument) for argument in arguments], input=text, prog_name="laplacebridge"
        )

    return called


class Fitted(NamedTuple):
    path: Path
    result: subprocess.CompletedProcess


@pytest.fixture(scope="session")
def fitted(run, tmp_path_factory):
    path = tmp_path_factory.mktemp("fitted") / "classifier.safetensors"
    return Fitted(
        path,
        run(
            "fit",
            "train.npz",
            "--model",
            "project_code:network",
            "--weights",
            "weights.pt",
            "-o",
            path,
        ),
    )


@pytest.fixture(scope="session")
def prediction(run, fitted, tmp_path_factory):
    """Labelled predictions of the test data as an .npz file."""
    path = tmp_path_factory.mktemp("predicted") / "prediction.npz"
    result = run(
        "predict", fitted.path, "test_features.npz", "--classes", "classes.txt", "-o", path
    )
    assert result.returncode == 0, result.stderr
    return path


@pytest.fixture(scope="session")
def labelled(run, fitted, tmp_path_factory):
    """Other labelled predictions, to calibrate with."""
    path = tmp_path_factory.mktemp("labelled") / "labelled.npz"
    assert run("predict", fitted.path, "held_out_features.npz", "-o", path).returncode == 0
    return path


@pytest.fixture(scope="session")
def classifier(fitted, trained):
    return lb.load(fitted.path, trained)


@pytest.fixture(scope="session")
def expected_prediction(classifier):
    """What the library predicts of the test data."""
    with torch.no_grad():
        return classifier(examples(60, seed=1).inputs)


@pytest.fixture(scope="session")
def expected(expected_prediction):
    return expected_prediction.dirichlet
