"""Arguments and options that commands share, each with its help. Methods are chosen by
their names in the library.
"""

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from laplacebridge.bridges import BRIDGES
from laplacebridge.scores import DIRICHLET_SCORES, Score
from laplacebridge.scores import SCORES as PROBABILITY_SCORES

SCORES: dict[str, Score] = PROBABILITY_SCORES | DIRICHLET_SCORES
STANDARD_STREAM = "-"

# As enumerations: typer checks such names, and completes them in the shell.
BridgeName = Enum("BridgeName", {name: name for name in BRIDGES})  # type: ignore[misc]
ScoreName = Enum("ScoreName", {name: name for name in SCORES})  # type: ignore[misc]


class FileFormat(Enum):
    """How rows are written."""

    jsonl = "jsonl"
    csv = "csv"
    npz = "npz"


def renamed(new: str, why: str = "") -> Any:  # noqa: ANN401 - typer's options have no public type
    """An option under its old name, which is not shown, and whose use is an error that
    tells the new name.
    """

    def refuse(value: str | bool | None) -> str | bool | None:
        if value not in {None, False}:
            raise typer.BadParameter(f"is called {new} now. {why}".strip())
        return value

    return typer.Option(hidden=True, callback=refuse)


def existing_file(help: str, *names: str, **more: Any) -> Any:  # noqa: A002, ANN401 - as typer
    """An option that names a file to read."""
    return typer.Option(*names, help=help, metavar="FILE", exists=True, dir_okay=False, **more)


def share(help: str, *names: str, **more: Any) -> Any:  # noqa: A002, ANN401
    """An option that is a number from 0 to 1; others are refused with what was given."""

    def checked(value: float | None) -> float | None:
        if value is not None and not 0 <= value <= 1:
            meant = f"; for {value:g} % give {value / 100:g}" if 1 < value <= 100 else ""
            raise typer.BadParameter(f"is a share from 0 to 1, such as 0.95; got {value:g}{meant}.")
        return value

    return typer.Option(*names, help=help, metavar="0..1", callback=checked, **more)


ClassifierArgument = Annotated[
    Path,
    typer.Argument(
        metavar="CLASSIFIER",
        help="What `laplacebridge fit` saved.",
        exists=True,
        dir_okay=False,
        show_default=False,
    ),
]
DataArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help=(
            "package.module:loader (batches, or a function that returns them), an .npz of `inputs`"
            " or `features` and `labels`, rows of numbers as .csv or .jsonl, a folder of images by"
            " class, or - for rows on standard input."
        ),
        show_default=False,
    ),
]
PredictionArgument = Annotated[
    str,
    typer.Argument(
        metavar="PREDICTION",
        help=(
            "What `laplacebridge predict` wrote: an .npz file, or - for .npz or JSON lines on"
            " standard input."
        ),
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
    existing_file(
        "Weights of the network: safetensors, or a state dict that torch saved.",
        rich_help_panel="Model",
    ),
]
HeadOnlyOption = Annotated[
    Path | None,
    existing_file(
        "Instead of a model: its last layer alone, an .npz or safetensors file with `weight`"
        " and `bias`. The data are features then.",
        rich_help_panel="Model",
    ),
]
DeviceOption = Annotated[
    str, typer.Option(help="Where to compute: cpu, cuda, mps, …", rich_help_panel="Model")
]
SeedOption = Annotated[
    int,
    typer.Option(
        min=0, max=2**32 - 1, help="Seed for everything random."
    ),  # NumPy has no larger ones
]
BatchSizeOption = Annotated[
    int,
    typer.Option(min=1, help="Examples in a batch; a loader has its own.", rich_help_panel="Data"),
]
ClassesOption = Annotated[
    Path | None,
    existing_file(
        "Names of the classes in the order of the network: one on each line, or a JSON list.",
        rich_help_panel="Data",
    ),
]
SizeOption = Annotated[
    int | None,
    typer.Option(
        min=1, help="Center-crop and resize images to SIZE × SIZE pixels.", rich_help_panel="Data"
    ),
]
MeanOption = Annotated[
    str,
    typer.Option(
        metavar="R,G,B",
        help="Mean to subtract from images, whose pixels are scaled to [0, 1].",
        rich_help_panel="Data",
    ),
]
StdOption = Annotated[
    str,
    typer.Option(
        metavar="R,G,B",
        help="Standard deviation to divide images by after that.",
        rich_help_panel="Data",
    ),
]
BridgeOption = Annotated[
    BridgeName | None,
    typer.Option(
        metavar="NAME",
        help=f"Bridge from Gaussians over logits to Dirichlets: {', '.join(BRIDGES)}.",
        rich_help_panel="Method",
    ),
]
PriorPrecisionOption = Annotated[
    float | None,
    typer.Option(help="If known; otherwise chosen by evidence.", rich_help_panel="Method"),
]
HeldOutOption = Annotated[
    str | None,
    typer.Option(
        metavar="DATA",
        help=(
            "Labelled data that the network was not trained on, to choose temperature and width of"
            " predictions by, so that intervals agree with the errors that these labels reveal."
        ),
        rich_help_panel="Method",
    ),
]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Replace a file that exists.", rich_help_panel="Output")
]
QuietOption = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="No progress bar and no summary.", rich_help_panel="Output"),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Give the summary as JSON.", rich_help_panel="Output")
]
RowsOption = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Where to write; - is standard output.",
        rich_help_panel="Output",
    ),
]
FormatOption = Annotated[
    FileFormat | None,
    typer.Option(
        "--format",
        help="By default what the name of the file ends in, jsonl on standard output.",
        rich_help_panel="Output",
    ),
]
