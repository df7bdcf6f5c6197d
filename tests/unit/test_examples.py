"""Every example runs as its first line says, without a warning, and has something to show."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=[example.stem for example in EXAMPLES])
def test_an_example_runs(example, tmp_path):
    assert f"`python examples/{example.name}`" in example.read_text(encoding="utf-8").splitlines()[0]
    result = subprocess.run(  # noqa: S603
        [sys.executable, "-W", "error", str(example)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) >= 4
    assert "nan" not in result.stdout
    assert list(tmp_path.iterdir()) == []  # and leaves nothing behind
