"""Problems kept back: known truth of kinds that the other problems lack.

Heavy tails, rare classes, noise that depends on the input, few and many held-out
labels, leaves of a decision forest, networks trained too little and too long.
`KEPT_BACK` showed where the rule failed, and their figures were seen beside those of
`known_truth.py` while its last change was chosen: they are no test of it. `JUDGED`
chose nothing.
"""

from collections.abc import Callable

import numpy as np
import torch
from known_truth import (
    Array,
    Problem,
    Source,
    linear,
    network,
    regression,
    scattered,
    softmax,
    teacher,
    wave,
)

# sources


def heavy_tailed(dimensions: int, classes: int, scale: float, seed: int) -> Source:
    """Inputs of Student's t with 2.5 degrees of freedom, one in thirty of them more
    than four deviations of a normal away; logits linear in their arc sinh.
    """
    slopes = np.random.default_rng(seed).normal(size=(dimensions, classes))
    slopes *= scale / np.sqrt(dimensions)
    return Source(
        lambda size, rng: rng.standard_t(2.5, size=(size, dimensions)),
        lambda x: softmax(np.arcsinh(x) @ slopes),
    )


def unequal(source: Source, frequencies: Array) -> Source:
    """The same inputs with classes as frequent as given, nearly: odds are multiplied."""
    log = np.log(frequencies)
    return Source(source.sample, lambda x: softmax(np.log(source.probabilities(x) + 1e-300) + log))


def noisy(source: Source, share: Callable[[Array], Array]) -> Source:
    """Labels of a source, of which a share that depends on the input is drawn evenly."""

    def probabilities(x: Array) -> Array:
        clean, noise = source.probabilities(x), share(x)[:, None]
        return (1 - noise) * clean + noise / clean.shape[1]

    return Source(source.sample, probabilities)


def steps() -> Source:
    """One input, and a probability that is constant between jumps."""
    edges, levels = np.array([-1.2, -0.3, 0.5, 1.4]), np.array([0.1, 0.75, 0.3, 0.9, 0.55])

    def probabilities(x: Array) -> Array:
        second = levels[np.searchsorted(edges, x[:, 0])]
        return np.stack([1 - second, second], 1)

    return Source(lambda size, rng: rng.normal(size=(size, 1)), probabilities)


def crossed(dimensions: int, seed: int) -> Source:
    """Two classes; the log-odds are a product of two inputs and a linear part."""
    slopes = np.random.default_rng(seed).normal(size=dimensions) / np.sqrt(dimensions)

    def probabilities(x: Array) -> Array:
        odds = 1.5 * x[:, 0] * x[:, 1] + x @ slopes
        return softmax(np.stack([np.zeros_like(odds), odds], 1))

    return Source(lambda size, rng: rng.normal(size=(size, dimensions)), probabilities)


def sparse(dimensions: int, seed: int) -> Source:
    """Four classes in many dimensions, of which five matter."""
    slopes = np.zeros((dimensions, 4))
    slopes[:5] = np.random.default_rng(seed).normal(size=(5, 4)) * 1.2
    return Source(
        lambda size, rng: rng.normal(size=(size, dimensions)),
        lambda x: softmax(x @ slopes + np.abs(x[:, :4])),
    )


# classifiers


def forest(trees: int, leaves: int) -> Callable:
    """Leaves of a random forest as features, grown on the training labels, under
    logistic regression.
    """

    def train(inputs: Array, labels: Array, classes: int) -> tuple[Callable, Array, Array]:
        from sklearn.ensemble import RandomForestClassifier

        forests = [
            RandomForestClassifier(trees, max_leaf_nodes=leaves, random_state=run).fit(x, y)
            for run, (x, y) in enumerate(zip(inputs, labels))
        ]

        def features(all_inputs: Array) -> Array:
            places = np.stack([own.apply(x) for own, x in zip(forests, all_inputs)])
            shown = places[..., None] == np.arange(2 * leaves - 1)
            return shown.reshape(*places.shape[:2], -1).astype(float)

        return regression(features)(inputs, labels, classes)

    return train


def fourier(waves: int, dimensions: int, seed: int) -> Callable[[Array], Array]:
    """Cosines in random directions."""
    rng = np.random.default_rng(seed)
    slopes, phases = rng.normal(size=(dimensions, waves)), rng.uniform(0, 2 * np.pi, waves)
    return lambda x: np.cos(x @ slopes + phases) * np.sqrt(2 / waves) * 3


def squares(x: Array) -> Array:
    """Inputs and their squares, but no products."""
    return np.concatenate([x, x**2 - 1], -1)


KEPT_BACK = {
    "forest5_800": Problem(scattered(6, 5, 31, spread=0.9, each=2), 800, 400, forest(10, 12)),
    "tails3_500": Problem(heavy_tailed(6, 3, 1.8, 32), 500, 250, network(120, decay=1e-3)),
    "tails2_lr": Problem(heavy_tailed(5, 2, 1.5, 33), 300, 200, regression()),
    "rare4_1200": Problem(
        unequal(scattered(4, 4, 34, spread=0.9), np.array([0.8, 0.14, 0.04, 0.02])),
        1200, 400, network(150, decay=1e-3),
    ),
    "noisy3_800": Problem(
        noisy(scattered(3, 3, 35, spread=1.2, each=2), lambda x: 1 / (1 + np.exp(-2 * x[:, 0]))),
        800, 300, network(200, decay=1e-3),
    ),
    "noisy6_1000": Problem(
        noisy(teacher(8, 6, 4.0, 36), lambda x: np.full(len(x), 0.3)), 1000, 400, network(80),
    ),
    "teach8_early": Problem(teacher(20, 8, 3.0, 37), 1500, 500, network(15)),
    "few7_35": Problem(linear(6, 7, 2.0, 38), 300, 35, regression()),
    "many3_2000": Problem(
        scattered(4, 3, 39, spread=0.8, each=3), 400, 2000, network(500, decay=1e-4),
    ),
    "crossed2_600": Problem(crossed(4, 40), 600, 300, regression(squares)),
    "steps2_300": Problem(steps(), 300, 150, network(400, hidden=(32, 16))),
    "tanh2_1000": Problem(
        teacher(15, 2, 3.0, 41), 1000, 300,
        network(150, hidden=(40, 40, 20), activation=torch.tanh, decay=1e-3),
    ),
    "fourier4_500": Problem(
        scattered(3, 4, 42, spread=1.0, each=2), 500, 300, regression(fourier(100, 3, 43))
    ),
    "decay8_800": Problem(scattered(6, 8, 44, spread=0.7), 800, 400, network(150, decay=3e-2)),
    "sparse4_1000": Problem(sparse(60, 45), 1000, 300, network(60, hidden=(128,))),
}  # fmt: skip
JUDGED = {
    "forest3_400": Problem(scattered(4, 3, 51, spread=1.0, each=2), 400, 200, forest(20, 8)),
    "tails4_lr": Problem(heavy_tailed(8, 4, 2.0, 52), 800, 300, regression()),
    "rare3_500_over": Problem(
        unequal(scattered(3, 3, 53, spread=0.9, each=2), np.array([0.7, 0.2, 0.1])),
        500, 250, network(500),
    ),
    "noisy2_1500": Problem(
        noisy(teacher(6, 2, 3.0, 54), lambda x: np.minimum(1.0, np.abs(x[:, 0]) / 2)),
        1500, 500, network(150, decay=1e-3),
    ),
    "early6_1200": Problem(teacher(12, 6, 3.0, 55), 1200, 400, network(20)),
    "few3_40": Problem(scattered(3, 3, 56, spread=1.0), 250, 40, network(150, decay=1e-3)),
    "crossed2_lr": Problem(crossed(6, 57), 900, 400, regression()),
    "fourier3_300": Problem(teacher(4, 3, 2.5, 58), 300, 200, regression(fourier(60, 4, 59))),
    "wide9_1500": Problem(linear(15, 9, 2.5, 60), 1500, 500, network(40, hidden=(256,))),
    "wave3_600": Problem(
        wave(3), 600, 300, network(200, hidden=(24, 24), activation=torch.tanh, decay=1e-3)
    ),
    "small2_200_over": Problem(scattered(5, 2, 61, spread=0.9, each=2), 200, 100, network(800)),
    "teach10_3000": Problem(teacher(12, 10, 2.5, 62), 3000, 800, network(100, decay=1e-3)),
}  # fmt: skip
