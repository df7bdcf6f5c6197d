"""Figure 2: the Laplace bridge for the Beta distribution, the one-dimensional case.

A Laplace approximation of a Beta density itself fails where the density has no mode; in
the softmax basis (Eq. 4 with two classes) every Beta density has one, and the Gaussian
found there, brought back to [0, 1], is close to the Beta.
"""

import numpy as np
from matplotlib.figure import Figure
from scipy import integrate, special, stats

from laplacebridge_reproduction import style
from laplacebridge_reproduction.artifact import Artifact, Result, Run
from laplacebridge_reproduction.table import Table

PARAMETERS = ((0.8, 0.9), (4.0, 2.0), (2.0, 7.0))  # of the paper's appendix
NUM_POINTS = 400
EDGE = 1e-4


def compute(run: Run) -> Result:
    """Densities and their Laplace approximations, before and after the change of basis.

    Nothing here is random or large, so every run gives the same.
    """
    return {"distributions": [_distribution(alpha, beta) for alpha, beta in PARAMETERS]}


def _distribution(alpha: float, beta: float) -> Result:
    x = np.linspace(EDGE, 1 - EDGE, NUM_POINTS)
    z = special.logit(x)
    density = stats.beta.pdf(x, alpha, beta)
    mean, variance = (
        np.log(alpha / beta),
        (alpha + beta) / (alpha * beta),
    )  # of z: Eqs. 5 and 6 for z = z₁ − z₂
    bridged = stats.norm.pdf(z, mean, np.sqrt(variance)) / (x * (1 - x))
    return {
        "alpha": alpha,
        "beta": beta,
        "x": x.tolist(),
        "density": density.tolist(),
        "laplace": _plain_laplace(alpha, beta, x),
        "z": z.tolist(),
        "density_of_z": (density * x * (1 - x)).tolist(),
        "laplace_of_z": stats.norm.pdf(z, mean, np.sqrt(variance)).tolist(),
        "bridged": bridged.tolist(),
        "distance": float(integrate.trapezoid(np.abs(bridged - density), x) / 2),
    }


def _plain_laplace(alpha: float, beta: float, x: np.ndarray) -> list[float] | None:
    """A Gaussian at the mode of the Beta density; None where there is no mode inside."""
    if alpha <= 1 or beta <= 1:
        return None
    mode = (alpha - 1) / (alpha + beta - 2)
    precision = (alpha - 1) / mode**2 + (beta - 1) / (1 - mode) ** 2
    return stats.norm.pdf(x, mode, precision**-0.5).tolist()


def tables(result: Result) -> list[Table]:
    """How far the Gaussian of the softmax basis, brought back, is from each Beta."""
    rows = [
        [
            f"Beta({entry['alpha']:g}, {entry['beta']:g})",
            "none: no mode" if entry["laplace"] is None else "exists",
            f"{entry['distance']:.3f}",
        ]
        for entry in result["distributions"]
    ]
    return [
        Table(["distribution", "plain Laplace approximation", "distance after the bridge"], rows)
    ]


def finding(result: Result) -> str:
    """What the figure shows."""
    without = [entry for entry in result["distributions"] if entry["laplace"] is None]
    farthest = max(entry["distance"] for entry in result["distributions"])
    return (
        f"As in the paper: {len(without)} of {len(result['distributions'])} densities have no plain"
        " Laplace approximation, all have one in the softmax basis, and brought back none is"
        f" farther than {farthest:.2f} in total variation."
    )


def figure(result: Result) -> Figure:
    """Left: plain Laplace. Middle: in the softmax basis. Right: brought back."""
    drawn = Figure(figsize=(style.PAGE, 2.1), layout="constrained")
    plain, basis, back = drawn.subplots(1, 3)
    for index, entry in enumerate(result["distributions"]):
        colour, name = f"C{index}", f"Beta({entry['alpha']:g}, {entry['beta']:g})"
        plain.plot(entry["x"], entry["density"], color=colour, label=name)
        if entry["laplace"] is not None:
            plain.plot(entry["x"], entry["laplace"], "--", color=colour)
        basis.plot(entry["z"], entry["density_of_z"], color=colour)
        basis.plot(entry["z"], entry["laplace_of_z"], "--", color=colour)
        back.plot(entry["x"], entry["density"], color=colour)
        back.plot(entry["x"], entry["bridged"], "--", color=colour)
    for axes in (plain, back):
        axes.set(ylim=(0, 4), xlabel="probability")
    plain.set(title="plain Laplace approximation (dashed)", ylabel="density")
    basis.set(title="in the softmax basis", xlabel="logit", xlim=(-6, 6))
    back.set(title="brought back")
    plain.legend()
    return drawn


FIGURE_2 = Artifact(
    "figure2", "The Laplace bridge for the Beta distribution", compute, tables, finding, figure
)
