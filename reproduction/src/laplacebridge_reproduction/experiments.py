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
from laplacebridge_reproduction.train import CIFAR, HALF_MOONS, MNIST, SVHN, TrainSettings, train

STRUCTURES = ("diagonal", "Kronecker")
NUM_NETWORKS = 7  # of MNIST, all that are trained
CIFAR_TRAINING = 50_000  # images, of which a part may be at hand

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
        prior_precision: Precision of the prior.
        num_examples: How many examples the curvature stands for; it is scaled to that.
            None for those that it is summed over.
    """

    structure: str
    prior_precision: float
    num_examples: int | None = None


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
        fits: The posteriors, by name.
        note: How it differs from the paper's.
    """

    name: str
    networks: list[Trained]
    training: DataSet
    inside: DataSet
    outside: dict[str, DataSet | None]
    fits: dict[str, Fit]
    note: str


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
        "half-moons", networks, moons[:300], moons[300:], outside, fits, "Generated data."
    )


def mnist(run: Run) -> Experiment:
    """MNIST with networks that differ in seed; none is left out."""
    training, inside = run.find("mnist", "train"), run.find("mnist")
    networks = [
        _trained(replace(run, seed=run.seed + number), mnist_cnn, training, MNIST)
        for number in range(NUM_NETWORKS)
    ]
    return Experiment(
        "MNIST",
        networks,
        training,
        inside,
        _outside(run, "fashion-mnist", "notmnist", "kmnist"),
        _fits("MNIST"),
        f"{len(networks)} networks that differ in seed; the authors' numbers come from one.",
    )


def cifar_10(run: Run) -> Experiment:
    """CIFAR-10: a published ResNet-20, or ResNet-18 trained as in the paper."""
    return _cifar(run, "CIFAR-10", "CIFAR-100", resnet18, "cifar-10-resnet20", "ResNet-20")


def cifar_100(run: Run) -> Experiment:
    """CIFAR-100: a published ResNet-14, or ResNet-18 trained as in the paper."""
    return _cifar(
        run, "CIFAR-100", "CIFAR-10", _resnet18_of_cifar_100, "cifar-100-resnet14", "ResNet-14"
    )


def _cifar(
    run: Run, name: str, other: str, build: Callable[[], nn.Module], published: str, title: str
) -> Experiment:
    training, inside = run.find(name.lower(), "train"), run.find(name.lower())
    if run.profile == "paper":
        network, fits = _trained(run, build, training, CIFAR), _fits(name)
        note = "ResNet-18, as in the paper."
    else:
        network = Trained(pretrained(published, run.data), run.seed)
        fits = _fits(name, CIFAR_TRAINING)
        note = (
            f"{title} with published weights, fitted on {len(training):,} training images, whose"
            f" curvature is scaled to {CIFAR_TRAINING:,}; the paper's is ResNet-18."
        )
    outside = _outside(run, other.lower(), "svhn")
    return Experiment(name, [network], training, inside, outside, fits, note)


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
    return Experiment("SVHN", [network], training, inside, outside, _fits("SVHN"), note)


EXPERIMENTS: dict[str, Callable[[Run], Experiment]] = {
    "MNIST": mnist,
    "CIFAR-10": cifar_10,
    "SVHN": svhn,
    "CIFAR-100": cifar_100,
}


def _fits(name: str, num_examples: int | None = None) -> dict[str, Fit]:
    precisions = zip(STRUCTURES, conventions.PRIOR_PRECISIONS[name])
    return {
        structure: Fit(structure, precision, num_examples) for structure, precision in precisions
    }


def _resnet18_of_cifar_100() -> nn.Module:
    return resnet18(100, statistics=normalise.NONE)


def _trained(
    run: Run, build: Callable[[], nn.Module], training: DataSet, settings: TrainSettings
) -> Trained:
    settings = replace(settings, seed=run.seed)
    network = initialised(build, seed=run.seed)
    if torch.cuda.is_available():  # only training takes long enough to matter
        network = network.cuda()
    trained = train(network, training, settings, progress=run.progress)
    return Trained(trained.cpu(), run.seed)


def _outside(run: Run, *names: str) -> dict[str, DataSet | None]:
    return {TITLES[name]: _found_or_none(run, name) for name in names}


def _found_or_none(run: Run, name: str) -> DataSet | None:
    try:
        return run.find(name)
    except DataMissingError:
        return None
