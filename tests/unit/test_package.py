"""The package as a whole: what it exports, and what it does not need."""

import subprocess
import sys

import laplacebridge as lb


def test_the_core_imports_without_the_command_lines_libraries():
    blocked = ("typer", "rich", "click", "matplotlib", "sklearn", "onnx", "jinja2")
    code = (
        "import sys\n"
        f"for name in {blocked!r}: sys.modules[name] = None\n"
        "import laplacebridge as lb, torch\n"
        "lb.race_bridge(lb.LogitGaussian(torch.zeros(1, 3), lb.Diagonal(torch.ones(1, 3))))\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603
    assert result.returncode == 0, result.stderr


def test_importing_changes_no_global_state_of_torch():
    code = (
        "import torch\n"
        "before = (torch.get_default_dtype(), torch.is_grad_enabled(), torch.random.get_rng_state().sum().item())\n"
        "import laplacebridge\n"
        "after = (torch.get_default_dtype(), torch.is_grad_enabled(), torch.random.get_rng_state().sum().item())\n"
        "assert before == after\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603
    assert result.returncode == 0, result.stderr


def test_every_public_name_is_documented():
    for name in dir(lb):
        value = getattr(lb, name)
        if not name.startswith("_") and callable(value):
            assert value.__doc__, name
