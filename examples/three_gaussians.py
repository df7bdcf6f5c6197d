"""Three Gaussians over logits, and what every bridge and link makes of them: `python examples/three_gaussians.py`."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from rich import box
from rich.console import Console
from rich.table import Table
from torch import Generator, Tensor

import laplacebridge as lb

CLASSES = ("cat", "dog", "owl")


class Scene(NamedTuple):
    """A Gaussian over the logits of the classes, and what it stands for."""

    title: str
    mean: list[float]
    variance: list[float]


SCENES = (
    Scene("A clear cat, seen often in training", [5.0, 1.0, -1.0], [0.3, 0.3, 0.3]),
    Scene("Cat or dog, and well known to be hard", [2.0, 1.8, -3.0], [0.2, 0.2, 0.5]),
    Scene("Nothing like the training data", [3.0, 0.0, -1.0], [30.0, 25.0, 40.0]),
)

BRIDGES: dict[str, Callable[[lb.LogitGaussian], lb.Dirichlet]] = {
    "race (default)": lb.race_bridge,
    "one-vs-rest": lb.one_vs_rest_bridge,
    "KL projection": lb.kl_bridge,
    "delta": lb.delta_bridge,
    "LB (paper)": lb.laplace_bridge,
    "LB-norm (paper)": lb.laplace_bridge_norm,
}
LINKS: dict[str, Callable[[lb.LogitGaussian], Tensor]] = {
    "MAP": lb.links.map_estimate,
    "probit": partial(lb.links.probit, centered=True),
    "second order": lb.links.second_order,
}


def run(console: Console, *, num_samples: int, seed: int) -> None:
    """Prints one table per scene.

    Args:
        console: Where to print.
        num_samples: Monte Carlo samples to compare with.
        seed: Seed of those samples.
    """
    console.print(
        "\nA classifier that knows its uncertainty gives a [bold]Gaussian over logits[/]. A bridge turns it into a "
        "[bold]Dirichlet over class probabilities[/], without sampling. Three inputs, three classes:\n"
    )
    for scene in SCENES:
        console.print(_table(scene, num_samples, seed))
        console.print()
    console.print(
        "[bold]error[/]: total variation between these mean probabilities and the samples', whose own noise is "
        "about 0.001. [bold]total[/]: how sure a Dirichlet is of its mean. [bold]cat, 95 %[/]: where its probability "
        "lies with 95 % chance, and the share of the samples that it really [bold]holds[/].\n"
    )


def _table(scene: Scene, num_samples: int, seed: int) -> Table:
    gaussian = lb.LogitGaussian(
        torch.tensor([scene.mean], dtype=torch.float64),
        lb.Diagonal(torch.tensor([scene.variance], dtype=torch.float64)),
    )
    samples = gaussian.sample(num_samples, Generator().manual_seed(seed)).softmax(-1)[:, 0]
    truth = samples.mean(0)
    title = f"{scene.title}\n[dim]logits: mean {scene.mean}, variance {scene.variance}[/]"
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE, pad_edge=False, padding=(0, 1))
    table.add_column("method", no_wrap=True)
    for name in CLASSES:
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("error", "total", "cat, 95 %", "holds"):
        table.add_column(name, justify="right", no_wrap=True)
    low, high = (float(samples[:, 0].quantile(level)) for level in (0.025, 0.975))
    sampled = [f"{probability:.3f}" for probability in truth.tolist()]
    table.add_row(f"{num_samples:,} samples", *sampled, "", "", f"{low:.2f} – {high:.2f}", "95%", style="bold")
    table.add_section()
    for name, bridge in BRIDGES.items():
        dirichlet = bridge(gaussian)
        low, high = (float(end) for end in dirichlet.marginal(0).interval(0.95))
        held = float(((samples[:, 0] >= low) & (samples[:, 0] <= high)).double().mean())
        interval = (_short(float(dirichlet.total)), f"{low:.2f} – {high:.2f}", f"{held:.0%}")
        table.add_row(name, *_cells(dirichlet.mean, truth), *interval)
    table.add_section()
    for name, link in LINKS.items():
        table.add_row(name, *_cells(link(gaussian), truth), "", "", "")
    return table


def _cells(probabilities: Tensor, truth: Tensor) -> list[str]:
    error = 0.5 * (probabilities[0] - truth).abs().sum()
    return [*(f"{probability:.3f}" for probability in probabilities[0].tolist()), f"{float(error):.3f}"]


def _short(number: float) -> str:
    return f"{number:.3g}" if number < 1000 else f"{number:.0e}"


if __name__ == "__main__":
    run(Console(), num_samples=100_000, seed=0)
