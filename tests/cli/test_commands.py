"""The command line, run as a user would."""

import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = Path(sys.executable).with_name("laplacebridge")


def run(*arguments):
    return subprocess.run(  # noqa: S603
        [COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=120, env={"COLUMNS": "100"}
    )


def test_the_demo_shows_three_gaussians_and_every_bridge():
    result = run("demo", "--samples", "2000")
    assert result.returncode == 0, result.stderr
    for word in ("clear cat", "Cat or dog", "Nothing like", "race (default)", "one-vs-rest", "KL", "delta", "LB-norm"):
        assert word in result.stdout
    assert "nan" not in result.stdout
    assert "…" not in result.stdout  # nothing cut off


def test_info_names_the_versions():
    result = run("info")
    assert result.returncode == 0
    assert "torch" in result.stdout


def test_without_arguments_help_is_shown():
    result = run()
    assert "demo" in result.stdout + result.stderr


@pytest.mark.parametrize("arguments", [("demo", "--samples", "1"), ("nonsense",)])
def test_bad_arguments_exit_non_zero_and_say_why(arguments):
    result = run(*arguments)
    assert result.returncode == 2
    assert "Error" in result.stderr
