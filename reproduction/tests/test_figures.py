"""Figures of the paper in their smallest form: they are computed, stored as JSON and
shown from it.
"""

import csv
import json
import warnings

import numpy as np
import pytest
from scipy import integrate, stats

from laplacebridge_reproduction import figure4_limits, figure5_measured, style
from laplacebridge_reproduction.artifact import PROFILES, Run, csv_of, latex_of, reproduced, text_of
from laplacebridge_reproduction.catalogue import ARTIFACTS


@pytest.fixture(scope="module")
def records():
    """Every artifact in the smoke profile, as read back from JSON."""
    return {name: _computed(artifact) for name, artifact in ARTIFACTS.items()}


def _computed(artifact):
    return json.loads(json.dumps(reproduced(artifact, Run("smoke", progress=False))))


@pytest.mark.parametrize("name", ARTIFACTS)
def test_an_artifact_says_where_its_numbers_come_from_and_is_shown_from_json(
    name, records, tmp_path
):
    record, artifact = records[name], ARTIFACTS[name]
    assert record["artifact"] == name
    assert record["profile"] == "smoke"
    assert {"laplacebridge", "torch", "numpy"} <= set(record["versions"])
    assert "|---" in text_of(artifact, record)
    assert r"\begin{tabular}" in latex_of(artifact, record)
    assert (
        len(set(map(len, csv.reader(csv_of(artifact, record).split("\n\n")[0].splitlines())))) == 1
    )
    assert artifact.finding(record["result"]) in text_of(artifact, record)
    if artifact.figure is not None:
        path = tmp_path / "figure.png"
        artifact.figure(record["result"]).savefig(path)
        assert path.stat().st_size > 5000


@pytest.mark.parametrize("name", ARTIFACTS)
def test_the_same_seed_gives_the_same_numbers(name, records):
    assert without_times(_computed(ARTIFACTS[name])) == without_times(records[name])


def without_times(value):
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key != "seconds"}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def test_figure_5_gives_the_divergences_that_the_authors_stored(records):
    found = [
        entry["bridges"]["LB as in the figure"]
        for entry in records["figure5"]["result"]["gaussians"]
    ]
    np.testing.assert_allclose([entry["kl"] for entry in found], (0.090, 0.705, 1.756), rtol=0.03)
    np.testing.assert_allclose(found[0]["alpha"], [6.667] * 3, rtol=1e-3)
    np.testing.assert_allclose(found[1]["alpha"], [4.908, 0.561, 0.561], rtol=2e-3)
    np.testing.assert_allclose(found[2]["alpha"], [2.787, 1.394, 0.911], rtol=1e-3)


def test_figure_5_counts_the_samples_that_the_authors_procedure_counts():
    result = figure5_measured.compute(Run("small", progress=False))
    counts = [
        figure5_measured.overtaken_at(entry, "LB as in the figure") for entry in result["gaussians"]
    ]
    assert counts[0] == 25_000
    assert counts[1] in {5_000, 7_500}
    assert counts[2] in {250, 500, 750}
    assert (
        figure5_measured.overtaken_at(result["gaussians"][0], "race") is None
    )  # 100 000 samples do not catch up


def test_figure_3_shows_that_the_plain_bridge_stays_as_sure_as_the_network_far_from_the_data(
    records,
):
    confidence = records["figure3"]["result"]["confidence"]
    for structure, found in confidence.items():
        sampled = np.array(found["samples"])
        gaps = {name: np.abs(np.array(values) - sampled).mean() for name, values in found.items()}
        assert max(gaps["race"], gaps["LB-norm"]) < gaps["LB"], structure
        if (
            "all layers" not in structure
        ):  # 100 epochs leave so much variance there that even LB is less sure
            assert gaps["race"] < gaps["LB-norm"], structure
            assert gaps["LB"] == pytest.approx(gaps["MAP"], rel=0.2)


def test_figure_2_has_no_plain_approximation_without_a_mode(records):
    first, second, third = records["figure2"]["result"]["distributions"]
    assert first["laplace"] is None
    assert second["laplace"] is not None
    for entry in (first, second, third):
        assert entry["distance"] < 0.1


def test_figure_8_shows_that_the_correction_makes_the_variance_count(records):
    surfaces = records["figure8"]["result"]["log_alpha"]
    fall = {
        name: np.array(surface)[0] - np.array(surface)[-1] for name, surface in surfaces.items()
    }
    assert (fall["LB-norm"][1:] > fall["LB"][1:]).all()
    assert (fall["race"][1:] > fall["LB"][1:]).all()


def test_an_unknown_profile_is_named():
    with pytest.raises(ValueError, match=f"one of {', '.join(PROFILES)}; got 'large'"):
        Run("large")


def test_figure_4_shows_where_the_bridge_fails_and_ours_does_not(records):
    for case in records["figure4"]["result"]["cases"]:
        found = case["bridges"]
        error = {
            name: abs(one["alpha"] / (one["alpha"] + one["beta"]) - case["expected"])
            for name, one in found.items()
        }
        assert error["race"] < 0.002
        if case["variance"] > 1:
            assert error["LB"] > 0.007
            assert found["race"]["distance"] < found["LB"]["distance"]


def test_figure_4_has_the_authors_gaussians_with_the_truth_beside_them(records):
    """Means that others computed from the parameters in the authors' notebook."""
    theirs = [
        case for case in records["figure4"]["result"]["cases"] if case["whose"] == "the authors'"
    ]
    means = {
        name: [
            case["bridges"][name]["alpha"]
            / (case["bridges"][name]["alpha"] + case["bridges"][name]["beta"])
            for case in theirs
        ]
        for name in ("LB", "LB-norm", "race")
    }
    np.testing.assert_allclose([case["expected"] for case in theirs], (0.259, 0.992), atol=6e-4)
    np.testing.assert_allclose(means["LB"], (0.058, 1.000), atol=6e-4)
    np.testing.assert_allclose(means["LB-norm"], (0.195, 0.994), atol=6e-4)
    np.testing.assert_allclose(means["race"], (0.259, 0.992), atol=6e-4)


@pytest.mark.parametrize(("alpha", "beta"), [(2.0, 3.0), (0.5, 0.9), (60.0, 0.01)])
def test_distances_count_tails_however_long(alpha, beta):
    """By an integral that goes as far as the longest tail does."""
    law = stats.norm(1.0, 1.5)
    logits = np.linspace(-3000, 3000, 2_000_001)
    gap = np.abs(figure4_limits.density(alpha, beta, logits) - law.pdf(logits))
    expected = integrate.trapezoid(gap, logits) / 2
    assert figure4_limits.distance(alpha, beta, law) == pytest.approx(expected, abs=2e-4)


def test_the_rescaled_gaussian_has_the_variance_of_eq_14(records):
    """Four, for two classes: c makes the mean of the variances sqrt(K/2), and log-odds
    are a difference of two logits that sum to zero.
    """
    for case in records["figure4"]["result"]["cases"]:
        assert case["rescaled"]["variance"] == pytest.approx(4)
        assert case["rescaled"]["mean"] == pytest.approx(
            2 * case["mean"] / case["variance"] ** 0.5, rel=1e-4
        )


def test_figure_5_says_how_many_times_longer_samples_take():
    gaussian = {
        "bridges": {"LB": {"kl": 0.5}, "race": {"kl": 0.001}},
        "samples": [{"size": 10, "kl": [2.0]}, {"size": 100, "kl": [0.4, 0.5]}],
        "seconds": {"1": {name: {"median": value} for name, value in (("LB", 2.0), ("100", 1.0))}},
    }
    assert figure5_measured.overtaken_at(gaussian, "LB") == 100
    assert figure5_measured.time_factor(gaussian, "LB", 1) == 0.5  # samples win
    assert figure5_measured.time_factor(gaussian, "race", 1) is None


def test_figure_8_has_one_scale_of_colours(records):
    drawn = ARTIFACTS["figure8"].figure(records["figure8"]["result"])
    limits = {
        collection.get_clim()
        for axes in drawn.axes[:3]
        for collection in axes.collections
        if collection.get_array() is not None and collection.get_array().size
    }
    assert len(limits) == 1
    for axes in drawn.axes[:3]:
        assert axes.get_xlim() == axes.get_ylim() == (1, 10)


@pytest.mark.parametrize("name", ["figure6", "figure7"])
def test_legends_stand_beside_the_curves(name, records):
    """None lies inside the axes of curves."""
    with style.applied():
        drawn = ARTIFACTS[name].figure(records[name]["result"])
    assert not any(axes.get_legend() and axes.axison for axes in drawn.axes)
    labels = {text.get_text() for legend in drawn.legends for text in legend.get_texts()}
    titles = {axes.get_title().split(":")[0] for axes in drawn.axes}
    assert "LB-norm" in labels | titles


@pytest.mark.parametrize("name", [name for name, one in ARTIFACTS.items() if one.figure])
def test_figures_are_as_wide_as_a_page_and_have_all_their_letters(name, records, tmp_path):
    with style.applied(), warnings.catch_warnings():
        warnings.simplefilter("error")  # a letter that the font does not have
        drawn = ARTIFACTS[name].figure(records[name]["result"])
        drawn.savefig(tmp_path / "figure.png")
    assert drawn.get_figwidth() == style.PAGE
