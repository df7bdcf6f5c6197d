"""The benchmarks of speed run from end to end; nothing here is about how fast."""

import itertools
import json
import math
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
BRIDGES = ("laplace_bridge", "one_vs_rest_bridge", "race_bridge")


def quick(script, folder):
    output = folder / "results.json"
    command = [sys.executable, str(BENCHMARKS / script), "--quick", "--output", str(output)]
    subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603  # our own script
    return json.loads(output.read_text())


@pytest.fixture(scope="module")
def scaling(tmp_path_factory):
    return quick("bench_scaling.py", tmp_path_factory.mktemp("scaling"))


@pytest.fixture(scope="module")
def laplace_torch(tmp_path_factory):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its dependencies use what torch has deprecated
        # a module inside, because the folder tests/laplace is importable as `laplace`
        # too
        pytest.importorskip(
            "laplace.baselaplace", reason="needs laplace-torch: see requirements/crosscheck.txt"
        )
    return quick("bench_laplace_torch.py", tmp_path_factory.mktemp("laplace_torch"))


def check_complete(results, script):
    assert results["command"] == f"python benchmarks/{script} --quick"
    assert results["machine"]["threads"] == 1
    for row in results["rows"]:
        for value in row.values():
            assert isinstance(value, str | int) or math.isfinite(value)
    for line in results["targets"]:
        assert line.keys() == {"what", "target", "measured", "met"}
        assert math.isfinite(line["measured"])


def with_values(rows, **wanted):
    return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]


def test_predictions_are_measured_for_every_structure_and_method(tmp_path):
    found = quick("bench_prediction.py", tmp_path)
    places = {(row["structure"], row["classes"], row["method"]) for row in found["from_features"]}
    methods = (
        "head",
        "posterior",
        "product with a D × D matrix",
        "OOD score",
        "laplace",
        "one-vs-rest mean",
        "one-vs-rest",
        "race mean",
        "race",
        "race, predicted",
        "interval for every class",
    )
    assert places == set(itertools.product(("Diag", "DiagKron", "Kron"), (10, 100, 1000), methods))
    assert {row["method"] for row in found["one_example"]} == {
        "one-vs-rest mean",
        "one-vs-rest",
        "race",
    }
    assert {row["method"] for row in found["resnet"]} == {"one-vs-rest", "race"}
    assert len(found["targets"]) == 9 + 3 * 3  # an interval for each structure and size


def test_fits_and_choices_of_a_prior_are_measured(tmp_path):
    found = quick("bench_fit.py", tmp_path)
    assert {row["structure"] for row in found["fitting"]} == {"Diag", "DiagKron", "Kron"}
    assert {(row["classes"], row["candidates"]) for row in found["choosing"]} == {
        (10, 50),
        (100, 50),
        (1000, 50),
    }
    assert {row["classes"] for row in found["width_rule"]} == {10, 100, 1000}
    assert len(found["targets"]) == 8


def test_scaling_measures_every_structure_and_bridge(scaling):
    check_complete(scaling, "bench_scaling.py")
    for structure, bridge in itertools.product(("Diag", "DiagKron", "Kron"), BRIDGES):
        rows = with_values(scaling["rows"], what="predict", structure=structure, bridge=bridge)
        assert len({row["classes"] for row in rows if "processor min, ms" in row}) >= 3
        assert all(row["peak / output"] >= 0 for row in rows)
        (exponent,) = with_values(
            scaling["rows"], what="exponent", structure=structure, bridge=bridge, against="classes"
        )
        assert f"exponent of time in K, {structure}, {bridge}" in {
            line["what"] for line in scaling["targets"]
        }
        assert exponent["most"] == pytest.approx(2.05 if structure == "Kron" else 1.05)


def test_scaling_measures_fits_and_whole_processes(scaling):
    fits = with_values(scaling["rows"], what="fit", part="sums")
    assert {(row["structure"], row["examples"]) for row in fits} == set(
        itertools.product(("Diag", "Kron"), (8, 16, 32))
    )
    whole = with_values(scaling["rows"], what="load and predict")
    assert [row["structure"] for row in whole] == ["Diag", "DiagKron"]
    assert all(row["whole process, MB"] >= row["after import, MB"] > 0 for row in whole)


@pytest.mark.crosscheck
def test_laplace_torch_and_this_library_agree_and_are_timed(laplace_torch):
    check_complete(laplace_torch, "bench_laplace_torch.py")
    rows = laplace_torch["rows"]
    for what, theirs, ours in (
        ("predict", "bridge_norm", {"laplace_bridge_norm", "one_vs_rest_bridge", "race_bridge"}),
        ("fit", "fit", {"fit", "fit without decomposition"}),
    ):
        (their_row,) = with_values(rows, what=what, library="laplace-torch", method=theirs)
        assert their_row["peak, MB"] >= 0
        assert their_row["repetitions"] >= 3
        assert {
            row["method"] for row in with_values(rows, what=what, library="laplacebridge")
        } == ours
    (fast,) = with_values(rows, what="fast path", library="laplace-torch")
    assert fast["method"] == "functional_variance_fast"
    compared = {
        row["of"]: row["relative difference"] for row in with_values(rows, what="agreement")
    }
    assert compared.keys() == {
        "mean of logits",
        "variance of logits",
        "variance by the fast path",
        "bridge_norm",
        "probit",
        "evidence",
    }
    assert max(compared.values()) <= 1e-3
    assert (
        with_values(rows, what="refused", library="laplace-torch")[0]["answer"] == "answered"
    )  # tiny, so it fits


@pytest.mark.crosscheck
def test_collecting_while_a_model_generates_is_measured(tmp_path):
    pytest.importorskip("tokenizers", reason="needs the extra `transformers`")
    found = quick("bench_generate.py", tmp_path)
    assert found["machine"]["threads"] == 1
    assert [row["batch"] for row in found["rows"]] == [1, 4]
    for row in found["rows"]:
        assert 0 < row["seconds_per_step"] < math.inf
        assert 0 < row["ratio"] < math.inf
