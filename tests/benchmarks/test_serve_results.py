"""Parts of the load benchmark merge into what is stored, and the page says what holds."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import bench_serve
import serve_tables


def load_row(model, way, ratio, rate=100.0):
    figures = {"requests/s": rate, "p50, ms": 10.0, "p99, ms": 50.0, "p99 / p50": 5.0}
    return {
        "model": model, "way": way, "clients": 64, **figures, "answers / this": ratio, "failed": 0,
    }  # fmt: skip


def bad_row(model):
    return {"model": model, "good requests failed": 0, "p99 with / without": 1.2}


def test_a_part_replaces_its_own_rows_alone_and_goals_follow():
    first = bench_serve.merged({}, {"load": [load_row("mlp", "one by one", 4.0)]})
    assert [line["met"] for line in first["targets"]] == [True]
    second = bench_serve.merged(
        first,
        {
            "load": [load_row("cnn", "answers", 1.0), load_row("cnn", "bare network", 0.7)],
            "bad clients": [bad_row("cnn")],
        },
    )
    assert [row["model"] for row in second["load"]] == ["cnn", "cnn", "mlp"]
    met = {line["what"]: line["met"] for line in second["targets"]}
    assert met["MLP, K = 1000, 64 clients: batches over one by one"]
    assert not met["CNN, K = 10, 64 clients: all answers over the bare network"]
    assert not met["CNN, 64 clients: p99 over p50"]
    assert len(met) == 5
    again = bench_serve.merged(second, {"load": [load_row("mlp", "one by one", 2.0)]})
    assert not {line["what"]: line["met"] for line in again["targets"]}[
        "MLP, K = 1000, 64 clients: batches over one by one"
    ]
    assert again["bad clients"] == second["bad clients"]


def test_the_page_shows_rows_and_verdicts_or_that_nothing_was_measured():
    assert "Not measured yet" in serve_tables.serving({})
    stored = bench_serve.merged({}, {"load": [load_row("cnn", "bare network", 0.7)]})
    page = serve_tables.serving({"serve": stored})
    assert "| bare network | 64 | 100 | 10 | 50 | 5 | 0.7 | 0 |" in page
    assert "over the bare network | ≥ 0.75 | 0.7 | **no** |" in page
