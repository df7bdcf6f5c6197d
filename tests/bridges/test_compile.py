"""Bridges are one graph for `torch.compile`, and give compiled what they give as they
are.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("compile_bridges.py")
CORE = ("laplace_bridge", "one_vs_rest_mean", "one_vs_rest_bridge")


def differences(backend, *names):
    """Largest differences between compiled and uncompiled answers; the script fails
    where the graph would break.
    """
    command = [sys.executable, "-W", "error::UserWarning", str(SCRIPT), backend, *names]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout.splitlines()[-1])


@pytest.mark.slow
def test_bridges_are_traced_without_a_break():
    every = (*CORE, "laplace_bridge_norm", "race_bridge")
    found = differences("eager", *every)
    assert len(found) == 2 * len(every) + 2
    # recorded calls keep a column for every factor that there might be, others only those there are
    for searched in ("race_bridge, shared basis", "race_bridge, matrix, 30 classes"):
        assert found.pop(searched) < 5e-6
    assert max(found.values()) == 0, found  # the same operations, only recorded


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("g++") is None,
    reason="the compiler of torch needs a C++ compiler: g++ is not here",
)
def test_compiled_bridges_give_the_same_answers():
    found = differences(
        "inductor", *CORE, "laplace_bridge_norm"
    )  # the race is large: minutes of compiling
    assert max(found.values()) < 2e-4, found
