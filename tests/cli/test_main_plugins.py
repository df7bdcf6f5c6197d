"""Commands of other distributions: found, named when they are missing, and harmless
when they are broken.
"""

import os
import sys

import pytest

WORKING = '''
import typer

EXAMPLE = "Example: laplacebridge greet Ada"

def greet(name: str, loud: bool = False) -> None:
    """Say hello."""
    typer.echo(f"HELLO {name}" if loud else f"hello {name}")

def info() -> None:
    """Hide the command of this name."""
    typer.echo("hidden")
'''


def install(folder, name, commands="", **modules):
    """Leaves what `pip` leaves, as far as anybody reads it."""
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        f"[laplacebridge.commands]\n{commands}\n" if commands else ""
    )
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """A folder whose distributions come before all others, in this process and in those
    it starts.
    """
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("greetings", None)


def test_a_command_of_another_distribution_is_listed_explained_and_run(packages, run):
    install(packages, "greetings", "greet = greetings:greet", greetings=WORKING)
    assert "Say hello." in run("--help").stdout
    explained = run("greet", "--help")
    assert "--loud" in explained.stdout
    assert "Example: laplacebridge greet Ada" in explained.stdout
    assert run("greet", "Ada", "--loud").stdout == "HELLO Ada\n"


def test_no_distribution_can_replace_a_command_of_the_package(packages, call):
    install(packages, "greetings", "info = greetings:info", greetings=WORKING)
    shown = call("info").stdout
    assert "torch" in shown
    assert "hidden" not in shown
    assert "Hide the command" not in call("--help").stdout


def test_without_the_package_that_reproduces_the_paper_its_command_says_what_to_install(
    packages, run, call
):
    install(
        packages, "laplacebridge_reproduction"
    )  # hides the one that may be installed, and has no command
    result = run("reproduce", "figure2", "--profile", "small")
    assert result.returncode == 2
    assert "`pip install ./reproduction`" in result.stderr
    assert "Traceback" not in result.stderr
    assert call("reproduce", "--help").stderr == result.stderr
    assert "reproduce" not in call("--help").stdout


def test_a_broken_command_says_why_and_leaves_the_others_alone(packages, run):
    install(
        packages,
        "greetings",
        "greet = greetings:greet",
        greetings="raise RuntimeError('no licence')",
    )
    listed = run("--help")
    assert listed.returncode == 0, listed.stderr
    assert "Cannot be loaded; run it to see why." in listed.stdout
    assert run("info").returncode == 0
    result = run("greet", "Ada", "--loud")
    assert result.returncode == 1
    assert result.stderr.startswith(
        "Error: `laplacebridge greet` comes from the package greetings, where greetings:greet"
    )
    assert "RuntimeError: no licence" in result.stderr
    assert "Install that package again" in result.stderr
    assert "Traceback" not in result.stderr
    assert 'greetings.py", line 1' in run("--traceback", "greet").stderr


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("", "has no attribute 'greet'"),
        ("greet = 3", "AttributeError"),
    ],
    ids=["needs what is not there", "no such function", "not a function"],
)
def test_every_way_of_being_broken_is_named(packages, call, module, words):
    install(packages, "greetings", "greet = greetings:greet", greetings=module)
    assert "Cannot be loaded" in call("--help").stdout
    result = call("greet")
    assert result.exit_code == 1
    assert words in result.stderr
