"""Beta marginals: the curves are the densities, also at the ends of what a Dirichlet
can be.
"""

import itertools

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import laplacebridge as lb
from laplacebridge.report import plots


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


@pytest.mark.parametrize(
    "concentration", [(6.0, 3.0, 1.5), (300.0, 20.0, 4.0), (0.4, 0.7, 2.0)], ids=str
)
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


@pytest.mark.parametrize(
    "alphas", list(itertools.combinations_with_replacement(EXTREMES, 2)), ids=str
)
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
    ax = plots.beta_marginals(
        row_of(1.0, 6.0, 3.0), class_names=["cat", "dog", "owl"], top=2, ax=new_axes()
    )
    assert legend_texts(ax) == ["dog 0.6", "owl 0.3"]
    assert legend_texts(plots.beta_marginals(row_of(1.0, 1e6), ax=new_axes())) == [
        "class 1 > 0.99",
        "class 0 1e-06",
    ]


@pytest.mark.parametrize("name", ["$x^2$", "_hidden", "100 % & <b>", "$", r"\frac", "naïve"])
def test_names_are_shown_as_they_are_written(name):
    ax = drawn(plots.beta_marginals(row_of(2.0, 2.0), class_names=[name, name], ax=new_axes()))
    assert legend_texts(ax) == [f"{name} 0.5"] * 2
    assert not any(text.get_parse_math() for text in ax.get_legend().get_texts())


def test_long_names_are_cut():
    ax = plots.beta_marginals(
        row_of(2.0, 2.0), class_names=["a very long name " * 5, "b\nc\0d"], ax=new_axes()
    )
    assert legend_texts(ax) == ["a very long name a very lon… 0.5", "b c d 0.5"]


def test_marginals_need_one_finite_row_and_all_names():
    with pytest.raises(lb.errors.ShapeError, match="needs one row; got 2"):
        plots.beta_marginals(lb.Dirichlet(torch.zeros(2, 3)))
    with pytest.raises(ValueError, match="finite concentrations"):
        plots.beta_marginals(lb.Dirichlet(torch.tensor([[0.0, torch.nan]])))
    with pytest.raises(lb.errors.ShapeError, match="each of 3 classes; got 2"):
        plots.beta_marginals(row_of(1.0, 2.0, 3.0), class_names=["a", "b"])
    with pytest.raises(lb.errors.ShapeError, match="classes from 0 to 1"):
        plots.beta_marginals(row_of(1.0, 2.0), classes=[2])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_marginals_of_any_type_can_be_drawn(dtype):
    ax = drawn(plots.beta_marginals(row_of(6.0, 3.0).to(dtype), ax=new_axes()))
    assert legend_texts(ax) == ["class 0 0.67", "class 1 0.33"]
