"""What Table 5 measures: where the time of a whole prediction goes, the network, then
sampling or a bridge; and what the fit costs beside training.

The paper's is a ResNet-18 on the test set of CIFAR-10 in batches of 128, with a
diagonal posterior of the last layer, on a GPU. Here it runs on the processor, with one
thread and with all, for 10, 100 and 1000 classes. "Forward" is images to Gaussian over
logits; sampling is drawing, softmax and the mean; a bridge gives the concentrations.
Weights are untrained and images random, which changes no time.
"""

import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from laplacebridge import Classifier, fit
from laplacebridge.bridges import (
    laplace_bridge,
    laplace_bridge_norm,
    laplace_bridge_raw,
    one_vs_rest_bridge,
    race_bridge,
)
from laplacebridge.covariance import Diagonal
from laplacebridge.gaussian import LogitGaussian
from laplacebridge.laplace.curvature import Diag
from laplacebridge.links import monte_carlo
from laplacebridge_reproduction.artifact import Result, Run
from laplacebridge_reproduction.models import initialised, mnist_cnn, resnet18
from laplacebridge_reproduction.stopwatch import compared, median, threads
from laplacebridge_reproduction.train import CIFAR, MNIST, TrainSettings

BATCH = 128
NUM_IMAGES = 10_000  # of the test set, to which times are scaled
LARGE = {"smoke": 256, "small": 2048, "paper": 2048}  # rows at once, against one sample
FITTED_BATCHES = 5  # against one, which tells what a batch costs from what a fit costs once
NUM_CLASSES = {"smoke": (10,), "small": (10, 100, 1000), "paper": (10, 100, 1000)}
REPETITIONS = {"smoke": 3, "small": 15, "paper": 31}
SHORTEST = {"smoke": 0.0, "small": 0.01, "paper": 0.01}  # seconds of what is timed
PRIOR_PRECISION = 100.0  # 1 / var0 of the authors' run; it changes no time either
AFTER: dict[str, Callable[[LogitGaussian], object]] = {
    "MC(1000)": partial(monte_carlo, num_samples=1000),
    "MC(100)": partial(monte_carlo, num_samples=100),
    "MC(10)": partial(monte_carlo, num_samples=10),
    "one sample": partial(monte_carlo, num_samples=1),
    "LB as in the table": laplace_bridge_raw,
    "LB": laplace_bridge,
    "LB-norm": laplace_bridge_norm,
    "one-vs-rest": one_vs_rest_bridge,
    "race": race_bridge,
}
BRIDGES = ("LB as in the table", "LB", "LB-norm", "one-vs-rest", "race")
# Networks that are trained here or in the paper: how they are made, the shape and number
# of their images, and the settings.
TRAINED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int, TrainSettings]] = {
    "MNIST, CNN": (mnist_cnn, (1, 28, 28), 60_000, MNIST),
    "CIFAR-10, ResNet-18": (resnet18, (3, 32, 32), 50_000, CIFAR),
}


def compute(run: Run) -> Result:
    """Seconds of every part, over repetitions, and of training and fits."""
    smoke = run.profile == "smoke"
    shape = (1, 28, 28) if smoke else (3, 32, 32)
    generator = torch.Generator().manual_seed(run.seed)
    images = torch.rand(BATCH, *shape, generator=generator)
    found: Result = {"network": "mnist_cnn" if smoke else "resnet18", "classes": {}}
    for classes in NUM_CLASSES[run.profile]:
        build = mnist_cnn if smoke else partial(resnet18, classes)
        classifier = fit(
            initialised(build, seed=run.seed).eval(),
            [images],
            curvature=Diag,
            prior_precision=PRIOR_PRECISION,
            progress=False,
        )
        found["classes"][str(classes)] = _split(classifier, images, run)
    names = ["MNIST, CNN"] if smoke else list(TRAINED)
    found["training"] = {name: _training(name, generator, run) for name in names}
    return found


def _split(classifier: Classifier, images: Tensor, run: Run) -> Result:
    """Seconds of a batch: processor time with one thread, and on the wall with all."""
    found: Result = {}
    for title, count, clock in (
        ("one thread", 1, time.process_time),
        ("all threads", torch.get_num_threads(), time.perf_counter),
    ):
        with threads(count), torch.no_grad():
            gaussian = classifier.logits(images)
            calls: dict[str, Callable[[], object]] = {"forward": partial(classifier.logits, images)}
            calls |= {name: partial(method, gaussian) for name, method in AFTER.items()}
            seconds = compared(
                calls,
                repetitions=REPETITIONS[run.profile],
                shortest=SHORTEST[run.profile],
                clock=clock,
                title=f"table 5, {classifier.num_classes} classes, {title}",
                progress=run.progress,
            )
        found[title] = _medians(seconds)
    rows = LARGE[run.profile]
    with threads(1), torch.no_grad():
        many = _repeated(gaussian, rows // BATCH)
        calls = {name: partial(AFTER[name], many) for name in ("one sample", *BRIDGES)}
        seconds = compared(
            calls,
            repetitions=REPETITIONS[run.profile],
            shortest=SHORTEST[run.profile],
            title=f"table 5, {classifier.num_classes} classes, {rows} at once",
            progress=run.progress,
        )
    return {"split": found, "many": {"rows": rows, **_medians(seconds)}}


def _medians(seconds: dict[str, list[float]]) -> Result:
    return {"seconds": {name: median(values) for name, values in seconds.items()}}


def _repeated(gaussian: LogitGaussian, times: int) -> LogitGaussian:
    return LogitGaussian(
        gaussian.mean.repeat(times, 1), Diagonal(gaussian.variance.repeat(times, 1))
    )


def _training(name: str, generator: torch.Generator, run: Run) -> Result:
    """Seconds of a training step, of a pass forward and of a fit, for one batch each."""
    build, shape, _, settings = TRAINED[name]
    network = initialised(build, seed=run.seed)
    images = torch.rand(BATCH, *shape, generator=generator)
    labels = torch.randint(10, (BATCH,), generator=generator)
    optimizer = settings.optimizer(network.parameters(), lr=1e-3)

    def step() -> None:
        network.train()
        optimizer.zero_grad()
        functional.cross_entropy(network(images), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    def forward() -> None:
        network.eval()
        with torch.no_grad():
            network(images)

    def fitted(batches: int) -> None:
        network.eval()
        fit(network, [images] * batches, curvature=Diag, prior_precision=1.0, progress=False)

    with threads(1):
        seconds = compared(
            {
                "step": step,
                "forward": forward,
                "fit of one": partial(fitted, 1),
                "fit of several": partial(fitted, FITTED_BATCHES),
            },
            repetitions=REPETITIONS[run.profile],
            title=f"table 5, training of {name}",
            progress=run.progress,
        )
    pairs = zip(seconds.pop("fit of one"), seconds.pop("fit of several"))
    once_and_batch = [
        (one - (several - one) / (FITTED_BATCHES - 1), (several - one) / (FITTED_BATCHES - 1))
        for one, several in pairs
    ]
    seconds["fit, once"], seconds["fit, batch"] = (list(part) for part in zip(*once_and_batch))
    return _medians(seconds)
