"""What the committed numbers of the reproduction must show; they are made by
`laplacebridge reproduce all`.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from laplacebridge_reproduction import authors, table1_ood, table3_layers
from laplacebridge_reproduction.catalogue import ARTIFACTS, page_of
from laplacebridge_reproduction.data import half_moons

FOLDER = Path(__file__).parents[2] / "docs" / "reproduction"


@pytest.fixture(scope="module")
def records():
    found = [json.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.json")]
    return {record["artifact"]: record for record in found}


@pytest.fixture(scope="module")
def results(records):
    return {name: record["result"] for name, record in records.items()}


def test_the_page_is_what_the_numbers_render_to(records):
    assert set(records) == set(ARTIFACTS)
    page = FOLDER.with_name("reproduction.md").read_text(encoding="utf-8")
    assert page == page_of(records.values(), pictures="reproduction/")


def test_the_page_for_the_authors_is_what_the_numbers_render_to(results):
    page = FOLDER.with_name("authors.md").read_text(encoding="utf-8")
    assert page == authors.page(results)


def test_the_half_moons_are_still_the_papers_points(results):
    """They come from scikit-learn, which could draw others one day."""
    moons = half_moons()
    torch.testing.assert_close(
        torch.tensor(results["figure3"]["inputs"]), moons.inputs, rtol=1e-4, atol=1e-5
    )
    assert results["figure3"]["labels"] == moons.labels.tolist()


@pytest.mark.parametrize("name", ["table1", "table2", "table3", "table4", "table6"])
def test_a_table_of_real_data_says_which_files_it_read(name, records):
    assert records[name]["profile"] == "small"
    assert all(len(digest) == 64 for digest in records[name]["data"].values())
    assert "mnist/train-images-idx3-ubyte.gz" in records[name]["data"]


def test_no_network_is_left_out(results):
    experiment = results["table1"]["MNIST"]
    assert experiment["seeds"] == list(range(7))
    accuracy = experiment["values"]["diagonal"]["MNIST"]["MAP"]["accuracy"]
    assert len(accuracy) == 7
    assert np.mean(accuracy) == pytest.approx(0.9884, abs=0.002)  # the authors' network


# How far the mean over networks may be from the authors' number, about half as much
# again as it is.
AUROC_APART = {
    ("diagonal", "MC"): 0.006,
    ("diagonal", "LB"): 0.02,
    ("diagonal", "LB-norm"): 0.014,
    ("Kronecker", "MC"): 0.005,
    ("Kronecker", "LB"): 0.013,
    ("Kronecker", "LB-norm"): 0.007,
}
ECE_APART = {"MC": 0.03, "LB": 0.05, "LB-norm": 0.05}


def test_detection_on_mnist_agrees_with_what_the_authors_stored(results):
    compared = table1_ood.comparisons(results["table1"])
    assert len(compared) == 18
    for cell, values, known in compared:
        assert min(values) <= known <= max(values), cell
        assert abs(np.mean(values) - known) <= AUROC_APART[cell.structure, cell.method], cell


def test_calibration_on_unusual_data_agrees_with_what_the_authors_stored(results):
    compared = [
        one
        for one in table1_ood.comparisons(results["table1"], metric="ece")
        if one[0].test != "MNIST"
    ]
    assert len(compared) == 18
    for cell, values, known in compared:
        assert abs(np.mean(values) - known) <= ECE_APART[cell.method], cell


def test_the_authors_precisions_give_their_calibration_on_cifar_100(results):
    """With the training images, and no prior matched to anything."""
    for cell, values, known in table1_ood.comparisons(results["table1"], "CIFAR-100", "ece"):
        if cell.test == "CIFAR-10" and cell.method in {"MC", "LB-norm"}:
            assert abs(values[0] - known) <= 0.03, cell
    assert "30,000 training images" in results["table1"]["CIFAR-100"]["note"]
    accuracy = results["table1"]["CIFAR-100"]["values"]["diagonal"]["CIFAR-100"]["MAP"]["accuracy"]
    assert accuracy == [pytest.approx(0.6601)]  # of all test images


def test_the_race_is_above_samples_and_lb_norm_wins_twice(results):
    over_samples, over_norm = (
        table1_ood.race_above(results["table1"], other) for other in ("MC", "LB-norm")
    )
    assert len(over_samples) == 6
    assert all(gain.low > 0 for gain in over_samples.values())
    lost = {place for place, gain in over_norm.items() if gain.high < 0}
    assert lost == {"notMNIST, Kronecker", "KMNIST, Kronecker"}


def test_what_does_not_flatter_is_said(results):
    told = ARTIFACTS["table1"].finding(results["table1"])
    for part in (
        "LB-norm detects better than the race in 2",
        "6 of 6 settings",
        "worse calibrated",
    ):
        assert part in told


def test_votes_judge_both_networks_and_hold_no_data(results, records):
    for name in ("ResNet-20", "ResNet-56"):
        methods = results["votes"][name]["methods"]
        assert len(methods) == 14
        for structure in ("diagonal", "Kronecker"):
            of = {
                name: methods[f"{name}, {structure}"]["nats_per_vote"]
                for name in ("LB", "LB-norm", "race")
            }
            assert of["race"] < min(of["LB"], of["LB-norm"])
    # numbers over all images, and none for one of them
    assert len(json.dumps(records["votes"])) < 10_000


def test_centring_takes_away_what_differs_between_networks_in_lb(results):
    values = results["table1"]["MNIST"]["values"]["diagonal"]["KMNIST"]
    assert np.ptp(values["LB, centred"]["auroc"]) < np.ptp(values["LB"]["auroc"]) / 2


def test_rows_without_data_say_so(results):
    assert results["table1"]["SVHN"] == {"missing": True}
    assert "SVHN" in results["table1"]["CIFAR-10"]["missing_tests"]
    assert "data not available here" in ARTIFACTS["table1"].tables(results["table1"])[0].markdown()


def test_the_probit_approximation_collapses_because_of_variance_that_softmax_cannot_see(results):
    experiment = results["table6"]["MNIST"]
    values, variances = (
        experiment["values"]["Kronecker"]["MNIST"],
        experiment["variances"]["Kronecker"]["MNIST"],
    )
    assert max(values["probit"]["mmc"]) < 0.11
    assert min(values["probit, centred"]["mmc"]) > 0.9
    assert min(np.array(variances["as they are"]) / np.array(variances["centred"])) > 100


def test_all_layers_agree_with_what_the_authors_stored(results):
    compared = table3_layers.comparisons(results["table3"])
    assert len(compared) == 18
    for cell, values, known in compared:
        if (cell.method, cell.structure) == (
            "LB",
            "diagonal",
        ):  # it depends on the level of the logits: see Table 1
            methods = results["table3"]["values"]["all layers"][cell.structure][cell.test]
            values = [*values, *methods["LB, centred"]["auroc"]]
        assert abs(np.mean(values) - known) <= 0.02, cell
