"""The command `laplacebridge`."""

import platform
from typing import Annotated

import torch
import typer
from rich.console import Console

import laplacebridge
from laplacebridge.cli import demo as demo_command

app = typer.Typer(
    help="Turn a Gaussian over logits into a Dirichlet over class probabilities, in closed form.",
    no_args_is_help=True,
    add_completion=False,
)


@app.command()
def demo(
    samples: Annotated[int, typer.Option(help="Monte Carlo samples to compare with.", min=100)] = 100_000,
    seed: Annotated[int, typer.Option(help="Seed of those samples.")] = 0,
) -> None:
    """Show three Gaussians over logits and what each bridge makes of them."""
    demo_command.run(Console(), num_samples=samples, seed=seed)


@app.command()
def info() -> None:
    """Print the versions that matter in a bug report."""
    Console().print(
        f"laplacebridge {laplacebridge.__version__}, torch {torch.__version__}, "
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, "
        f"{torch.get_num_threads()} threads"
    )
