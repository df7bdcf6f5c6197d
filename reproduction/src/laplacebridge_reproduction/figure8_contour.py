"""Figure 8: the first concentration against mean and variance, without and with the
correction of Eqs. 12–14, on the paper's axes: both from 1 to 10, with one scale of
colours.
"""

from collections.abc import Callable

import numpy as np
import torch
from matplotlib.figure import Figure

from laplacebridge.bridges import laplace_bridge, laplace_bridge_norm, race_bridge
from laplacebridge.covariance import Diagonal
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.gaussian import LogitGaussian
from laplacebridge_reproduction import style
from laplacebridge_reproduction.artifact import Artifact, Result, Run
from laplacebridge_reproduction.table import Table

BRIDGES: dict[str, Callable[[LogitGaussian], Dirichlet]] = {
    "LB": laplace_bridge,
    "LB-norm": laplace_bridge_norm,
    "race": race_bridge,
}
NUM_POINTS = {"smoke": 5, "small": 60, "paper": 200}
SMALLEST, LARGEST = 1.0, 10.0  # of means and of variances


def compute(run: Run) -> Result:
    """log α₁ of every bridge over a grid of means (of the first of two logits) and
    variances (of both).
    """
    means = variances = np.linspace(SMALLEST, LARGEST, NUM_POINTS[run.profile])
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
        f" 1/variance does, at any mean: log α₁ falls by {fall['LB']:.1f} from variance"
        f" {result['variances'][0]:g} to {result['variances'][-1]:g}, and the correction makes it"
        f" count more ({fall['LB-norm']:.1f}). In the race it falls by {fall['race']:.1f}. All"
        " panels have the paper's axes and one scale of colours."
    )


def figure(result: Result) -> Figure:
    """Contours of log α₁."""
    surfaces = result["log_alpha"]
    drawn = Figure(figsize=(style.PAGE, 2.2), layout="constrained")
    panels = np.ravel(drawn.subplots(1, len(surfaces), sharex=True, sharey=True))
    everything = np.array(list(surfaces.values()))
    levels = np.arange(np.floor(everything.min()), np.ceil(everything.max()) + 1, 2.0)
    for axes, (name, surface) in zip(panels, surfaces.items()):
        contours = axes.contourf(
            result["means"], result["variances"], surface, levels=levels, extend="max"
        )
        lines = axes.contour(
            result["means"], result["variances"], surface, levels=levels, colors="w", linewidths=0.4
        )
        axes.clabel(lines, lines.levels[::2], fontsize=6)
        axes.set(title=name, xlabel="mean of the first logit")
    panels[0].set_ylabel("variance")
    drawn.colorbar(contours, ax=panels, label=r"$\log\,\alpha_1$")
    return drawn


FIGURE_8 = Artifact(
    "figure8", "The correction: α against mean and variance", compute, tables, finding, figure
)
