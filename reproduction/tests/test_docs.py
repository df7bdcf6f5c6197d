"""What the documentation of the repository says of the reproduction is true."""

import pkgutil
import re
from pathlib import Path

import pytest
from typer.main import get_command

from laplacebridge.cli import main
from laplacebridge_reproduction.catalogue import ARTIFACTS

ROOT = Path(__file__).parents[2]
PLACES = [
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/**/*.md"),
    *ROOT.glob("examples/*.md"),
    *ROOT.glob("reproduction/*.md"),
]
TEXTS = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8").replace("\\\n", " ")
    for path in PLACES
}


@pytest.fixture(scope="module")
def command():
    return get_command(main.app).get_command(None, "reproduce")


def test_the_page_on_paper_and_code_names_every_table_and_figure():
    page = TEXTS["docs/pipeline.md"]
    assert set(re.findall(r"`((?:table|figure)\d|votes)` \|", page)) == set(ARTIFACTS)


def test_every_name_of_the_package_exists():
    names = {
        name
        for text in TEXTS.values()
        for name in re.findall(r"`laplacebridge_reproduction\.([\w.]+\w)", text)
    }
    assert len(names) > 10
    for name in names:
        pkgutil.resolve_name(f"laplacebridge_reproduction.{name}")


def test_every_call_of_the_command_can_be_made(command):
    options = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    lines = {
        line
        for text in TEXTS.values()
        for line in re.findall(r"(?:^ {4}|`)laplacebridge reproduce ([^`\n]+)", text, re.MULTILINE)
    }
    assert len(lines) > 3
    for line in lines:
        words = line.split()
        assert words[0] in {*ARTIFACTS, "all", "list"}, line
        assert {word for word in words if re.match("--?[a-z]", word)} <= options, line
