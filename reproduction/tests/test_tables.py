"""What the tables are made of: renderings, stored numbers, and the paper's way of
judging.
"""

import csv
import io

import pytest
import torch
from cases import seeded
from sklearn.metrics import roc_auc_score
from torch.distributions import Categorical

import laplacebridge as lb
from laplacebridge.errors import ShapeError
from laplacebridge_reproduction import conventions, evaluate
from laplacebridge_reproduction.artifact import Run
from laplacebridge_reproduction.experiments import generated
from laplacebridge_reproduction.last_layer import result_of, shown
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
