"""Plots: the numbers they show are those of the metrics, also at the ends of what a Dirichlet can be."""

import itertools
from dataclasses import replace

import matplotlib
import numpy as np
import pytest
import scipy.integrate
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
from laplacebridge.report.drawing import COLOURS, LINE_STYLES
from laplacebridge.report.evaluation import PriorCurve
from laplacebridge.sets import ClassSets

CURVE = PriorCurve((0.1, 1.0, 10.0), (0.5, 0.3, 0.4), chosen=1.0, meaning="validation NLL")
SETS = ClassSets.from_lists([[0], [1], [1], [2, 0], [0, 1, 2]], num_classes=3)

# every plot, drawn from an evaluation
PLOTS = {
    "reliability_diagram": lambda found, ax: plots.reliability_diagram(found.prediction, found.labels, ax=ax),
    "risk_coverage": lambda found, ax: plots.risk_coverage(
        (scores.msp(found.prediction), metrics.correct(found.prediction, found.labels)), ax=ax
    ),
    "score_histograms": lambda found, ax: plots.score_histograms(
        scores.msp(found.prediction), scores.msp(found.outside), ax=ax
    ),
    "set_size_histogram": lambda found, ax: plots.set_size_histogram(
        lb.overlap_sets(found.prediction), found.labels, ax=ax
    ),
    "beta_marginals": lambda found, ax: plots.beta_marginals(found.prediction[0], ax=ax),
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


def row_of(*concentration):
    return lb.Dirichlet.from_concentration(torch.tensor([concentration], dtype=torch.float64))


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
    probabilities = torch.tensor([[0.7, 0.3], [0.9, 0.1], [0.2, 0.8], [0.62, 0.38]], dtype=torch.float64)
    ax = plots.reliability_diagram(probabilities, [0, 0, 0, 1], num_bins=4, ax=new_axes())
    # (0.5, 0.75] holds 0.7, which is right, and 0.62; (0.75, 1] holds 0.9, which is right, and 0.8
    np.testing.assert_allclose(ax.collections[-1].get_offsets(), [[0.66, 0.5], [0.85, 0.5]], rtol=1e-12)
    np.testing.assert_allclose([bar.get_height() for bar in ax.patches], [0.5, 0.5])
    assert [text.get_text() for text in ax.texts] == ["ECE 0.255"]


def test_the_interval_of_a_bin_is_wilsons():
    probabilities = torch.tensor([[0.7, 0.3]] * 10)
    ax = plots.reliability_diagram(probabilities, [0] * 8 + [1] * 2, ax=new_axes())
    interval = scipy.stats.binomtest(8, 10).proportion_ci(0.95, method="wilson")
    (segment,) = ax.collections[0].get_segments()
    np.testing.assert_allclose(segment[:, 1], [interval.low, interval.high], rtol=1e-4)


def test_a_risk_coverage_curve_is_that_of_the_metric():
    pair = (torch.tensor([0.1, 0.9, 0.5, 0.7]), torch.tensor([True, False, True, True]))
    ax = drawn(plots.risk_coverage(pair, ax=new_axes()))
    np.testing.assert_allclose(ax.lines[0].get_xydata(), [[0.25, 0], [0.5, 0], [0.75, 0], [1, 0.25]])
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
    ax = drawn(plots.risk_coverage((torch.tensor([0.1, 0.2]), torch.tensor([True, True])), ax=new_axes()))
    assert ax.get_ylim() == (0.0, 1.0)


def test_no_curve_is_an_error():
    with pytest.raises(lb.ShapeError, match="at least one curve"):
        plots.risk_coverage({})


def test_histograms_of_scores_share_bins_and_add_up_to_one():
    inside, outside = torch.linspace(0, 1, 50), torch.linspace(0.5, 3, 20)
    ax = plots.score_histograms(inside, outside, name="doubt", ax=new_axes())
    steps = [patch.get_data() for patch in ax.patches]
    for step in steps:
        np.testing.assert_allclose(step.values.sum(), 1, rtol=1e-12)
        np.testing.assert_allclose(step.edges, np.linspace(0, 3, 31), atol=1e-6)
    assert legend_texts(ax) == ["in distribution", "strange"]
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
    with pytest.raises(lb.ShapeError, match="at least one example"):
        plots.set_size_histogram(ClassSets.from_lists([], num_classes=3))


@pytest.mark.parametrize("concentration", [(6.0, 3.0, 1.5), (300.0, 20.0, 4.0), (0.4, 0.7, 2.0)], ids=str)
def test_marginals_are_the_densities_of_beta_distributions(concentration):
    ax = plots.beta_marginals(row_of(*concentration), classes=[0, 1, 2], ax=new_axes())
    for alpha, line in zip(concentration, ax.lines):
        x, y = line.get_data()
        inside = (x > 0) & (x < 1) & (y < ax.get_ylim()[1])
        twin = scipy.stats.beta(alpha, sum(concentration) - alpha)
        np.testing.assert_allclose(y[inside], twin.pdf(x[inside]), rtol=1e-9)
        shown = twin.cdf(x[inside].max()) - twin.cdf(x[inside].min())
        assert scipy.integrate.trapezoid(y[inside], x[inside]) == pytest.approx(shown, abs=0.02)


EXTREMES = [10.0**power for power in (-30, -3, 0, 12, 38)]


@pytest.mark.parametrize("alphas", list(itertools.combinations_with_replacement(EXTREMES, 2)), ids=str)
def test_marginals_of_any_size_have_finite_curves_and_a_visible_top(alphas):
    row = row_of(*alphas, 1e-3)
    ax = drawn(plots.beta_marginals(row, ax=new_axes()))
    top = ax.get_ylim()[1]
    for line in ax.lines:
        x, y = line.get_data()
        assert np.isfinite(y).all()
        assert (np.diff(x) >= 0).all()
        assert y.max() >= top / 4
    assert len(legend_texts(ax)) == 3


def test_a_marginal_narrower_than_a_pixel_is_a_line_at_its_mean():
    ax = plots.beta_marginals(row_of(2e12, 1e12, 1e12), classes=[0, 1], ax=new_axes())
    for line, mean in zip(ax.lines, (0.5, 0.25)):
        np.testing.assert_allclose(line.get_xdata(), mean)
        assert (line.get_ydata().min(), line.get_ydata().max()) == ax.get_ylim()
    assert len(ax.get_yticks()) == 0


def test_a_spike_does_not_flatten_the_others():
    ax = plots.beta_marginals(row_of(30.0, 20.0, 1e-9), ax=new_axes())
    assert ax.get_ylim()[1] == pytest.approx(1.08 * scipy.stats.beta(30, 20).pdf(29 / 48), rel=1e-2)


def test_without_any_evidence_all_mass_is_seen_at_both_ends():
    ax = plots.beta_marginals(row_of(1e-3, 1e-3), classes=[0], ax=new_axes())
    x, y = ax.lines[0].get_data()
    assert (y[[0, -1]] > ax.get_ylim()[1]).all()
    assert y[(x > 0.1) & (x < 0.9)].max() < 0.01


def test_the_most_probable_classes_are_drawn_first_and_named_with_their_probability():
    ax = plots.beta_marginals(row_of(1.0, 6.0, 3.0), class_names=["cat", "dog", "owl"], top=2, ax=new_axes())
    assert legend_texts(ax) == ["dog 0.6", "owl 0.3"]
    assert legend_texts(plots.beta_marginals(row_of(1.0, 1e6), ax=new_axes())) == ["class 1 > 0.99", "class 0 1e-06"]


@pytest.mark.parametrize("name", ["$x^2$", "_hidden", "100 % & <b>", "$", r"\frac", "naïve"])
def test_names_are_shown_as_they_are_written(name):
    ax = drawn(plots.beta_marginals(row_of(2.0, 2.0), class_names=[name, name], ax=new_axes()))
    assert legend_texts(ax) == [f"{name} 0.5"] * 2
    assert not any(text.get_parse_math() for text in ax.get_legend().get_texts())


def test_long_names_are_cut():
    ax = plots.beta_marginals(row_of(2.0, 2.0), class_names=["a very long name " * 5, "b\nc\0d"], ax=new_axes())
    assert legend_texts(ax) == ["a very long name a very lon… 0.5", "b c d 0.5"]


def test_marginals_need_one_finite_row_and_all_names():
    with pytest.raises(lb.ShapeError, match="needs one row; got 2"):
        plots.beta_marginals(lb.Dirichlet(torch.zeros(2, 3)))
    with pytest.raises(ValueError, match="finite concentrations"):
        plots.beta_marginals(lb.Dirichlet(torch.tensor([[0.0, torch.nan]])))
    with pytest.raises(lb.ShapeError, match="each of 3 classes; got 2"):
        plots.beta_marginals(row_of(1.0, 2.0, 3.0), class_names=["a", "b"])
    with pytest.raises(lb.ShapeError, match="classes from 0 to 1"):
        plots.beta_marginals(row_of(1.0, 2.0), classes=[2])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_marginals_of_any_type_can_be_drawn(dtype):
    ax = drawn(plots.beta_marginals(row_of(6.0, 3.0).to(dtype), ax=new_axes()))
    assert legend_texts(ax) == ["class 0 0.67", "class 1 0.33"]


def test_a_prior_curve_has_a_logarithmic_axis_and_marks_the_choice():
    ax = drawn(plots.prior_curve(CURVE, ax=new_axes()))
    assert ax.get_xscale() == "log"
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), [[0.1, 0.5], [1, 0.3], [10, 0.4]])
    np.testing.assert_array_equal(ax.lines[1].get_xdata(), [1, 1])
    assert legend_texts(ax) == ["chosen: 1"]
    assert ax.get_ylabel() == "validation NLL"


def test_hopeless_candidates_do_not_flatten_a_prior_curve():
    curve = PriorCurve((0.01, 0.1, 1.0, 10.0, 1e6), (0.6, 0.5, 0.3, 0.4, 1e9), chosen=1.0, meaning="loss")
    low, high = drawn(plots.prior_curve(curve, ax=new_axes())).get_ylim()
    assert low < 0.3
    assert 0.6 < high < 10


@pytest.mark.parametrize("score", [np.inf, np.nan], ids=str)
def test_candidates_without_a_finite_score_are_left_out(score):
    ax = drawn(plots.prior_curve(replace(CURVE, scores=(score, 0.3, 0.4)), ax=new_axes()))
    assert all(np.isfinite(ax.get_ylim()))


def test_bars_have_the_lengths_of_the_numbers_in_the_order_of_the_rows(evaluation):
    rows = evaluation.rows
    far, long = plots.distances(rows, ax=new_axes()), plots.times(rows, ax=new_axes())
    np.testing.assert_allclose([bar.get_width() for bar in far.patches], [row.distance for row in rows])
    np.testing.assert_allclose([bar.get_width() for bar in long.patches], [row.microseconds for row in rows])
    assert [text.get_text().partition(":")[0] for text in far.texts] == [row.method for row in rows]
    heights = [bar.get_y() for bar in far.patches]
    assert heights == sorted(heights, reverse=True)
    assert (far.get_xscale(), long.get_xscale()) == ("linear", "log")
    assert long.get_xlim() == (0.1, 1000.0)


@pytest.mark.parametrize("draw", [plots.distances, plots.times], ids=["distances", "times"])
def test_bars_of_numbers_that_are_not_finite_are_only_text(draw, evaluation):
    odd = replace(evaluation.rows[0], distance=float("nan"), microseconds=float("inf"))
    ax = drawn(draw([odd, evaluation.rows[1]], ax=new_axes()))
    assert ax.patches[0].get_width() == 0
    assert ax.texts[0].get_text() in {"softmax of the mean: nan", "softmax of the mean: inf"}


def test_no_rows_are_an_error():
    with pytest.raises(lb.ShapeError, match="at least one row"):
        plots.times([])


def luminance(colour):
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


@pytest.mark.parametrize("ground", ["#ffffff", "#f6f7f8", "#15181c", "#1d2126"])
def test_colours_stand_out_on_light_and_dark_ground(ground):
    for colour in COLOURS:
        low, high = sorted([luminance(colour), luminance(ground)])
        assert (high + 0.05) / (low + 0.05) >= 3


# what the three kinds of colour blindness make of linear RGB (Machado, Oliveira and Fernandes 2009, severity 1)
DEFICIENCIES = {
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
TO_XYZ = [[0.4338, 0.3762, 0.1899], [0.2127, 0.7152, 0.0722], [0.0178, 0.1095, 0.8728]]  # relative to white


def lightness_and_hue(colour, deficiency):
    """CIELAB as seen with a deficiency."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
    x, y, z = np.cbrt(np.array(TO_XYZ) @ np.clip(np.array(DEFICIENCIES[deficiency]) @ linear, 0, 1))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
def test_colours_differ_for_colour_blind_readers_and_lines_differ_without_any_colour(deficiency):
    seen = [lightness_and_hue(colour, deficiency) for colour in COLOURS]
    nearest = min(np.linalg.norm(one - other) for one, other in itertools.combinations(seen, 2))
    assert nearest > 10  # a difference of 2 can just be seen
    assert len(set(LINE_STYLES)) == len(COLOURS)
