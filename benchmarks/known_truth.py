"""Problems whose truth is known: inputs, labels and the probabilities from which the
labels were drawn.

Each problem has a source of inputs with known p(y | x), sizes, and a classifier that is
trained here: logistic regression (MAP under N(0, 1)) on given features, or a small
network. All runs of a problem are trained at once.

`STUDY` has thirteen that the rule for widths was found with, `LATER` six that it was
simplified on. `HELD_OUT` has six that were kept back then, and by which later changes
were chosen too. `kept_back_truth.py` has more. `FAST` names those that take little
time.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

NUM_TEST = 400
Array = np.ndarray


@dataclass(frozen=True)
class Source:
    """Where inputs come from, and what their labels' probabilities are."""

    sample: Callable[[int, np.random.Generator], Array]
    probabilities: Callable[[Array], Array]


@dataclass(frozen=True)
class Problem:
    """A source, sizes, and how the classifier is trained."""

    source: Source
    num_train: int
    num_validation: int
    train: Callable  # (inputs (R, N, D), labels (R, N), classes) -> (features of inputs, weight (R, D, K), bias (R, K))
    flipped: float = 0.0  # share of the *training* labels replaced by a class drawn evenly

    @property
    def num_classes(self) -> int:
        """K."""
        return self.source.probabilities(self.source.sample(1, np.random.default_rng(0))).shape[1]


@dataclass(frozen=True)
class Run:
    """One training: features, labels, the head, and the truth at the test points."""

    features: Array  # (N + n_v + NUM_TEST, D)
    labels: Array
    weight: Array  # (K, D)
    bias: Array
    truth: Array  # (NUM_TEST, K)
    num_train: int
    num_validation: int

    @property
    def training(self) -> tuple[Array, Array]:
        """Features and labels that the classifier was trained on."""
        return self.features[: self.num_train], self.labels[: self.num_train]

    @property
    def validation(self) -> tuple[Array, Array]:
        """Features and labels held out for validation."""
        rows = slice(self.num_train, self.num_train + self.num_validation)
        return self.features[rows], self.labels[rows]

    @property
    def test(self) -> Array:
        """Features whose probabilities are known."""
        return self.features[self.num_train + self.num_validation :]


# sources


def softmax(logits: Array) -> Array:
    """Softmax over the last dimension."""
    relative = np.exp(logits - logits.max(-1, keepdims=True))
    return relative / relative.sum(-1, keepdims=True)


def _normal(dimensions: int) -> Callable:
    return lambda size, rng: rng.normal(size=(size, dimensions))


def linear(
    dimensions: int,
    classes: int,
    scale: float,
    seed: int,
    *,
    bend: float = 0.0,
    offsets: float = 0.0,
) -> Source:
    """Logits linear in normal inputs; `bend` adds their squares, `offsets` makes
    classes unequally frequent.
    """
    rng = np.random.default_rng(seed)
    slopes = rng.normal(size=(dimensions, classes)) / np.sqrt(dimensions) * scale
    curves = rng.normal(size=(dimensions, classes)) / np.sqrt(dimensions) * bend
    shift = -offsets * np.arange(classes)
    return Source(
        _normal(dimensions), lambda x: softmax(x @ slopes + (x**2 - 1) @ curves / 1.4 + shift)
    )


def ring(classes: int = 3, deviation: float = 0.75, radius: float = 1.6) -> Source:
    """Two Gaussians for each class, in turn on a circle in the plane."""
    angles = np.linspace(0, 2 * np.pi, 2 * classes, endpoint=False)
    centres = radius * np.stack([np.cos(angles), np.sin(angles)], 1)
    return mixture(centres, np.arange(2 * classes) % classes, np.full(2 * classes, deviation))


def mixture(centres: Array, owners: Array, deviations: Array) -> Source:
    """Equally frequent round Gaussians, each belonging to a class."""
    dimensions, classes = centres.shape[1], owners.max() + 1

    def sample(size: int, rng: np.random.Generator) -> Array:
        component = rng.integers(0, len(centres), size)
        return centres[component] + deviations[component, None] * rng.normal(
            size=(size, dimensions)
        )

    def probabilities(x: Array) -> Array:
        squares = ((x[:, None] - centres) ** 2).sum(2) / (2 * deviations**2)
        share = softmax(-squares - dimensions * np.log(deviations))
        return np.stack([share[:, owners == k].sum(1) for k in range(classes)], 1)

    return Source(sample, probabilities)


def scattered(dimensions: int, classes: int, seed: int, *, spread: float, each: int = 1) -> Source:
    """A mixture with centres drawn at random and unequal deviations: quadratic borders."""
    rng = np.random.default_rng(seed)
    number = classes * each
    return mixture(
        spread * rng.normal(size=(number, dimensions)),
        np.arange(number) % classes,
        rng.uniform(0.6, 1.4, number),
    )


def teacher(dimensions: int = 10, classes: int = 10, scale: float = 3.0, seed: int = 1) -> Source:
    """Logits of a random network with forty hidden units."""
    rng = np.random.default_rng(seed)
    first = rng.normal(size=(dimensions, 40)) / np.sqrt(dimensions)
    second = rng.normal(size=(40, classes)) / np.sqrt(40) * scale * 1.6
    return Source(_normal(dimensions), lambda x: softmax(np.tanh(1.5 * x @ first) @ second))


def wave(classes: int = 2) -> Source:
    """One input; log-odds are a sine whose height falls from left to right, so that
    labels get noisier.
    """

    def probabilities(x: Array) -> Array:
        phases = np.arange(classes) * np.pi * 2 / classes
        return softmax(2.5 / (1 + np.exp(x)) * np.sin(2.5 * x + phases))

    return Source(lambda size, rng: rng.uniform(-3, 3, size=(size, 1)), probabilities)


# classifiers


def network(
    steps: int, *, decay: float = 0.0, smoothing: float = 0.0, hidden: tuple[int, ...] = (64, 32), rate: float = 1e-2,
    activation: Callable = torch.relu,
) -> Callable:  # fmt: skip
    """A network trained by Adam on all examples at once, for so many steps."""

    def train(inputs: Array, labels: Array, classes: int) -> tuple[Callable, Array, Array]:
        generator = torch.Generator().manual_seed(0)
        runs, sizes = len(inputs), (inputs.shape[2], *hidden, classes)
        gains = [1.0] * len(hidden) + [0.5]
        weights = [
            torch.randn(runs, rows, columns, generator=generator) * (2 / rows) ** 0.5 * gain
            for rows, columns, gain in zip(sizes[:-1], sizes[1:], gains)
        ]
        biases = [torch.zeros(runs, 1, columns) for columns in sizes[1:]]
        optimizer = torch.optim.Adam([p.requires_grad_(True) for p in weights + biases], lr=rate)
        onehot = torch.nn.functional.one_hot(torch.tensor(labels), classes).float()
        targets = onehot * (1 - smoothing) + smoothing / classes

        def features(x: torch.Tensor) -> torch.Tensor:
            for weight, bias in zip(weights[:-1], biases[:-1]):
                x = activation(x @ weight + bias)
            return x

        data = torch.tensor(inputs, dtype=torch.float32)
        for _ in range(steps):
            optimizer.zero_grad()
            logits = features(data) @ weights[-1] + biases[-1]
            loss = -(targets * logits.log_softmax(-1)).sum(-1).mean(1).sum()
            (loss + 0.5 * decay * sum((w**2).sum() for w in weights)).backward()
            optimizer.step()

        def of(x: Array) -> Array:
            with torch.no_grad():
                return features(torch.tensor(x, dtype=torch.float32)).double().numpy()

        return of, weights[-1].detach().double().numpy(), biases[-1].detach().double().numpy()[:, 0]

    return train


def regression(
    features: Callable[[Array], Array] = lambda x: x, *, precision: float = 1.0
) -> Callable:
    """Logistic regression on fixed features: MAP under N(0, 1/precision), the biases
    almost free.
    """

    def train(inputs: Array, labels: Array, classes: int) -> tuple[Callable, Array, Array]:
        x = torch.tensor(features(inputs))
        targets = torch.nn.functional.one_hot(torch.tensor(labels), classes).double()
        weight = torch.zeros(len(x), x.shape[2], classes, dtype=torch.float64, requires_grad=True)
        bias = torch.zeros(len(x), 1, classes, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.LBFGS(
            [weight, bias], max_iter=400, line_search_fn="strong_wolfe", tolerance_grad=1e-8
        )

        def loss() -> torch.Tensor:
            optimizer.zero_grad()
            fit = -(targets * (x @ weight + bias).log_softmax(-1)).sum()
            value = fit + 0.5 * precision * (weight**2).sum() + 1e-3 * (bias**2).sum()
            value.backward()
            return value

        optimizer.step(loss)
        return features, weight.detach().numpy(), bias.detach().numpy()[:, 0]

    return train


def bumps(
    centres: int, dimensions: int, seed: int, *, width: float = 1.0
) -> Callable[[Array], Array]:
    """Radial features around fixed centres."""
    places = np.random.default_rng(seed).normal(size=(centres, dimensions)) * 1.5
    return lambda x: np.exp(-((x[..., None, :] - places) ** 2).sum(-1) / (2 * width**2))


def random_units(units: int, dimensions: int, seed: int) -> Callable[[Array], Array]:
    """A hidden layer that was never trained."""
    slopes = np.random.default_rng(seed).normal(size=(dimensions, units)) / np.sqrt(dimensions)
    return lambda x: np.maximum(x @ slopes, 0)


# problems

STUDY = {
    "lr2_60": Problem(linear(4, 2, 1.5, 0), 60, 40, regression()),
    "lr2_400": Problem(linear(5, 2, 1.5, 1), 400, 300, regression()),
    "lr3_200": Problem(linear(8, 3, 1.5, 2), 200, 100, regression()),
    "lr10_2000": Problem(linear(20, 10, 2.0, 3), 2000, 600, regression()),
    "lr3_mis": Problem(linear(5, 3, 1.2, 4, bend=0.8), 400, 300, regression()),
    "mog_100": Problem(ring(), 100, 60, network(150)),
    "mog_500": Problem(ring(), 500, 300, network(150, decay=1e-3)),
    "mog_2000": Problem(ring(), 2000, 600, network(150, decay=1e-3)),
    "mog_500_ls": Problem(ring(), 500, 300, network(150, smoothing=0.2, decay=1e-3)),
    "mog_500_over": Problem(ring(), 500, 300, network(1500)),
    "teach_1000": Problem(teacher(), 1000, 400, network(60, decay=1e-2)),
    "teach_4000": Problem(teacher(), 4000, 1000, network(120, decay=1e-3)),
    "teach_1000_over": Problem(teacher(), 1000, 400, network(400)),
}
LATER = {
    "lr5_rare": Problem(linear(6, 5, 1.5, 11, offsets=0.8), 400, 250, regression()),
    "lr2_wide": Problem(linear(50, 2, 2.0, 12), 300, 150, regression()),
    "mog_600_flip": Problem(ring(), 600, 300, network(150, decay=1e-3), flipped=0.2),
    "rbf3_500": Problem(
        scattered(2, 3, 13, spread=1.3, each=2), 500, 250, regression(bumps(40, 2, 14))
    ),
    "teach5_early": Problem(teacher(6, 5, 3.0, 15), 800, 300, network(25)),
    "flex2_300": Problem(
        scattered(3, 2, 16, spread=1.0, each=3), 300, 200, network(300, hidden=(32,))
    ),
}
HELD_OUT = {
    "wave2_400": Problem(wave(), 400, 200, network(300, hidden=(32, 32), activation=torch.tanh)),
    "teach4_1500": Problem(
        teacher(6, 4, 2.5, 21), 1500, 500, network(200, decay=1e-3, hidden=(48, 48, 24))
    ),
    "lr3_80": Problem(linear(10, 3, 2.0, 22, offsets=0.7), 80, 60, regression()),
    "scatter10_2000": Problem(
        scattered(5, 10, 23, spread=1.0), 2000, 500, network(150, decay=1e-3)
    ),
    "units5_600": Problem(teacher(8, 5, 3.0, 24), 600, 300, regression(random_units(60, 8, 25))),
    "flip2_500_over": Problem(
        scattered(4, 2, 26, spread=0.9, each=2), 500, 250, network(600), flipped=0.1
    ),
}
PROBLEMS = {**STUDY, **LATER, **HELD_OUT}
FAST = ("lr2_400", "lr3_mis")


def runs_of(problem: Problem, number: int) -> list[Run]:
    """So many runs, each with its own data; the first ones do not depend on how many
    are asked for (networks do).
    """
    rngs = [np.random.default_rng(1000 + run) for run in range(number)]
    total = problem.num_train + problem.num_validation + NUM_TEST
    inputs = np.stack([problem.source.sample(total, rng) for rng in rngs])
    truth = np.stack([problem.source.probabilities(x) for x in inputs])
    labels = np.stack([_draw(p, rng) for p, rng in zip(truth, rngs)])
    classes, rows = truth.shape[2], slice(0, problem.num_train)
    for own, rng in zip(labels, rngs):
        flips = rng.random(problem.num_train) < problem.flipped
        own[rows] = np.where(flips, rng.integers(0, classes, problem.num_train), own[rows])
    features, weight, bias = problem.train(inputs[:, rows], labels[:, rows], classes)
    test = slice(problem.num_train + problem.num_validation, None)
    return [
        Run(f, y, w.T, b, p[test], problem.num_train, problem.num_validation)
        for f, y, w, b, p in zip(features(inputs), labels, weight, bias, truth)
    ]


def _draw(probabilities: Array, rng: np.random.Generator) -> Array:
    return (probabilities.cumsum(1) > rng.random((len(probabilities), 1))).argmax(1)
