"""Tasks that judge `ood_score`, for `bench_detection.py --judged`.

The formula was found on the tasks of `detection_tasks.py`. `SEEN` were written after it
and then looked at when its metric and its deviations changed: parts of two other
documentations, drawn shapes, classes left out of tables and of made-up data. `JUDGED`
were written after that, and chose only from how many held-out examples on deviations
are one-sided: parts of the standard library's and of torch's
documentation, letters, Japanese characters, and a linear head on a table in
its own units.
"""

from collections.abc import Callable

import numpy as np
import torch
from detection_tasks import (
    NOISE_IMAGES,
    OTHER_PACKAGES,
    UNLIKE_IMAGES,
    WORDS,
    Labelled,
    Task,
    bags,
    docstrings,
    images,
    noise,
    perceptron,
    table,
    task,
    trained,
)
from sklearn import datasets
from torch import Tensor, nn

from laplacebridge_reproduction.data import find
from laplacebridge_reproduction.models import initialised, mnist_cnn

SIDE = 16


def left_out(
    inputs: Tensor, labels: Tensor, known: int, number: int, held_out: int, epochs: int
) -> Task:
    """Rows of the first classes; near: the other classes, far: five times too large."""
    own = labels < known
    order = torch.randperm(int(own.sum()), generator=torch.Generator().manual_seed(0))
    first = inputs[own][order[:number]]
    middle, scale = first.mean(0), first.std(0).clamp_min(1e-6)
    train, val, test = table(inputs[own], labels[own], number, held_out, seed=0)
    network = initialised(perceptron(inputs.shape[1], known), seed=0)
    network = trained(network, train, epochs=epochs, batch=64, seed=0)
    unknown = ((inputs[~own] - middle) / scale).float()
    return task(
        "table", network, train, val, test, {"other classes": unknown}, {"× 5": 5 * test[0]}
    )


def iris() -> Task:
    """Two kinds of iris; near: the third."""
    loaded = datasets.load_iris()
    labels = torch.as_tensor((loaded.target + 1) % 3).long()  # the one that is far is known
    return left_out(torch.as_tensor(loaded.data), labels, 2, 50, 25, epochs=100)


def later_digits() -> Task:
    """Digits 3 to 9 of 8 × 8 pixels; near: 0, 1 and 2."""
    loaded = datasets.load_digits()
    labels = torch.as_tensor((loaded.target - 3) % 10).long()
    return left_out(torch.as_tensor(loaded.data) / 16, labels, 7, 600, 200, epochs=40)


def made_up(classes: int, known: int, seed: int) -> Task:
    """Clusters of twenty informative features among thirty."""
    inputs, labels = datasets.make_classification(
        4000, 30, n_informative=20, n_redundant=5, n_classes=classes, n_clusters_per_class=2,
        flip_y=0.02, random_state=seed,
    )  # fmt: skip
    return left_out(torch.as_tensor(inputs), torch.as_tensor(labels).long(), known, 1500, 400, 20)


def moons() -> Task:
    """Two half-moons in the plane; near: anywhere in their box, far: anywhere in a box
    ten times as large.
    """
    inputs, labels = datasets.make_moons(1200, noise=0.1, random_state=0)
    rows, classes = torch.as_tensor(inputs).float(), torch.as_tensor(labels).long()
    train, val, test = (
        (rows[part], classes[part]) for part in (slice(400), slice(400, 600), slice(600, None))
    )
    network = trained(initialised(perceptron(2, 2), seed=0), train, epochs=60, batch=64, seed=0)
    low, high = rows.amin(0) - 0.5, rows.amax(0) + 0.5
    anywhere = torch.rand(1000, 2, generator=torch.Generator().manual_seed(1))
    box = low + (high - low) * anywhere
    middle = (low + high) / 2
    return task(
        "table", network, train, val, test, {"in the box": box},
        {"in a larger box": middle + 10 * (box - middle)},
    )  # fmt: skip


def shapes() -> Task:
    """Noisy drawings of discs, squares, crosses and triangles, for a small
    convolutional network; near: rings and stripes, far: noise and inverted drawings.
    """
    train, val, test = (
        drawn(range(4), number, seed) for seed, number in enumerate((1200, 300, 900))
    )
    network = initialised(
        lambda: nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(32 * 16, 64), nn.ReLU(), nn.Linear(64, 4),
        ),
        seed=0,
    )  # fmt: skip
    network = trained(network, train, epochs=4, batch=32, seed=0)
    noise = torch.rand(600, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(9))
    return task(
        "image", network, train, val, test, {"other shapes": drawn(range(4, 6), 600, 7)[0]},
        {"noise": noise, "inverted": 1 - test[0]},
    )  # fmt: skip


def drawn(kinds: range, number: int, seed: int) -> Labelled:
    """Shapes of random size and place under noise; labels count from the first kind."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(kinds.start, kinds.stop, number)
    x, y = np.meshgrid(np.arange(SIDE), np.arange(SIDE))
    size = rng.uniform(3, 6, (number, 1, 1))
    across, down = (grid - rng.uniform(6, 10, (number, 1, 1)) for grid in (x, y))
    radius, square = np.hypot(across, down), np.maximum(abs(across), abs(down))
    inside = [
        radius < size,
        square < 0.85 * size,
        (np.minimum(abs(across), abs(down)) < 1.2) & (square < size),
        (down > abs(across) * 1.6 - size) & (down < 0.6 * size),
        abs(radius - size) < 1.2,
        (square < size) & (np.floor(across) % 3 == 0),
    ]
    pictures = np.choose(kind[:, None, None], inside) * rng.uniform(0.5, 1, (number, 1, 1))
    pictures = np.clip(pictures + 0.2 * rng.normal(size=pictures.shape), 0, 1)
    return (
        torch.as_tensor(pictures[:, None]).float(),
        torch.as_tensor(kind - kinds.start).long(),
    )


def documentation(package: str, known: tuple[str, ...], unknown: tuple[str, ...]) -> Task:
    """Which part of a package a paragraph belongs to; near: other parts, far: the
    standard library.
    """
    texts = [sorted(docstrings(f"{package}.{part}")) for part in known]
    near = {text for part in unknown for text in docstrings(f"{package}.{part}")}
    far = {text for part in OTHER_PACKAGES for text in docstrings(part)}
    return words(texts, {"other parts": near}, {"standard library": far})


def words(texts: list[list[str]], near: dict[str, set[str]], far: dict[str, set[str]]) -> Task:
    """To which list a text belongs, by its words."""
    inputs = [text for own in texts for text in own]
    classes = torch.tensor([index for index, own in enumerate(texts) for _ in own])
    everything = bags(inputs)
    order = torch.randperm(len(classes), generator=torch.Generator().manual_seed(0))
    number, held_out = len(order) // 2, len(order) // 8
    cuts = order[:number], order[number : number + held_out], order[number + held_out :]
    train, val, test = ((everything[rows], classes[rows]) for rows in cuts)
    network = initialised(
        lambda: nn.Sequential(nn.Linear(WORDS, 128), nn.ReLU(), nn.Linear(128, len(texts))), seed=0
    )
    network = trained(network, train, epochs=15, batch=64, seed=0)
    seen = set(inputs)

    def unlike(sets: dict[str, set[str]]) -> dict[str, Tensor]:
        return {name: bags(sorted(found - seen)) for name, found in sets.items()}

    return task("text", network, train, val, test, unlike(near), unlike(far))


def standard_library() -> Task:
    """Which package of the standard library a paragraph belongs to; near: other
    packages,
    far: NumPy's and SciPy's documentation.
    """
    known = ("asyncio", "email", "unittest", "xml", "multiprocessing", "http", "logging")
    near = ("urllib", "concurrent", "ctypes", "tkinter", "sqlite3", "json", "importlib")
    return words(
        [sorted(docstrings(name)) for name in known],
        {"other packages": {text for name in near for text in docstrings(name)}},
        {"numbers": docstrings("numpy.linalg") | docstrings("scipy.stats")},
    )


def characters(name: str, known: int, number: int) -> Task:
    """Images of the first classes of a set, for the network of the MNIST tables; near:
    its other classes, far: clothes and noise.
    """
    data = find(name, "test")
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(1))
    inputs, labels = data.inputs[order].float() / 255, data.labels[order]
    own = labels < known
    cuts = slice(number), slice(number, number + 400), slice(number + 400, None)
    train, val, test = ((inputs[own][rows], labels[own][rows]) for rows in cuts)
    network = trained(initialised(mnist_cnn, seed=1), train, epochs=8, batch=32, seed=1)
    return task(
        "image", network, train, val, test, {"other classes": inputs[~own][:UNLIKE_IMAGES]},
        {"clothes": images("fashion-mnist", NOISE_IMAGES)[0], "noise": noise(1, 28, 28)},
    )  # fmt: skip


def own_units() -> Task:
    """A linear head on wine as it is measured, in units that differ by a thousand;
    near: columns of different rows, far: one column in another unit.
    """
    loaded = datasets.load_wine()
    inputs, labels = torch.as_tensor(loaded.data), torch.as_tensor(loaded.target).long()
    train, val, test = table(inputs, labels, 80, 40, seed=3)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(3))
    first = inputs[order[:80]]
    middle, scale = first.mean(0).float(), first.std(0).float()
    scaled = initialised(lambda: nn.Linear(13, 3), seed=3)
    scaled = trained(scaled, train, epochs=300, batch=80, seed=3)
    weight, bias = scaled.weight.detach(), scaled.bias.detach()  # type: ignore[operator,union-attr]
    head = nn.Linear(13, 3)
    head.weight = nn.Parameter(weight / scale)
    head.bias = nn.Parameter(bias - (weight / scale) @ middle)
    train, val, test = ((rows * scale + middle, own) for rows, own in (train, val, test))
    generator = torch.Generator().manual_seed(3)
    shuffled = torch.stack(
        [column[torch.randperm(len(column), generator=generator)] for column in test[0].T], -1
    )
    wrong = test[0].clone()
    wrong[:, 1] *= 10
    return task("table", head.eval(), train, val, test, {"shuffled": shuffled}, {"× 10": wrong})


SEEN: dict[str, Callable[[], Task]] = {
    "iris, two of three": iris,
    "digits 3 to 9": later_digits,
    "made-up, 6 of 8 classes": lambda: made_up(8, 6, 1),
    "made-up, 3 of 4 classes": lambda: made_up(4, 3, 2),
    "moons": moons,
    "drawn shapes": shapes,
    "scikit-learn's documentation": lambda: documentation(
        "sklearn",
        ("linear_model", "ensemble", "cluster", "preprocessing", "metrics", "svm"),
        ("decomposition", "neighbors", "tree", "manifold", "mixture"),
    ),
    "NumPy's documentation": lambda: documentation(
        "numpy", ("linalg", "random", "ma", "polynomial"), ("fft", "lib", "strings", "testing")
    ),
}
JUDGED: dict[str, Callable[[], Task]] = {
    "the standard library's documentation": standard_library,
    "torch's documentation": lambda: documentation(
        "torch",
        ("nn", "optim", "distributions", "utils", "distributed"),
        ("linalg", "fx", "autograd", "ao", "sparse"),
    ),
    "notMNIST, letters A to F": lambda: characters("notmnist", 6, 1500),
    "KMNIST, 7 of 10 characters": lambda: characters("kmnist", 7, 1500),
    "wine in its own units, linear": own_units,
}
