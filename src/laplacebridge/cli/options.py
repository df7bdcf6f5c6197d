"""Arguments and options that commands share, each with its help."""

from pathlib import Path
from typing import Annotated

import typer

from laplacebridge.cli import names

DataArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="package.module:loader (batches, or a function that returns them), an .npz of `inputs` or `features` and "
        "`labels`, rows of numbers as .csv or .jsonl, a folder of images by class, or - for rows on standard input.",
        show_default=False,
    ),
]
PredictionArgument = Annotated[
    str,
    typer.Argument(
        metavar="PREDICTION",
        help="What `laplacebridge predict` wrote: an .npz file, or - for .npz or JSON lines on standard input.",
        show_default=False,
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:FACTORY",
        help="A function that returns the network: trained, or to be filled with --weights.",
        rich_help_panel="Model",
    ),
]
WeightsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Weights of the network: safetensors, or a state dict that torch saved.",
        rich_help_panel="Model",
    ),
]
HeadOnlyOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Instead of a model: its last layer alone, an .npz or safetensors file with `weight` and `bias`. The data "
        "are features then.",
        rich_help_panel="Model",
    ),
]
LayersOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERN",
        help="Cover these linear layers and convolutions instead of the last layer alone: * for all, features.* for a "
        "part; may be given several times.",
        rich_help_panel="Method",
    ),
]
DeviceOption = Annotated[str, typer.Option(help="Where to compute: cpu, cuda, mps, …", rich_help_panel="Model")]
SeedOption = Annotated[
    int, typer.Option(help="Seed, for factories and loaders that draw random numbers.", rich_help_panel="Model")
]
BatchSizeOption = Annotated[
    int,
    typer.Option(min=1, help="Examples in a batch; a loader has its own.", rich_help_panel="Data"),
]
ClassesOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Names of the classes: one on each line, or a JSON list.", rich_help_panel="Data"
    ),
]
SizeOption = Annotated[
    int | None,
    typer.Option(min=1, help="Images: scale the middle of each to a square of so many pixels.", rich_help_panel="Data"),
]
MeanOption = Annotated[
    str,
    typer.Option(metavar="R,G,B", help="Images: subtract this after scaling to [0, 1].", rich_help_panel="Data"),
]
StdOption = Annotated[str, typer.Option(metavar="R,G,B", help="Images: then divide by this.", rich_help_panel="Data")]
BridgeOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"From Gaussians over logits to Dirichlets: {', '.join(names.BRIDGES)}.",
        callback=names.one_of(names.BRIDGES),
        autocompletion=lambda: list(names.BRIDGES),
        rich_help_panel="Method",
    ),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace a file that exists.", rich_help_panel="Output")]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress bar and no summary.", rich_help_panel="Output")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Give the summary as JSON.", rich_help_panel="Output")]
RowsOption = Annotated[
    str,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Where to write; - is standard output.", rich_help_panel="Output"
    ),
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help="jsonl, csv or npz; by default what the name of the file ends in, jsonl on standard output.",
        autocompletion=lambda: ["jsonl", "csv", "npz"],
        rich_help_panel="Output",
    ),
]
