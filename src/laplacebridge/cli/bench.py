"""`laplacebridge bench`: what each method costs on this machine, against softmax of the
same logits.
"""

import json
from collections.abc import Callable
from functools import partial
from typing import Annotated

import torch
import typer
from rich import box
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

import laplacebridge as lb
from laplacebridge._stopwatch import seconds_per_call
from laplacebridge.bridges import BRIDGES
from laplacebridge.cli import console, options

EXAMPLE = "Example: laplacebridge bench --classes 10,1000 --threads 1 --json"


def bench(
    classes: Annotated[
        str, typer.Option(metavar="K,…", help="Numbers of classes.")
    ] = "10,100,1000",
    examples: Annotated[int, typer.Option(min=1, help="Examples in a batch.")] = 128,
    repetitions: Annotated[
        int, typer.Option(min=1, help="Repetitions of each timing; the shortest counts.")
    ] = 7,
    threads: Annotated[
        int, typer.Option(min=0, help="Threads of torch; 0 leaves the choice to torch.")
    ] = 1,
    seed: options.SeedOption = 0,
    quiet: options.QuietOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Time every bridge and link on Gaussians with independent logits, as multiples of
    one softmax in the same run.

    Times on shared machines vary; their ratios vary less.
    """
    sizes = _sizes(classes)
    before = torch.get_num_threads()
    if threads:
        torch.set_num_threads(threads)
    try:
        show = console.shows_progress(quiet or as_json)
        timings = {
            size: _timed(_gaussian(examples, size, seed), repetitions, show) for size in sizes
        }
        used = torch.get_num_threads()
    finally:
        torch.set_num_threads(before)
    if as_json:
        rows = [
            {
                "classes": size,
                "method": name,
                "microseconds": micro,
                "times_softmax": micro / found["softmax"],
            }
            for size, found in timings.items()
            for name, micro in found.items()
        ]
        typer.echo(
            json.dumps(
                {"examples": examples, "threads": used, "torch": torch.__version__, "rows": rows}
            )
        )
    elif not quiet:
        Console().print(_table(timings))
        typer.echo(
            f"µs for one example of {examples}, and how many softmaxes that is; {used} thread(s),"
            " float32."
        )


def _sizes(text: str) -> list[int]:
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 2:
        raise typer.BadParameter(
            f"needs numbers from 2 on with commas between, as 10,1000; got '{text}'."
        )
    return sizes


def _gaussian(examples: int, classes: int, seed: int) -> lb.LogitGaussian:
    generator = torch.Generator().manual_seed(seed)
    mean = 2 * torch.randn(examples, classes, generator=generator)
    return lb.LogitGaussian(
        mean, lb.Diagonal(torch.exp(torch.randn(examples, classes, generator=generator)))
    )


def _methods() -> dict[str, Callable[[lb.LogitGaussian], object]]:
    def sampled(count: int, gaussian: lb.LogitGaussian) -> object:
        return lb.links.monte_carlo(
            gaussian, num_samples=count, generator=torch.Generator().manual_seed(0)
        )

    means = {
        f"{name} mean": bridge.mean for name, bridge in BRIDGES.items() if hasattr(bridge, "mean")
    }
    return {
        "softmax": lambda gaussian: gaussian.mean.softmax(-1),
        "probit": partial(lb.links.probit, centered=True),
        **means,
        **BRIDGES,
        "MC-10": partial(sampled, 10),
        "MC-100": partial(sampled, 100),
        "MC-1000": partial(sampled, 1000),
    }


def _timed(gaussian: lb.LogitGaussian, repetitions: int, show: bool) -> dict[str, float]:
    bar = tqdm(
        _methods().items(), desc=f"K = {gaussian.num_classes}", unit="method", disable=not show
    )
    return {name: _microseconds(method, gaussian, repetitions) for name, method in bar}


def _microseconds(
    method: Callable[[lb.LogitGaussian], object], gaussian: lb.LogitGaussian, repetitions: int
) -> float:
    with torch.no_grad():
        return (
            seconds_per_call(lambda: method(gaussian), repetitions=repetitions)
            / len(gaussian)
            * 1e6
        )


def _table(timings: dict[int, dict[str, float]]) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("method", no_wrap=True)
    for size in timings:
        table.add_column(f"K = {size}", justify="right", no_wrap=True)
        table.add_column("softmaxes", justify="right", no_wrap=True)
    for name in next(iter(timings.values())):
        cells = [(found[name], found[name] / found["softmax"]) for found in timings.values()]
        table.add_row(
            name, *(text for micro, ratio in cells for text in (f"{micro:.3g}", f"{ratio:.3g}"))
        )
    return table
