"""The commands on the page about many machines are run, each in a process of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from cli_project import examples, trained_network

import laplacebridge as lb

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "many-machines.md"
CODE = """from torch import nn
def build():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
"""


def test_the_commands_give_the_classifier_of_the_whole(tmp_path):
    network = trained_network()
    (tmp_path / "project.py").write_text(CODE)
    torch.save(network.state_dict(), tmp_path / "weights.pt")
    for name, count, seed in (("train", 600, 0), ("held_out", 100, 2)):
        inputs, labels = examples(count, seed=seed)
        np.savez(tmp_path / f"{name}.npz", inputs=inputs.numpy(), labels=labels.numpy())
    (block,) = re.findall(
        r"^```bash\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    script = f"laplacebridge() {{ '{sys.executable}' -m laplacebridge \"$@\"; }}\n{block}"
    result = subprocess.run(  # noqa: S603  (the project's own page)
        ["/bin/bash", "-ec", script],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    merged = lb.load(tmp_path / "classifier.safetensors", network)
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
