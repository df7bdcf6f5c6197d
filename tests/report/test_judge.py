"""Judging a classifier: the table holds what the metrics give, and the verdict says what the table shows."""

import pytest
import torch
from cases import seeded
from torch import nn

import laplacebridge as lb
from laplacebridge.metrics import Interval
from laplacebridge.report import examples_of, judge
from laplacebridge.report.evaluation import COLUMNS, Row
from laplacebridge.report.recommendation import recommendation
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
    sets = lb.sets.Mass()(prediction, 0.95)
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


@pytest.mark.parametrize("reloaded", [False, True], ids=["fitted", "loaded"])
def test_how_the_prior_was_chosen_is_what_the_fit_said(reloaded, tmp_path):
    head = nn.Linear(FEATURES, CLASSES, bias=False)
    with torch.no_grad():
        head.weight.copy_(3 * torch.eye(CLASSES, FEATURES))
    fitted = lb.fit(head, batches(200, 1), progress=False)
    if reloaded:
        lb.save(fitted, tmp_path / "c.safetensors")
        fitted = lb.load(tmp_path / "c.safetensors", head)
    found = judge(fitted, examples_of(fitted, batches(100, 2)), progress=False)
    assert found.prior_method == "largest evidence of the training data"
    assert (found.prior is None) == reloaded  # the candidates are not saved


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


NOISE = [0.01 * (-1) ** place for place in range(50)]


def method(name, nll, auroc=None):
    """A row whose losses differ from those of another method clearly, if their means differ by 0.1."""
    sign = 1 if name in {"MAP", "LB"} else -1
    return row(name, [nll + sign * noise for noise in NOISE], auroc)


@pytest.mark.parametrize(
    ("rows", "advice"),
    [
        ([("MAP", 0.5), ("race", 0.5)], "keep the network's own probabilities;"),
        ([("MAP", 0.5), ("race", 0.9)], "keep the network's own probabilities;"),
        ([("MAP", 0.5), ("race", 0.4)], "use the race bridge's Dirichlet;"),
        ([("MAP", 0.5), ("temperature", 0.4), ("race", 0.4)], "use temperature scaling;"),
        ([("MAP", 0.5), ("temperature", 0.4), ("race", 0.3)], "use the race bridge's Dirichlet;"),
        ([("MAP", 0.5), ("race", 0.4), ("MC-1000", 0.3)], "use 1000 Monte Carlo samples;"),
        ([("MAP", 0.5), ("race", 0.4), ("LB", 0.3)], "use the method LB;"),
        (
            [("MAP", 0.5, 0.80), ("temperature", 0.5, 0.81), ("race", 0.5, 0.81)],
            "keep the network's own probabilities, also for strange inputs;",
        ),
        (
            [("MAP", 0.5, 0.80), ("temperature", 0.4, 0.80), ("race", 0.4, 0.9)],
            "use the race bridge's Dirichlet, also for strange inputs;",
        ),
        (
            [("MAP", 0.5, 0.80), ("temperature", 0.3, 0.80), ("race", 0.4, 0.9)],
            "use temperature scaling for probabilities and the race bridge's Dirichlet for strange inputs;",
        ),
        (
            [("MAP", 0.5, 0.90), ("race", 0.4, 0.8)],
            "use the race bridge's Dirichlet for probabilities and the network's own probabilities for strange inputs;",
        ),
    ],
    ids=[
        "all alike",
        "bridge worse",
        "bridge better",
        "temperature as good as the bridge",
        "bridge better than temperature",
        "samples better than the bridge",
        "another row better",
        "all alike, strange inputs too",
        "bridge as good, and better for strange inputs",
        "one for each",
        "one for each, network for strange inputs",
    ],
)
def test_the_recommendation_is_the_simplest_method_that_nothing_clearly_beats(rows, advice):
    table = [method(*of_row) for of_row in rows]
    said = recommendation(table)
    assert said.startswith(f"Recommendation: {advice}")
    assert verdict(table).endswith(said)


def test_differences_within_chance_do_not_change_the_recommendation():
    """The bridge is better on average, but by less than two standard errors; and the intervals of the AUROC overlap."""
    gains = torch.linspace(-1, 1.2, 50)
    rows = [row("MAP", (gains + 2).tolist(), 0.80), row("race", [2.0] * 50, 0.81)]
    assert rows[1].nll < rows[0].nll
    assert "keep the network's own" in recommendation(rows)


def test_a_label_without_any_chance_counts_however_few_there_are():
    rows = [row("MAP", [0.1] * 49 + [float("inf")]), row("race", [0.3] * 50)]
    assert "use the race bridge's Dirichlet" in recommendation(rows)
    assert "better than the network alone" in verdict(rows)
