"""Figure 5: how far a Dirichlet, and how far samples, are from softmax of a Gaussian,
against samples and time.

The authors' procedure: three Gaussians over three logits; a triangular grid of 561
points whose coordinates are clipped; every sample of softmax is counted at the nearest
point; KL from the histogram of 100 000 samples. Our bridges stand in the same plot. The
authors' bridge is here the formula of Eq. 7 alone, without the step to zero sum.
"""

import time
from collections.abc import Callable

import numpy as np
import torch
from matplotlib.figure import Figure
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
from laplacebridge_reproduction.artifact import Artifact, Result, Run
from laplacebridge_reproduction.table import Table

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
STORED = {"LB as in the figure": (0.0882, 0.7075, 1.7655)}  # what the authors' run stored
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
TIMED_CALLS = 20


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
        gaussian = LogitGaussian(
            torch.tensor([mean], dtype=torch.float64),
            Dense(torch.tensor([covariance], dtype=torch.float64)),
        )
        gaussians.append(
            {
                "name": name,
                "bridges": {
                    title: _bridged(bridge, gaussian, points, truth)
                    for title, bridge in BRIDGES.items()
                },
                "samples": [_sampled(draw, truth, size, run) for size in SAMPLE_SIZES[run.profile]],
            }
        )
    return {"gaussians": gaussians, "points": len(points)}


class _Sampler:
    """Counts samples of softmax at the nearest points of the grid."""

    def __init__(
        self, mean: np.ndarray, covariance: np.ndarray, tree: cKDTree, num_points: int
    ) -> None:
        self.mean, self.factor = mean, np.linalg.cholesky(covariance)
        self.tree, self.num_points = tree, num_points

    def probabilities(self, count: int, seed: int) -> np.ndarray:
        noise = np.random.default_rng(seed).normal(size=(count, len(self.mean)))
        logits = self.mean + noise @ self.factor.T
        powers = np.exp(logits - logits.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)

    def histogram(self, count: int, seed: int) -> np.ndarray:
        nearest = self.tree.query(self.probabilities(count, seed))[1]
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
    start = time.process_time()
    for _ in range(TIMED_CALLS):
        bridge(gaussian)
    seconds = (time.process_time() - start) / TIMED_CALLS
    return {
        "kl": _divergence(truth, density / density.sum()),
        "alpha": alpha.tolist(),
        "seconds": seconds,
    }


def _sampled(draw: _Sampler, truth: np.ndarray, size: int, run: Run) -> Result:
    seeds = [run.seed + 1000 * (index + 1) for index in range(NUM_SEEDS[run.profile])]
    divergences = [_divergence(truth, draw.histogram(size, seed)) for seed in seeds]
    start = time.process_time()
    draw.probabilities(size, seeds[0])
    return {"size": size, "kl": divergences, "seconds": time.process_time() - start}


def overtaken_at(gaussian: Result, bridge: str) -> int | None:
    """The first number of samples whose mean divergence is below the bridge's; None if
    there is none.
    """
    target = gaussian["bridges"][bridge]["kl"]
    return next(
        (entry["size"] for entry in gaussian["samples"] if np.mean(entry["kl"]) < target), None
    )


def tables(result: Result) -> list[Table]:
    """The divergences, beside what the authors stored, and the samples it takes to come
    as close.
    """
    gaussians = result["gaussians"]
    headings = ["KL from 100 000 samples", *(entry["name"] for entry in gaussians)]
    rows = [
        [name, *(f"{entry['bridges'][name]['kl']:.3f}" for entry in gaussians)] for name in BRIDGES
    ]
    rows.append(
        ["*stored by the authors*", *(f"*{value:.3f}*" for value in STORED["LB as in the figure"])]
    )
    samples = [
        [
            "samples to come closer than LB as in the figure",
            *_overtakings(gaussians, "LB as in the figure"),
        ]
    ]
    samples.append(["samples to come closer than the race", *_overtakings(gaussians, "race")])
    samples.append(
        ["*in the paper's text, for LB*", "*750 to 10,000*", "*750 to 10,000*", "*750 to 10,000*"]
    )
    return [Table(headings, rows), Table(["", *headings[1:]], samples)]


def _overtakings(gaussians: list[Result], bridge: str) -> list[str]:
    found = [overtaken_at(entry, bridge) for entry in gaussians]
    most = gaussians[0]["samples"][-1]["size"]
    return [f"more than {most:,}" if count is None else f"{count:,}" for count in found]


def finding(result: Result) -> str:
    """What the figure shows."""
    found = [entry["bridges"]["LB as in the figure"]["kl"] for entry in result["gaussians"]]
    off = max(
        abs(value / stored - 1) for value, stored in zip(found, STORED["LB as in the figure"])
    )
    counts = _overtakings(result["gaussians"], "LB as in the figure")
    return (
        f"The divergences of the bridge agree with the authors' stored run within {off:.0%}."
        f" Samples overtake it at {', '.join(counts)}; the text says 750 to 10,000, the stored run"
        " itself gives 25,000 for the first. With the step to zero sum, which the figure leaves"
        " out, the bridge is far better on the first two Gaussians and far worse on the third. By"
        " this measure, a divergence between densities, our race is not always closer than the"
        " bridge: it fits means and spreads; the KL bridge, which fits densities, is the closest"
        " of ours."
    )


def figure(result: Result) -> Figure:
    """Divergence against samples and against time, with the bridges as lines."""
    drawn = Figure(figsize=(11, 4), layout="constrained")
    against_samples, against_time = drawn.subplots(1, 2, sharey=True)
    for index, entry in enumerate(result["gaussians"]):
        colour, samples = f"C{index}", entry["samples"]
        means = [np.mean(one["kl"]) for one in samples]
        against_samples.plot(
            [one["size"] for one in samples], means, ".-", color=colour, label=entry["name"]
        )
        against_time.plot([one["seconds"] for one in samples], means, ".-", color=colour)
        for name, style in (("LB as in the figure", "--"), ("race", ":")):
            bridge = entry["bridges"][name]
            against_samples.axhline(bridge["kl"], linestyle=style, color=colour, linewidth=1)
            against_time.plot(
                [bridge["seconds"]], [bridge["kl"]], "s" if name == "race" else "D", color=colour
            )
    against_samples.plot([], [], "k--", linewidth=1, label="LB as in the figure")
    against_samples.plot([], [], "k:", linewidth=1, label="race")
    against_samples.set(
        xscale="log", yscale="log", xlabel="samples", ylabel="KL from 100 000 samples"
    )
    against_time.set(xscale="log", xlabel="seconds (diamond: LB, square: race)")
    against_samples.legend(fontsize="small")
    return drawn


FIGURE_5 = Artifact(
    "figure5",
    "Distance from softmax of a Gaussian, against samples and time",
    compute,
    tables,
    finding,
    figure,
)
