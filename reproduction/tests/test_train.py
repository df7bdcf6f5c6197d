"""Training: the same weights for the same seed, interrupted or not, and found again."""

import re
from dataclasses import replace

import pytest
import torch
from cases import seeded
from torch import nn
from torch.nn import functional

from laplacebridge.errors import CheckpointError
from laplacebridge_reproduction import train as training
from laplacebridge_reproduction.data import DataSet, augment, half_moons
from laplacebridge_reproduction.models import initialised, moons_mlp, normalise
from laplacebridge_reproduction.train import (
    CIFAR,
    HALF_MOONS,
    MNIST,
    SVHN,
    DivergedError,
    TrainSettings,
    train,
)

STOP_AT: set[int] = set()  # epochs before which a run is interrupted
SEEN: list[int] = []  # epochs that were begun


def watched(epoch, epochs):
    """The schedule of most tests here: it says which epochs are run, and may interrupt."""
    if epoch in STOP_AT:
        STOP_AT.remove(epoch)
        raise KeyboardInterrupt
    SEEN.append(epoch)
    return 1 - epoch / (2 * epochs)


@pytest.fixture(autouse=True)
def nothing_seen():
    STOP_AT.clear()
    SEEN.clear()


def squares(logits, labels):
    return (logits - functional.one_hot(labels, 3)).square().mean()


ADAM = TrainSettings(epochs=5, batch_size=8, schedule=watched)
SGD = replace(
    ADAM,
    optimizer=torch.optim.SGD,
    learning_rate=0.05,
    momentum=0.9,
    augment=augment.crop_flip_rotate,
)
FULL_BATCH = replace(ADAM, batch_size=None)
SETTINGS = {"Adam": ADAM, "SGD, augmented": SGD, "all at once": FULL_BATCH}


def images(count=20, seed=0):
    inputs = torch.randint(0, 256, (count, 3, 8, 8), generator=seeded(seed), dtype=torch.uint8)
    return DataSet("noise", inputs, torch.arange(count) % 3, ("a", "b", "c"))


def network():
    """With all that keeps a state or draws at random."""
    layers = (
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Flatten(),
        nn.Linear(144, 3),
    )
    return nn.Sequential(*layers)


def first(seed=1):
    return initialised(network, seed=seed)


def same(one, other):
    pairs = zip(one.state_dict().values(), other.state_dict().values())
    return all(torch.equal(left, right) for left, right in pairs)


@pytest.mark.parametrize("name", SETTINGS)
def test_an_interrupted_training_ends_with_the_same_weights(tmp_path, monkeypatch, name):
    monkeypatch.setattr(training, "SECONDS_BETWEEN_CHECKPOINTS", 0)
    whole = train(first(), images(), SETTINGS[name], cache=tmp_path / "whole", progress=False)
    assert SEEN == [0, 1, 2, 3, 4]
    SEEN.clear()
    STOP_AT.update({2, 4})
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            train(first(), images(), SETTINGS[name], cache=tmp_path / "parts", progress=False)
        torch.rand(17)  # the global state of the next process is another
    resumed = train(first(), images(), SETTINGS[name], cache=tmp_path / "parts", progress=False)
    assert SEEN == [0, 1, 2, 3, 4]  # none twice
    assert same(whole, resumed)
    assert [path.suffix for path in (tmp_path / "parts" / "networks").iterdir()] == [".safetensors"]


def test_checkpoints_are_written_only_now_and_then(tmp_path):
    STOP_AT.add(3)
    with pytest.raises(KeyboardInterrupt):
        train(first(), images(), ADAM, cache=tmp_path, progress=False)
    assert list((tmp_path / "networks").iterdir()) == []


def test_a_trained_network_is_found_again(tmp_path):
    trained = train(first(), images(), ADAM, cache=tmp_path, progress=False)
    assert not trained.training
    SEEN.clear()
    found = train(first(), images(), ADAM, cache=tmp_path, progress=False)
    assert SEEN == []
    assert same(trained, found)
    assert not found.training


DIFFERENT = {
    "weights": lambda: (first(seed=2), images(), ADAM),
    "data": lambda: (first(), images(seed=1), ADAM),
    "labels": lambda: (first(), replace(images(), labels=torch.arange(20) % 2), ADAM),
    "seed": lambda: (first(), images(), replace(ADAM, seed=1)),
    "epochs": lambda: (first(), images(), replace(ADAM, epochs=4)),
    "augmentation": lambda: (first(), images(), replace(ADAM, augment=augment.crop_flip_rotate)),
    "loss": lambda: (first(), images(), replace(ADAM, loss=squares)),
    "activation": lambda: (
        nn.Sequential(*(nn.Tanh() if index == 2 else m for index, m in enumerate(first()))),
        images(),
        ADAM,
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_whatever_changes_the_result_is_trained_anew(tmp_path, name):
    train(first(), images(), ADAM, cache=tmp_path, progress=False)
    SEEN.clear()
    train(*DIFFERENT[name](), cache=tmp_path, progress=False)
    assert SEEN[0] == 0
    assert len(list((tmp_path / "networks").iterdir())) == 2


def test_networks_that_normalise_differently_are_trained_apart(tmp_path):
    for statistics in (normalise.IMAGENET, normalise.NONE):
        head = initialised(lambda: nn.Linear(192, 3), seed=0)
        train(
            nn.Sequential(normalise.Normalise(statistics), nn.Flatten(), head),
            images(),
            ADAM,
            cache=tmp_path,
            progress=False,
        )
    assert len(list((tmp_path / "networks").iterdir())) == 2


def test_the_cache_is_the_argument_or_the_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("LAPLACEBRIDGE_CACHE", str(tmp_path / "variable"))
    train(first(), images(), ADAM, progress=False)
    train(first(), images(), ADAM, cache=tmp_path / "argument", progress=False)
    assert SEEN == [0, 1, 2, 3, 4] * 2
    assert all((tmp_path / place / "networks").is_dir() for place in ("variable", "argument"))


def test_the_global_random_state_is_neither_used_nor_changed(tmp_path):
    with torch.random.fork_rng():
        states = []
        for seed in (3, 4):
            torch.manual_seed(seed)
            before = torch.get_rng_state()
            trained = train(first(), images(), ADAM, cache=tmp_path / str(seed), progress=False)
            assert torch.equal(torch.get_rng_state(), before)
            states.append(trained)
    assert same(*states)


def test_all_data_at_once_is_the_textbook_loop(tmp_path):
    data = half_moons()
    settings = replace(HALF_MOONS, epochs=20)
    trained = train(
        initialised(moons_mlp, seed=7777), data, settings, cache=tmp_path, progress=False
    )
    expected = initialised(moons_mlp, seed=7777)
    optimizer = torch.optim.Adam(expected.parameters(), lr=1e-3, weight_decay=5e-4)
    for _ in range(20):
        optimizer.zero_grad()
        functional.cross_entropy(expected(data.inputs), data.labels).backward()
        optimizer.step()
    assert same(trained, expected)


def test_the_loss_is_the_one_asked_for(tmp_path):
    data = images()
    settings = replace(
        FULL_BATCH, epochs=1, loss=squares, optimizer=torch.optim.SGD, weight_decay=0.0
    )
    linear = initialised(lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 3)), seed=0)
    before = linear[1].bias.detach().clone()
    slope = 2 * (linear(data.scaled).detach() - functional.one_hot(data.labels, 3)).mean(0) / 3
    train(linear, data, settings, cache=tmp_path, progress=False)
    torch.testing.assert_close(linear[1].bias.detach(), before - settings.learning_rate * slope)


def test_the_half_moons_are_learned(tmp_path):
    data = half_moons()
    trained = train(
        initialised(moons_mlp, seed=7777), data, HALF_MOONS, cache=tmp_path, progress=False
    )
    with torch.no_grad():
        assert (trained(data.inputs).argmax(-1) == data.labels).double().mean() >= 0.99


def test_every_example_is_seen_once_in_an_epoch(tmp_path):
    seen = []

    class Watching(nn.Linear):
        def forward(self, inputs):
            seen.append(inputs[:, 0].clone())
            return super().forward(inputs)

    data = DataSet("numbers", torch.arange(20.0)[:, None], torch.arange(20) % 2, ("even", "odd"))
    train(Watching(1, 2), data, replace(ADAM, epochs=2), cache=tmp_path, progress=False)
    assert [len(batch) for batch in seen] == [8, 8, 4] * 2
    epochs = torch.cat(seen).view(2, 20)
    assert torch.equal(epochs.sort(-1).values, data.inputs.T.expand(2, 20))
    assert not torch.equal(epochs[0], epochs[1])


def test_the_schedule_multiplies_the_rate(tmp_path):
    rates = []

    class Recording(torch.optim.SGD):
        def step(self):
            rates.append(self.param_groups[0]["lr"])
            super().step()

    Recording.__qualname__ = "Recording"
    settings = replace(FULL_BATCH, optimizer=Recording, learning_rate=0.5)
    train(first(), images(), settings, cache=tmp_path, progress=False)
    assert rates == pytest.approx([0.5, 0.45, 0.4, 0.35, 0.3])


def test_a_loss_that_is_not_finite_is_an_error_and_nothing_is_kept(tmp_path):
    inputs = torch.zeros(4, 2)
    inputs[2, 1] = torch.nan
    broken = DataSet("broken", inputs, torch.zeros(4, dtype=torch.int64), ("a", "b"))
    with pytest.raises(
        DivergedError, match=r"became nan in epoch 1 of 5, with a learning rate of 0.001"
    ):
        train(nn.Linear(2, 2), broken, ADAM, cache=tmp_path, progress=False)
    fast = replace(SGD, learning_rate=1e30, augment=augment.unchanged)
    with pytest.raises(
        DivergedError, match=r"became (nan|inf) in epoch 1 .* try a smaller `learning_rate`"
    ):
        train(first(), images(), fast, cache=tmp_path, progress=False)
    large = DataSet("large", torch.full((4, 2), 1e3), torch.tensor([0, 1, 0, 0]), ("a", "b"))
    once = replace(fast, learning_rate=1e38, epochs=1, batch_size=None)
    with pytest.raises(DivergedError, match="last step"):
        train(
            initialised(lambda: nn.Linear(2, 2), seed=0),
            large,
            once,
            cache=tmp_path,
            progress=False,
        )
    assert list((tmp_path / "networks").iterdir()) == []


@pytest.mark.parametrize("writer", ["save_file", "torch.save"])
def test_files_are_written_atomically(tmp_path, monkeypatch, writer):
    def full(_, path, **__):
        path.write_bytes(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(training, "SECONDS_BETWEEN_CHECKPOINTS", 0)
    monkeypatch.setattr(
        *((training, "save_file") if writer == "save_file" else (torch, "save")), full
    )
    with pytest.raises(OSError, match="No space left"):
        train(first(), images(), ADAM, cache=tmp_path, progress=False)
    left = list((tmp_path / "networks").iterdir())
    assert [path.suffix for path in left] == ([".checkpoint"] if writer == "save_file" else [])


def test_a_damaged_file_in_the_cache_is_named(tmp_path):
    train(first(), images(), ADAM, cache=tmp_path, progress=False)
    (finished,) = (tmp_path / "networks").iterdir()
    finished.write_bytes(finished.read_bytes()[:-10])
    with pytest.raises(CheckpointError, match=re.escape(f"{finished} is damaged")):
        train(first(), images(), ADAM, cache=tmp_path, progress=False)
    finished.unlink()
    checkpoint = finished.with_suffix(".checkpoint")
    torch.save({"model": first().state_dict()}, checkpoint)
    cut = checkpoint.read_bytes()[:-100]
    for content in (b"", b"text", cut):
        checkpoint.write_bytes(content)
        with pytest.raises(CheckpointError, match=re.escape(f"{checkpoint} is damaged")):
            train(first(), images(), ADAM, cache=tmp_path, progress=False)


def test_progress_is_shown_if_asked(tmp_path, capsys):
    train(first(), images(), ADAM, cache=tmp_path / "quiet", progress=False)
    assert capsys.readouterr().err == ""
    train(first(), images(), ADAM, cache=tmp_path / "shown", progress=True)
    shown = capsys.readouterr().err
    assert "training: 100%" in shown
    assert "15/15" in shown
    assert "loss=" in shown


def test_settings_are_checked():
    for bad in ({"epochs": 0}, {"batch_size": 0}):
        with pytest.raises(ValueError, match="at least 1 of each"):
            replace(ADAM, **bad)
    for nameless in (
        {"schedule": lambda epoch, epochs: 1.0},
        {"loss": lambda logits, labels: logits.mean()},
    ):
        with pytest.raises(ValueError, match="that have names; got <function"):
            replace(ADAM, **nameless)


def test_no_examples_are_an_error(tmp_path):
    with pytest.raises(ValueError, match="'noise' has none"):
        train(first(), images()[:0], ADAM, cache=tmp_path, progress=False)


def test_the_papers_settings_can_be_described():
    names = {
        name: setting.described()
        for name, setting in (("moons", HALF_MOONS), ("mnist", MNIST), ("svhn", SVHN))
    }
    assert names["moons"]["batch_size"] is None
    assert names["mnist"]["optimizer"] == "torch.optim.adam.Adam"
    assert names["svhn"]["schedule"] == "laplacebridge_reproduction.train.tenths"
    assert replace(ADAM, loss=squares).described()["loss"].endswith("test_train.squares")
    assert (
        CIFAR.described()["augment"] == "laplacebridge_reproduction.data.augment.crop_flip_rotate"
    )
