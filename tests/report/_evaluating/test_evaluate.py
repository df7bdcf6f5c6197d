"""Evaluating a classifier: the table holds what the metrics give, for the head alone
and for several layers.
"""

import pytest
import torch
from cases import seeded
from torch import nn

import laplacebridge as lb
from laplacebridge.bridges import BRIDGES
from laplacebridge.laplace.posterior import Widening
from laplacebridge.report import evaluate
from laplacebridge.report._findings.halves import Halves
from laplacebridge.report._findings.methods import COMPARED_BRIDGES

CLASSES, FEATURES = 4, 6
EXACT = ("MAP", "probit", *COMPARED_BRIDGES)  # methods that draw no samples


def batches(count, seed, *, shift=0.0):
    generator = seeded(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    centers = 1.5 * torch.eye(CLASSES, FEATURES)
    inputs = centers[labels] + torch.randn(count, FEATURES, generator=generator) + shift
    return [(inputs[:40], labels[:40]), (inputs[40:], labels[40:])]


def network(*, deep=False):
    """A head that knows the classes; or one behind a layer that passes its inputs on."""
    head = nn.Linear(FEATURES, CLASSES)
    layer = nn.Linear(FEATURES, FEATURES)
    with torch.no_grad():
        head.weight.copy_(3 * torch.eye(CLASSES, FEATURES))
        layer.weight.copy_(torch.eye(FEATURES))
        for part in (head, layer):
            part.bias.zero_()
    return nn.Sequential(layer, head) if deep else head


@pytest.fixture(scope="module")
def of_head():
    return lb.fit(network(), batches(200, 1), prior_precision=1.0, progress=False)


@pytest.fixture(scope="module")
def of_layers():
    return lb.fit(
        network(deep=True), batches(200, 1), layers="*", prior_precision=1.0, progress=False
    )


@pytest.fixture(scope="module")
def of_widened_head(of_head):
    """Predictions whose means are of narrower Gaussians than their intervals, as a fit
    with held-out labels gives.
    """
    return lb.Classifier(
        of_head.network, of_head.posterior.widened(Widening(1.3, 2.0, 0.1, 0.5, mean_share=0.3))
    )


@pytest.fixture(scope="module", params=["head", "widened_head", "layers"])
def classifier(request):
    return request.getfixturevalue(f"of_{request.param}")


@pytest.fixture(scope="module")
def evaluation(classifier):
    ood, validation = batches(80, 3, shift=-4.0), batches(120, 4)
    return evaluate(classifier, batches(100, 2), ood=ood, validation=validation, progress=False)


def test_the_table_holds_what_the_metrics_give(classifier, evaluation):
    inputs, labels = (torch.cat(parts) for parts in zip(*batches(100, 2)))
    ood_inputs = torch.cat([part for part, _ in batches(80, 3, shift=-4.0)])
    rows = {row.method: row for row in evaluation.rows}
    for name in COMPARED_BRIDGES:
        with torch.no_grad():
            bridged = classifier.with_bridge(BRIDGES[name])
            prediction, ood = bridged(inputs).dirichlet, bridged(ood_inputs).dirichlet
        row = rows[name]
        sets = Halves.of(100, 0).sets(prediction.mean, labels, evaluation.sets.coverage)
        assert row.accuracy == lb.metrics.accuracy(prediction, labels)
        assert row.nll == pytest.approx(lb.metrics.nll(prediction, labels), rel=1e-5)
        assert row.ece == pytest.approx(lb.metrics.ece(prediction, labels), rel=1e-5)
        assert row.brier == pytest.approx(lb.metrics.brier(prediction, labels), rel=1e-5)
        assert row.auroc.estimate == pytest.approx(
            lb.metrics.auroc(lb.scores.msp(prediction), lb.scores.msp(ood))
        )
        assert row.evidence.losses.mean().item() == pytest.approx(row.nll, rel=1e-9)
        assert row.aurc == pytest.approx(
            lb.metrics.aurc(lb.scores.msp(prediction), lb.metrics.correct(prediction, labels))
        )
        assert row.coverage == sets.held.double().mean().item()
        assert row.set_size == pytest.approx(sets.sizes.double().mean().item())


def test_the_network_and_temperature_scaling_do_not_know_the_temperature_of_the_fit(of_head):
    tempered = lb.Classifier(of_head.network, of_head.posterior.with_temperature(2.5))
    plain, found = (
        {
            row.method: row
            for row in evaluate(
                each, batches(100, 2), validation=batches(120, 4), progress=False
            ).rows
        }
        for each in (of_head, tempered)
    )
    for method in ("MAP", "temperature"):
        torch.testing.assert_close(
            found[method].evidence.losses, plain[method].evidence.losses, rtol=1e-5, atol=1e-6
        )
    assert (found["race"].evidence.losses - plain["race"].evidence.losses).abs().max() > 0.1
    inputs, labels = (torch.cat(parts) for parts in zip(*batches(100, 2)))
    expected = nn.functional.cross_entropy(network()(inputs), labels, reduction="none").detach()
    torch.testing.assert_close(found["MAP"].evidence.losses.float(), expected, rtol=1e-4, atol=1e-5)


def test_the_plots_are_of_what_the_classifier_answers(classifier):
    data = batches(100, 2)
    own = classifier.with_bridge(lb.bridges.kl_bridge)
    found = evaluate(own, data, ood=data, progress=False)
    with torch.no_grad():
        expected = own(torch.cat([inputs for inputs, _ in data]))
    (ood,) = found.ood.values()
    for name in ("mean", "log_odds_variance", "epistemic"):
        ours, theirs = getattr(found.prediction, name), getattr(expected, name)
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(getattr(ood, name), ours, rtol=0, atol=0)
    assert found.own == "kl"


def test_blocks_of_examples_change_nothing(classifier, evaluation, monkeypatch):
    monkeypatch.setattr("laplacebridge._blocks.ROWS_OF_A_REPORT", 7)
    found = evaluate(classifier, batches(100, 2), ood=batches(80, 3, shift=-4.0), progress=False)
    ours, whole = ({row.method: row for row in each.rows} for each in (found, evaluation))
    for name in EXACT:
        for column in ("accuracy", "nll", "ece", "brier", "auroc", "set_size", "coverage"):
            assert ours[name].value(column) == pytest.approx(whole[name].value(column), rel=1e-4), (
                name,
                column,
            )
    assert ours["race"].distance == pytest.approx(
        whole["race"].distance, abs=2e-3
    )  # from other samples


def test_every_method_is_there_by_the_name_of_its_bridge(evaluation):
    names = [row.method for row in evaluation.rows]
    assert names == [
        "MAP",
        "temperature",
        "probit",
        "MC-10",
        "MC-100",
        "MC-1000",
        *COMPARED_BRIDGES,
    ]
    assert set(COMPARED_BRIDGES) <= set(BRIDGES)


def test_the_race_is_nearer_to_many_samples_than_a_thousand_samples_are(evaluation):
    distances = {row.method: row.distance for row in evaluation.rows}
    assert distances["race"] < distances["MC-1000"] < distances["MC-100"] < distances["MC-10"]


def test_times_are_those_of_one_example(evaluation):
    times = {row.method: row.microseconds for row in evaluation.rows}
    assert 0 < times["MAP"] < times["MC-1000"] < 1e6


def test_the_prior_curve_is_computed_on_validation_data_if_the_fit_has_none(evaluation):
    assert evaluation.prior.chosen == 1.0
    assert len(evaluation.prior.candidates) == len(evaluation.prior.scores) > 20
    assert evaluation.prior.meaning == "negative log likelihood of 120 validation examples"


@pytest.mark.parametrize("reloaded", [False, True], ids=["fitted", "loaded"])
def test_how_the_prior_was_chosen_is_what_the_fit_said(reloaded, tmp_path):
    head = network()
    fitted = lb.fit(head, batches(200, 1), progress=False)
    if reloaded:
        lb.save(fitted, tmp_path / "c.safetensors")
        fitted = lb.load(tmp_path / "c.safetensors", head)
    found = evaluate(fitted, batches(100, 2), progress=False)
    assert found.prior_method == "largest evidence of the training data"
    assert (found.prior is None) == reloaded  # the candidates are not saved
    assert found.identity["training accuracy"] == f"{fitted.labels.accuracy:.1%}"
    assert found.basis[0].startswith("Intervals rest on the posterior alone")


# which is a part of it
@pytest.mark.filterwarnings("ignore:With 150 held-out labels:UserWarning")
def test_what_intervals_rest_on_is_said():
    fitted = lb.fit(network(), batches(200, 1), val_loader=batches(150, 3), progress=False)
    found = evaluate(fitted, batches(100, 2), progress=False)
    width = fitted.prior_choice.width
    assert found.basis[0].lower() == width.described(fitted.num_classes).lower() + "."
    assert found.basis[1:] == tuple(width.warnings())
    assert found.basis[0] in found.to_html()
    assert found.to_dict()["intervals"]["basis"] == list(found.basis)


def test_without_ood_inputs_and_validation_data_their_parts_are_left_out(of_head):
    found = evaluate(of_head, batches(100, 2), progress=False)
    assert found.ood == {}
    assert found.scores == ()
    assert found.prior is None
    assert all(row.auroc is None for row in found.rows)
    assert "temperature" not in {row.method for row in found.rows}
    assert found.identity["temperature scaling"] == "none: no validation data"
    assert found.figures[-1].light == "not tested"
    assert "It was not tested whether it notices unusual inputs" in found.headline


def test_labels_of_ood_inputs_are_not_read(of_head):
    inputs = torch.cat([part for part, _ in batches(80, 3, shift=-4.0)])
    for labels in (torch.full((80,), -100), torch.rand(80)):  # "none", and what is no label at all
        found = evaluate(of_head, batches(100, 2), ood=[(inputs, labels)], progress=False)
        (ood,) = found.ood.values()
        torch.testing.assert_close(ood.mean, of_head(inputs).mean.detach())


def test_validation_data_without_an_error_leave_temperature_scaling_out_and_say_why(of_head):
    easy = [(5 * torch.eye(CLASSES, FEATURES), torch.arange(CLASSES))]
    found = evaluate(of_head, batches(100, 2), validation=easy, progress=False)
    assert "temperature" not in {row.method for row in found.rows}
    assert "more validation data" in found.identity["temperature scaling"]


@pytest.mark.parametrize("layers", [None, "*"], ids=["head", "layers"])
def test_images_are_kept_with_the_examples_they_belong_to(layers):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    images, labels = torch.rand(12, 1, 8, 8, generator=seeded(5)), torch.arange(12) % 3
    fitted = lb.fit(model, [(images, labels)], layers=layers, prior_precision=1.0, progress=False)
    found = evaluate(fitted, [(images[:5], labels[:5]), (images[5:], labels[5:])], progress=False)
    for specimen in found.specimens:
        torch.testing.assert_close(
            fitted(specimen.image.unsqueeze(0)).mean, specimen.prediction.mean
        )


def test_rows_of_a_table_are_shown_by_what_is_farthest_from_usual(evaluation):
    inputs = torch.cat([part for part, _ in batches(100, 2)])
    assert len(evaluation.specimens) > 10
    for specimen in evaluation.specimens:
        assert specimen.image is None
        assert len(specimen.cells) == FEATURES
    typical = next(each for each in evaluation.specimens if each.kind == "typical")
    row = int(typical.name.removeprefix("no. "))
    far = ((inputs[row] - inputs.mean(0)) / inputs.std(0)).abs()
    assert list(typical.cells) == [f"column {place}" for place in far.argsort(descending=True)]
    assert typical.cells["column 0"] == inputs[row, 0].item()


def test_several_kinds_of_unusual_inputs_are_judged_apart_and_together(of_head):
    far, near = batches(80, 3, shift=-9.0), batches(60, 5, shift=0.1)
    found = evaluate(of_head, batches(100, 2), ood={"far": far, "near": near}, progress=False)
    assert list(found.ood) == ["far", "near"]
    score = found.scores[-1]
    assert score.name == "ood_score"
    assert score.by_kind["far"] > 0.95 > 0.7 > score.by_kind["near"]
    assert score.auroc.estimate == pytest.approx(
        (80 * score.by_kind["far"] + 60 * score.by_kind["near"]) / 140
    )
    assert found.rows[0].evidence.ood_msp.shape == (140,)


@pytest.mark.filterwarnings("ignore:With 400 held-out labels:UserWarning")
def test_what_is_asked_for_is_what_is_judged(of_head):
    fitted = lb.fit(network(), batches(200, 1), val_loader=batches(400, 3), progress=False)
    found = evaluate(
        fitted, batches(600, 2), risk=0.3, coverage=0.8, alarm_rate=0.1, cost_wrong=5.0,
        cost_defer=2.0, progress=False,
    )  # fmt: skip
    assert found.decisions.chosen.risk == 0.3
    assert found.sets.coverage == 0.8
    assert found.alarm.stated == 0.1
    assert (found.cost.wrong, found.cost.defer, found.cost.is_example) == (5.0, 2.0, False)
    for name, value in (("risk", 0.0), ("alarm_rate", 1.5)):
        with pytest.raises(lb.InputError, match=f"evaluate\\({name}\\)"):
            evaluate(of_head, batches(50, 2), progress=False, **{name: value})
    with pytest.raises(lb.InputError, match="Costs need"):
        evaluate(of_head, batches(50, 2), cost_wrong=0.0, cost_defer=1.0, progress=False)


def test_data_model_and_posterior_are_told_apart_by_their_hashes(of_head):
    def hashes(classifier, data):
        identity = evaluate(classifier, data, progress=False).identity
        return [value for name, value in identity.items() if name.startswith("sha256")]

    once, again = (hashes(of_head, batches(50, 2)) for _ in range(2))
    assert once == again
    assert len(once) == 3
    other_data = hashes(of_head, batches(50, 3))
    other_prior = hashes(of_head.with_prior(2.0), batches(50, 2))
    assert [a == b for a, b in zip(once, other_data)] == [False, True, True]
    assert [a == b for a, b in zip(once, other_prior)] == [True, True, False]


def test_a_classifier_reports_by_itself(of_head, tmp_path):
    path = tmp_path / "report.html"
    found = of_head.report(batches(100, 2), path, title="Mine", progress=False)
    assert "<title>Mine</title>" in path.read_text("utf-8")
    assert found.title == "Mine"
    assert of_head.report(batches(100, 2), progress=False).title != "Mine"


def test_what_a_report_needs_is_named(of_head):
    with pytest.raises(lb.InputError, match="A report needs labels; batch 0"):
        evaluate(of_head, [torch.randn(5, FEATURES)], progress=False)
    with pytest.raises(lb.InputError, match="Validation needs labels; batch 0"):
        evaluate(of_head, batches(50, 2), validation=[torch.randn(5, FEATURES)], progress=False)
    with pytest.raises(lb.errors.ShapeError, match="a name for each of 4 classes; got 2"):
        evaluate(of_head, batches(50, 2), class_names=["a", "b"], progress=False)
    with pytest.raises(lb.errors.ShapeError, match="A report needs at least one batch"):
        evaluate(of_head, [], progress=False)
    with pytest.raises(lb.errors.ShapeError, match="a group for each of 50 test examples; got 2"):
        evaluate(of_head, batches(50, 2), groups=["a", "b"], progress=False)
    with pytest.raises(lb.errors.ShapeError, match="at least two examples"):
        evaluate(of_head, [(torch.randn(1, FEATURES), torch.tensor([0]))], progress=False)
    with pytest.raises(ValueError, match="example 2 has 4"):
        evaluate(
            of_head, [(torch.randn(3, FEATURES), torch.tensor([0, 1, CLASSES]))], progress=False
        )
    with pytest.raises(lb.errors.InputTypeError, match="`evaluate` needs a loader as `ood`"):
        evaluate(of_head, batches(50, 2), ood=torch.randn(5, FEATURES), progress=False)


def test_progress_is_shown_if_asked_for(of_head, capsys):
    evaluate(of_head, batches(50, 2), ood=batches(50, 3), validation=batches(50, 4), progress=True)
    shown = capsys.readouterr().err
    assert all(word in shown for word in ("testing", "unusual inputs", "validating", "evaluating"))


def test_what_is_too_slow_for_so_many_numbers_is_left_out_and_said(of_head, monkeypatch):
    for name, most in (
        ("SAMPLED_NUMBERS", 100 * of_head.num_classes * 10),
        ("PROJECTED_NUMBERS", 10),
    ):
        monkeypatch.setattr(f"laplacebridge.report._findings.methods.{name}", most)
    found = evaluate(of_head, batches(100, 2), progress=False)
    assert {row.method for row in found.rows}.isdisjoint({"kl", "MC-1000"})
    assert {"race", "MC-10"} <= {row.method for row in found.rows}
    assert found.identity["left out"] == "MC-100, MC-1000, kl: too slow for so many numbers"
