"""Figure 4: where the Laplace bridge fits and where it does not, for two classes, and
what the correction changes.

The true density of the first probability is that of a logistic normal; each bridge
gives a Beta density. With a small variance all agree. With a large one the mass moves
to both ends, which the plain bridge cannot follow.
"""

from collections.abc import Callable

import numpy as np
import torch
from matplotlib.figure import Figure
from scipy import integrate, special, stats

from laplacebridge.bridges import laplace_bridge, laplace_bridge_norm, race_bridge
from laplacebridge.covariance import Diagonal
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.gaussian import LogitGaussian
from laplacebridge_reproduction.artifact import Artifact, Result, Run
from laplacebridge_reproduction.table import Table

# mean and variance of the difference of the two logits; the second and fourth are far
# outside the logistic's range
CASES = ((1.0, 0.5), (1.0, 8.0), (3.0, 0.5), (3.0, 20.0))
BRIDGES: dict[str, Callable[[LogitGaussian], Dirichlet]] = {
    "LB": laplace_bridge,
    "LB-norm": laplace_bridge_norm,
    "race": race_bridge,
}
NUM_POINTS = 1001
LARGEST_LOGIT = 25.0


def compute(run: Run) -> Result:
    """Densities over the logit of the first probability: of the logistic normal and of
    every bridge's Beta.

    Nothing here is random or large, so every run gives the same.
    """
    logits = np.linspace(-LARGEST_LOGIT, LARGEST_LOGIT, NUM_POINTS)
    return {
        "logits": logits.tolist(),
        "cases": [_case(mean, variance, logits) for mean, variance in CASES],
    }


def _case(mean: float, variance: float, logits: np.ndarray) -> Result:
    gaussian = LogitGaussian(
        torch.tensor([[mean / 2, -mean / 2]], dtype=torch.float64),
        Diagonal(torch.full((1, 2), variance / 2, dtype=torch.float64)),
    )
    truth = stats.norm.pdf(logits, mean, np.sqrt(variance))
    bridges = {name: _bridged(bridge(gaussian), logits, truth) for name, bridge in BRIDGES.items()}
    expected = float(integrate.trapezoid(truth * special.expit(logits), logits))
    return {
        "mean": mean,
        "variance": variance,
        "truth": truth.tolist(),
        "expected": expected,
        "bridges": bridges,
    }


def _bridged(dirichlet: Dirichlet, logits: np.ndarray, truth: np.ndarray) -> Result:
    alpha, beta = dirichlet.concentration[0].tolist()
    # the Beta density over the logit is p^α (1 − p)^β/B(α, β): bounded, where that over
    # the probability is not
    log_density = (
        -alpha * np.logaddexp(0, -logits)
        - beta * np.logaddexp(0, logits)
        - special.betaln(alpha, beta)
    )
    density = np.exp(log_density)
    distance = float(integrate.trapezoid(np.abs(density - truth), logits) / 2)
    return {"alpha": alpha, "beta": beta, "density": density.tolist(), "distance": distance}


def tables(result: Result) -> list[Table]:
    """Mean probability and distance of each bridge."""
    headings = [
        "mean, variance of the logit",
        "true E π₁",
        *(f"{name} (distance)" for name in BRIDGES),
    ]
    rows = []
    for case in result["cases"]:
        found = case["bridges"].values()
        cells = [
            f"{one['alpha'] / (one['alpha'] + one['beta']):.3f} ({one['distance']:.2f})"
            for one in found
        ]
        rows.append([f"{case['mean']:g}, {case['variance']:g}", f"{case['expected']:.3f}", *cells])
    return [Table(headings, rows)]


def finding(result: Result) -> str:
    """What the figure shows."""

    def worst(name: str, cases: list[Result]) -> str:
        found = [(case["bridges"][name], case["expected"]) for case in cases]
        return f"{max(abs(one['alpha'] / (one['alpha'] + one['beta']) - mean) for one, mean in found):.3f}"

    narrow = [case for case in result["cases"] if case["variance"] <= 1]
    wide = [case for case in result["cases"] if case["variance"] > 1]
    return (
        "As in the paper, the bridge fits small variances (error of the mean at most"
        f" {worst('LB', narrow)}) and fails for large ones ({worst('LB', wide)}), which the"
        f" correction improves ({worst('LB-norm', wide)}). Not in the paper: where the variance is"
        f" small the correction harms ({worst('LB-norm', narrow)}). The race is within"
        f" {worst('race', result['cases'])} everywhere. The paper does not give its parameters;"
        " these are ours."
    )


def figure(result: Result) -> Figure:
    """Densities over the logit, and the derivative of the logistic function in grey."""
    drawn = Figure(figsize=(11, 6), layout="constrained")
    logits = np.array(result["logits"])
    slope = special.expit(logits) * special.expit(-logits)
    for axes, case in zip(np.ravel(drawn.subplots(2, 2)), result["cases"]):
        axes.fill_between(logits, slope, color="0.9", label="derivative of the logistic function")
        axes.plot(logits, case["truth"], "k", label="Gaussian")
        for index, (name, found) in enumerate(case["bridges"].items()):
            axes.plot(logits, found["density"], "--", color=f"C{index}", label=name)
        reach = 3 * np.sqrt(case["variance"]) + 4
        axes.set(
            title=f"mean {case['mean']:g}, variance {case['variance']:g}",
            xlabel="logit of π₁",
            ylabel="density",
        )
        axes.set_xlim(case["mean"] - reach, case["mean"] + reach)
        axes.set_ylim(0, 1.6 * max(case["truth"]))
    drawn.axes[0].legend(fontsize="small")
    return drawn


FIGURE_4 = Artifact(
    "figure4", "Limits of the bridge for two classes", compute, tables, finding, figure
)
