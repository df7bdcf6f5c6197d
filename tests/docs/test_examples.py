"""Every example runs as its first line says, without a warning, and has something to
show; so does the notebook.
"""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "examples"
NOTEBOOK = FOLDER / "paper_story.ipynb"
WITH_DATA = FOLDER / "pretrained_vision.py"
WITH_TRANSFORMERS = [FOLDER / "text_classifier.py", FOLDER / "unseen_names.py"]
SCRIPTS = sorted(FOLDER.glob("*.py"))
# run by hand, in environments of their own: docs/guide/many-machines.md says what was seen
WITH_ENGINES = {FOLDER / "score_with_spark.py", FOLDER / "score_with_ray.py"}
PLAIN = [
    script for script in SCRIPTS if script not in {WITH_DATA, *WITH_TRANSFORMERS, *WITH_ENGINES}
]
LARGEST_MEMORY = 1500  # MB


def run(script, folder, *options, python_options=("-W", "error")):
    return subprocess.run(  # noqa: S603
        [sys.executable, *python_options, str(script), *options],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"},
    )


def require_shown(result, folder):
    """It succeeded, printed something, and wrote no file that it does not name."""
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) >= 4
    assert not re.search(r"\b(nan|inf)\b", result.stdout)
    written = re.findall(r"^wrote (.+)$", result.stdout, re.MULTILINE)
    assert sorted(path.name for path in folder.iterdir()) == sorted(written)
    assert all((folder / name).stat().st_size > 1000 for name in written)


@pytest.mark.parametrize("script", SCRIPTS, ids=[script.stem for script in SCRIPTS])
def test_the_first_sentence_says_how_to_run_it(script):
    summary = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))).split("\n\n")[0]
    assert f"`python examples/{script.name}`" in " ".join(summary.split())


def test_the_list_of_examples_is_complete():
    listed = set(
        re.findall(r"\]\((\w+\.(?:py|ipynb))\)", (FOLDER / "README.md").read_text(encoding="utf-8"))
    )
    assert listed == {path.name for path in (*SCRIPTS, NOTEBOOK)}


@pytest.mark.parametrize("script", PLAIN, ids=[script.stem for script in PLAIN])
def test_an_example_runs(script, tmp_path):
    result = run(script, tmp_path)
    require_shown(result, tmp_path)
    if memory := re.search(r"largest memory of this program was ([\d,]+) MB", result.stdout):
        assert int(memory[1].replace(",", "")) < LARGEST_MEMORY


@pytest.mark.data
def test_the_example_with_published_weights_runs(data_folder, tmp_path):
    require_shown(run(WITH_DATA, tmp_path, "--data", data_folder, "--no-download"), tmp_path)


def test_missing_data_are_named_and_nothing_is_written(tmp_path):
    result = run(WITH_DATA, tmp_path, "--data", str(tmp_path / "empty"), "--no-download")
    assert result.returncode == 1
    assert "weights/resnet20-12fca82f.th is not in" in result.stderr
    assert "LAPLACEBRIDGE_DATA" in result.stderr
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.crosscheck
@pytest.mark.parametrize("script", WITH_TRANSFORMERS, ids=lambda script: script.stem)
def test_an_example_with_a_hugging_face_model_runs(script, tmp_path):
    pytest.importorskip(
        "tokenizers", reason="needs transformers: `pip install -c constraints.txt transformers`"
    )
    # what transformers imports uses what Python has deprecated
    require_shown(run(script, tmp_path, python_options=()), tmp_path)


def test_the_notebook_is_kept_without_outputs():
    """They would be old the next day, and nobody can read them in a difference between
    two versions.
    """
    cells = [
        cell for cell in nbformat.read(NOTEBOOK, as_version=4).cells if cell.cell_type == "code"
    ]
    assert len(cells) >= 8
    assert all(not cell.outputs and cell.execution_count is None for cell in cells)


def test_the_notebook_runs_and_its_claims_hold(tmp_path, monkeypatch):
    """Its claims are assertions, so that running it checks them. Anything on its
    standard error is a warning.
    """
    for name, value in {"OMP_NUM_THREADS": "1", "IPYTHONDIR": str(tmp_path / "ipython")}.items():
        monkeypatch.setenv(name, value)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [
        output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs
    ]
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    printed = [output for output in outputs if output.get("name") == "stdout"]
    assert len(pictures) >= 7
    assert len(printed) >= 4
