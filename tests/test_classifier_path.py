"""How much of the library one prediction runs through: a bound that cannot creep up.

Counted as a reader of a profile would: every call of a function of the library, in how
many of its files. On small batches, as a server has them, these calls are what takes
the time, and each is something to read for whoever follows a prediction.
"""

import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import nn

import laplacebridge as lb

SOURCES = str(Path(lb.__file__).parent)
# As it was counted; a feature that needs more says so here.
MOST_CALLS, MOST_FILES = 130, 25


def is_inlined(code):
    """Comprehensions, which are calls up to Python 3.11 only."""
    return code.co_name in {"<listcomp>", "<dictcomp>", "<setcomp>"}


def calls_of(function, *arguments):
    """How often each function of the library is called, by file and name."""
    calls = Counter()

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCES) and not is_inlined(code):
            calls[code.co_filename, code.co_name] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function(*arguments)
    finally:
        sys.setprofile(before)
    return calls


@pytest.fixture(scope="module")
def classifier():
    torch.manual_seed(0)
    inputs = torch.randn(60, 5)
    labels = inputs[:, :3].argmax(-1)
    network = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    return lb.fit(network, [(inputs, labels)], prior_precision=1.0, progress=False)


@pytest.mark.parametrize("gradient", [True, False])
@pytest.mark.filterwarnings("ignore:The network gets")
def test_a_prediction_runs_through_few_calls_and_files(classifier, gradient):
    inputs = torch.randn(4, 5)
    with torch.set_grad_enabled(gradient):
        classifier(inputs)  # what is computed once, for all predictions
        calls = calls_of(classifier, inputs)
    files = {file for file, _ in calls}
    assert calls.total() > 50, "nothing was counted"
    assert calls.total() <= MOST_CALLS, calls.most_common(20)
    assert len(files) <= MOST_FILES, sorted(files)


def test_no_value_is_checked_twice_on_the_way(classifier):
    checks = Counter()
    for (_, name), number in calls_of(classifier, torch.randn(4, 5)).items():
        checks[name] += number
    # Gaussian, Dirichlet and prediction are made of what was checked
    assert checks["__post_init__"] == 0
    assert checks["made"] == 3
    assert checks["head"] == 1
