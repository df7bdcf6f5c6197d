"""Every test is run by `make test` or by `make test-extra`: none is skipped by both."""

import ast
from importlib.util import find_spec
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
# what the extra `dev` installs, so that `make test` skips no test for want of it
WITH_DEV = {
    "IPython",
    "PIL",
    "jsonschema",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "pandas",
    "pyarrow",
    "sklearn",
    "tokenizers",
    "transformers",
    "uvicorn",
}
OURS = {"laplacebridge", "small_texts"}


def wanted(tree):
    """The libraries for want of which a part of a file is skipped."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.importorskip":
            yield ast.literal_eval(node.args[0]).partition(".")[0]


def left_out(path):
    """The parts of a file that skip themselves where `make test` runs, and that
    `make test-extra` does not select.
    """
    statements = ast.parse(path.read_text(encoding="utf-8")).body
    marks = [ast.unparse(part) for part in statements if isinstance(part, ast.Assign)]
    # a helper's `MARKS` are what the tests that import it are marked with
    own = ("pytestmark", "MARKS")
    if any(mark.startswith(own) and "mark.crosscheck" in mark for mark in marks):
        return
    for part in statements:
        own = " ".join(ast.unparse(mark) for mark in getattr(part, "decorator_list", ()))
        # a fixture skips the tests that use it: their marks are theirs
        if "mark.crosscheck" in own or "pytest.fixture" in own:
            continue
        for library in set(wanted(part)) - WITH_DEV - OURS:
            yield f"{path.relative_to(TESTS)}, line {part.lineno}: {library}"


def test_what_needs_more_than_the_extra_dev_is_marked_crosscheck():
    files = [path for path in TESTS.rglob("*.py") if path != Path(__file__)]
    assert [place for path in files for place in left_out(path)] == []


@pytest.mark.parametrize("library", sorted(WITH_DEV))
def test_the_extra_dev_brings_what_its_tests_need(library):
    assert find_spec(library) is not None, "install the extra `dev`"
