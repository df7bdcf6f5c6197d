"""What Figure 5 measures: how far a Dirichlet, and how far samples, are from softmax of
a Gaussian, and what they cost.

The authors' procedure: three Gaussians over three logits; a triangular grid of 561
points whose coordinates are clipped; every sample of softmax is counted at the nearest
point; KL from the histogram of 100 000 samples. Our bridges stand in the same plot. The
authors' bridge is here the formula of Eq. 7 alone, without the step to zero sum.

Times are of one Gaussian by itself, and of one in a batch of many, as a test set has
them.
"""

from collections.abc import Callable

import numpy as np
import torch
from scipy.spatial import cKDTree
from tqdm import tqdm

from laplacebridge.bridges import (
    kl_bridge,
    laplace_bridge,
    laplace_bridge_norm,
    laplace_bridge_raw,
    one_vs_rest_bridge,
    race_bridge,
)
from laplacebridge.covariance import Dense
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.gaussian import LogitGaussian
from laplacebridge_reproduction.artifact import Result, Run
from laplacebridge_reproduction.stopwatch import compared, median, threads

SUBDIVISIONS = 32
CLIPPED_AT = 1e-3
FLOOR = 1e-20  # what an empty cell counts
TRUE_SAMPLES = 100_000
GAUSSIANS = (
    ("μ = 0, Σ = 0.1 I", (0.0, 0.0, 0.0), ((0.1, 0, 0), (0, 0.1, 0), (0, 0, 0.1))),
    ("μ = (2, −1, −1), Σ = I", (2.0, -1.0, -1.0), ((1.0, 0, 0), (0, 1.0, 0), (0, 0, 1.0))),
    ("μ = (1, 1, −2), Σ full", (1.0, 1.0, -2.0), ((1.0, 0, 0.5), (0, 2.0, 0.3), (0.5, 0.3, 0.5))),
)
BRIDGES: dict[str, Callable[[LogitGaussian], Dirichlet]] = {
    "LB as in the figure": laplace_bridge_raw,
    "LB": laplace_bridge,
    "LB-norm": laplace_bridge_norm,
    "one-vs-rest": one_vs_rest_bridge,
    "race": race_bridge,
    "KL": kl_bridge,
}
SAMPLE_SIZES = {
    "smoke": (10, 100, 1000),
    "small": (
        10,
        25,
        50,
        75,
        100,
        250,
        500,
        750,
        1000,
        2500,
        5000,
        7500,
        10_000,
        25_000,
        50_000,
        100_000,
    ),
}
SAMPLE_SIZES["paper"] = (1, 5, *SAMPLE_SIZES["small"][:-1], 75_000, 100_000)
NUM_SEEDS = {"smoke": 1, "small": 5, "paper": 5}
BATCHES = (1, 1000)
REPETITIONS = {"smoke": 3, "small": 31, "paper": 31}
SHORTEST = {"smoke": 0.0, "small": 0.005, "paper": 0.005}  # seconds of what is timed
MOST_SAMPLES = 500_000  # at once; larger batches are timed in part, and cost as much each


def compute(run: Run) -> Result:
    """Divergences and times of bridges and of samples."""
    points = _grid()
    tree = cKDTree(points)
    gaussians = []
    for name, mean, covariance in tqdm(
        GAUSSIANS, desc="figure 5", unit="Gaussian", disable=not run.progress
    ):
        draw = _Sampler(np.array(mean), np.array(covariance), tree, len(points))
        truth = draw.histogram(TRUE_SAMPLES, run.seed)
        gaussian = _repeated(mean, covariance, 1)
        gaussians.append(
            {
                "name": name,
                "bridges": {
                    title: _bridged(bridge, gaussian, points, truth)
                    for title, bridge in BRIDGES.items()
                },
                "samples": [_sampled(draw, truth, size, run) for size in SAMPLE_SIZES[run.profile]],
                "seconds": {str(batch): _timed(mean, covariance, batch, run) for batch in BATCHES},
            }
        )
    return {"gaussians": gaussians, "points": len(points)}


def _repeated(
    mean: tuple[float, ...], covariance: tuple[tuple[float, ...], ...], batch: int
) -> LogitGaussian:
    means = torch.tensor([mean], dtype=torch.float64).repeat(batch, 1)
    covariances = torch.tensor([covariance], dtype=torch.float64).repeat(batch, 1, 1)
    return LogitGaussian(means, Dense(covariances))


def _timed(
    mean: tuple[float, ...], covariance: tuple[tuple[float, ...], ...], batch: int, run: Run
) -> Result:
    """Processor time per Gaussian of every bridge, and of samples by their number."""
    gaussian = _repeated(mean, covariance, batch)
    calls: dict[str, Callable[[], object]] = {}
    at_once = {}
    for title, bridge in BRIDGES.items():
        calls[title], at_once[title] = _call(bridge, gaussian), batch
    for size in SAMPLE_SIZES[run.profile]:
        rows = min(batch, max(1, MOST_SAMPLES // size))
        few = _repeated(mean, covariance, rows)
        calls[str(size)], at_once[str(size)] = _call(_Averages(size), few), rows
    with threads(1), torch.no_grad():
        found = compared(
            calls,
            repetitions=REPETITIONS[run.profile],
            shortest=SHORTEST[run.profile],
            title=f"batches of {batch}",
            progress=run.progress,
        )
    return {
        name: median([second / at_once[name] for second in seconds])
        for name, seconds in found.items()
    }


def _call(
    function: Callable[[LogitGaussian], object], gaussian: LogitGaussian
) -> Callable[[], object]:
    return lambda: function(gaussian)


class _Averages:
    """Draws samples of softmax."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, gaussian: LogitGaussian) -> torch.Tensor:
        return gaussian.sample(self.size).softmax(-1)


class _Sampler:
    """Counts samples of softmax at the nearest points of the grid."""

    def __init__(
        self, mean: np.ndarray, covariance: np.ndarray, tree: cKDTree, num_points: int
    ) -> None:
        self.mean, self.factor = mean, np.linalg.cholesky(covariance)
        self.tree, self.num_points = tree, num_points

    def histogram(self, count: int, seed: int) -> np.ndarray:
        noise = np.random.default_rng(seed).normal(size=(count, len(self.mean)))
        logits = self.mean + noise @ self.factor.T
        powers = np.exp(logits - logits.max(-1, keepdims=True))
        nearest = self.tree.query(powers / powers.sum(-1, keepdims=True))[1]
        counts = np.bincount(nearest, minlength=self.num_points) + FLOOR
        return counts / counts.sum()


def _grid() -> np.ndarray:
    """Points of the triangle, in probabilities, clipped as the authors do."""
    places = [
        (first, second, SUBDIVISIONS - first - second)
        for first in range(SUBDIVISIONS + 1)
        for second in range(SUBDIVISIONS + 1 - first)
    ]
    return np.clip(np.array(places) / SUBDIVISIONS, CLIPPED_AT, 1 - CLIPPED_AT)


def _divergence(truth: np.ndarray, other: np.ndarray) -> float:
    return float((truth * np.log(truth / other)).sum())


def _bridged(
    bridge: Callable[[LogitGaussian], Dirichlet],
    gaussian: LogitGaussian,
    points: np.ndarray,
    truth: np.ndarray,
) -> Result:
    alpha = bridge(gaussian).concentration[0].numpy()
    log_density = ((alpha - 1) * np.log(points)).sum(
        -1
    )  # the constant falls out when it is normalised
    density = np.exp(log_density - log_density.max()) + FLOOR
    return {"kl": _divergence(truth, density / density.sum()), "alpha": alpha.tolist()}


def _sampled(draw: _Sampler, truth: np.ndarray, size: int, run: Run) -> Result:
    seeds = [run.seed + 1000 * (index + 1) for index in range(NUM_SEEDS[run.profile])]
    return {
        "size": size,
        "kl": [_divergence(truth, draw.histogram(size, seed)) for seed in seeds],
    }


def overtaken_at(gaussian: Result, bridge: str) -> int | None:
    """The first number of samples whose mean divergence is below the bridge's; None if
    there is none.
    """
    target = gaussian["bridges"][bridge]["kl"]
    return next(
        (entry["size"] for entry in gaussian["samples"] if np.mean(entry["kl"]) < target), None
    )


def time_factor(gaussian: Result, bridge: str, batch: int) -> float | None:
    """How many times the bridge's time it takes to draw as many samples as come closer
    than it; None if no number does. Below one samples win.

    Args:
        gaussian: One entry of the result.
        bridge: As in `BRIDGES`.
        batch: One of `BATCHES`.
    """
    size = overtaken_at(gaussian, bridge)
    if size is None:
        return None
    seconds = gaussian["seconds"][str(batch)]
    return float(seconds[str(size)]["median"] / seconds[bridge]["median"])
