"""The overview and the two figures on ImageNet: they keep what the library computes,
and compare rules fairly.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from cases import seeded
from PIL import Image

from laplacebridge.bridges import laplace_bridge, race_bridge
from laplacebridge.covariance import Diagonal
from laplacebridge.gaussian import LogitGaussian
from laplacebridge.laplace.head import HeadNetwork
from laplacebridge.sets import Mass, TopK, overlap_sets
from laplacebridge_reproduction import figure1_overview, figure6_marginals, figure7_sets
from laplacebridge_reproduction.artifact import Run, reproduced
from laplacebridge_reproduction.conventions import MAX_SET_SIZE, overlap_threshold
from laplacebridge_reproduction.data import DataMissingError, ImageFolder
from laplacebridge_reproduction.data.dataset import scaled
from laplacebridge_reproduction.equal_length import (
    compared,
    held_by_mass,
    held_by_top_k,
    joined,
    ranking,
)
from laplacebridge_reproduction.figure6_marginals import COMPUTERS, chosen
from laplacebridge_reproduction.imagenet_experiment import experiment, features_of_folder, shifted
from laplacebridge_reproduction.models import EfficientNetLite0, initialised

SMOKE = Run("smoke", progress=False)
ARTIFACTS = (figure1_overview.FIGURE_1, figure6_marginals.FIGURE_6, figure7_sets.FIGURE_7)


@pytest.fixture(scope="module")
def results():
    """Each figure in the smoke profile, as read back from JSON."""
    return {
        artifact.name: json.loads(json.dumps(reproduced(artifact, SMOKE)))["result"]
        for artifact in ARTIFACTS
    }


@pytest.fixture(scope="module")
def generated():
    return experiment(SMOKE)


# the experiment


def test_the_prior_leaves_ninety_five_percent_of_the_confidence(generated):
    described = generated.described()
    assert described["confidence_of_race"] == pytest.approx(
        0.95 * described["confidence_of_network"], rel=1e-4
    )


def test_shifted_examples_are_harder_than_usual_ones(generated):
    with torch.no_grad():
        right = [
            (generated.posterior(data.inputs).mean.argmax(-1) == data.labels).double().mean().item()
            for data in (generated.judged, shifted(SMOKE))
        ]
    assert 0.2 < right[1] < right[0] < 0.9


def test_the_papers_profile_says_that_imagenet_is_missing(tmp_path):
    with pytest.raises(DataMissingError, match="imagenet/train is not in"):
        experiment(Run("paper", progress=False, data=tmp_path))


def test_features_of_a_folder_are_those_of_its_images_all_at_once(tmp_path):
    generator = np.random.default_rng(0)
    for name in ("n01", "n02"):
        (tmp_path / name).mkdir()
        for number in range(3):  # six in all, so that the last of the batches is not full
            pixels = generator.integers(0, 256, (256, 256, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{number}.png")
    folder = ImageFolder.at(Path(tmp_path), name="noise")
    network = initialised(EfficientNetLite0, seed=0).eval()
    found = features_of_folder(HeadNetwork(network, "_fc"), folder, SMOKE)
    images, labels = next(folder.batches(len(folder)))
    with torch.no_grad():
        expected = network.features(scaled(images))
    torch.testing.assert_close(found.inputs, expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(found.labels, labels)
    assert found.class_names == ("n01", "n02")


# equal length


@pytest.fixture(scope="module")
def probabilities():
    return (3 * torch.randn(200, 30, generator=seeded(1), dtype=torch.float64)).softmax(-1)


@pytest.fixture(scope="module")
def labels(probabilities):
    return torch.multinomial(probabilities, 1, generator=seeded(2)).squeeze(-1)


@pytest.fixture(scope="module")
def ranked(probabilities, labels):
    return joined([ranking(*part) for part in zip(probabilities.log().split(70), labels.split(70))])


@pytest.mark.parametrize("mass", [0.0, 0.5, 0.8, 0.95])
def test_members_taken_by_mass_are_the_sets_of_cumulative_mass_cut_at_ten(
    mass, probabilities, labels, ranked
):
    sets = Mass()(probabilities, mass)
    held = held_by_mass(ranked, int(sets.size.clamp_max(MAX_SET_SIZE).sum()))
    expected = sets.contains(labels) & TopK()(probabilities, MAX_SET_SIZE).contains(labels)
    assert torch.equal(held.bool(), expected)


@pytest.mark.parametrize("k", [1, 3, 10])
def test_top_k_of_a_whole_length_is_the_top_k_sets(k, probabilities, labels, ranked):
    assert torch.equal(
        held_by_top_k(ranked, float(k)).bool(), TopK()(probabilities, k).contains(labels)
    )


def test_top_k_between_two_lengths_is_as_far_between_their_coverage(ranked):
    two, between, three = (
        held_by_top_k(ranked, length).mean().item() for length in (2.0, 2.25, 3.0)
    )
    assert between == pytest.approx(0.75 * two + 0.25 * three)
    assert two < three


def test_the_error_of_a_comparison_is_that_of_paired_images():
    own, other = torch.tensor([1.0, 1.0, 0.0, 1.0]), torch.tensor([1.0, 0.0, 0.0, 1.0])
    found = compared(own, other)
    assert found["covered"] == 0.5
    assert found["more"] == 0.25
    assert found["error"] == pytest.approx(np.std([0, 1, 0, 0], ddof=1) / 2)
    assert compared(own, own) == {"covered": 0.75, "more": 0.0, "error": 0.0}


# the figures


def test_figure_1_follows_one_image_from_logits_to_means(results):
    found = results["figure1"]
    logits = torch.tensor(found["logits"]["mean"], dtype=torch.float64)
    np.testing.assert_allclose(logits.softmax(-1), found["network"], rtol=1e-3)
    for entry in found["bridges"].values():
        np.testing.assert_allclose(
            np.array(entry["alpha"]) / sum(entry["alpha"]), entry["mean"], rtol=1e-3
        )
    np.testing.assert_allclose(
        found["bridges"]["race"]["mean"], found["samples"]["mean"], atol=0.005
    )
    assert max(found["samples"]["mean"]) < max(found["network"])


def test_figure_1_draws_weights_that_data_made_surer_than_the_prior(results):
    covariance = np.array(results["figure1"]["weights"]["covariance"])
    variances = np.linalg.eigvalsh(covariance)
    assert variances.min() > 0
    assert variances.max() < 1 / results["figure1"]["prior_precision"]


def test_figure_6_shows_sets_of_the_wanted_sizes(results):
    examples = results["figure6"]["examples"]
    sizes = [example["bridges"]["race"]["size"] for example in examples]
    assert sizes[1:] == [2, 3, 1]
    assert sizes[0] > 3
    for example in examples:
        np.testing.assert_allclose(
            example["bridges"]["race"]["mean"], example["samples"]["mean"], atol=0.03
        )
        for density in example["samples"]["density"]:
            assert np.mean(density) == pytest.approx(1, rel=1e-3)
        for entry in example["bridges"].values():
            alpha = np.exp(np.array(entry["log_alpha"]) - max(entry["log_alpha"]))
            np.testing.assert_allclose(
                alpha[:-1] / alpha.sum(), entry["mean"], rtol=2e-3, atol=1e-6
            )


def test_computers_come_first_among_images_of_a_size():
    sizes, masses = torch.tensor([7, 2, 2, 5, 2]), torch.tensor([0.1, 0.9, 0.5, 0.2, 0.8])
    plants = torch.tensor([1, 2, 3, 4, 5])
    assert chosen(sizes, masses, plants, None) == 0  # the largest
    assert chosen(sizes, masses, plants, 2) == 4  # the middle one
    with_computers = torch.tensor([1, 2, COMPUTERS[0], COMPUTERS[1], 5])
    assert chosen(sizes, masses, with_computers, None) == 3
    assert chosen(sizes, masses, with_computers, 2) == 2
    assert (
        chosen(sizes, masses, with_computers, 6) == 3
    )  # none has six; the first and this are as near


def test_figure_7_keeps_what_algorithm_1_returns(results, generated):
    found = results["figure7"]["data"]["in distribution"]
    judged = generated.judged
    with torch.no_grad():
        dirichlet = race_bridge(generated.posterior(judged.inputs))
    for place, overlap in enumerate(figure7_sets.OVERLAPS):
        sets = overlap_sets(dirichlet, overlap_threshold(overlap), MAX_SET_SIZE)
        entry = found["methods"]["race"]
        assert entry["length"][place] == pytest.approx(sets.size.double().mean().item(), rel=1e-4)
        assert entry["covered"][place] == pytest.approx(
            sets.contains(judged.labels).double().mean().item(), rel=1e-4
        )
        whole = overlap_sets(dirichlet, overlap_threshold(overlap))
        assert entry["uncapped"]["length"][place] == pytest.approx(
            whole.size.double().mean().item(), rel=1e-4
        )


def test_figure_7_is_consistent(results):
    for found in results["figure7"]["data"].values():
        for entry in found["methods"].values():
            sizes = np.arange(1, MAX_SET_SIZE + 1)
            assert sum(entry["histogram"]) == found["images"]
            assert sizes @ entry["histogram"] / found["images"] == pytest.approx(
                entry["length"][figure7_sets.SHOWN]
            )
            assert (np.diff(entry["length"]) <= 0).all()  # more overlap demanded, fewer classes
            assert entry["length"][-1] == 1
        race = found["methods"]["race"]
        for rule in race["others"].values():
            for own, other in zip(race["covered"], rule):
                assert own - other["covered"] == pytest.approx(other["more"], abs=1e-4)
        assert found["curves"]["top-k"][0] == found["curves"]["mass"][0] == found["top_1"]


def test_figure_7_knows_which_logit_holds_half_of_the_mass_by_equation_7():
    mean = torch.randn(1, 1000, generator=seeded(3), dtype=torch.float64)
    for _ in range(
        20
    ):  # the height needed depends a little on the height itself, through the mean of all logits
        needed = figure7_sets._height_for_half(LogitGaussian(mean, Diagonal(torch.ones_like(mean))))
        mean[0, 0] = mean[0].mean() + needed[0]
    bridged = laplace_bridge(LogitGaussian(mean, Diagonal(torch.ones_like(mean))))
    assert bridged.mean[0, 0].item() == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("artifact", ARTIFACTS, ids=lambda artifact: artifact.name)
def test_what_is_kept_is_small_and_is_all_that_is_shown(artifact, results, tmp_path):
    result = results[artifact.name]
    assert len(json.dumps(result)) < 200_000
    artifact.figure(result).savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 20_000
    assert all(table.rows for table in artifact.tables(result))
    assert "nan" not in artifact.finding(result)


@pytest.mark.data
@pytest.mark.slow
def test_figure_6_finds_examples_of_the_papers_kind_on_real_images(data_folder):
    run = Run("small", progress=False, data=data_folder)
    result = figure6_marginals.compute(run)
    assert [example["bridges"]["race"]["size"] for example in result["examples"]][1:] == [2, 3, 1]
    assert result["examples"][1]["classes"][:2] == ["notebook computer", "laptop computer"]
    assert any(name.startswith("weights/") for name in run.used)
    for example in result["examples"]:
        np.testing.assert_allclose(
            example["bridges"]["race"]["mean"], example["samples"]["mean"], atol=0.01
        )
