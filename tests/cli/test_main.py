"""The command line as a whole: help, versions, and how failures, interruptions and
closed pipes end it.
"""

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from cli_project import MODEL, fails, files_in, run_in

import laplacebridge as lb
from laplacebridge.cli.main import app

COMMAND = Path(sys.executable).with_name("laplacebridge")


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
    environment = {**os.environ, **words}
    result = subprocess.run(  # noqa: S603
        [COMMAND], capture_output=True, text=True, check=False, timeout=120, env=environment
    )
    assert result.stdout.split() == ["laplace-norm", "laplace-raw"]


def test_the_list_of_commands_flows_whatever_the_width(call):
    lines = [line.strip("│ ") for line in call("--help").stdout.splitlines()]
    text = " ".join(" ".join(lines).split())
    assert "from the most probable one, or, calibrated," in text
    assert "Needs no labels" not in text, "the list has first sentences only"
    ends = [line for line in lines if line.endswith(("of which three", "to more:"))]
    assert not ends, "a line ends where its docstring does"


def test_without_arguments_help_is_shown(run):
    result = run()
    assert "Usage: laplacebridge" in result.stdout + result.stderr
    assert "demo" in result.stdout + result.stderr


def test_help_has_panels_and_messages_are_plain_lines_that_can_be_searched(call):
    assert "╭─ Commands" in call("--help").stdout
    assert "╭─ Method" in call("fit", "--help").stdout
    for arguments in (("--nonsense",), ("fit", "--nonsense")):
        result = call(*arguments)
        assert result.exit_code == 2
        assert re.search(
            r"^Error: No such option:? '?--nonsense\b", result.stderr, re.MULTILINE
        )  # by click's version
        assert "╭" not in result.stderr


@pytest.mark.parametrize("arguments", [("demo", "--seed", "one"), ("nonsense",)])
def test_bad_arguments_exit_non_zero_and_say_why(run, arguments):
    result = run(*arguments)
    assert result.returncode == 2
    assert "Error" in result.stderr


@pytest.mark.parametrize("command", ["fit", "predict"])
def test_a_full_disk_leaves_the_old_file_as_it_was(folder, fitted, tmp_path, command):
    old = tmp_path / ("old.safetensors" if command == "fit" else "old.jsonl")
    old.write_text("precious")
    arguments = ["train.npz", *MODEL] if command == "fit" else [fitted.path, "test.npz", *MODEL]
    limit = 1024  # bytes that a file may have in that process
    result = run_in(
        *(folder, command, *arguments, "--force", "-o", old),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    fails(result, 1, old.name, "File too large")
    assert result.stdout == ""
    assert old.read_text() == "precious"
    assert files_in(tmp_path) == [old.name]


@pytest.mark.parametrize("to_device", [True, False], ids=["as a file", "as standard output"])
def test_an_output_that_takes_nothing_is_a_failure(run, fitted, to_device):
    arguments = ["predict", fitted.path, "test_features.npz"]
    with open("/dev/full", "w", encoding="utf-8") as full:
        if to_device:
            result = run(*arguments, "-o", "/dev/full", "--format", "csv")
        else:
            result = run(*arguments, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    fails(result, 1, "No space left on device")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", ["fit", "predict"])
def test_an_interruption_ends_without_a_traceback_or_a_file(run, fitted, tmp_path, command):
    given = [] if command == "fit" else [fitted.path]
    name = "c.safetensors" if command == "fit" else "p.jsonl"
    result = run(command, *given, "project_code:interrupted", *MODEL, "-o", tmp_path / name)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "Interrupted.\n")
    assert files_in(tmp_path) == []


def test_an_interruption_of_the_imports_ends_without_a_traceback():
    # torch is replaced by a module that is interrupted while it is imported
    code = (
        "import os, signal, sys, types\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # tests may be in the background
        "from laplacebridge_command import run\n"
        "run()\n"
    )
    result = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "Interrupted.\n")


def test_a_reader_that_leaves_ends_the_command_quietly(folder, fitted):
    np.savez(folder / "huge.npz", features=np.zeros((3000, 8), dtype=np.float32))
    script = (
        f"'{sys.executable}' -m laplacebridge predict '{fitted.path}' huge.npz --quiet | head -n 1"
    )
    result = subprocess.run(  # noqa: S602
        script, cwd=folder, shell=True, capture_output=True, text=True, check=False
    )
    assert len(result.stdout.splitlines()) == 1
    assert result.stderr == ""


def test_traceback_shows_where_an_error_came_from(run, tmp_path):
    result = run(
        "--traceback", "fit", "project_code:failing", *MODEL, "-o", tmp_path / "c.safetensors"
    )
    assert result.returncode == 1
    assert "KeyError: 'image_id'" in result.stderr
    assert "project_code.py" in result.stderr
