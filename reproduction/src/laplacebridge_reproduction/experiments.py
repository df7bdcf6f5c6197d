"""The experiments of the tables: trained networks, what they are fitted on, and what
they are judged by.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import nn

from laplacebridge_reproduction import conventions
from laplacebridge_reproduction.artifact import Run
from laplacebridge_reproduction.data import DataMissingError, DataSet, half_moons
from laplacebridge_reproduction.models import (
    initialised,
    mnist_cnn,
    moons_mlp,
    normalise,
    pretrained,
    resnet18,
    svhn_resnet18,
)
from laplacebridge_reproduction.stored import Cell, stored
from laplacebridge_reproduction.train import CIFAR, HALF_MOONS, MNIST, SVHN, TrainSettings, train

STRUCTURES = ("diagonal", "Kronecker")
NUM_NETWORKS = 5
# The authors' network has 98.84 %. With their settings about half of all seeds end
# below this, and are left out.
LEAST_MNIST_ACCURACY = 0.987
MOST_SEEDS = 25

TITLES = {
    "fashion-mnist": "Fashion-MNIST",
    "notmnist": "notMNIST",
    "kmnist": "KMNIST",
    "cifar-10": "CIFAR-10",
    "cifar-100": "CIFAR-100",
    "svhn": "SVHN",
}


@dataclass(frozen=True)
class Trained:
    """A trained network.

    Attributes:
        network: Network in evaluation mode.
        seed: Seed of its training, and of the samples that are drawn with it.
    """

    network: nn.Module
    seed: int


@dataclass(frozen=True)
class Fit:
    """A posterior of the last layer.

    Attributes:
        structure: ``diagonal`` or ``Kronecker``.
        prior_precision: Precision of the prior; None to choose it by the next.
        confidence_kept: Which share of the network's mean maximum confidence the
            posterior should leave.
    """

    structure: str
    prior_precision: float | None = None
    confidence_kept: float | None = None


@dataclass(frozen=True)
class Experiment:
    """Networks of one architecture, trained on one data set.

    Attributes:
        name: Name of the data set they were trained on.
        networks: The networks.
        training: What the posterior is fitted on.
        inside: Test data of the same kind.
        outside: Test data of other kinds, by name; None where the data is not
            available.
        fits: The posteriors, by name, the paper's first.
        left_out: Accuracy of trained networks that were left out, by seed.
        note: How it differs from the paper's.
    """

    name: str
    networks: list[Trained]
    training: DataSet
    inside: DataSet
    outside: dict[str, DataSet | None]
    fits: dict[str, Fit]
    left_out: dict[int, float]
    note: str


def accuracy_of(network: nn.Module, data: DataSet) -> float:
    """Share of images that a network gets right."""
    with torch.no_grad():
        right = [
            (
                network(data[rows : rows + 1000].scaled).argmax(-1)
                == data.labels[rows : rows + 1000]
            ).sum()
            for rows in range(0, len(data), 1000)
        ]
    return float(torch.stack(right).sum() / len(data))


def generated(run: Run) -> Experiment:
    """Half-moons, with points far from them as unusual data: seconds, to see that
    everything runs.
    """
    moons = half_moons(600, seed=run.seed)
    far_points = 6 * torch.randn(300, 2, generator=torch.Generator().manual_seed(run.seed))
    far = DataSet("far points", far_points, moons.labels[:300], moons.class_names)
    settings = replace(HALF_MOONS, epochs=100, learning_rate=0.02)
    networks = [
        _trained(replace(run, seed=seed), moons_mlp, moons[:300], settings)
        for seed in (run.seed, run.seed + 1)
    ]
    fits = {name: Fit(name, conventions.PRIOR_PRECISION) for name in STRUCTURES}
    outside: dict[str, DataSet | None] = {"far points": far}
    return Experiment(
        "half-moons", networks, moons[:300], moons[300:], outside, fits, {}, "Generated data."
    )


def mnist(run: Run) -> Experiment:
    """MNIST with networks that differ in seed, the first that are as accurate as the
    authors'.
    """
    training, inside = run.find("mnist", "train"), run.find("mnist")
    networks: list[Trained] = []
    left_out = {}
    for seed in range(run.seed, run.seed + MOST_SEEDS):
        trained = _trained(replace(run, seed=seed), mnist_cnn, training, MNIST)
        accuracy = accuracy_of(trained.network, inside)
        if accuracy >= LEAST_MNIST_ACCURACY:
            networks.append(trained)
        else:
            left_out[seed] = accuracy
        if len(networks) == NUM_NETWORKS:
            break
    return Experiment(
        "MNIST",
        networks,
        training,
        inside,
        _outside(run, "fashion-mnist", "notmnist", "kmnist"),
        _fits("MNIST"),
        left_out,
        f"{len(networks)} networks that differ in seed; the authors' numbers come from one.",
    )


def cifar_10(run: Run) -> Experiment:
    """CIFAR-10: a published ResNet-20, or ResNet-18 trained as in the paper."""
    training, inside = run.find("cifar-10", "train"), run.find("cifar-10")
    outside = _outside(run, "cifar-100", "svhn")
    if run.profile == "paper":
        network, fits = _trained(run, resnet18, training, CIFAR), _fits("CIFAR-10")
        return Experiment(
            "CIFAR-10",
            [network],
            training,
            inside,
            outside,
            fits,
            {},
            "ResNet-18, as in the paper.",
        )
    network = Trained(pretrained("cifar-10-resnet20", run.data), run.seed)
    note = (
        f"ResNet-20 with published weights, fitted on {len(training)} images; the paper's is"
        " ResNet-18."
    )
    return Experiment(
        "CIFAR-10", [network], training, inside, outside, _fits_and_matched("CIFAR-10"), {}, note
    )


def cifar_100(run: Run) -> Experiment:
    """CIFAR-100: a published ResNet-14, or ResNet-18 trained as in the paper."""
    inside = run.find("cifar-100")
    outside = _outside(run, "cifar-10", "svhn")
    if run.profile == "paper":
        training = run.find("cifar-100", "train")
        network, fits = _trained(run, _resnet18_of_cifar_100, training, CIFAR), _fits("CIFAR-100")
        return Experiment(
            "CIFAR-100",
            [network],
            training,
            inside,
            outside,
            fits,
            {},
            "ResNet-18, as in the paper.",
        )
    network = Trained(pretrained("cifar-100-resnet14", run.data), run.seed)
    note = (
        "ResNet-14 with published weights; fitted on one half of the test set, judged on the other."
    )
    middle, fits = len(inside) // 2, _fits_and_matched("CIFAR-100")
    return Experiment(
        "CIFAR-100", [network], inside[:middle], inside[middle:], outside, fits, {}, note
    )


def svhn(run: Run) -> Experiment:
    """SVHN: ResNet-18 trained as in the paper, but on the training set.

    Raises:
        DataMissingError: Except in the profile that trains such networks; none is
            published.
    """
    if run.profile != "paper":
        raise DataMissingError("No network for SVHN is published; `--profile paper` trains one.")
    training, inside = run.find("svhn", "train"), run.find("svhn")
    network = _trained(run, svhn_resnet18, training, SVHN)
    note = "Trained on the training set; the authors' was trained on the test set."
    outside = _outside(run, "cifar-100", "cifar-10")
    return Experiment("SVHN", [network], training, inside, outside, _fits("SVHN"), {}, note)


EXPERIMENTS: dict[str, Callable[[Run], Experiment]] = {
    "MNIST": mnist,
    "CIFAR-10": cifar_10,
    "SVHN": svhn,
    "CIFAR-100": cifar_100,
}


def _fits(name: str) -> dict[str, Fit]:
    precisions = zip(STRUCTURES, conventions.PRIOR_PRECISIONS[name])
    return {structure: Fit(structure, precision) for structure, precision in precisions}


def _fits_and_matched(name: str) -> dict[str, Fit]:
    """The same precision means another thing to another network; beside it one that has
    the same effect.

    The effect is that of the authors' posterior on the confidence in their own data:
    sampling against the network.
    """
    matched = {}
    for structure in STRUCTURES:
        sampled, plain = (
            stored(Cell(name, *place, name, "mmc")) for place in ((structure, "MC"), ("", "MAP"))
        )
        if sampled is not None and plain is not None:
            matched[f"{structure}, prior matched"] = Fit(structure, confidence_kept=sampled / plain)
    return {**_fits(name), **matched}


def _resnet18_of_cifar_100() -> nn.Module:
    return resnet18(100, statistics=normalise.NONE)


def _trained(
    run: Run, build: Callable[[], nn.Module], training: DataSet, settings: TrainSettings
) -> Trained:
    settings = replace(settings, seed=run.seed)
    return Trained(
        train(initialised(build, seed=run.seed), training, settings, progress=run.progress),
        run.seed,
    )


def _outside(run: Run, *names: str) -> dict[str, DataSet | None]:
    return {TITLES[name]: _found_or_none(run, name) for name in names}


def _found_or_none(run: Run, name: str) -> DataSet | None:
    try:
        return run.find(name)
    except DataMissingError:
        return None
