"""The package as a whole: what it exports, and what it does not need."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import laplacebridge as lb

ROOT = Path(__file__).parents[1]
EXTRAS = (
    "matplotlib",
    "sklearn",
    "jinja2",
    "curvlinops",
    "pooch",
    "PIL",
    "transformers",
    "mapie",
    "pyarrow",
    "fastapi",
    "uvicorn",
    "orjson",
    "prometheus_client",
    "pandas",
    "polars",
    "skorch",
    "mlflow",
    "onnx",
    "onnxruntime",
)
CORE_AT_WORK = """
import torch, laplacebridge as lb
from laplacebridge.sets import Overlap, calibrate
torch.manual_seed(0)
features, labels = torch.randn(60, 8), torch.arange(60) % 3
model = torch.nn.Linear(8, 3)
classifier = lb.fit(model, [(features, labels)], prior_precision=1.0, progress=False)
lb.save(classifier, "classifier.safetensors")
with torch.no_grad():
    prediction = lb.load("classifier.safetensors", model)(features)
calibrated = calibrate(Overlap(), prediction, labels, coverage=0.8)
assert lb.metrics.coverage(calibrated(prediction), labels) >= 0.8
scaling = lb.temperature.temperature_scaling(model(features).detach(), labels)
rule = lb.selective.calibrate(lb.scores.mutual_information, prediction, answer_share=0.5)
assert rule.num_examples == 60
print(lb.metrics.bootstrap(lb.metrics.accuracy, prediction, labels, num_resamples=100))
"""


def test_the_core_works_with_every_extra_absent(tmp_path):
    code = f"import sys\nfor name in {EXTRAS!r}: sys.modules[name] = None\n{CORE_AT_WORK}"
    result = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr


def test_importing_the_package_imports_neither_the_command_line_nor_plots_nor_scipy():
    heavy = ("typer", "rich", "matplotlib", "sklearn", "scipy.special", "scipy.stats", "jinja2")
    code = f"import sys, laplacebridge\nprint([name for name in {heavy!r} if name in sys.modules])"
    result = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_importing_the_package_imports_no_adapter():
    adapters = ("sklearn", "transformers", "mlflow", "onnx")
    code = (
        "import sys, laplacebridge\n"
        f"print([name for name in {adapters!r} if f'laplacebridge.{{name}}' in sys.modules"
        " or name in sys.modules])"
    )
    result = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_importing_changes_no_global_state_of_torch():
    code = (
        "import torch\nbefore = (torch.get_default_dtype(), torch.is_grad_enabled(),"
        " torch.random.get_rng_state().sum().item())\nimport laplacebridge\nafter ="
        " (torch.get_default_dtype(), torch.is_grad_enabled(),"
        " torch.random.get_rng_state().sum().item())\nassert before == after\n"
    )
    result = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr


def test_tab_completion_shows_some_forty_names_that_are_all_there():
    names = [name for name in dir(lb) if not name.startswith("__")]
    assert len(names) <= 44
    for name in names:
        assert getattr(lb, name) is not None
    assert not {"beta", "gaussian", "importlib", "checkpoint", "classifier"} & set(names)


@pytest.mark.parametrize("name", sorted(lb._MOVED))
def test_a_name_that_moved_says_where_it_is(name):
    with pytest.raises(AttributeError, match=r"it is `lb\.[a-z]+\.[A-Za-z_]+` now") as raised:
        getattr(lb, name)
    path = re.search(r"`lb\.(.+)`", str(raised.value))[1].split(".")
    assert getattr(getattr(lb, path[0]), path[1])


def test_every_public_name_is_documented():
    for name in dir(lb):
        value = getattr(lb, name)
        if not name.startswith("_") and callable(value):
            assert value.__doc__, name


def test_the_version_has_a_section_in_the_changelog_and_is_the_one_to_cite():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"^## \[([\d.]+)\]", changelog, re.MULTILINE)
    cited = re.findall(
        r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert released[:1] == [lb.__version__]
    assert cited == [lb.__version__]


def test_the_workflow_bounds_every_extra_that_it_installs():
    """A bound of an extra that is left out may forbid what `dev` installs."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    workflow = (ROOT / ".github" / "workflows" / "checks.yml").read_text(encoding="utf-8")
    (installed,) = re.findall(r'^dev = \[\s*"laplacebridge\[(.+)\]"', project, re.MULTILINE)
    assert re.findall(r"--extra (\w+)", workflow) == installed.split(",")
