"""`laplacebridge reproduce`: tables and figures of the paper, computed, with the
printed numbers beside ours.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markdown import Markdown

from laplacebridge._files import atomic_write
from laplacebridge.cli import console, options
from laplacebridge_reproduction.profiles import Profile

if TYPE_CHECKING:
    from laplacebridge_reproduction.artifact import Artifact

EXAMPLE = "Example: laplacebridge reproduce figure5 --profile small -o figures"
FORMATS = ("md", "tex", "csv", "png", "pdf")


def reproduce(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAMES...", help="As table1 or figure5, or all; list says which there are."
        ),
    ],
    profile: Annotated[
        Profile,
        typer.Option(
            metavar="NAME",
            help="smoke: seconds, generated data; small: minutes; paper: the original sizes.",
        ),
    ] = Profile.small,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where the data sets lie; what is missing is downloaded if it can be.",
            envvar="LAPLACEBRIDGE_DATA",
        ),
    ] = None,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FOLDER", help="Where to write.", rich_help_panel="Output"
        ),
    ] = Path("laplacebridge-reproduction"),
    formats: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="NAMES",
            help=f"Any of {','.join(FORMATS)}.",
            rich_help_panel="Output",
        ),
    ] = ",".join(FORMATS),
    render: Annotated[
        bool,
        typer.Option(
            "--render", help="Compute nothing: write again from the JSON files that are there."
        ),
    ] = False,
    force: options.ForceOption = False,
    quiet: options.QuietOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Compute tables and figures of the paper and show them beside what was printed.

    Writes numbers with seed, versions, profile and checksums of the data as JSON, and
    what they look like as Markdown, LaTeX, CSV, PNG and PDF. With all, a page of
    everything is written beside the folder: FOLDER.md.
    """
    # imported here, because the list of all commands imports this module
    from laplacebridge_reproduction.artifact import Run, reproduced, text_of
    from laplacebridge_reproduction.catalogue import ARTIFACTS, page_of

    if names == ["list"]:
        for artifact in ARTIFACTS.values():
            typer.echo(f"{artifact.name}  {artifact.title}")
        return
    for name in names:
        _require_known(name, [*ARTIFACTS, "all", "list"], "NAMES")
    wanted_formats = formats.split(",")
    for wanted in wanted_formats:
        _require_known(wanted, FORMATS, "--format")
    wanted_artifacts = [
        artifact for name, artifact in ARTIFACTS.items() if name in names or "all" in names
    ]
    for artifact in wanted_artifacts:
        if not render:
            console.require_new(output / f"{artifact.name}.json", force=force)
    output.mkdir(parents=True, exist_ok=True)
    silent = quiet or as_json
    terminal = Console(quiet=silent)
    records = []
    for artifact in wanted_artifacts:
        if render:
            record = _read(output / f"{artifact.name}.json")
        else:
            record = reproduced(
                artifact, Run(profile.value, seed, console.shows_progress(silent), data)
            )
            console.write_text(output / f"{artifact.name}.json", json.dumps(record) + "\n")
        records.append(record)
        _write(artifact, record, output, wanted_formats)
        terminal.print(Markdown(text_of(artifact, record)))
        console.log(f"{record['seconds']} s; written to {output}/{artifact.name}.*\n", quiet=silent)
    if "all" in names:
        page = output.with_name(f"{output.name}.md")
        console.write_text(page, page_of(records, pictures=f"{output.name}/"))
        console.log(f"All of it: {page}", quiet=silent)
    if as_json:
        typer.echo(json.dumps(records))


def _write(artifact: "Artifact", record: dict[str, Any], folder: Path, formats: list[str]) -> None:
    from laplacebridge_reproduction import style
    from laplacebridge_reproduction.artifact import csv_of, latex_of, text_of

    texts = {"md": text_of, "tex": latex_of, "csv": csv_of}
    for name in formats:
        path = folder / f"{artifact.name}.{name}"
        if name in texts:
            console.write_text(path, texts[name](artifact, record))
        elif artifact.figure is not None:
            with atomic_write(path) as temporary, style.applied():
                artifact.figure(record["result"]).savefig(temporary, format=name)


def _read(path: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise typer.BadParameter(
            f"{path} is not there. Compute it first, without --render.", param_hint="--render"
        ) from None
    except ValueError as error:
        raise typer.BadParameter(
            f"{path} is damaged: {error}. Compute it again.", param_hint="--render"
        ) from error
    return record


def _require_known(name: str, known: list[str] | tuple[str, ...], option: str) -> None:
    if name not in known:
        raise typer.BadParameter(f"'{name}' is not one of {', '.join(known)}.", param_hint=option)
