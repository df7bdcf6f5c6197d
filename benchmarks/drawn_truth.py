"""Problems of known truth drawn at random: `python benchmarks/drawn_truth.py --first 0
--number 20`.

Those of `known_truth.py` were made by hand, and rules were chosen on most of them. Here
a seed draws everything: where inputs come from, how many classes, training and held-out
labels (20 to 1500) there are, and how the classifier is trained, too little and too
long among them. Whoever changes how widths are chosen can look at some seeds while
choosing, and open others once, at the end; `--apart` draws from families that are not
here. Prints coverage for each problem, and how many are in range; stores nothing.
"""

import argparse
import warnings

import drawn_apart
import numpy as np
import torch
from bench_intervals import judged
from kept_back_truth import heavy_tailed, noisy, squares, unequal
from known_truth import (
    Array,
    Problem,
    Source,
    bumps,
    linear,
    network,
    random_units,
    regression,
    runs_of,
    scattered,
    softmax,
    teacher,
)

import laplacebridge as lb

RUNS = 3
DEFAULT = "held-out labels (default)"
CLASSES = (2, 2, 2, 3, 3, 4, 5, 6, 8, 10, 15, 20)
SOURCES = (
    "linear", "bent", "scattered", "teacher", "hills", "waves", "tree", "tails", "rare", "noisy",
)  # fmt: skip
TRAINED = {
    "linear": 0.2, "features": 0.15, "network": 0.25, "early": 0.15, "over": 0.15, "decay": 0.05,
    "smoothed": 0.05,
}  # fmt: skip


def hills(rng: np.random.Generator, dimensions: int, classes: int) -> Source:
    """Logits that are sums of radial bumps."""
    number = rng.integers(4, 15)
    centres, reach = rng.normal(size=(number, dimensions)), rng.uniform(0.6, 1.3)
    heights = rng.normal(size=(number, classes)) * rng.uniform(1.5, 4)

    def probabilities(x: Array) -> Array:
        far = ((x[:, None] - centres) ** 2).sum(2) / (2 * dimensions * reach**2)
        return softmax(np.exp(-far) @ heights)

    return Source(lambda size, own: own.normal(size=(size, dimensions)), probabilities)


def waves(rng: np.random.Generator, dimensions: int, classes: int) -> Source:
    """Logits that are sums of a sine of each input."""
    speeds, phases = rng.uniform(0.5, 2, dimensions), rng.uniform(0, 6, dimensions)
    heights = rng.normal(size=(dimensions, classes)) * rng.uniform(1.4, 3.5) / dimensions**0.5
    return Source(
        lambda size, own: own.uniform(-2, 2, size=(size, dimensions)),
        lambda x: softmax(np.sin(speeds * x + phases) @ heights),
    )


def tree(rng: np.random.Generator, dimensions: int, classes: int) -> Source:
    """Probabilities that are constant in the eight leaves of a tree."""
    asked, limits = rng.integers(0, dimensions, 8), 0.5 * rng.normal(size=8)
    leaves = 0.9 * rng.dirichlet(np.full(classes, 0.5), 8) + 0.1 / classes

    def probabilities(x: Array) -> Array:
        node = np.ones(len(x), dtype=int)
        for _ in range(3):
            node = 2 * node + (x[np.arange(len(x)), asked[node]] > limits[node])
        return leaves[node - 8]

    return Source(lambda size, own: own.normal(size=(size, dimensions)), probabilities)


def source(kind: str, rng: np.random.Generator, classes: int) -> Source:
    """A source of a kind, with everything else drawn."""
    dimensions, seed = int(rng.integers(2, 16)), int(rng.integers(1_000_000))
    scale, few = rng.uniform(1, 3), min(dimensions, 6)
    if kind in {"linear", "bent"}:
        return linear(dimensions, classes, scale, seed, bend=rng.uniform(0.3, 1) * (kind == "bent"))
    if kind == "scattered":
        spread, each = rng.uniform(0.6, 1.3), int(rng.integers(1, 4))
        return scattered(few, classes, seed, spread=spread, each=each)
    if kind in {"hills", "waves", "tree"}:
        return {"hills": hills, "waves": waves, "tree": tree}[kind](rng, few, classes)
    if kind == "tails":
        return heavy_tailed(dimensions, classes, scale, seed)
    if kind == "rare":
        frequencies = 0.98 * rng.dirichlet(np.ones(classes)) + 0.02 / classes
        return unequal(scattered(few, classes, seed, spread=1.0), frequencies)
    own = teacher(dimensions, classes, 1.3 * scale, seed)
    share = rng.uniform(0.05, 0.35) if kind == "noisy" else 0.0
    return noisy(own, lambda x: np.full(len(x), share))


def drawn(seed: int) -> tuple[str, Problem]:
    """A problem and what it is called."""
    rng = np.random.default_rng(seed)
    classes, kind = int(rng.choice(CLASSES)), str(rng.choice(SOURCES))
    inputs = source(kind, rng, classes)
    dimensions = inputs.sample(1, np.random.default_rng(0)).shape[1]
    size = int(np.exp(rng.uniform(np.log(max(100, 15 * classes)), np.log(3000))))
    held_out = min(3 * size, int(np.exp(rng.uniform(np.log(20), np.log(1500)))))
    how = str(rng.choice(list(TRAINED), p=list(TRAINED.values())))
    layers = tuple(int(units) for units in rng.choice([16, 32, 64, 100], size=rng.integers(1, 3)))
    shape = {"hidden": layers, "activation": torch.tanh if rng.random() < 0.3 else torch.relu}
    if how == "linear":
        train = regression(precision=float(rng.choice([0.1, 1, 1, 5])))
    elif how == "features":
        wide = bumps(30, dimensions, seed, width=dimensions**0.5)
        train = regression([wide, random_units(60, dimensions, seed), squares][rng.integers(3)])
    else:
        least, most, decay, smoothing = {
            "network": (80, 250, float(rng.choice([0, 1e-4, 1e-3])), 0.0),
            "early": (10, 40, 0.0, 0.0),
            "over": (400, 1200, 0.0, 0.0),
            "decay": (200, 201, float(rng.choice([1e-2, 3e-2])), 0.0),
            "smoothed": (150, 151, 1e-3, rng.uniform(0.05, 0.2)),
        }[how]
        steps = int(rng.integers(least, most))
        train = network(steps, decay=decay, smoothing=smoothing, **shape)  # type: ignore[arg-type]
    flipped = float(rng.choice([0, 0, 0, 0, 0.1, 0.2]))
    name = f"{kind} {dimensions}, K = {classes}, N = {size}, {held_out} held out, {how}"
    return name, Problem(inputs, size, held_out, train, flipped)


def main() -> None:
    """Prints what is found for some seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--number", type=int, default=20, help="how many seeds")
    parser.add_argument("--apart", action="store_true", help="families of `drawn_apart.py`")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # that widths cannot be checked is meant
    covered = []
    for seed in range(given.first, given.first + given.number):
        name, problem = drawn_apart.drawn(seed) if given.apart else drawn(seed)
        try:
            runs = [judged(own, (DEFAULT,))[DEFAULT] for own in runs_of(problem, RUNS)]
        except lb.InputError:  # labels all right, or no better than chance: nothing to compare with
            print(f"{seed:6d} {name:55s} temperature scaling has no answer", flush=True)
            continue
        top, every, above = (
            sum(run[key] for run in runs) / RUNS
            for key in ("top 95%", "all 95%", "NLL above TS, %")
        )
        covered.append(top)
        print(
            f"{seed:6d} {name:55s} top {top:.3f}, all {every:.3f}, NLL {above:+.1f} %", flush=True
        )
    inside = sum(0.90 <= top <= 0.99 for top in covered)
    print(
        f"95 % intervals of the top class cover .90 to .99 in {inside} of {len(covered)} problems,"
        f" less in {sum(top < 0.90 for top in covered)}, more in"
        f" {sum(top > 0.99 for top in covered)}; smallest {min(covered):.3f}"
    )


if __name__ == "__main__":
    main()
