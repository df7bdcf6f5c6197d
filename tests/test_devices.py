"""What a device computes stays there, and all that does not is listed."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from torch.utils import backend_registration

import laplacebridge as lb

# Everything that computes on the CPU whatever device it is given: `docs/promises.md`
# has the same list.
ON_THE_CPU = {
    "bridges/support_points.py": "fixed points, made when the library is imported",
    "beta.py": "quantiles and probabilities of Beta marginals, by SciPy",
    "laplace/examples.py": "images that are kept for a report",
    "laplace/label_statistics.py": "how many labels each class has",
    "laplace/distributed.py": "how many labels each class has",
    "laplace/loss.py": "weights of classes, as they are given",
    "laplace/revealed_error.py": "the regression that errors in common are found by, by SciPy",
    "laplace/network.py": "fingerprints of weights",
    "multi_label/prediction.py": "`MultiLabelPrediction.numpy`",
    "multi_label/sets.py": "thresholds of sets, when they are calibrated",
    "sets/conditional.py": "thresholds by class and group, when they are calibrated",
    "metrics/intervals.py": "bootstrap intervals of metrics",
    "metrics/resampling.py": "bootstrap intervals of metrics",
    "metrics/votes.py": "likelihood of several people's labels, by SciPy",
    "temperature.py": "temperature scaling, when it is fitted",
    "_quadrature.py": "exact references, for tests and benchmarks",
    "prediction.py": "`Prediction.numpy`",
    "selective/reviewing.py": "the order in which cases are looked at",
    "selective/calibrating.py": "thresholds of rules, when they are calibrated",
}
# What writes files, pages and text, or speaks to libraries of arrays, is for the CPU by
# its nature.
WRITERS = (
    "cli/",
    "report/",
    "serve/",
    "onnx/",
    "sklearn/",
    "checkpoint/",
    "datasets.py",
    "_files.py",
    "_arrays.py",
    "_scoring",
    "testing/",
)


def test_a_device_is_enough():
    """With the tests of `on_a_device.py`, in a process of its own."""
    if not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"):
        pytest.skip("this torch cannot play a device")
    tests = Path(__file__).parent
    run = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests / "on_a_device.py"],
        cwd=tests.parent,
        env=os.environ,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-2000:]
    assert " passed" in run.stdout


def test_all_that_computes_on_the_cpu_is_listed():
    root = Path(lb.__file__).parent
    found = {
        name
        for path in root.rglob("*.py")
        if not (name := path.relative_to(root).as_posix()).startswith(WRITERS)
        and any(
            isinstance(node, ast.Attribute) and node.attr in {"cpu", "numpy"}
            for node in ast.walk(ast.parse(path.read_text()))
            if not isinstance(getattr(node, "value", None), ast.Attribute)
        )
    }
    assert found == set(ON_THE_CPU)
    page = (Path(__file__).parents[1] / "docs" / "promises.md").read_text()
    for module in ON_THE_CPU:
        assert f"`{module}`" in page, module
