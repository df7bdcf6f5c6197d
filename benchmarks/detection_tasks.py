"""Networks, their data, and data unlike them, for `bench_detection.py` and
`bench_calibration.py`: images, tables and text.

A task is what the last layer sees: features of training, held-out and test examples and
of unlike ones, near and far, with the weights of the head. Networks that are not
published are trained here. What takes long is kept in a cache folder.
"""

import importlib
import inspect
import pkgutil
import re
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import corruptions
import torch
from sklearn import datasets
from torch import Tensor, nn
from torch.nn import functional

from laplacebridge.laplace.head_search import find_head
from laplacebridge.temperature import temperature_scaling
from laplacebridge_reproduction.data import find
from laplacebridge_reproduction.models import initialised, mnist_cnn
from laplacebridge_reproduction.models.published import pretrained

Labelled = tuple[Tensor, Tensor]
NOISE_IMAGES, UNLIKE_IMAGES = 1000, 2000
SHIFTED, SHIFTS = 500, (3, 5)


@dataclass(frozen=True, eq=False)
class Task:
    """What the last layer of a network sees.

    Attributes:
        kind: "image", "table" or "text".
        weight: Of the head.
        bias: Of the head.
        train: Features and labels of the fit.
        held_out: Of examples that choose temperature, width and what is usual.
        test: Of examples like these.
        near: Features of unlike examples that are close, by name.
        far: Of others.
        shifted: Features and labels of test examples that were corrupted, by severity.
    """

    kind: str
    weight: Tensor
    bias: Tensor
    train: Labelled
    held_out: Labelled
    test: Labelled
    near: dict[str, Tensor]
    far: dict[str, Tensor]
    shifted: dict[str, list[Labelled]]

    @property
    def head(self) -> nn.Linear:
        """The last layer."""
        classes, size = self.weight.shape
        head = nn.Linear(size, classes)
        head.weight, head.bias = nn.Parameter(self.weight), nn.Parameter(self.bias)
        return head.requires_grad_(requires_grad=False)

    @property
    def temperature(self) -> float:
        """Of temperature scaling on held-out labels; 1 where all of them are right, and
        any other would be a guess.
        """
        features, labels = self.held_out
        logits = self.head(features)
        if (logits.argmax(-1) == labels).all():
            return 1.0
        return float(temperature_scaling(logits, labels).temperature)


def seen(network: nn.Module, inputs: Tensor) -> Tensor:
    """Features of the last layer."""
    split = find_head(network, inputs[:2])
    with torch.no_grad():
        return torch.cat([split(batch).float() for batch in inputs.split(250)])


def task(
    kind: str,
    network: nn.Module,
    train: Labelled,
    held_out: Labelled,
    test: Labelled,
    near: dict[str, Tensor],
    far: dict[str, Tensor],
) -> Task:
    """A task from a network and inputs."""
    head = find_head(network, train[0][:2]).head

    def labelled(data: Labelled) -> Labelled:
        return seen(network, data[0]), data[1]

    def unlike(sets: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: seen(network, inputs) for name, inputs in sets.items()}

    return Task(
        kind,
        head.weight.detach(),  # type: ignore[operator,arg-type]
        head.bias.detach(),  # type: ignore[operator,arg-type]
        labelled(train),
        labelled(held_out),
        labelled(test),
        unlike(near),
        unlike(far),
        shifted(kind, network, test),
    )


def shifted(kind: str, network: nn.Module, test: Labelled) -> dict[str, list[Labelled]]:
    """Test examples, corrupted in every way that their kind can be."""
    ways = {"image": corruptions.IMAGES, "table": corruptions.TABLES}.get(kind, {})
    inputs, labels = (part[:SHIFTED] for part in test)
    return {
        str(severity): [(seen(network, way(inputs, severity)), labels) for way in ways.values()]
        for severity in SHIFTS
    }


@torch.enable_grad()  # benchmarks run without gradients
def trained(network: nn.Module, data: Labelled, *, epochs: int, batch: int, seed: int) -> nn.Module:
    """A network trained by Adam, in an order that the seed gives."""
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(network.parameters(), 1e-3, weight_decay=5e-4)
    for _ in range(epochs):
        for rows in torch.randperm(len(data[1]), generator=generator).split(batch):
            optimiser.zero_grad()
            functional.cross_entropy(network(data[0][rows]), data[1][rows]).backward()
            optimiser.step()
    return network.eval()


# images


def images(name: str, number: int, split: str = "test", *, start: int = 0) -> Labelled:
    """Some images of a data set, shuffled, since files may be in the order of classes."""
    data = find(name, split)
    rows = order_of(len(data))[start : start + number]
    return data.inputs[rows].float() / 255, data.labels[rows]


def order_of(number: int) -> Tensor:
    """The order in which examples of a data set are taken."""
    return torch.randperm(number, generator=torch.Generator().manual_seed(0))


def coloured(pictures: Tensor) -> Tensor:
    """Grey images of 28 pixels as coloured ones of 32."""
    return functional.interpolate(pictures, 32, mode="bilinear").repeat(1, 3, 1, 1)


def noise(*shape: int) -> Tensor:
    """Images of which every pixel is uniform."""
    return torch.rand(NOISE_IMAGES, *shape, generator=torch.Generator().manual_seed(0))


def tiny() -> Tensor:
    """Tiny-ImageNet at 32 pixels."""
    pictures = find("tiny-imagenet", "test").inputs.float() / 255
    return functional.interpolate(pictures, 32, mode="area")


def residual_network(published: str, number: int) -> Task:
    """A published network for CIFAR."""
    own = "cifar-100" if published.startswith("cifar-100") else "cifar-10"
    other = "cifar-10" if own == "cifar-100" else "cifar-100"
    return task(
        "image",
        pretrained(published),
        images(own, number, "train"),
        images(own, 2000),
        images(own, 3000, start=2000),
        {other: images(other, UNLIKE_IMAGES)[0], "tiny-imagenet": tiny()},
        {
            "fashion-mnist": coloured(images("fashion-mnist", NOISE_IMAGES)[0]),
            "notmnist": coloured(images("notmnist", NOISE_IMAGES)[0]),
            "noise": noise(3, 32, 32),
        },
    )


def digits_network(number: int, held_out: int) -> Task:
    """The convolutional network of the MNIST tables, trained on some digits."""
    train = images("mnist", number, "train")
    network = trained(initialised(mnist_cnn, seed=0), train, epochs=8, batch=32, seed=0)
    return task(
        "image",
        network,
        train,
        images("mnist", held_out),
        images("mnist", 4000, start=2000),
        {"kmnist": images("kmnist", UNLIKE_IMAGES)[0]},
        {
            "fashion-mnist": images("fashion-mnist", UNLIKE_IMAGES)[0],
            "notmnist": images("notmnist", UNLIKE_IMAGES)[0],
            "noise": noise(1, 28, 28),
        },
    )


def clothes_network() -> Task:
    """The same network for Fashion-MNIST, on half of its test images."""
    train = images("fashion-mnist", 5000)
    network = trained(initialised(mnist_cnn, seed=0), train, epochs=8, batch=32, seed=0)
    return task(
        "image",
        network,
        train,
        images("fashion-mnist", 1000, start=5000),
        images("fashion-mnist", 3000, start=7000),
        {name: images(name, UNLIKE_IMAGES)[0] for name in ("kmnist", "mnist")},
        {"notmnist": images("notmnist", UNLIKE_IMAGES)[0], "noise": noise(1, 28, 28)},
    )


# tables


def perceptron(inputs: int, classes: int) -> Callable[[], nn.Module]:
    """Two hidden layers of 64."""
    return lambda: nn.Sequential(
        nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, classes)
    )


def table(inputs: Tensor, labels: Tensor, number: int, held_out: int, seed: int) -> list[Labelled]:
    """Rows for training, held-out and test, in units of training deviations."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    first = inputs[order[:number]]
    scaled = (inputs - first.mean(0)) / first.std(0).clamp_min(1e-6)
    cuts = (order[:number], order[number : number + held_out], order[number + held_out :])
    return [(scaled[rows].float(), labels[rows]) for rows in cuts]


def small_table(name: str, number: int, held_out: int, seed: int) -> Task:
    """Breast cancer or wine; near: columns of different rows, far: the wrong unit."""
    loaded = {"cancer": datasets.load_breast_cancer, "wine": datasets.load_wine}[name]()
    inputs, labels = torch.as_tensor(loaded.data), torch.as_tensor(loaded.target).long()
    train, val, test = table(inputs, labels, number, held_out, seed)
    build = perceptron(inputs.shape[1], int(labels.max()) + 1)
    network = trained(initialised(build, seed=seed), train, epochs=300, batch=number, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    shuffled = torch.stack(
        [column[torch.randperm(len(column), generator=generator)] for column in test[0].T], -1
    )
    return task("table", network, train, val, test, {"shuffled": shuffled}, {"× 3": 3 * test[0]})


def digits_table(number: int, held_out: int, seed: int) -> Task:
    """Digits 0 to 6 of 8 × 8 pixels; near: 7, 8 and 9, far: noise and inverted."""
    loaded = datasets.load_digits()
    inputs, labels = torch.as_tensor(loaded.data) / 16, torch.as_tensor(loaded.target).long()
    known = labels < 7
    order = torch.randperm(int(known.sum()), generator=torch.Generator().manual_seed(seed))
    own, classes = inputs[known][order].float(), labels[known][order]
    cuts = (slice(number), slice(number, number + held_out), slice(number + held_out, None))
    train, val, test = ((own[rows], classes[rows]) for rows in cuts)
    network = initialised(perceptron(64, 7), seed=seed)
    network = trained(network, train, epochs=300, batch=number, seed=seed)
    random = torch.rand(500, 64, generator=torch.Generator().manual_seed(seed))
    return task(
        "table",
        network,
        train,
        val,
        test,
        {"unknown digits": inputs[~known].float()},
        {"noise": random, "inverted": 1 - test[0]},
    )


# text: which part of SciPy a docstring belongs to

KNOWN = ("stats", "linalg", "optimize", "signal", "special", "sparse", "interpolate")
UNKNOWN = ("ndimage", "spatial", "integrate", "fft", "cluster", "io")
OTHER_PACKAGES = ("email", "http", "logging", "unittest", "asyncio", "xml", "json", "tkinter")
OTHER_PACKAGES += (
    "argparse",
    "decimal",
    "datetime",
    "subprocess",
    "socket",
    "pathlib",
    "threading",
)
WORDS = 2000


def docstrings(package: str) -> set[str]:
    """Paragraphs of the documentation of a package, of at least fifteen words."""
    found: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in _modules(package):
            for _, member in inspect.getmembers(module):
                own = getattr(member, "__module__", None) or ""
                if own.startswith(package):
                    found.add(inspect.getdoc(member) or "")
    paragraphs = {part for text in found for part in re.split(r"\n\s*\n", text)}
    return {part for part in paragraphs if len(_words(part)) >= 15 and ">>>" not in part}


def _modules(package: str) -> Iterator[Any]:
    top = importlib.import_module(package)
    yield top
    for info in pkgutil.iter_modules(getattr(top, "__path__", [])):
        if not info.name.startswith(("test", "_test", "__main__")):
            try:
                yield importlib.import_module(f"{package}.{info.name}")
            except Exception:  # noqa: S112  (parts that cannot be imported here are left out)
                continue


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]{3,}", text.lower())


def bags(texts: list[str]) -> Tensor:
    """Hashed counts of words, as logarithms."""
    counts = torch.zeros(len(texts), WORDS)
    for row, text in zip(counts, texts):
        for word in _words(text):
            row[zlib.crc32(word.encode()) % WORDS] += 1
    return counts.log1p()


def text() -> Task:
    """Paragraphs of SciPy's documentation; near: other parts of it, far: the standard
    library's.
    """
    inputs, labels = [], []
    for index, name in enumerate(KNOWN):
        own = sorted(docstrings(f"scipy.{name}"))
        inputs += own
        labels += [index] * len(own)
    everything, classes = bags(inputs), torch.tensor(labels)
    order = torch.randperm(len(classes), generator=torch.Generator().manual_seed(0))
    number = len(order) // 2
    cuts = order[:number], order[number : number + 500], order[number + 500 :]
    train, val, test = ((everything[rows], classes[rows]) for rows in cuts)
    network = initialised(
        lambda: nn.Sequential(nn.Linear(WORDS, 128), nn.ReLU(), nn.Linear(128, len(KNOWN))), seed=0
    )
    network = trained(network, train, epochs=15, batch=64, seed=0)
    known = set(inputs)
    near = sorted({part for name in UNKNOWN for part in docstrings(f"scipy.{name}")} - known)
    far = sorted({part for name in OTHER_PACKAGES for part in docstrings(name)})
    return task(
        "text",
        network,
        train,
        val,
        test,
        {"other parts": bags(near)},
        {"standard library": bags(far)},
    )


TASKS: dict[str, Callable[[], Task]] = {
    "ResNet-20, CIFAR-10": lambda: residual_network("cifar-10-resnet20", 10_000),
    "ResNet-56, CIFAR-10": lambda: residual_network("cifar-10-resnet56", 6_000),
    "ResNet-14, CIFAR-100": lambda: residual_network("cifar-100-resnet14", 10_000),
    "CNN, Fashion-MNIST, 5000": clothes_network,
    "CNN, MNIST, 300": lambda: digits_network(300, 100),
    "CNN, MNIST, 1000": lambda: digits_network(1000, 333),
    "CNN, MNIST, 20000": lambda: digits_network(20_000, 1000),
    **{
        f"digits, {number}, seed {seed}": lambda number=number, held=held, seed=seed: digits_table(  # type: ignore[misc]
            number, held, seed
        )
        for number, held in ((100, 33), (300, 100))
        for seed in (0, 1)
    },
    **{
        f"{name}, {number}, seed {seed}": lambda name=name, number=number, held=held, seed=seed: (  # type: ignore[misc]
            small_table(name, number, held, seed)
        )
        for name, number, held in (("cancer", 50, 20), ("cancer", 200, 66), ("wine", 60, 30))
        for seed in (0, 1)
    },
    "SciPy's documentation": text,
}


def made(name: str, cache: Path) -> Task:
    """A task, from the cache if it was made before."""
    kept = cache / f"{re.sub('[^a-zA-Z0-9]+', '-', name)}.pt"
    if kept.exists():
        return Task(**torch.load(kept, weights_only=True))
    made_now = TASKS[name]()
    cache.mkdir(parents=True, exist_ok=True)
    torch.save(vars(made_now), kept)
    return made_now
