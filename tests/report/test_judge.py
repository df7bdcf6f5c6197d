"""Judging a classifier: the table holds what the metrics give, and the verdict says what the table shows."""

import pytest
import torch
from cases import seeded
from torch import nn

import laplacebridge as lb
from laplacebridge.metrics import Interval
from laplacebridge.report import examples_of, judge
from laplacebridge.report.evaluation import COLUMNS, Row
from laplacebridge.report.verdict import verdict

CLASSES, FEATURES = 4, 6


def batches(count, seed, *, shift=0.0):
    generator = seeded(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    centers = 1.5 * torch.eye(CLASSES, FEATURES)
    inputs = centers[labels] + torch.randn(count, FEATURES, generator=generator) + shift
    return [(inputs[:40], labels[:40]), (inputs[40:], labels[40:])]


@pytest.fixture(scope="module")
def classifier():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        head = nn.Linear(FEATURES, CLASSES)
    with torch.no_grad():
        head.weight.copy_(3 * torch.eye(CLASSES, FEATURES))
        head.bias.zero_()
    return lb.fit(head, batches(200, 1), prior_precision=1.0, progress=False)


@pytest.fixture(scope="module")
def evaluation(classifier):
    test, outside, validation = (
        examples_of(classifier, given) for given in (batches(100, 2), batches(80, 3, shift=-4.0), batches(120, 4))
    )
    return judge(classifier, test, outside=outside, validation=validation, progress=False)


def test_the_table_holds_what_the_metrics_give(classifier, evaluation):
    inputs, labels = (torch.cat(parts) for parts in zip(*batches(100, 2)))
    strange = torch.cat([part for part, _ in batches(80, 3, shift=-4.0)])
    with torch.no_grad():
        prediction, outside = classifier(inputs), classifier(strange)
    row = next(row for row in evaluation.rows if row.method == "race")
    assert row.accuracy == lb.metrics.accuracy(prediction, labels)
    assert row.nll == pytest.approx(lb.metrics.nll(prediction, labels), rel=1e-6)
    assert row.ece == pytest.approx(lb.metrics.ece(prediction, labels), rel=1e-6)
    assert row.auroc.estimate == pytest.approx(lb.metrics.auroc(lb.scores.msp(prediction), lb.scores.msp(outside)))
    assert row.losses.mean().item() == pytest.approx(row.nll, rel=1e-5)
    sets = lb.sets.mass_sets(prediction, 0.95)
    assert row.coverage == lb.metrics.coverage(sets, labels)
    assert row.set_size == pytest.approx(sets.size.double().mean().item())


def test_every_method_is_there_and_the_best_of_each_column_is_marked(evaluation):
    assert [row.method for row in evaluation.rows][:2] == ["MAP", "temperature"]
    assert len(evaluation.rows) == 11
    for column, better in COLUMNS.items():
        best = evaluation.best(column)
        assert bool(best) == bool(better)
        values = {row.method: row.value(column) for row in evaluation.rows}
        if better:
            target = max(values.values()) if better == "larger" else min(values.values())
            assert best == {method for method, value in values.items() if value == target}


def test_the_race_is_nearer_to_many_samples_than_a_thousand_samples_are(evaluation):
    distances = {row.method: row.distance for row in evaluation.rows}
    assert distances["race"] < distances["MC-1000"] < distances["MC-100"] < distances["MC-10"]


def test_the_specimens_are_sure_between_and_unknown(evaluation):
    sure, between, unknown = evaluation.specimens
    assert sure.prediction.mean.max() > 0.9
    assert between.prediction.mean.topk(2).values.min() > 0.3
    assert unknown.label is None  # a strange input has none
    assert unknown.prediction.mutual_information() >= sure.prediction.mutual_information()


def test_the_prior_curve_is_computed_on_validation_data_if_the_fit_has_none(evaluation):
    assert evaluation.prior.chosen == 1.0
    assert len(evaluation.prior.candidates) == len(evaluation.prior.scores) > 20


def test_without_strange_inputs_and_validation_data_their_parts_are_left_out(classifier):
    found = judge(classifier, examples_of(classifier, batches(100, 2)), progress=False)
    assert found.outside is None
    assert found.prior is None
    assert all(row.auroc is None for row in found.rows)
    assert "temperature" not in {row.method for row in found.rows}
    assert found.settings["temperature"] == "none: no labelled validation data"


def test_validation_data_without_an_error_leave_temperature_scaling_out_and_say_why(classifier):
    inputs = 5 * torch.eye(CLASSES, FEATURES)
    easy = examples_of(classifier, [(inputs, torch.arange(CLASSES))])
    found = judge(classifier, examples_of(classifier, batches(100, 2)), validation=easy, progress=False)
    assert "temperature" not in {row.method for row in found.rows}
    assert "more validation data" in found.settings["temperature"]


def test_images_are_kept_and_other_inputs_are_not(classifier):
    assert examples_of(classifier, batches(100, 2)).images is None
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    images, labels = torch.rand(12, 1, 8, 8, generator=seeded(5)), torch.arange(12) % 3
    fitted = lb.fit(model, [(images, labels)], prior_precision=1.0, progress=False)
    assert examples_of(fitted, [(images, labels)]).images.shape == (12, 1, 8, 8)


def test_what_a_report_needs_is_named(classifier):
    unlabelled = examples_of(classifier, [torch.randn(5, FEATURES)])
    with pytest.raises(lb.ShapeError, match="needs labels"):
        judge(classifier, unlabelled, progress=False)
    labelled = examples_of(classifier, batches(50, 2))
    with pytest.raises(lb.ShapeError, match="a name for each of 4 classes; got 2"):
        judge(classifier, labelled, class_names=["a", "b"], progress=False)
    with pytest.raises(lb.ShapeError, match="at least one batch"):
        examples_of(classifier, [])
    wrong = examples_of(classifier, [(torch.randn(3, FEATURES), torch.tensor([0, 1, CLASSES]))])
    with pytest.raises(ValueError, match="example 2 has 4"):
        judge(classifier, wrong, progress=False)


def row(method, losses, auroc=None):
    interval = None if auroc is None else Interval(auroc, auroc - 0.01, auroc + 0.01, 0.95)
    losses = torch.tensor(losses, dtype=torch.float64)
    return Row(method, 0.9, float(losses.mean()), 0.05, 0.1, interval, 1.1, 0.95, 0.01, 5.0, losses)


@pytest.mark.parametrize(
    ("bridge", "expected"),
    [
        (0.1, "better than the network alone"),
        (0.5, "as well as the network alone, within chance"),
        (0.9, "worse than the network alone"),
    ],
    ids=["better", "same", "worse"],
)
def test_the_verdict_says_whether_the_bridge_is_better_than_the_network(bridge, expected):
    noise = (0.01 * torch.randn(50, generator=seeded(6))).tolist()
    rows = [row("MAP", [0.5 + e for e in noise]), row("race", [bridge - e for e in noise])]
    assert f"predicts labels {expected}: a negative" in verdict(rows)


def test_the_verdict_says_so_when_something_simpler_does_as_well():
    losses = [0.1, 0.2, 0.3, 0.2]
    rows = [
        row("MAP", [loss + 1 for loss in losses], 0.8),
        row("temperature", losses, 0.9),
        row("MC-1000", [loss + 1 for loss in losses], 0.7),
        row("race", losses, 0.85),
    ]
    said = verdict(rows)
    assert "Temperature scaling does as well here (0.200)" in said
    assert "1000 Monte Carlo samples do worse here (1.200)" in said
    assert "AUROC of 0.850 (0.840 to 0.860)" in said
    assert "best is temperature with 0.900" in said
