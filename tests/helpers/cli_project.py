"""A small project as a user has it, and the command line run on it."""

import json
import os
import subprocess
import sys
from typing import NamedTuple

import torch
from torch import nn

MODEL = ("--model", "project_code:network", "--weights", "weights.pt")
MODULE = '''
import os, random, signal
import numpy as np
import torch
from torch import nn

ANSWER = 42

def network():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

class Counted(nn.Sequential):
    """Notes every run."""

    runs = []

    def forward(self, inputs):
        self.runs.append(len(inputs))
        return super().forward(inputs)

def counted_network():
    Counted.runs.clear()
    return Counted(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

def normalised_network():
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))

def wider_network():
    return nn.Sequential(nn.Linear(4, 9), nn.ReLU(), nn.Linear(9, 3))

def headless():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU())

def broken_factory():
    return {}["missing"]

class Batches:
    """Has a length, so that progress bars know how long it takes."""

    def __len__(self):
        return 4

    def __iter__(self):
        with np.load("train.npz") as file:
            inputs, labels = torch.from_numpy(file["inputs"]).float(), torch.from_numpy(file["labels"])
        return zip(inputs.chunk(4), labels.chunk(4))

def unlabelled():
    return [inputs for inputs, _ in Batches()]

def failing():
    yield from list(Batches())[:2]
    raise KeyError("image_id")

def interrupted():
    for index, batch in enumerate(Batches()):
        if index == 2:
            # a shell may have started this in the background, where interrupts are ignored
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.kill(os.getpid(), signal.SIGINT)
        yield batch

def noisy():
    noise = torch.randn(8, 4) + random.random() + np.random.random()
    return [noise.float()]
'''


class Examples(NamedTuple):
    inputs: torch.Tensor
    labels: torch.Tensor


def examples(count, *, seed):
    """Three classes around three corners, in four dimensions."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (count,), generator=generator)
    inputs = torch.randn(count, 4, generator=generator) + 2 * nn.functional.one_hot(labels, 4)
    return Examples(inputs, labels)


def trained_network():
    data = examples(200, seed=0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(100):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data.inputs), data.labels).backward()
        optimizer.step()
    return model.eval()


def run_in(folder, *arguments, **settings):
    """Runs the command as a user does, in a process of its own."""
    environment = {
        **os.environ,
        "COLUMNS": "100",
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    settings = {"capture_output": True, "text": True, "timeout": 120, "check": False, **settings}
    command = [sys.executable, "-m", "laplacebridge", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, env=environment, **settings)  # noqa: S603


def records(text):
    """Rows of JSON lines."""
    return [json.loads(line) for line in text.splitlines()]


def files_in(folder):
    return sorted(path.name for path in folder.iterdir())


def fails(result, code, *words):
    """Requires an exit code and one message on standard error, without a traceback,
    that has all the words.
    """
    found = (
        result.returncode if isinstance(result, subprocess.CompletedProcess) else result.exit_code
    )
    assert found == code, (result.stderr, getattr(result, "exception", None))
    assert isinstance(getattr(result, "exception", SystemExit()), SystemExit)
    assert sum(line.startswith("Error: ") for line in result.stderr.splitlines()) == 1
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr
