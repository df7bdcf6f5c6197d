"""Predictions: one mean in both views, intervals that hold for classes of every rank,
accepted everywhere.
"""

import numpy as np
import pytest
import torch
from cases import gaussian, seeded

import laplacebridge as lb
from laplacebridge.bridges import BRIDGES

SAMPLES = 20_000


def confident(num_classes, rows=40, seed=0):
    """Logits of a confident network: some classes stand out, variances differ."""
    generator = seeded(seed)
    mean = 2.5 * torch.randn(rows, num_classes, generator=generator, dtype=torch.float64)
    variance = (
        torch.exp(torch.randn(rows, num_classes, generator=generator, dtype=torch.float64)) / 4
    )
    return lb.LogitGaussian(mean, lb.Diagonal(variance))


@pytest.mark.parametrize("num_classes", [3, 10, 100])
def test_intervals_hold_samples_of_classes_of_every_rank(num_classes):
    logits = confident(num_classes)
    lower, upper = lb.predict(logits).interval(0.95)
    drawn = logits.mean + logits.variance.sqrt() * torch.randn(
        2000, *logits.mean.shape, generator=seeded(1), dtype=torch.float64
    )
    inside = (drawn.softmax(-1) >= lower) & (drawn.softmax(-1) <= upper)
    held = (
        inside.double().mean(0).gather(-1, logits.mean.argsort(-1, descending=True)).mean(0)
    )  # by rank
    assert 0.93 <= held[0] <= 0.97
    assert 0.93 <= held[1:].mean() <= 0.97
    if num_classes > 50:
        assert (
            0.93 <= held[50:].mean() <= 0.97
        )  # where the Beta marginals of a Dirichlet hold hardly anything


def test_the_marginals_of_a_dirichlet_hold_for_the_top_class_alone():
    logits = confident(100)
    dirichlet = lb.predict(logits).dirichlet
    drawn = (
        logits.mean
        + logits.variance.sqrt()
        * torch.randn(500, *logits.mean.shape, generator=seeded(1), dtype=torch.float64)
    ).softmax(-1)
    order = logits.mean.argsort(-1, descending=True)
    held = []
    for rank in (0, 80):
        classes = order[:, rank]
        low, high = dirichlet.marginal(classes).interval(0.95)
        probability = drawn.gather(-1, classes.expand(500, -1).unsqueeze(-1)).squeeze(-1)
        held.append(((probability >= low) & (probability <= high)).double().mean().item())
    assert 0.92 <= held[0] <= 0.98
    assert held[1] < 0.5


@pytest.mark.parametrize("name", BRIDGES)
def test_every_bridge_gives_a_prediction_with_its_own_dirichlets(name):
    logits = gaussian("dense", 0, 6, 4)
    prediction = lb.predict(logits, BRIDGES[name])
    torch.testing.assert_close(
        prediction.dirichlet.log_concentration,
        BRIDGES[name](logits).log_concentration,
        rtol=0,
        atol=0,
    )
    lower, upper = prediction.interval(0.9)
    assert (lower < prediction.mean).all()
    assert (prediction.mean < upper).all()


def test_uncertainty_adds_up():
    prediction = lb.predict(confident(5))
    torch.testing.assert_close(prediction.total, prediction.aleatoric + prediction.epistemic)
    torch.testing.assert_close(prediction.total, torch.special.entr(prediction.mean).sum(-1))
    assert torch.equal(prediction.label, prediction.mean.argmax(-1))


def test_probability_above_is_that_of_samples():
    logits = confident(4, rows=5)
    drawn = logits.mean + logits.variance.sqrt() * torch.randn(
        SAMPLES, 5, 4, generator=seeded(2), dtype=torch.float64
    )
    expected = (drawn.softmax(-1) > 0.3).double().mean(0)
    assert (lb.predict(logits).probability_above(0.3) - expected).abs().max() < 0.03


def test_rows_are_chosen_like_those_of_a_tensor():
    prediction = lb.predict(confident(3))
    for rows, index in (
        (3, [3]),
        (slice(2, 7), slice(2, 7)),
        (torch.tensor([5, 1]), [5, 1]),
        ([0, 4], [0, 4]),
    ):
        chosen = prediction[rows]
        torch.testing.assert_close(chosen.mean, prediction.mean[index])
        torch.testing.assert_close(chosen.interval()[1], prediction.interval()[1][index])
    assert sum(1 for _ in prediction) == len(prediction) == 40
    with pytest.raises(IndexError, match="40 rows"):
        prediction[40]


def test_everything_is_to_be_had_as_arrays():
    prediction = lb.predict(confident(3))
    arrays = prediction.numpy(level=0.8)
    assert {name: array.shape for name, array in arrays.items()} == {
        **dict.fromkeys(("mean", "lower", "upper"), (40, 3)),
        **dict.fromkeys(("label", "total", "aleatoric", "epistemic"), (40,)),
    }
    np.testing.assert_allclose(arrays["lower"], prediction.interval(0.8)[0])


def test_the_text_is_short_however_many_rows_there_are():
    text = repr(lb.predict(confident(3, rows=500)))
    assert "500 examples, 3 classes" in text
    assert len(text.splitlines()) == 5


def test_a_notebook_shows_a_table_of_the_first_rows():
    formatters = pytest.importorskip("IPython.core.formatters")
    logits = torch.randn(20, 4, generator=seeded(0))
    prediction = lb.predict(lb.LogitGaussian(logits, lb.Diagonal(torch.ones(20, 4))))
    shown = formatters.HTMLFormatter()(prediction)
    assert "Prediction of 20 examples, 4 classes" in shown
    assert shown.count("<tr>") == 1 + 9
    low, high = (float(end[0, prediction.label[0]]) for end in prediction.interval())
    assert f"<td>{low:.3f} to {high:.3f}</td>" in shown
    assert "more unusual than" not in shown
    score = torch.arange(20.0)
    parts = prediction.dirichlet, prediction.log_odds_variance
    scored = lb.Prediction(*parts, lb.unusual.Unusual(score, score))
    assert "more unusual than" in formatters.HTMLFormatter()(scored)


def test_sets_scores_metrics_and_rules_take_predictions_as_they_take_dirichlets():
    prediction = lb.predict(confident(5, rows=200))
    dirichlet, labels = prediction.dirichlet, prediction.label.roll(0).clone()
    labels[:40] = (labels[:40] + 1) % 5
    assert lb.sets.overlap_sets(prediction).to_lists() == lb.sets.overlap_sets(dirichlet).to_lists()
    assert torch.equal(lb.scores.msp(prediction), lb.scores.msp(dirichlet))
    assert torch.equal(
        lb.scores.mutual_information(prediction), lb.scores.mutual_information(dirichlet)
    )
    assert lb.metrics.nll(prediction, labels) == lb.metrics.nll(dirichlet, labels)
    assert lb.metrics.ece(prediction, labels) == lb.metrics.ece(dirichlet, labels)
    calibrated = lb.sets.calibrate(lb.sets.LeastAmbiguous(), prediction, labels, coverage=0.9)
    assert calibrated(prediction).to_lists() == calibrated(dirichlet).to_lists()
    rule = lb.selective.calibrate(lb.scores.msp, prediction, labels, answer_share=0.5)
    assert rule(prediction).to_lists() == rule(dirichlet).to_lists()


def test_half_precision_keeps_its_type():
    prediction = lb.predict(confident(4).to(torch.bfloat16))
    lower, upper = prediction.interval()
    assert prediction.mean.dtype == lower.dtype == upper.dtype == torch.bfloat16
    assert (lower <= upper).all()


def test_bad_rows_are_named():
    prediction = lb.predict(confident(3, rows=4))
    variance = prediction.log_odds_variance.clone()
    variance[2, 1] = -1.0
    with pytest.raises(lb.InputError, match="in row 2"):
        lb.check(lb.Prediction(prediction.dirichlet, variance))
    with pytest.raises(lb.errors.ShapeError, match=r"\(4, 2\)"):
        lb.Prediction(prediction.dirichlet, variance[:, :2])


def test_tokens_are_chosen_by_a_mask_of_texts_and_tokens():
    torch.manual_seed(0)
    inputs, labels = torch.randn(4, 5, 3), torch.randint(2, (4, 5))
    labels[:, 3:] = -100
    classifier = lb.fit(
        torch.nn.Linear(3, 2), [(inputs, labels)], prior_precision=1.0, progress=False
    )
    with torch.no_grad():
        prediction = classifier(inputs)
    keep = labels != -100
    chosen = prediction[keep]
    assert len(chosen) == 12
    assert torch.equal(chosen.mean, prediction.mean[keep])
    own = -prediction.mean[keep].gather(-1, labels[keep].unsqueeze(-1)).log().mean()
    assert lb.metrics.nll(chosen, labels[keep]) == pytest.approx(float(own), rel=1e-5)
    with pytest.raises(lb.errors.ShapeError, match=r"shape \(4, 5\).*`keep = labels != -100`"):
        lb.metrics.nll(prediction, labels)


def test_predictions_in_bfloat16_are_shown_and_become_arrays():
    prediction = lb.predict(gaussian("diagonal", 0, 4, 3)).to(torch.bfloat16)
    assert "Prediction of 4 examples" in repr(prediction)
    assert "<td>0</td>" in prediction._repr_html_()
    assert prediction.numpy()["mean"].dtype == np.float32
