"""The documentation is true: its code runs and gives what it shows, and everything it
names exists.
"""

import contextlib
import importlib
import importlib.resources
import inspect
import json
import re
from importlib.util import find_spec
from pathlib import Path

import doc_code
import pytest
from typer.main import get_command

import laplacebridge as lb
from laplacebridge import datasets
from laplacebridge.cli import main as command_line
from laplacebridge.cli import project_file
from laplacebridge.report import plots

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = {
    str(page.relative_to(DOCS)): page.read_text(encoding="utf-8")
    for page in sorted(DOCS.rglob("*.md"))
}
AT_THE_ROOT = ("CONTRIBUTING.md", "SECURITY.md")
TEXTS = PAGES | {name: (ROOT / name).read_text(encoding="utf-8") for name in AT_THE_ROOT}
EVERY_TEXT = pytest.mark.parametrize("name", TEXTS)

# Modules that need an extra, and a package of it; `make test` has them all.
NEED_EXTRAS = {"serve": "fastapi"}
PUBLIC_MODULES = (
    lb,
    lb.temperature,
    lb.laplace.prior,
    lb.links,
    lb.metrics,
    lb.report,
    plots,
    lb.scores,
    lb.selective,
    lb.sets,
    lb.sources,
    *(
        importlib.import_module(f"laplacebridge.{name}")
        for name, needed in NEED_EXTRAS.items()
        if find_spec(needed)
    ),
)


def resolved(name: str) -> object:
    """What a dotted name stands for, modules imported on the way."""
    parts = name.split(".")
    found: object = importlib.import_module(parts[0])
    for place, part in enumerate(parts[1:], start=1):
        if not hasattr(found, part):
            importlib.import_module(".".join(parts[: place + 1]))
        found = getattr(found, part)
    return found


def public() -> dict[str, object]:
    """Every class and function that users are meant to use, by name."""
    return {
        name: value
        for module in PUBLIC_MODULES
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__.startswith("laplacebridge")
        and (hasattr(module, "__path__") or value.__module__ == module.__name__)
    }


@pytest.fixture(scope="module", autouse=True)
def networks_are_trained_once():
    """Many pages begin with the same small network."""
    with pytest.MonkeyPatch.context() as patch:
        train, known = datasets.trained_network, {}

        def remembered(part, *, seed):
            if seed not in known:
                known[seed] = train(part, seed=seed)
            return known[seed]

        patch.setattr(datasets, "trained_network", remembered)
        yield


@pytest.mark.filterwarnings(
    "ignore:.*torch.jit.script:DeprecationWarning"
)  # by torch itself, when it compiles
@pytest.mark.parametrize("name", [name for name, text in PAGES.items() if "```python" in text])
def test_the_code_of_a_page_runs_and_gives_what_it_shows(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    doc_code.run(DOCS / name)


@pytest.mark.parametrize(
    ("code", "is_true"),
    [
        ("1 / 3  # → 0.33", True),
        ("1 / 3  # → 0.35: which is wrong", False),
        ("0.891  # → 89 % are right", True),
        ("0.891  # → 80 % are right", False),
        ("7  # → 8", False),
        ("[0.5, 0.25]  # → 0.5", False),
        ("[[0], [1]]  # → [[0], [1]]", True),
        ("[[0], [1]]  # → [[0], [2]]", False),
        ("print('about', 2 / 3)\n```\n\n```text\nabout 0.667", True),
        ("print('about', 2 / 3)\n```\n\n```text\nabout 0.61", False),
        ("print('about', 2 / 3)\n```\n\n```text\nnearly 0.667", False),
    ],
)
def test_a_false_claim_is_noticed(code, is_true, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"```python\n{code}\n```\n", encoding="utf-8")
    with contextlib.nullcontext() if is_true else pytest.raises(AssertionError):
        doc_code.run(page)


@EVERY_TEXT
def test_the_names_in_a_text_exist(name):
    for found in re.findall(r"`(?:lb|laplacebridge)\.([A-Za-z_][\w.]*\w)", TEXTS[name]):
        # a group of entry points and a file are no names of Python
        if f"laplacebridge.{found}" not in {command_line.GROUP, project_file.NAME}:
            resolved(f"laplacebridge.{found}")


@EVERY_TEXT
def test_the_files_in_a_text_exist(name):
    for path in re.findall(
        r"`((?:tests|docs|benchmarks|scripts|examples|src|requirements|reproduction)/[\w./-]+)`",
        TEXTS[name],
    ):
        assert (ROOT / path).exists(), path


@EVERY_TEXT
def test_the_commands_in_a_text_exist_with_their_options(name):
    commands = get_command(command_line.app).commands
    text = TEXTS[name].replace("\\\n", " ")
    for line in re.findall(r"(?:^ {4}|`)laplacebridge ([a-z][^`\n]*)", text, re.MULTILINE):
        command, *words = line.split()
        if command in command_line.INSTALLED_APART:  # whose own tests look at it
            continue
        options = {
            option for parameter in commands[command].params for option in parameter.opts
        } | {"--help"}
        assert {word for word in words if re.match("--?[a-z]", word)} <= options, line
    targets = re.findall(
        r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert set(re.findall(r"(?:^ {4}|`)make ([a-z-]+)(?:`|$)", text, re.MULTILINE)) <= set(targets)


def test_the_page_of_the_command_line_has_every_command():
    listed = set(re.findall(r"^\| `([a-z]+)` \|", PAGES["command-line.md"], re.MULTILINE))
    assert listed == {*get_command(command_line.app).commands, *command_line.INSTALLED_APART}


def test_every_public_name_is_on_a_page_of_the_api():
    identifiers = re.findall(r"^::: (\S+)$", "\n".join(PAGES.values()), re.MULTILINE)
    documented = {
        id(resolved(identifier))
        for identifier in identifiers
        if find_spec(NEED_EXTRAS.get(identifier.split(".")[1], "torch"))
    }
    assert [name for name, value in public().items() if id(value) not in documented] == []


def test_every_public_name_has_an_example_that_runs():
    without = {
        name
        for name, value in public().items()
        if ">>> " not in (inspect.getdoc(value) or "")
        and not (inspect.isclass(value) and issubclass(value, Exception))
    }
    assert without == set()


def test_the_page_on_paper_and_code_has_every_equation_table_and_figure():
    page = PAGES["pipeline.md"]
    equations = page.split("## Equations")[1].split("## Algorithm")[0]
    assert [int(number) for number in re.findall(r"^\| (\d+) \|", equations, re.MULTILINE)] == list(
        range(1, 15)
    )
    pieces = re.findall(r"^\| (Table|Figure) (\d) \|", page, re.MULTILINE)
    assert pieces == [("Table", str(number)) for number in range(1, 7)] + [
        ("Figure", str(n)) for n in range(1, 9)
    ]


def test_the_policy_of_a_report_is_the_one_that_is_stated():
    template = (importlib.resources.files("laplacebridge.report.page") / "head.html").read_text(
        encoding="utf-8"
    )
    policy = re.search('Content-Security-Policy" content="([^"]+)"', template)[1]
    policy = re.sub(r"{% \w[^%]* %}", "", policy)  # a page without a script allows none
    assert f"\n    {policy}\n" in TEXTS["SECURITY.md"]


def rendering(script: str) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        return importlib.import_module(script)


def test_the_page_of_benchmarks_is_that_of_the_stored_results():
    rendered = rendering("render_benchmarks").rendered()
    assert rendered == PAGES["benchmarks.md"], "run benchmarks/render_benchmarks.py"
    detection = rendering("render_detection").rendered()
    assert detection == PAGES["detection.md"], "run benchmarks/render_detection.py"


def test_the_tables_of_accuracy_are_those_of_the_stored_results():
    short = rendering("render_readme")
    for document in short.DOCUMENTS:
        assert short.rendered(document) == document.read_text(encoding="utf-8"), (
            "run benchmarks/render_readme.py"
        )
    intervals = rendering("render_intervals")
    for document in (intervals.README, intervals.GUIDE):
        assert intervals.rendered(document) == document.read_text(encoding="utf-8"), (
            "run benchmarks/render_intervals.py"
        )
    networks = rendering("render_calibration")
    assert networks.rendered() == PAGES["networks.md"], "run benchmarks/render_calibration.py"
    full = rendering("render_accuracy")
    report = json.loads(full.RESULTS.read_text(encoding="utf-8"))
    assert f"{full.BEGIN}\n{full.tables(report)}\n{full.END}" in PAGES["bridges.md"], (
        "run benchmarks/render_accuracy.py"
    )


def test_the_tree_of_the_architecture_names_every_module_and_no_other():
    tree = PAGES["architecture.md"].split("```text", 1)[1].split("```", 1)[0]
    source = Path(lb.__file__).parent
    modules = {path.stem for path in source.rglob("*.py")}
    named = {word.removesuffix(".py") for word in re.findall(r"\w+(?:\.py)?", tree)}
    assert not modules - named, "add them to the tree in docs/architecture.md"
    with_suffix = set(re.findall(r"(\w+)\.py\b", tree))
    assert not with_suffix - modules, "no such module"
    folders = set(re.findall(r"^ {2,4}(\w+)/", tree, re.MULTILINE))
    assert folders == {path.parent.name for path in source.rglob("*/*.py")} - {"formulas"}
