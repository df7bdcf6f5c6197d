"""Bad predictions and labels: every metric says what is needed, what was given and what
to do.
"""

import math

import pytest
import torch

import laplacebridge as lb
from laplacebridge import metrics

OF_LABELS = {
    "accuracy": metrics.accuracy,
    "top_k_accuracy": lambda prediction, labels: metrics.top_k_accuracy(prediction, labels, k=1),
    "nll": metrics.nll,
    "brier": metrics.brier,
    "ece": metrics.ece,
    "adaptive_ece": metrics.adaptive_ece,
    "classwise_ece": metrics.classwise_ece,
    "reliability": metrics.reliability,
    "correct": metrics.correct,
}
OF_PREDICTIONS = {**OF_LABELS, "mmc": lambda prediction, labels: metrics.mmc(prediction)}
ON_PREDICTIONS = pytest.mark.parametrize("name", OF_PREDICTIONS)
ON_LABELS = pytest.mark.parametrize("name", OF_LABELS)
GOOD = torch.tensor([[0.7, 0.3], [0.4, 0.6]])
LABELS = torch.tensor([0, 1])


@ON_PREDICTIONS
@pytest.mark.parametrize(
    "none", [torch.ones(0, 2), lb.Dirichlet(torch.ones(0, 2))], ids=["probabilities", "dirichlet"]
)
def test_no_examples_are_refused(name, none):
    with pytest.raises(
        lb.errors.ShapeError,
        match=rf"`{name}\(.*needs at least one example; got none. Is the loader empty",
    ):
        OF_PREDICTIONS[name](none, LABELS[:0])


@ON_PREDICTIONS
def test_rows_that_do_not_add_up_to_one_are_refused(name):
    with pytest.raises(
        ValueError, match=rf"`{name}\(.*rows that add up to 1; row 1 adds up to 1.4.*softmax\(-1\)"
    ):
        OF_PREDICTIONS[name](torch.tensor([[0.7, 0.3], [0.8, 0.6]]), LABELS)


@ON_PREDICTIONS
@pytest.mark.parametrize("bad", [math.nan, math.inf, -0.5])
def test_what_is_no_probability_is_refused(name, bad):
    with pytest.raises(
        ValueError, match=rf"`{name}\(.*probabilities from 0 to 1; row 1 holds {bad}.*softmax\(-1\)"
    ):
        OF_PREDICTIONS[name](torch.tensor([[0.7, 0.3], [0.5, bad]]), LABELS)


@ON_PREDICTIONS
def test_a_dirichlet_that_is_nan_is_refused(name):
    with pytest.raises(
        ValueError, match=rf"`{name}\(.*finite concentrations; row 1 has NaN.*lb.check"
    ):
        OF_PREDICTIONS[name](lb.Dirichlet(torch.tensor([[0.0, 1.0], [math.nan, 0.0]])), LABELS)


@ON_LABELS
@pytest.mark.parametrize("label", [2, -1])
def test_labels_that_are_no_class_are_refused(name, label):
    with pytest.raises(
        ValueError, match=rf"`{name}\(.*labels from 0 to 1; example 1 has {label}.*counted from 0"
    ):
        OF_LABELS[name](GOOD, torch.tensor([0, label]))


@ON_LABELS
@pytest.mark.parametrize(
    "labels", [torch.tensor([0]), torch.tensor([0.0, 1.0]), torch.eye(2).long()], ids=str
)
def test_anything_but_one_integer_for_each_example_is_refused(name, labels):
    with pytest.raises(
        lb.errors.ShapeError,
        match=rf"`{name}\(.*one integer label for each of 2 examples.*argmax\(-1\)",
    ):
        OF_LABELS[name](GOOD, labels)


@ON_PREDICTIONS
def test_one_class_alone_is_refused(name):
    with pytest.raises(
        lb.errors.ShapeError, match=rf"`{name}\(.*at least K = 2 classes; got K = 1"
    ):
        OF_PREDICTIONS[name](torch.ones(2, 1), LABELS)
