"""The commands on the page about many machines are run, each in a process of its own."""

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from cli_project import examples, trained_network

import laplacebridge as lb

# a hundred are enough to see that nothing gets lost
pytestmark = pytest.mark.filterwarnings("ignore:With 100 held-out labels:UserWarning")

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "many-machines.md"
CODE = """from torch import nn
def build():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
"""


TOGETHER = PAGE.with_name("several-processes.md")
FUNCTIONS = f"""laplacebridge() {{ '{sys.executable}' -m laplacebridge "$@"; }}
torchrun() {{ '{sys.executable}' -m torch.distributed.run "$@"; }}
"""


@pytest.fixture
def project(tmp_path):
    """A folder as the page has it."""
    (tmp_path / "project.py").write_text(CODE)
    torch.save(trained_network().state_dict(), tmp_path / "weights.pt")
    for name, count, seed in (("train", 600, 0), ("held_out", 100, 2)):
        inputs, labels = examples(count, seed=seed)
        np.savez(tmp_path / f"{name}.npz", inputs=inputs.numpy(), labels=labels.numpy())
    return tmp_path


def start(script, folder, **environment):
    return subprocess.Popen(  # noqa: S603  (the project's own page)
        ["/bin/bash", "-ec", FUNCTIONS + script],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stderr=subprocess.PIPE,
        text=True,
    )


def require_success(*processes):
    for process in processes:
        _, said = process.communicate(timeout=300)
        assert process.returncode == 0, said


def commands():
    """The lines with shards, and the one with merge."""
    (block,) = re.findall(
        r"^```bash\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    return block, block[block.index("laplacebridge merge") :]


def indented(page, first):
    """The indented block that begins with a line."""
    lines = page.read_text("utf-8").splitlines()
    start = lines.index(f"    {first}")
    block = itertools.takewhile(lambda line: not line or line.startswith("    "), lines[start:])
    return "\n".join(line.removeprefix("    ") for line in block)


def test_the_commands_give_the_classifier_of_the_whole(project):
    require_success(start(commands()[0], project))
    require_whole(project)


@pytest.mark.slow
def test_a_slurm_array_gives_the_classifier_of_the_whole(project):
    script = indented(PAGE, "#!/bin/bash")
    assert "--array=1-16" in script
    script = script.replace("/16", "/2")  # as an array of two
    require_success(*(start(script, project, SLURM_ARRAY_TASK_ID=task) for task in ("1", "2")))
    require_success(start(commands()[1], project))
    require_whole(project)


@pytest.mark.slow
def test_torchrun_gives_the_classifier_of_the_whole(project):
    code = indented(TOGETHER, "# fit_together.py")
    left_out = "model, train_data, val_data = ...  # the same in every process\n"
    assert left_out in code
    read = """
import numpy as np
from torch.utils.data import TensorDataset
from project import build
model = build()
model.load_state_dict(torch.load("weights.pt"))
train_data, val_data = (
    TensorDataset(torch.from_numpy(file["inputs"]), torch.from_numpy(file["labels"]))
    for file in (np.load("train.npz"), np.load("held_out.npz"))
)
"""
    (project / "fit_together.py").write_text(code.replace(left_out, read))
    for page in (PAGE, TOGETHER):
        command = indented(page, "torchrun --standalone --nproc-per-node=2 fit_together.py")
    require_success(start(command, project))
    require_whole(project)


def require_whole(folder):
    network = trained_network()
    merged = lb.load(folder / "classifier.safetensors", network)
    whole = lb.fit(
        network,
        [tuple(examples(600, seed=0))],
        val_loader=[tuple(examples(100, seed=2))],
        progress=False,
    )
    inputs, _ = examples(50, seed=3)
    with torch.no_grad():
        found, expected = merged(inputs), whole(inputs)
    assert merged.labels.num_labels == 600
    assert torch.allclose(found.mean, expected.mean, atol=1e-6)
