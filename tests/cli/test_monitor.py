"""`laplacebridge monitor`: a baseline is made, an unchanged batch passes, a changed one
ends with a code of its own.
"""

import json

import numpy as np
import pytest
from cli_project import MODEL, examples

from laplacebridge.report.monitor import Baseline

CHANGED = 3


@pytest.fixture(scope="module")
def baseline(run, fitted, tmp_path_factory):
    path = tmp_path_factory.mktemp("monitored") / "baseline.json"
    made = run("monitor", fitted.path, "held_out.npz", *MODEL, "--save-baseline", path)
    assert made.returncode == 0, made.stderr
    assert made.stderr == f"{path}: baseline of 120 examples\n"
    return path


def test_an_unchanged_batch_passes(call, fitted, baseline):
    result = call("monitor", fitted.path, "test.npz", *MODEL, "--baseline", baseline)
    assert result.exit_code == 0, result.output
    assert result.stderr.startswith("No alarm: nothing shows that this batch differs")
    assert result.stderr.count("(p = ") == 4


def test_a_changed_batch_ends_with_a_code_of_its_own(call, fitted, baseline, tmp_path):
    inputs, _ = examples(60, seed=1)
    np.savez(tmp_path / "new.npz", inputs=(3 * inputs + 2).double().numpy())  # without labels
    given = ("monitor", fitted.path, tmp_path / "new.npz", *MODEL, "--baseline", baseline)
    result = call(*given)
    assert result.exit_code == CHANGED
    assert result.stderr.startswith("ALARM: this batch is not like the baseline (60 examples).")
    assert "\n  ! " in result.stderr
    as_json = call(*given, "--json")
    assert as_json.exit_code == CHANGED
    found = json.loads(as_json.stdout)
    assert found["alarm"] is True
    assert min(test["p_value"] for test in found["tests"]) < 0.01


def test_the_rate_of_alarms_is_the_users(call, fitted, baseline, tmp_path):
    """A quarter of the batch has changed: seen at a rate of 50 %, not at one in a
    trillion.
    """
    inputs, _ = examples(60, seed=1)
    inputs[:15] = 4 * inputs[:15]
    np.savez(tmp_path / "new.npz", inputs=inputs.double().numpy())
    given = ("monitor", fitted.path, tmp_path / "new.npz", *MODEL, "--baseline", baseline)
    assert call(*given, "--alarm-rate", "0.5").exit_code == CHANGED
    assert call(*given, "--alarm-rate", "1e-12").exit_code == 0


def test_features_and_thresholds_of_deferring_are_taken(call, fitted, tmp_path):
    path = tmp_path / "baseline.json"
    given = ("monitor", fitted.path, "held_out_features.npz", "--save-baseline", path)
    assert call(*given, "--defer-above", "0.01").exit_code == 0
    strict = Baseline.load(path)
    assert strict.defer_above == 0.01
    assert call(*given).exit_code == 2  # it is there
    assert Baseline.load(path) == strict
    assert call(*given, "--force").exit_code == 0
    assert Baseline.load(path).deferred < strict.deferred


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ((), 2, "give one of them"),
        (("--baseline", "{baseline}", "--save-baseline", "b.json"), 2, "give one of them"),
        (("--baseline", "classes.txt"), 1, "is no baseline"),
        (("--baseline", "nowhere.json"), 2, "nowhere.json"),
        (("--save-baseline", "no/such/folder/b.json"), 2, "no folder"),
    ],
    ids=["neither", "both", "no baseline", "no file", "no folder"],
)
def test_what_is_wrong_is_said_in_one_message(call, fitted, baseline, options, code, message):
    given = (str(option).format(baseline=baseline) for option in options)
    result = call("monitor", fitted.path, "test.npz", *MODEL, *given)
    assert result.exit_code == code
    assert message in result.stderr
    assert "Traceback" not in result.stderr
