"""The command line, run as a user would."""

import subprocess
import sys
from pathlib import Path

import pytest
import typer

import laplacebridge as lb
from laplacebridge import checkpoint
from laplacebridge.classifier import POSTERIORS
from laplacebridge.cli import names
from laplacebridge.cli.main import app

COMMAND = Path(sys.executable).with_name("laplacebridge")


def run(*arguments):
    return subprocess.run(  # noqa: S603
        [COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=120, env={"COLUMNS": "100"}
    )


def test_info_names_the_versions():
    result = run("info")
    assert result.returncode == 0
    for name in ("laplacebridge", "torch", "python", "system", "threads"):
        assert any(line.startswith(name) for line in result.stdout.splitlines())


def test_the_version_is_that_of_the_package(call):
    assert call("--version").stdout == f"laplacebridge {lb.__version__}\n"


@pytest.mark.parametrize("command", sorted(typer.main.get_command(app).commands))
def test_every_command_has_help_with_an_example(call, command):
    result = call(command, "--help")
    assert result.exit_code == 0
    assert f"Example: laplacebridge {command}" in " ".join(result.stdout.split())


def test_shells_complete_commands_and_names_of_methods():
    words = {
        "COMP_WORDS": "laplacebridge fit --bridge laplace-",
        "COMP_CWORD": "3",
        "_LAPLACEBRIDGE_COMPLETE": "complete_bash",
    }
    result = subprocess.run([COMMAND], capture_output=True, text=True, check=False, timeout=120, env=words)  # noqa: S603
    assert result.stdout.split() == ["laplace-norm", "laplace-raw"]


def test_every_name_of_a_method_stands_for_another_one_that_can_be_saved():
    assert set(names.BRIDGES.values()) == set(checkpoint.BRIDGES.values())
    assert set(names.CURVATURES.values()) == set(POSTERIORS)


def test_without_arguments_help_is_shown():
    result = run()
    assert "Usage: laplacebridge" in result.stdout + result.stderr
    assert "demo" in result.stdout + result.stderr


@pytest.mark.parametrize("arguments", [("demo", "--seed", "one"), ("nonsense",)])
def test_bad_arguments_exit_non_zero_and_say_why(arguments):
    result = run(*arguments)
    assert result.returncode == 2
    assert "Error" in result.stderr
