"""Figure 8: the first concentration against mean and variance, without and with the
correction of Eqs. 12–14.
"""

from collections.abc import Callable

import numpy as np
import torch
from matplotlib.figure import Figure

from laplacebridge.bridges import laplace_bridge, laplace_bridge_norm, race_bridge
from laplacebridge.covariance import Diagonal
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.gaussian import LogitGaussian
from laplacebridge_reproduction.artifact import Artifact, Result, Run
from laplacebridge_reproduction.table import Table

BRIDGES: dict[str, Callable[[LogitGaussian], Dirichlet]] = {
    "LB": laplace_bridge,
    "LB-norm": laplace_bridge_norm,
    "race": race_bridge,
}
NUM_POINTS = {"smoke": 5, "small": 60, "paper": 200}
LARGEST_MEAN, SMALLEST_VARIANCE, LARGEST_VARIANCE = 10.0, 0.1, 100.0


def compute(run: Run) -> Result:
    """log α₁ of every bridge over a grid of means (of the first of two logits) and
    variances (of both).
    """
    means = np.linspace(0, LARGEST_MEAN, NUM_POINTS[run.profile])
    variances = np.geomspace(SMALLEST_VARIANCE, LARGEST_VARIANCE, NUM_POINTS[run.profile])
    grid_mean, grid_variance = (
        torch.from_numpy(values).reshape(-1) for values in np.meshgrid(means, variances)
    )
    gaussian = LogitGaussian(
        torch.stack([grid_mean, -grid_mean], -1),
        Diagonal(grid_variance.unsqueeze(-1).expand(-1, 2).contiguous()),
    )
    shape = (len(variances), len(means))
    surfaces = {
        name: bridge(gaussian).log_concentration[:, 0].reshape(shape)
        for name, bridge in BRIDGES.items()
    }
    return {
        "means": means.tolist(),
        "variances": variances.tolist(),
        "log_alpha": {name: surface.tolist() for name, surface in surfaces.items()},
    }


def tables(result: Result) -> list[Table]:
    """How much log α₁ and the mean probability react to the variance, at the middle of
    the means.
    """
    middle = len(result["means"]) // 2
    rows = []
    for name, surface in result["log_alpha"].items():
        column = [row[middle] for row in surface]
        rows.append(
            [name, f"{column[0]:.2f}", f"{column[-1]:.2f}", f"{column[0] - column[-1]:.2f}"]
        )
    smallest, largest = (f"log α₁ at variance {result['variances'][index]:g}" for index in (0, -1))
    return [Table([f"mean {result['means'][middle]:.2g}", smallest, largest, "difference"], rows)]


def finding(result: Result) -> str:
    """What the figure shows."""
    middle = len(result["means"]) // 2
    fall = {
        name: surface[0][middle] - surface[-1][middle]
        for name, surface in result["log_alpha"].items()
    }
    return (
        "As in the paper, the variance changes the concentration of the plain bridge only as"
        f" 1/variance does, at any mean (log α₁ falls by {fall['LB']:.1f} over the range), and the"
        f" correction makes it count more ({fall['LB-norm']:.1f}). In the race it falls by"
        f" {fall['race']:.1f}."
    )


def figure(result: Result) -> Figure:
    """Contours of log α₁."""
    drawn = Figure(figsize=(11, 3.6), layout="constrained")
    for axes, (name, surface) in zip(
        np.ravel(drawn.subplots(1, len(result["log_alpha"]))), result["log_alpha"].items()
    ):
        contours = axes.contourf(result["means"], result["variances"], surface, levels=20)
        axes.set(title=name, xlabel="mean", ylabel="variance", yscale="log")
        drawn.colorbar(contours, ax=axes, label="log α₁")
    return drawn


FIGURE_8 = Artifact(
    "figure8", "The correction: α against mean and variance", compute, tables, finding, figure
)
