"""What the tables are made of: renderings, stored numbers, and the paper's way of
judging.
"""

import csv
import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from cases import seeded
from sklearn.metrics import roc_auc_score
from torch.distributions import Categorical

import laplacebridge as lb
from laplacebridge.errors import ShapeError
from laplacebridge.laplace.head_search import find_head
from laplacebridge_reproduction import conventions, evaluate
from laplacebridge_reproduction.artifact import Run
from laplacebridge_reproduction.experiments import generated
from laplacebridge_reproduction.last_layer import detection_gain, result_of, shown
from laplacebridge_reproduction.stored import Cell, stored
from laplacebridge_reproduction.table import Table


def test_a_table_says_the_same_in_every_form():
    table = Table(["method", "KL, 100 %"], [["α & β", "*0.09*"], ["a_b", "**1 ± 2**"]], "About it.")
    assert table.markdown().splitlines()[0] == "About it."
    assert r"$\alpha$ \& β & \emph{0.09} \\" in table.latex()
    assert r"a\_b & \textbf{1 $\pm$ 2} \\" in table.latex()
    assert list(csv.reader(io.StringIO(table.csv()))) == [
        ["method", "KL, 100 %"],
        ["α & β", "0.09"],
        ["a_b", "1 ± 2"],
    ]


def test_a_row_with_too_few_cells_is_named():
    with pytest.raises(ShapeError, match="2 cells in every row; got 1"):
        Table(["a", "b"], [["1"]])


def test_stored_numbers_are_those_of_the_printed_tables():
    """Some of each table, typed from the paper itself."""
    printed = {
        Cell("MNIST", "diagonal", "MC", "Fashion-MNIST", "auroc"): 0.975,
        Cell("MNIST", "Kronecker", "LB-norm", "notMNIST", "ece"): 0.294,
        Cell("CIFAR-10", "diagonal", "LB-norm", "SVHN", "ece"): 0.155,
        Cell("SVHN", "Kronecker", "MC", "CIFAR-100", "auroc"): 0.959,
        Cell("CIFAR-100", "diagonal", "LB", "SVHN", "auroc"): 0.815,
        Cell("MNIST", "diagonal", "probit", "KMNIST", "nll"): 4.276,
        Cell("MNIST", "Kronecker", "probit", "MNIST", "ece"): 0.883,
        Cell("MNIST", "diagonal", "LB", "Fashion-MNIST", "auroc", "all layers"): 0.990,
        Cell("MNIST", "", "prior network", "notMNIST", "auroc", ""): 0.938,
    }
    assert {cell: stored(cell) for cell in printed} == printed


def test_numbers_that_a_slip_in_the_authors_code_made_wrong_are_not_compared_with():
    assert stored(Cell("SVHN", "diagonal", "probit", "SVHN", "nll")) is None
    assert stored(Cell("CIFAR-10", "Kronecker", "LB-norm", "SVHN", "brier")) is None
    assert stored(Cell("CIFAR-10", "Kronecker", "LB-norm", "SVHN", "auroc")) == 0.965


def test_the_likelihood_is_that_of_a_categorical_of_torch():
    probabilities = torch.softmax(20 * torch.randn(200, 5, generator=seeded(1)), -1)
    labels = torch.randint(5, (200,), generator=seeded(2))
    expected = -Categorical(probabilities).log_prob(labels).mean().item()
    assert conventions.nll(probabilities, labels) == pytest.approx(expected, rel=1e-5)
    assert lb.metrics.nll(probabilities.double(), labels) > expected  # the convention matters here


def test_detection_ranks_by_the_largest_probability():
    inside, outside = (
        torch.softmax(scale * torch.randn(300, 4, generator=seeded(scale)), -1) for scale in (3, 1)
    )
    found = evaluate.judged(outside, torch.zeros(300, dtype=torch.long), inside)
    truth = [1] * 300 + [0] * 300
    assert found["auroc"] == pytest.approx(
        roc_auc_score(truth, torch.cat([inside, outside]).amax(-1).numpy())
    )


@pytest.fixture(scope="module")
def experiment():
    return generated(Run("smoke", progress=False))


@pytest.mark.parametrize("structure", evaluate.STRUCTURES)
def test_features_and_rows_at_a_time_change_nothing(experiment, structure, monkeypatch):
    """The tables go through features in pieces; the front door sees whole batches of
    inputs.
    """
    trained = experiment.networks[0]
    batches = [(experiment.training.inputs, experiment.training.labels)]
    classifier = lb.fit(
        trained.network,
        batches,
        curvature=evaluate.STRUCTURES[structure],
        prior_precision=5e-4,
        progress=False,
    )
    monkeypatch.setattr(evaluate, "ROWS_AT_ONCE", 70)
    monkeypatch.setattr(evaluate, "IMAGES_AT_ONCE", 40)
    network = classifier.network
    training, inside = (
        evaluate.with_features(network, data, progress=False)
        for data in (experiment.training, experiment.inside)
    )
    posterior = evaluate.last_layer_posterior(network.head, training, structure, 5e-4)
    found = evaluate.predicted(evaluate.last_layer_gaussians(posterior, inside.inputs), seed=0)
    with torch.no_grad():
        whole = classifier.logits(experiment.inside.inputs)
    torch.testing.assert_close(found["race"], lb.race_bridge(whole).mean, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(found["LB"], conventions.lb(whole).mean, rtol=1e-3, atol=1e-5)
    assert set(found) == set(evaluate.METHODS)


def test_tables_of_one_run_share_what_was_computed():
    first, second = (result_of(Run("smoke", progress=False), "half-moons") for _ in range(2))
    assert first is second


def test_data_that_is_not_there_gives_rows_that_say_so(tmp_path, monkeypatch):
    """No network and an empty folder: every experiment is missing, and the tables can
    be shown all the same.
    """
    from laplacebridge_reproduction.table1_ood import TABLE_1
    from laplacebridge_reproduction.table2_probit import TABLE_6

    def refused(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr("pooch.retrieve", refused)
    found = TABLE_1.compute(Run("small", progress=False, data=tmp_path))
    assert all(experiment == {"missing": True} for experiment in found.values())
    assert TABLE_1.tables(found)[0].csv().count("data not available here") == 4
    assert "not available" in TABLE_6.finding(found)


def test_a_cell_shows_the_spread_over_networks():
    assert shown([0.9]) == "0.900"
    assert shown([0.9, 0.9]) == "0.900 ± 0.000"


@pytest.mark.parametrize("structure", evaluate.STRUCTURES)
def test_a_curvature_that_stands_for_more_examples_is_that_of_more_examples(experiment, structure):
    """Twice the data gives what the data gives when it stands for twice as many."""
    network = find_head(experiment.networks[0].network, experiment.inside.inputs[:2])
    data = evaluate.with_features(network, experiment.training, progress=False)
    twice = replace(
        data, inputs=data.inputs.repeat(2, 1), labels=data.labels.repeat(2), sha256=data.sha256
    )
    standing, repeated = (
        evaluate.last_layer_posterior(network.head, rows, structure, 0.5, number)
        for rows, number in ((data, 2 * len(data)), (twice, None))
    )
    plain = evaluate.last_layer_posterior(network.head, data, structure, 0.5)
    points = data.inputs[:20]
    torch.testing.assert_close(standing(points).variance, repeated(points).variance)
    assert (standing(points).variance < plain(points).variance).all()


def surer_than_half(values):
    """Probabilities of two classes whose order is that of the values."""
    larger = 0.5 + 0.5 / (1 + np.exp(-values))
    return torch.from_numpy(np.stack([larger, 1 - larger], -1))


def test_the_error_of_a_difference_of_aurocs_is_that_of_many_draws():
    """DeLong's formula against drawing the examples again."""
    generator = np.random.default_rng(0)
    number, errors, differences = 150, [], []
    for _ in range(400):
        shared = {name: generator.normal(size=number) for name in ("inside", "outside")}
        made = {
            name: {
                "first": values - (name == "outside"),
                "second": 0.8 * values - (name == "outside") + 0.6 * generator.normal(size=number),
            }
            for name, values in shared.items()
        }
        inside, outside = (
            {method: surer_than_half(values) for method, values in made[name].items()}
            for name in ("inside", "outside")
        )
        found = evaluate.detection_errors(inside, outside, "second")
        assert found["second"] == 0
        errors.append(found["first"])
        aurocs = [
            lb.metrics.auroc(conventions.score(inside[method]), conventions.score(outside[method]))
            for method in ("first", "second")
        ]
        differences.append(aurocs[0] - aurocs[1])
    assert np.mean(errors) == pytest.approx(np.std(differences), rel=0.1)


def test_gains_are_paired_by_network_and_by_image():
    several = {
        "race": {"auroc": [0.9, 0.8, 0.7], "auroc error against MC": [9.0, 9.0, 9.0]},
        "MC": {"auroc": [0.89, 0.79, 0.69]},
    }
    gain = detection_gain(several, "race", "MC")
    assert gain.low == pytest.approx(0.01)
    assert gain.high == pytest.approx(0.01)
    single = {"race": {"auroc": [0.9], "auroc error against MC": [0.01]}, "MC": {"auroc": [0.8]}}
    assert detection_gain(single, "race", "MC").low == pytest.approx(0.1 - 1.96 * 0.01, abs=1e-4)
    assert detection_gain({"race": {"auroc": [0.9]}, "MC": {"auroc": [0.8]}}, "race", "MC").low < -1
