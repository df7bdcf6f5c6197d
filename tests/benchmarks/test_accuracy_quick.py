"""The accuracy benchmark runs from end to end, and the documentation can be rendered
from what it writes.
"""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
METHODS = {
    "MAP",
    "probit",
    "probit, centred",
    "second order",
    "LB",
    "LB-norm",
    "LB centered",
    "delta",
    "KL",
    "one-vs-rest",
    "race",
    "MC-10",
    "MC-100",
    "MC-1000",
}
LINKS = {"MAP", "probit", "probit, centred", "second order"}
CLASSES = {2, 3, 10, 100}
REGIMES = {"small", "confident", "moderate", "high variance"}
STRUCTURES = {"isotropic", "heterogeneous", "Kronecker", "low rank", "correlated"}


def run(script, *arguments, check=True):
    command = [sys.executable, str(BENCHMARKS / script), *map(str, arguments)]
    return subprocess.run(command, check=check, capture_output=True, text=True)  # noqa: S603  # our own script


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    path = tmp_path_factory.mktemp("accuracy") / "accuracy.json"
    run("bench_accuracy.py", "--quick", "--processes", 1, "--output", path)
    return path


@pytest.fixture(scope="module")
def report(results):
    return json.loads(results.read_text())


def test_every_method_is_measured_on_every_structure_and_regime(report):
    measured = {
        (row["population"], row["regime"], row["num_classes"], row["method"])
        for row in report["rows"]
    }
    assert measured >= {
        (s, r, k, m) for s in STRUCTURES for r in REGIMES for k in CLASSES for m in METHODS
    }
    assert {row["method"] for row in report["rows"] if row["regime"] == "independent"} == METHODS
    assert {(row["num_classes"], row["method"]) for row in report["overall"]} == {
        (k, m) for k in CLASSES for m in METHODS
    }
    assert len(report["by_regime"]) == len(REGIMES) * len(report["overall"])


@pytest.mark.parametrize("table", ["rows", "by_regime", "overall"])
def test_figures_are_within_their_range(report, table):
    for row in report[table]:
        assert 0 <= row["tv_mean"] <= row["tv_worst"] <= 1
        assert row["num_gaussians"] > 0
        if row["method"] in LINKS:
            assert row["coverage"] is None
            assert row["excess_kl_median"] is None
        else:
            assert 0 <= row["coverage"] <= 1
            assert math.isfinite(row["excess_kl_median"])


def test_no_dirichlet_beats_the_best_one(report):
    excess = [
        row["excess_kl_median"] for row in report["rows"] if row["excess_kl_median"] is not None
    ]
    assert min(excess) > -1e-3  # zero up to the tolerance of the projection and of the differences


def test_exact_references_have_no_noise(report):
    for row in report["rows"]:
        assert (row["reference_noise"] == 0) == row["independent"]


def test_one_vs_rest_is_closer_than_the_laplace_bridge(report):
    error = {row["method"]: row["tv_mean"] for row in report["overall"] if row["num_classes"] == 10}
    assert error["one-vs-rest"] < error["LB"]


def test_says_what_was_measured_and_whether_it_suffices(report):
    assert report["command"].startswith("python benchmarks/bench_accuracy.py --quick")
    assert {"machine", "samples", "seed", "seconds"} <= set(report)
    assert report["processes"] == report["machine"]["threads"] == 1
    assert len(report["verdicts"]) == 6
    assert all(
        isinstance(verdict["holds"], bool) and verdict["figures"] for verdict in report["verdicts"]
    )


def test_renders_between_the_markers_only(results, report, tmp_path):
    document = tmp_path / "bridges.md"
    document.write_text(
        "# Bridges\n\n<!-- accuracy:begin -->\nold\n<!-- accuracy:end -->\n\nThe end.\n"
    )
    for _ in range(2):  # rendering again changes nothing
        run("render_accuracy.py", "--results", results, "--document", document)
        text = document.read_text()
        assert text.startswith("# Bridges\n\n<!-- accuracy:begin -->\n")
        assert text.endswith("<!-- accuracy:end -->\n\nThe end.\n")
        assert "old" not in text.splitlines()
        assert text.count("### Mean error over all structures and regimes") == 1
    assert report["verdicts"][0]["figures"] in text
    assert all(f"| {method} " in text for method in METHODS)


def test_rendering_creates_no_document(results, tmp_path):
    missing, unmarked = tmp_path / "missing.md", tmp_path / "unmarked.md"
    unmarked.write_text("no markers\n")
    for document in (missing, unmarked):
        outcome = run(
            "render_accuracy.py", "--results", results, "--document", document, check=False
        )
        assert outcome.returncode != 0
        assert "nothing was written" in outcome.stderr
    assert not missing.exists()
    assert unmarked.read_text() == "no markers\n"


def test_intervals_are_compared_with_known_probabilities(tmp_path):
    path = tmp_path / "intervals.json"
    run("bench_intervals.py", "--quick", "--output", path)
    rows = json.loads(path.read_text())["rows"]
    ours = [row for row in rows if row["method"].endswith("(default)")]
    assert {row["problem"] for row in ours} == {"lr2_400", "lr3_mis"}
    assert all(0.8 <= row["top 95%"] <= 1 for row in ours)
    misspecified = {row["method"]: row["top 95%"] for row in rows if row["problem"] == "lr3_mis"}
    assert misspecified["evidence"] < 0.7 < misspecified["held-out labels (default)"]


@pytest.mark.slow
def test_correlated_laws_are_measured_judged_and_rendered(tmp_path):
    path = tmp_path / "correlated.json"
    printed = run(
        "bench_accuracy.py", "--correlated", "--quick", "--processes", 1, "--output", path
    ).stdout
    report = json.loads(path.read_text())
    assert {row["method"] for row in report["rows"]} == METHODS | {"race without factors"}
    assert {row["regime"] for row in report["rows"]} == {
        "correlated",
        "correlated, seen",
        "held out",
    }
    raced = [row for row in report["rows"] if row["method"] == "race"]
    assert all(0 < row["estimate_mean"] < 1 for row in raced)
    assert all(0 <= row["sure_and_close"] <= row["sure"] <= row["num_gaussians"] for row in raced)
    assert len(report["verdicts"]) == 7
    assert "Laws that were written down afterwards" in printed
    assert "uneven blocks" in printed
