"""A compiled classifier gives the answers of the one that is not; what cannot be
compiled says so.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import laplacebridge as lb

SCRIPT = Path(__file__).with_name("compile_classifier.py")


@pytest.mark.slow
def test_compiled_classifiers_are_one_graph_and_give_the_same_answers():
    command = [sys.executable, "-W", "error::UserWarning", str(SCRIPT), "eager"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert finished.returncode == 0, finished.stderr
    found = json.loads(finished.stdout.splitlines()[-1])
    assert len(found) == 8
    assert max(found.values()) == 0, found  # the same operations, only recorded


@pytest.fixture
def problem():
    generator = torch.Generator().manual_seed(0)
    batch = torch.randn(20, 4, generator=generator), torch.randint(3, (20,), generator=generator)
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), batch


def test_a_posterior_over_several_layers_cannot_be_compiled(problem):
    model, batch = problem
    classifier = lb.fit(model, [batch], layers="*", prior_precision=1.0, progress=False)
    with pytest.raises(ValueError, match=r"2 layers '0', '2'.*without `layers`"):
        classifier.compile()


def test_another_prior_or_bridge_is_not_compiled(problem):
    model, batch = problem
    classifier = lb.fit(model, [batch], prior_precision=1.0, progress=False)
    classifier.compile(backend="eager")
    assert classifier._compiled
    assert not classifier.with_prior(2.0)._compiled
    assert not classifier.with_bridge(lb.laplace_bridge)._compiled
