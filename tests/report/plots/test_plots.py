"""Plots: the numbers they show are those of the metrics, also at the ends of what a
Dirichlet can be.
"""

from dataclasses import replace

import matplotlib
import numpy as np
import pytest
import scipy.stats
import torch
from cases import seeded
from matplotlib import pyplot
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

import laplacebridge as lb
from laplacebridge import metrics, scores
from laplacebridge.report import plots
from laplacebridge.report.evaluation import PriorCurve
from laplacebridge.report.plots._drawing import COLOURS
from laplacebridge.report.table import COLUMNS
from laplacebridge.sets import ClassSets

CURVE = PriorCurve((0.1, 1.0, 10.0), (0.5, 0.3, 0.4), chosen=1.0, meaning="validation NLL")
SETS = ClassSets.from_lists([[0], [1], [1], [2, 0], [0, 1, 2]], num_classes=3)

# every plot, drawn from an evaluation
PLOTS = {
    "reliability_diagram": lambda found, ax: plots.reliability_diagram(
        found.prediction, found.labels, ax=ax
    ),
    "risk_coverage": lambda found, ax: plots.risk_coverage(
        (scores.msp(found.prediction), metrics.correct(found.prediction, found.labels)), ax=ax
    ),
    "score_histograms": lambda found, ax: plots.score_histograms(
        scores.msp(found.prediction), found.scores[0].ood_scores, ax=ax
    ),
    "set_size_histogram": lambda found, ax: plots.set_size_histogram(
        lb.sets.overlap_sets(found.prediction, 0.05), found.labels, ax=ax
    ),
    "interval_check": lambda found, ax: plots.interval_check(found.intervals.bins, ax=ax),
    "uncertainty_parts": lambda found, ax: plots.uncertainty_parts(found.uncertainty, ax=ax),
    "beta_marginals": lambda found, ax: plots.beta_marginals(found.prediction[0].dirichlet, ax=ax),
    "prior_curve": lambda found, ax: plots.prior_curve(found.prior, ax=ax),
    "distances": lambda found, ax: plots.distances(found.rows, ax=ax),
    "times": lambda found, ax: plots.times(found.rows, ax=ax),
}
EVERY_PLOT = pytest.mark.parametrize("draw", PLOTS.values(), ids=PLOTS.keys())


def new_axes():
    return Figure(layout="constrained").subplots()


def drawn(ax):
    """The same axes after drawing, which finds what cannot be drawn."""
    FigureCanvasAgg(ax.figure).draw()
    return ax


def legend_texts(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


@EVERY_PLOT
def test_a_plot_draws_where_it_is_told_and_leaves_figures_and_style_as_they_were(draw, evaluation):
    ax, figures, style = new_axes(), pyplot.get_fignums(), dict(matplotlib.rcParams)
    assert draw(evaluation, ax) is ax
    assert drawn(ax).get_xlabel()
    assert pyplot.get_fignums() == figures
    assert dict(matplotlib.rcParams) == style


@EVERY_PLOT
def test_a_plot_makes_one_figure_if_it_is_told_nothing(draw, evaluation):
    before = set(pyplot.get_fignums())
    ax = draw(evaluation, None)
    assert len(set(pyplot.get_fignums()) - before) == 1
    assert ax.figure.number in pyplot.get_fignums()
    pyplot.close(ax.figure)


@EVERY_PLOT
def test_lines_that_are_no_data_take_the_colour_of_text(draw, evaluation):
    with matplotlib.rc_context({"text.color": "#123456", "axes.edgecolor": "#123456"}):
        ax = draw(evaluation, new_axes())
    colours = {to_rgb(line.get_color()) for line in ax.lines}
    assert colours <= {to_rgb(colour) for colour in (*COLOURS, "#123456")}


def test_a_reliability_diagram_has_a_dot_for_each_bin():
    probabilities = torch.tensor(
        [[0.7, 0.3], [0.9, 0.1], [0.2, 0.8], [0.62, 0.38]], dtype=torch.float64
    )
    ax = plots.reliability_diagram(probabilities, [0, 0, 0, 1], num_bins=5, ax=new_axes())
    # (0.6, 0.8] holds 0.7, which is right, 0.62 and 0.8; (0.8, 1] holds 0.9, which is
    # right
    np.testing.assert_allclose(
        ax.collections[-1].get_offsets(), [[2.12 / 3, 1 / 3], [0.9, 1]], rtol=1e-12
    )
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], [0.75, 0.25])
    assert legend_texts(ax) == ["right answers, ECE 0.305", "examples"]


def test_the_interval_of_a_bin_is_wilsons():
    probabilities = torch.tensor([[0.7, 0.3]] * 10)
    ax = plots.reliability_diagram(probabilities, [0] * 8 + [1] * 2, ax=new_axes())
    interval = scipy.stats.binomtest(8, 10).proportion_ci(0.95, method="wilson")
    (segment,) = ax.collections[0].get_segments()
    np.testing.assert_allclose(segment[:, 1], [interval.low, interval.high], rtol=1e-4)


def test_a_risk_coverage_curve_is_that_of_the_metric():
    pair = (torch.tensor([0.1, 0.9, 0.5, 0.7]), torch.tensor([True, False, True, True]))
    ax = drawn(plots.risk_coverage(pair, ax=new_axes()))
    np.testing.assert_allclose(
        ax.lines[0].get_xydata(), [[0.25, 0], [0.5, 0], [0.75, 0], [1, 0.25]]
    )
    np.testing.assert_allclose(ax.lines[1].get_ydata(), [0.25, 0.25])
    assert ax.get_legend() is None


def test_a_long_curve_keeps_both_ends_and_few_points():
    values = torch.rand(5000, generator=seeded(0), dtype=torch.float64)
    ax = plots.risk_coverage({"a score": (values, values < 0.7)}, ax=new_axes())
    coverage, risk = ax.lines[0].get_data()
    assert len(coverage) == 400
    assert coverage[0] == 1 / 5000
    assert coverage[-1] == 1
    assert risk[-1] == pytest.approx((values >= 0.7).double().mean().item())
    assert legend_texts(ax) == ["a score"]


def test_a_curve_without_errors_has_an_axis():
    ax = drawn(
        plots.risk_coverage((torch.tensor([0.1, 0.2]), torch.tensor([True, True])), ax=new_axes())
    )
    assert ax.get_ylim() == (0.0, 1.0)


def test_no_curve_is_an_error():
    with pytest.raises(lb.errors.ShapeError, match="at least one curve"):
        plots.risk_coverage({})


def test_histograms_of_scores_share_bins_and_add_up_to_one():
    id_scores, ood_scores = torch.linspace(0, 1, 50), torch.linspace(0.5, 3, 20)
    ax = plots.score_histograms(id_scores, ood_scores, name="doubt", ax=new_axes())
    steps = [patch.get_data() for patch in ax.patches]
    for step in steps:
        np.testing.assert_allclose(step.values.sum(), 1, rtol=1e-12)
        np.testing.assert_allclose(step.edges, np.linspace(0, 3, 31), atol=1e-6)
    assert legend_texts(ax) == ["ordinary", "unusual"]
    assert ax.get_xlabel() == "doubt"


def test_scores_that_are_all_the_same_can_be_drawn():
    ax = drawn(plots.score_histograms(torch.full((5,), 0.25), ax=new_axes()))
    assert ax.patches[0].get_data().values.max() == 1
    assert ax.get_legend() is None


def test_infinite_scores_are_an_error():
    with pytest.raises(ValueError, match="finite scores"):
        plots.score_histograms(torch.tensor([0.0, -torch.inf]))


def test_set_sizes_are_counted_and_split_by_whether_they_hold_the_label():
    ax = drawn(plots.set_size_histogram(SETS, [0, 1, 0, 1, 2], ax=new_axes()))
    held, missed = ([bar.get_height() for bar in bars] for bars in ax.containers)
    np.testing.assert_allclose(held, [0.4, 0.0, 0.2])
    np.testing.assert_allclose(missed, [0.2, 0.2, 0.0])
    assert [text.get_text() for text in ax.texts] == ["67 %", "0 %", "100 %"]


def test_set_sizes_without_labels_are_only_counted():
    ax = plots.set_size_histogram(SETS, ax=new_axes())
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], [0.6, 0.2, 0.2])
    assert ax.get_legend() is None


def test_many_set_sizes_share_bars_of_the_same_width():
    sizes = torch.randint(1, 900, (2000,), generator=seeded(0))
    sets = ClassSets(torch.arange(int(sizes.sum())) % 1000, sizes, 1000)
    ax = plots.set_size_histogram(sets, ax=new_axes())
    assert len(ax.patches) <= 31
    np.testing.assert_allclose(sum(bar.get_height() for bar in ax.patches), 1)
    assert len({round(bar.get_width(), 6) for bar in ax.patches}) == 1


def test_no_sets_are_an_error():
    with pytest.raises(lb.errors.ShapeError, match="at least one example"):
        plots.set_size_histogram(ClassSets.from_lists([], num_classes=3))


def test_a_prior_curve_has_a_logarithmic_axis_and_marks_the_choice():
    ax = drawn(plots.prior_curve(CURVE, ax=new_axes()))
    assert ax.get_xscale() == "log"
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), [[0.1, 0.5], [1, 0.3], [10, 0.4]])
    np.testing.assert_array_equal(ax.lines[1].get_xdata(), [1, 1])
    assert legend_texts(ax) == ["chosen: 1"]
    assert ax.get_ylabel() == "validation NLL"


def test_what_the_scores_of_a_prior_curve_are_is_not_cut_off():
    meaning = "negative log likelihood of 12345 validation examples"
    figure = Figure(figsize=(4.0, 2.9), layout="constrained")  # as in the page
    ax = drawn(plots.prior_curve(replace(CURVE, meaning=meaning), ax=figure.subplots()))
    assert ax.get_ylabel().replace("\n", " ") == meaning
    box = ax.yaxis.label.get_window_extent()
    assert 0 <= box.y0 <= box.y1 <= figure.bbox.height


def test_hopeless_candidates_do_not_flatten_a_prior_curve():
    curve = PriorCurve(
        (0.01, 0.1, 1.0, 10.0, 1e6), (0.6, 0.5, 0.3, 0.4, 1e9), chosen=1.0, meaning="loss"
    )
    low, high = drawn(plots.prior_curve(curve, ax=new_axes())).get_ylim()
    assert low < 0.3
    assert 0.6 < high < 10


@pytest.mark.parametrize("score", [np.inf, np.nan], ids=str)
def test_candidates_without_a_finite_score_are_left_out(score):
    ax = drawn(plots.prior_curve(replace(CURVE, scores=(score, 0.3, 0.4)), ax=new_axes()))
    assert all(np.isfinite(ax.get_ylim()))


def test_bars_have_the_lengths_of_the_numbers_in_the_order_of_the_rows(evaluation):
    rows = [
        replace(row, microseconds=0.7 * 9.0**place) for place, row in enumerate(evaluation.rows[:4])
    ]
    far, long = plots.distances(rows, ax=new_axes()), plots.times(rows, ax=new_axes())
    np.testing.assert_allclose(
        [bar.get_width() for bar in far.patches], [row.distance for row in rows]
    )
    np.testing.assert_allclose(
        [bar.get_width() for bar in long.patches], [row.microseconds for row in rows]
    )
    heights = [bar.get_y() for bar in far.patches]
    assert heights == sorted(heights, reverse=True)
    assert (far.get_xscale(), long.get_xscale()) == ("linear", "log")
    assert long.get_xlim() == (0.1, 1000.0)


@pytest.mark.parametrize("column", ["distance", "microseconds"])
def test_numbers_of_bars_are_written_as_in_the_table(column, evaluation):
    rows = [
        replace(row, **{column: value})
        for row, value in zip(evaluation.rows, (1810.0, 0.0123, 2.5e7))
    ]
    ax = {"distance": plots.distances, "microseconds": plots.times}[column](rows, ax=new_axes())
    expected = [f"{row.method}: {COLUMNS[column].text(row.value(column))}" for row in rows]
    assert [text.get_text() for text in ax.texts] == expected


@pytest.mark.parametrize("draw", [plots.distances, plots.times], ids=["distances", "times"])
def test_bars_of_numbers_that_are_not_finite_are_only_text(draw, evaluation):
    odd = replace(evaluation.rows[0], distance=float("nan"), microseconds=float("inf"))
    ax = drawn(draw([odd, evaluation.rows[1]], ax=new_axes()))
    assert ax.patches[0].get_width() == 0
    assert ax.texts[0].get_text() in {"MAP: not a number", "MAP: ∞"}


def test_no_rows_are_an_error():
    with pytest.raises(lb.errors.ShapeError, match="at least one row"):
        plots.times([])
