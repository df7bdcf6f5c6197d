"""Problems of known truth drawn at random, of families that `drawn_truth.py` lacks: but
for plain logistic regression, no source of inputs and no way of training is in both. A
rule that is chosen on one can be judged on the other:
`python benchmarks/drawn_truth.py --apart`.
"""

from collections.abc import Callable

import numpy as np
import torch
from kept_back_truth import forest, fourier
from known_truth import Array, Problem, Source, regression, softmax
from torch import nn

CLASSES = (2, 2, 3, 3, 4, 5, 7, 10, 12)
TRAINED = {
    "linear": 0.15, "pairs": 0.08, "forest": 0.1, "fourier": 0.07, "sgd": 0.25, "sgd short": 0.12,
    "sgd long": 0.13, "sgd dropout": 0.1,
}  # fmt: skip
EPOCHS = {
    "sgd": (15, 50), "sgd short": (1, 6), "sgd long": (120, 300), "sgd dropout": (40, 100),
}  # fmt: skip
LARGEST_TRAINING = 400_000  # examples that a network sees, each as often as there are epochs


# sources


def cubic(rng: np.random.Generator, dimensions: int, classes: int) -> Source:
    """Logits that are polynomials of third degree."""
    first = rng.normal(size=(dimensions, classes))
    second = rng.normal(size=(dimensions, dimensions, classes)) / dimensions
    third = rng.normal(size=(dimensions, classes))
    scale = rng.uniform(0.8, 2) / np.sqrt(dimensions)

    def probabilities(x: Array) -> Array:
        crossed = np.einsum("ni,nj,ijk->nk", x, x, second)
        return softmax(scale * (x @ first + crossed * 2 + (x**3) @ third * 0.5))

    return Source(lambda size, own: own.uniform(-1.7, 1.7, (size, dimensions)), probabilities)


def process(rng: np.random.Generator, dimensions: int, classes: int) -> Source:
    """Logits that are nearly Gaussian processes."""
    reach = rng.uniform(0.5, 2) * np.sqrt(dimensions)
    slopes, phases = rng.normal(size=(dimensions, 200)) / reach, rng.uniform(0, 6.3, 200)
    heights = rng.normal(size=(200, classes)) * rng.uniform(1, 3) * np.sqrt(2 / 200)
    return Source(
        lambda size, own: own.normal(size=(size, dimensions)),
        lambda x: softmax(np.cos(x @ slopes + phases) @ heights),
    )


def shells(rng: np.random.Generator, dimensions: int, classes: int) -> Source:
    """Classes that depend on how far from the middle inputs are."""
    radii, sharp = np.sqrt(dimensions) * np.sort(rng.uniform(0.4, 1.6, classes)), rng.uniform(1, 4)
    tilt = rng.normal(size=(dimensions, classes)) * 0.5

    def probabilities(x: Array) -> Array:
        away = np.abs(np.linalg.norm(x, axis=1)[:, None] - radii)
        return softmax(-sharp * away + x @ tilt / np.sqrt(dimensions))

    return Source(
        lambda size, own: own.normal(size=(size, dimensions)) * own.uniform(0.5, 1.5, (size, 1)),
        probabilities,
    )


def binary(rng: np.random.Generator, dimensions: int, classes: int) -> Source:
    """Inputs that are yes or no, some pairs of which matter."""
    dimensions = max(dimensions, 6)
    slopes = rng.normal(size=(dimensions, classes)) * rng.uniform(1, 3) / np.sqrt(dimensions)
    pairs = rng.integers(0, dimensions, (2 * dimensions, 2))
    crossed = rng.normal(size=(2 * dimensions, classes)) * rng.uniform(0, 1.5) / np.sqrt(dimensions)
    often = rng.uniform(0.1, 0.6, dimensions)
    return Source(
        lambda size, own: (own.random((size, dimensions)) < often).astype(float),
        lambda x: softmax(2 * x @ slopes + 2 * (x[:, pairs[:, 0]] * x[:, pairs[:, 1]]) @ crossed),
    )


def ordinal(rng: np.random.Generator, dimensions: int, classes: int) -> Source:
    """Classes in an order, by where a sum of correlated inputs falls."""
    slopes = rng.normal(size=dimensions) / np.sqrt(dimensions) * rng.uniform(1.5, 4)
    bend, cuts = rng.uniform(0, 1), np.sort(rng.normal(size=classes - 1)) * 1.5
    mixed = rng.normal(size=(dimensions, dimensions)) / np.sqrt(dimensions)

    def probabilities(x: Array) -> Array:
        place = x @ slopes + bend * np.sin(2 * x[:, 0])
        below = 1 / (1 + np.exp(-(cuts - place[:, None])))
        ends = np.zeros((len(x), 1)), np.ones((len(x), 1))
        share = np.diff(np.concatenate([ends[0], below, ends[1]], 1), axis=1).clip(1e-9)
        return share / share.sum(1, keepdims=True)

    return Source(lambda size, own: own.normal(size=(size, dimensions)) @ mixed, probabilities)


def hidden(rng: np.random.Generator, _: int, classes: int) -> Source:
    """Many inputs, of which few matter."""
    dimensions = int(rng.integers(20, 60))
    slopes = np.zeros((dimensions, classes))
    slopes[:4] = rng.normal(size=(4, classes)) * rng.uniform(0.7, 1.6)
    return Source(
        lambda size, own: own.laplace(size=(size, dimensions)) / 1.4,
        lambda x: softmax(x @ slopes + np.maximum(x[:, :classes], 0)),
    )


def experts(rng: np.random.Generator, dimensions: int, classes: int) -> Source:
    """Three linear models, each right in its own region."""
    gates = rng.normal(size=(dimensions, 3)) * 1.5
    slopes = rng.normal(size=(3, dimensions, classes)) * rng.uniform(1, 2.5) / np.sqrt(dimensions)

    def probabilities(x: Array) -> Array:
        each = softmax(np.einsum("nd,edk->nek", x, slopes))
        return np.einsum("ne,nek->nk", softmax(x @ gates), each)

    return Source(lambda size, own: own.standard_t(6, size=(size, dimensions)), probabilities)


SOURCES = {
    "cubic": cubic, "process": process, "shells": shells, "binary": binary, "ordinal": ordinal,
    "hidden": hidden, "experts": experts,
}  # fmt: skip


# classifiers


def pairs_of(x: Array) -> Array:
    """Inputs and products of the first twelve."""
    rows, columns = np.triu_indices(min(x.shape[-1], 12))
    return np.concatenate([x, x[..., rows] * x[..., columns]], -1)


def by_batches(
    epochs: int, rate: float, batch: int, hidden_units: tuple[int, ...], decay: float,
    dropout: float, activation: Callable[[], nn.Module],
) -> Callable:  # fmt: skip
    """A network trained on small batches with momentum and a falling rate."""

    def trained(inputs: Array, labels: Array, classes: int, run: int) -> tuple:
        torch.manual_seed(run)
        x, y = torch.tensor(inputs, dtype=torch.float32), torch.tensor(labels)
        middle, deviation = x.mean(0), x.std(0) + 1e-6
        layers: list[nn.Module] = []
        size = x.shape[1]
        for units in hidden_units:
            layers += [nn.Linear(size, units), activation(), nn.Dropout(dropout)]
            size = units
        body, head = nn.Sequential(*layers), nn.Linear(size, classes)
        weights = [*body.parameters(), *head.parameters()]
        optimizer = torch.optim.SGD(weights, lr=rate, momentum=0.9, weight_decay=decay)
        steps = max(1, epochs * len(x) // batch)
        falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        generator = torch.Generator().manual_seed(run)
        for _ in range(steps):
            rows = torch.randint(len(x), (batch,), generator=generator)
            optimizer.zero_grad()
            logits = head(body((x[rows] - middle) / deviation))
            nn.functional.cross_entropy(logits, y[rows]).backward()
            optimizer.step()
            falling.step()
        return body.eval(), head, middle, deviation

    def train(inputs: Array, labels: Array, classes: int) -> tuple[Callable, Array, Array]:
        networks = [trained(x, y, classes, run) for run, (x, y) in enumerate(zip(inputs, labels))]

        @torch.no_grad()
        def features(all_inputs: Array) -> Array:
            made = [
                body((torch.tensor(x, dtype=torch.float32) - middle) / deviation)
                for x, (body, _, middle, deviation) in zip(all_inputs, networks)
            ]
            return torch.stack(made).double().numpy()

        heads = [head for _, head, _, _ in networks]
        weight = torch.stack([head.weight.detach().double().T for head in heads])
        return (
            features,
            weight.numpy(),
            torch.stack([h.bias.detach().double() for h in heads]).numpy(),
        )

    return train


def drawn(seed: int) -> tuple[str, Problem]:
    """A problem and what it is called."""
    rng = np.random.default_rng([seed, 77])
    classes, kind = int(rng.choice(CLASSES)), str(rng.choice(list(SOURCES)))
    source = SOURCES[kind](rng, int(rng.integers(2, 13)), classes)
    dimensions = source.sample(1, np.random.default_rng(0)).shape[1]
    size = int(np.exp(rng.uniform(np.log(max(100, 15 * classes)), np.log(3000))))
    held_out = min(3 * size, int(np.exp(rng.uniform(np.log(25), np.log(1500)))))
    how = str(rng.choice(list(TRAINED), p=list(TRAINED.values())))
    if how == "linear":
        train = regression(precision=float(rng.choice([0.01, 0.3, 3, 20])))
    elif how == "pairs":
        train = regression(pairs_of, precision=float(rng.choice([0.3, 3])))
    elif how == "forest":
        train = forest(int(rng.integers(5, 25)), int(rng.integers(5, 16)))
    elif how == "fourier":
        train = regression(fourier(int(rng.integers(40, 120)), dimensions, seed))
    else:
        # all four are drawn, so that a seed gives the same problem whatever is chosen
        epochs = int(min({name: rng.integers(*own) for name, own in EPOCHS.items()}[how],
                         LARGEST_TRAINING // size))  # fmt: skip
        units = tuple(int(own) for own in rng.choice([24, 48, 96], size=rng.integers(1, 4)))
        rate = float(np.exp(rng.uniform(np.log(0.01), np.log(0.1))))
        batch, decay = int(rng.choice([32, 64])), float(rng.choice([0, 1e-4, 1e-3]))
        activation = [nn.ReLU, nn.GELU, nn.Tanh][rng.integers(3)]
        dropout = 0.3 if how == "sgd dropout" else 0.0
        train = by_batches(epochs, rate, batch, units, decay, dropout, activation)
    flipped = float(rng.choice([0, 0, 0, 0, 0.15]))
    name = f"{kind} {dimensions}, K = {classes}, N = {size}, {held_out} held out, {how}"
    return name, Problem(source, size, held_out, train, flipped)
