"""Prior networks: their Dirichlets, their losses, and training with and without
examples from outside.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from cases import seeded
from scipy.special import digamma, gammaln
from torch import nn

import laplacebridge as lb
from laplacebridge_reproduction import train as training
from laplacebridge_reproduction.data import DataSet
from laplacebridge_reproduction.models import PriorNetwork, initialised
from laplacebridge_reproduction.models.prior_network import dirichlet_from_logits
from laplacebridge_reproduction.prior_training import (
    NUM_OUTSIDE_TRAINING,
    forward_kl,
    reverse_kl,
    split_outside,
    target_dirichlet,
    train_prior_network,
    with_outside,
)
from laplacebridge_reproduction.train import DivergedError, TrainSettings

LOSSES = {"reverse": reverse_kl, "forward": forward_kl}
EVERY_LOSS = pytest.mark.parametrize("direction", LOSSES)
CLASSES = 4
LABELS = torch.tensor([0, 1, 2, 3, CLASSES, CLASSES])  # the last two are from outside


def logits_of(size):
    return size * torch.randn(len(LABELS), CLASSES, generator=seeded(0), dtype=torch.float64)


# the Dirichlet


def test_concentrations_are_one_more_than_the_exponential_of_logits():
    logits = logits_of(3.0)
    torch.testing.assert_close(dirichlet_from_logits(logits).concentration, logits.exp() + 1)
    for extreme in (-1000.0, 1000.0):
        assert dirichlet_from_logits(torch.full((1, 3), extreme)).mean.isfinite().all()


@pytest.mark.parametrize("size", [0.1, 3.0, 30.0])
def test_the_mode_is_the_softmax_of_logits_which_the_authors_predict(size):
    for logits, tolerance in ((logits_of(size), 1e-12), (logits_of(size).float(), 2e-5)):
        mode = dirichlet_from_logits(logits).mode
        torch.testing.assert_close(mode, logits.softmax(-1), rtol=tolerance, atol=tolerance)


def test_a_prior_network_is_read_by_scores_sets_and_metrics():
    network = PriorNetwork(nn.Linear(3, CLASSES))
    with torch.no_grad():
        prediction = network(torch.randn(20, 3, generator=seeded(0)))
    assert isinstance(prediction, lb.Dirichlet)
    lb.check(prediction)
    assert (
        len(lb.sets.overlap_sets(prediction)) == len(lb.scores.mutual_information(prediction)) == 20
    )
    assert 0 <= lb.metrics.accuracy(prediction, torch.arange(20) % CLASSES) <= 1


# losses


def divergence_by_scipy(first, second):
    """KL between Dirichlets from their concentrations, by its definition."""
    total = first.sum(-1)
    expected_log = digamma(first) - digamma(total)[:, None]
    normalisers = [gammaln(alpha.sum(-1)) - gammaln(alpha).sum(-1) for alpha in (first, second)]
    return normalisers[0] - normalisers[1] + ((first - second) * expected_log).sum(-1)


@pytest.mark.parametrize("evidence", [1.0, 100.0])
@EVERY_LOSS
def test_losses_are_the_mean_divergence_in_their_direction(direction, evidence):
    logits = logits_of(1.5)
    network, target = 1 + np.exp(logits.numpy()), np.ones((len(LABELS), CLASSES))
    target[np.arange(CLASSES), np.arange(CLASSES)] += evidence
    pair = (network, target) if direction == "reverse" else (target, network)
    loss = LOSSES[direction](logits, LABELS, evidence=evidence)
    assert loss.item() == pytest.approx(divergence_by_scipy(*pair).mean(), rel=1e-9)
    by_torch = torch.distributions.kl_divergence(
        *(torch.distributions.Dirichlet(torch.as_tensor(a)) for a in pair)
    )
    torch.testing.assert_close(loss, by_torch.mean(), rtol=1e-9, atol=0)


@pytest.mark.parametrize("size", [0.1, 1.5])
@EVERY_LOSS
def test_gradients_of_losses_are_right(direction, size):
    assert torch.autograd.gradcheck(
        lambda logits: LOSSES[direction](logits, LABELS), logits_of(size).requires_grad_()
    )


@pytest.mark.parametrize("size", [-200.0, -30.0, 0.0, 30.0, 80.0])
@EVERY_LOSS
def test_losses_and_gradients_stay_finite_where_concentrations_leave_float32(direction, size):
    logits = (size + torch.randn(len(LABELS), CLASSES, generator=seeded(1))).requires_grad_()
    loss = LOSSES[direction](logits, LABELS)
    loss.backward()
    assert loss.isfinite()
    assert logits.grad.isfinite().all()


@EVERY_LOSS
def test_losses_vanish_at_the_target_and_only_there(direction):
    label, flat = torch.tensor([2]), torch.tensor([CLASSES])
    nothing = torch.full((1, CLASSES), -40.0, dtype=torch.float64)
    right, wrong = (nothing.clone().index_fill_(1, torch.tensor([place]), 0.0) for place in (2, 1))
    loss = LOSSES[direction]
    assert loss(right, label) < 1e-12
    assert loss(nothing, flat) < 1e-12
    assert min(loss(wrong, label), loss(right, flat), loss(nothing, label)) > 0.1


def test_labels_beyond_outside_are_refused():
    with pytest.raises(RuntimeError, match="smaller than num_classes"):
        target_dirichlet(torch.tensor([CLASSES + 1]), CLASSES)


# training

CENTRES = torch.tensor([[2.0, 0.0], [-1.0, 1.7], [-1.0, -1.7]])
SETTINGS = TrainSettings(epochs=100, batch_size=None, learning_rate=1e-2)


def blobs(count=300, seed=0):
    labels = torch.arange(count) % 3
    points = CENTRES[labels] + 0.4 * torch.randn(count, 2, generator=seeded(seed))
    return DataSet("blobs", points, labels, ("a", "b", "c"))


def beyond(count=100, seed=1):
    """Beyond the second blob, where a network that knows of blobs only is surer than
    inside it.
    """
    points = torch.tensor([-2.5, 4.2]) + 0.3 * torch.randn(count, 2, generator=seeded(seed))
    return DataSet("beyond", points, torch.zeros(count, dtype=torch.int64), ("a",))


def network():
    return nn.Sequential(
        nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3)
    )


def trained(tmp_path, settings=SETTINGS, **options):
    first = initialised(network, seed=3)
    return train_prior_network(first, blobs(), settings, cache=tmp_path, progress=False, **options)


def detected(prior_network):
    """AUROC of what is beyond, by how much evidence there is, and the accuracy on
    blobs, both on new examples.
    """
    inside = blobs(seed=10)
    with torch.no_grad():
        predictions = prior_network(inside.inputs), prior_network(beyond(seed=11).inputs)
    auroc = lb.metrics.auroc(
        *(lb.scores.negative_log_total(prediction) for prediction in predictions)
    )
    return auroc, lb.metrics.accuracy(predictions[0], inside.labels)


@EVERY_LOSS
def test_examples_from_outside_teach_a_network_to_tell_them(tmp_path, direction):
    loss = LOSSES[direction]
    with_them, accuracy = detected(trained(tmp_path, loss=loss, outside=beyond()))
    without, accuracy_without = detected(trained(tmp_path, loss=loss))
    assert with_them > 0.99
    assert without < 0.5
    assert min(accuracy, accuracy_without) > 0.98


def test_a_trained_prior_network_is_found_again_and_every_way_of_training_is_kept_apart(tmp_path):
    short = replace(SETTINGS, epochs=2)
    ways = [{}, {"loss": forward_kl}, {"outside": beyond()}, {"outside": beyond(seed=2)}]
    networks = [trained(tmp_path, short, **way) for way in ways]
    files = list((tmp_path / "networks").iterdir())
    assert len(files) == len(ways)
    times = {file: file.stat().st_mtime_ns for file in files}
    for way, known in zip(ways, networks):
        again = trained(tmp_path, short, **way)
        assert not again.training
        assert all(torch.equal(*pair) for pair in zip(known.parameters(), again.parameters()))
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "networks").iterdir()} == times


STOP: list[int] = []


def interrupting(epoch, epochs):
    if STOP and epoch == STOP[0]:
        STOP.clear()
        raise KeyboardInterrupt
    return 1.0


def test_an_interrupted_training_ends_with_the_same_prior_network(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "SECONDS_BETWEEN_CHECKPOINTS", 0)
    settings = replace(SETTINGS, epochs=4, schedule=interrupting)
    whole = trained(tmp_path / "whole", settings, outside=beyond())
    STOP[:] = [2]
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "parts", settings, outside=beyond())
    assert [path.suffix for path in (tmp_path / "parts" / "networks").iterdir()] == [".checkpoint"]
    resumed = trained(tmp_path / "parts", settings, outside=beyond())
    assert all(torch.equal(*pair) for pair in zip(whole.parameters(), resumed.parameters()))


@EVERY_LOSS
def test_a_diverging_training_is_an_error_and_nothing_is_kept(tmp_path, direction):
    fast = replace(SETTINGS, learning_rate=1e30, optimizer=torch.optim.SGD)
    with pytest.raises(
        DivergedError, match=r"became (nan|inf) in epoch \d+ of 100.* try a smaller `learning_rate`"
    ):
        trained(tmp_path, fast, loss=LOSSES[direction])
    assert list((tmp_path / "networks").iterdir()) == []


# data from outside


def test_the_two_parts_of_unusual_data_share_no_example():
    data = DataSet(
        "ten",
        torch.arange(10.0)[:, None],
        torch.zeros(10, dtype=torch.int64),
        ("a",),
        {"file": "hash"},
    )
    split = split_outside(data, num_training=4)
    assert torch.equal(torch.cat([split.training.inputs, split.evaluation.inputs]), data.inputs)
    assert (split.training.name, split.evaluation.name) == ("ten, first 4", "ten, last 6")
    assert split.training.sha256 == data.sha256
    for number in (0, 10, 11):
        with pytest.raises(
            ValueError, match="needs from 1 to 9 of the 10 examples of 'ten' to train on"
        ):
            split_outside(data, num_training=number)


def test_unusual_examples_have_the_last_class():
    mixed = with_outside(blobs(30), beyond(7))
    assert mixed.class_names == ("a", "b", "c", "outside")
    assert mixed.labels.bincount().tolist() == [10, 10, 10, 7]
    assert torch.equal(mixed.inputs[30:], beyond(7).inputs)
    assert mixed.name == "blobs, and outside beyond"


def test_unusual_examples_of_another_shape_or_type_are_refused():
    images = DataSet(
        "images", torch.zeros(2, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 0]), ("a",)
    )
    with pytest.raises(
        lb.errors.ShapeError,
        match=r"\(2,\) in torch.float32 \('blobs'\) and \(1, 8, 8\) in torch.uint8",
    ):
        with_outside(blobs(), images)


@pytest.mark.data
def test_half_of_fashion_mnist_is_trained_on_and_both_halves_hold_every_class(data_folder):
    from laplacebridge_reproduction.data import find

    split = split_outside(find("fashion-mnist", "test", data_folder, download=False))
    assert len(split.training) == len(split.evaluation) == NUM_OUTSIDE_TRAINING
    for part in split:
        assert (part.labels.bincount(minlength=10) > 400).all()
