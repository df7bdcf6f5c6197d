"""The recommendation is right where it is known what is right: constructed evaluations,
one for each kind of advice.
"""

import pytest
import torch
from cases import seeded

from laplacebridge import metrics
from laplacebridge.metrics import Interval
from laplacebridge.report._findings.advice import advise
from laplacebridge.report._findings.comparison import Comparisons
from laplacebridge.report._findings.unusual import ScoreRow
from laplacebridge.report.table import Evidence, Row

N, M = 1200, 600
TRUTH = 0.5 * torch.rand(N, generator=seeded(0), dtype=torch.float64)  # the true chance of an error
RIGHT = torch.rand(N, generator=seeded(1), dtype=torch.float64) > TRUTH
STRANGE = 0.5 * torch.rand(M, generator=seeded(2), dtype=torch.float64)
OVERCONFIDENT, UNDERCONFIDENT = 0.2, 1.6  # factors of the doubt


def row(method, *, factor=1.0, shuffled=0.0, size=1.2, ood=STRANGE, infinite=False):
    """A method that states the true doubt, or too little or too much of it, or that of
    other examples; with sets of some size; and the doubt it has about unusual inputs.
    """
    doubt = TRUTH * factor
    if shuffled:
        mixed = doubt[torch.randperm(N, generator=seeded(3))]
        doubt = torch.where(torch.rand(N, generator=seeded(4)) < shuffled, mixed, doubt)
    losses = -torch.where(RIGHT, 1 - doubt, doubt).log()
    if infinite:
        losses[0] = torch.inf
    sizes = size + 0.3 * torch.randn(N, generator=seeded(5), dtype=torch.float64)
    sizes = sizes - sizes.mean() + size
    two = torch.stack([1 - doubt, doubt], -1)
    evidence = Evidence(losses, doubt, RIGHT, sizes, None if ood is None else ood * factor)
    return Row(
        method,
        accuracy=RIGHT.double().mean().item(),
        nll=losses.mean().item(),
        ece=metrics.ece(two, (~RIGHT).long()) if factor <= 1 else abs((doubt - TRUTH).mean().item()),
        brier=0.1,
        aurc=metrics.aurc(doubt, RIGHT),
        auroc=None if ood is None else near(metrics.auroc(doubt, ood * factor)),
        set_size=size,
        coverage=0.95,
        distance=0.01,
        microseconds=5.0,
        evidence=evidence,
    )  # fmt: skip


def near(estimate, half_width=0.01):
    return Interval(estimate, estimate - half_width, estimate + half_width, 0.95)


def score(name, shift, half_width=0.02):
    """A score whose unusual inputs lie so many deviations above ordinary ones."""
    usual = torch.randn(N, generator=seeded(6), dtype=torch.float64)
    strange = torch.randn(M, generator=seeded(7), dtype=torch.float64) + shift
    auroc = metrics.auroc(usual, strange)
    return ScoreRow(name, near(auroc, half_width), {"strange": auroc}, usual, strange)


def test_where_all_are_alike_the_network_is_kept_and_nothing_has_to_be_run():
    advice = advise([row("MAP"), row("temperature"), row("race"), row("kl")])
    assert advice.method == "MAP"
    assert advice.sentences[0].startswith("Keep the network's own probabilities")
    assert advice.code == "probabilities = model(inputs).softmax(-1)"
    assert advice.command == ""
    assert "an interval for each probability, use the classifier" in advice.sentences[-1]
    assert (
        "not clearly worse than the network's own probabilities at anything" in advice.sentences[-1]
    )


def test_the_simplest_of_equals_is_taken():
    rows = [row("MAP", factor=OVERCONFIDENT), row("temperature"), row("race"), row("kl")]
    advice = advise(rows)
    assert advice.method == "temperature"
    assert "predicting labels and calibration" in advice.sentences[0]
    assert "lb.temperature.temperature_scaling(" in advice.code
    assert "--tune-temperature" in advice.command
    assert "not clearly different in predicting labels, calibration" in advice.beside
    assert advise([rows[0], rows[2], rows[3]]).method == "race"


def test_the_classifier_is_recommended_where_it_alone_is_right():
    rows = [
        row("MAP", factor=OVERCONFIDENT),
        row("temperature", factor=0.5),
        row("race"),
    ]
    advice = advise(rows)
    assert advice.method == "race"
    assert "and than temperature scaling at" in advice.sentences[0]
    assert "classifier = lb.fit(model, train_loader, val_loader=val_loader)" in advice.code
    assert advice.command.splitlines()[0].startswith("laplacebridge fit TRAIN --validation")
    assert "clearly better at" in advice.beside


def test_after_label_smoothing_temperature_scaling_is_advised_and_not_the_network():
    """A network trained so is not sure enough; a posterior only makes it less sure."""
    rows = [
        row("MAP", factor=UNDERCONFIDENT),
        row("temperature"),
        row("race", factor=UNDERCONFIDENT * 1.1),
        row("laplace-norm", factor=UNDERCONFIDENT * 1.2),
    ]
    advice = advise(rows)
    assert advice.method == "temperature"
    assert "calibration" in advice.sentences[0]
    assert "use the classifier" not in " ".join(advice.sentences)  # it is clearly worse
    assert "clearly worse at" in advice.beside


def test_a_method_of_the_best_but_useless_detection_and_the_worst_calibration_is_not_advised():
    """Digits with scaled inputs: an AUROC of 0.54, from 0.50 to 0.59, and sets of
    three.
    """
    rows = [
        row("MAP", ood=0.8 * STRANGE),
        row("race", ood=0.8 * STRANGE),
        row("kl", factor=0.6, size=3.08, ood=1.8 * STRANGE),
    ]
    scores = [score("msp of the network", 0.0), score("ood_score", 0.14, half_width=0.04)]
    advice = advise(rows, scores)
    assert advice.method == "MAP"
    assert advice.score is None
    told = " ".join(advice.sentences)
    assert "No method here tells these unusual inputs apart" in told
    assert "0.54" in told
    assert "unusual =" not in advice.code


@pytest.mark.parametrize(
    "worse",
    [{"size": 1.6}, {"ood": 0.2 * STRANGE}, {"shuffled": 0.5}],
    ids=["larger sets", "detects worse", "knows less when it is wrong"],
)
def test_what_is_clearly_worse_than_the_network_by_any_measure_is_never_advised(worse):
    """However much better it is by another."""
    usual = {"ood": 1.2 * STRANGE + 0.3} | worse
    if "ood" in worse:
        usual["ood"] = worse["ood"]
    rows = [row("MAP", factor=OVERCONFIDENT, ood=6 * STRANGE + 1), row("kl", **usual)]
    compared = Comparisons(rows)
    assert compared.better_at("kl", "MAP", 3.0) or "shuffled" in worse
    assert compared.better_at("MAP", "kl")
    assert advise([*rows, row("race", factor=OVERCONFIDENT, ood=6 * STRANGE + 1)]).method == "MAP"


def test_the_classifier_is_advised_for_its_score_if_its_probabilities_are_as_good():
    rows = [row("MAP"), row("temperature"), row("race")]
    scores = [score("msp of the network", 0.5), score("ood_score", 2.0)]
    advice = advise(rows, scores)
    assert advice.method == "race"
    assert advice.score == "ood_score"
    assert (
        "as good as those of the network, and it notices unusual inputs better"
        in (advice.sentences[0])
    )
    assert advice.code.splitlines()[-1] == "unusual = prediction.ood_score"
    assert "clearly better at noticing unusual inputs (AUROC 0.92, not 0.5" in advice.beside


def test_one_for_each_where_its_probabilities_are_worse():
    rows = [row("MAP"), row("temperature"), row("race", factor=OVERCONFIDENT)]
    scores = [score("msp of the network", 0.5), score("ood_score", 2.0)]
    advice = advise(rows, scores)
    assert (advice.method, advice.score) == ("MAP", "ood_score")
    assert advice.code.splitlines()[0] == "probabilities = model(inputs).softmax(-1)"
    assert advice.code.splitlines()[-1] == "unusual = prediction.ood_score"
    assert advice.command.startswith("laplacebridge fit ")


def test_a_score_of_the_network_that_does_as_well_is_preferred():
    scores = [score("energy of the network", 2.0), score("ood_score", 2.0)]
    advice = advise([row("MAP"), row("race")], scores)
    assert (advice.method, advice.score) == ("MAP", "energy of the network")
    assert "fit" not in advice.code
    assert advice.command == ""


def test_where_a_score_of_its_own_notices_unusual_inputs_probabilities_need_not():
    """Otherwise the one bridge that happens to doubt these inputs most would be
    advised.
    """
    rows = [row("MAP"), row("race"), row("laplace-norm", ood=STRANGE + 0.4)]
    assert advise(rows).method == "laplace-norm"
    scores = [score("msp of the network", 0.5), score("ood_score", 2.0)]
    assert advise(rows, scores).method == "race"


def test_below_chance_there_is_nothing_to_choose_between():
    rows = [row("MAP", ood=0.1 * STRANGE), row("race", ood=0.5 * STRANGE)]
    assert Comparisons(rows).clear("auroc", "race", "MAP") == 0
    assert advise(rows).method == "MAP"


def test_what_is_better_at_one_thing_and_worse_at_another_is_told():
    rows = [
        row("MAP", factor=OVERCONFIDENT, size=1.6),
        row("temperature", size=1.6),
        row("race", factor=0.45, size=1.2),
    ]
    advice = advise(rows)
    assert advice.method == "temperature"
    assert any("would be better at small sets, and worse at" in told for told in advice.sentences)


def test_samples_are_advised_where_they_alone_are_right():
    rows = [row("MAP", factor=OVERCONFIDENT), row("race", factor=0.5), row("MC-1000")]
    advice = advise(rows)
    assert advice.method == "MC-1000"
    assert "1000 Monte Carlo samples" in advice.sentences[0]
    assert "lb.links.monte_carlo(gaussian, num_samples=1000)" in advice.code


def test_a_bridge_that_is_advised_is_named_on_the_command_line():
    advice = advise([row("MAP", factor=OVERCONFIDENT), row("race", factor=0.5), row("kl")])
    assert advice.method == "kl"
    assert "--bridge kl" in advice.command


def test_a_label_without_any_chance_counts_however_few_there_are():
    rows = [row("MAP", infinite=True), row("race")]
    assert Comparisons(rows).clear("nll", "race", "MAP") == 1
    assert advise(rows).method == "race"


def test_differences_that_matter_to_nobody_do_not_count_however_clear_they_are():
    rows = [row("MAP"), row("race", size=1.21)]
    rows[1] = Row(**{**vars(rows[1]), "evidence": Evidence(
        rows[0].evidence.losses - 1e-3, TRUTH, RIGHT, rows[0].evidence.set_sizes + 0.01, STRANGE
    ), "nll": rows[0].nll - 1e-3})  # fmt: skip
    compared = Comparisons(rows)
    assert [compared.clear(name, "race", "MAP") for name in ("nll", "set_size")] == [0, 0]


def test_the_options_of_the_model_stand_in_the_command():
    rows = [row("MAP", factor=OVERCONFIDENT), row("race")]
    advice = advise(rows, options="--model project:build --weights w.pt")
    assert "--model project:build --weights w.pt -o classifier.safetensors" in advice.command


def test_a_gain_that_matters_to_nobody_is_no_gain_beside_temperature_scaling():
    """Of five thousand pairs a difference of 0.004 is clear, and of no use."""
    rows = [row("MAP"), row("temperature", ood=STRANGE + 0.49), row("race")]
    theirs = rows[1].auroc.estimate
    assert theirs > 0.99
    usual = torch.linspace(0, 1, N, dtype=torch.float64)
    ours = ScoreRow("ood_score", near(0.9999, 1e-5), {}, usual, usual[-1:].expand(M))
    told = advise(rows, [ours]).beside
    assert "clearly better at noticing" not in told
    assert "not clearly different in noticing unusual inputs (AUROC 1.00, not 1.00" in told
    weak = ScoreRow("ood_score", near(0.6), {}, usual, usual[:M] + 0.35)
    assert "clearly worse at noticing unusual inputs" in advise(rows, [weak]).beside
