"""`laplacebridge reproduce`: tables and figures of the paper, computed, with the printed numbers beside ours."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown

from laplacebridge.cli import options, outputs
from laplacebridge.cli.extras import needs_extra

EXAMPLE = "Example: laplacebridge reproduce figure5 --profile small -o reproduction"
PROFILES = ("smoke", "small", "paper")


def reproduce(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As figure5, or all; list says which there are.")],
    profile: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="smoke: seconds, generated data; small: minutes; paper: the original sizes.",
            autocompletion=lambda: list(PROFILES),
        ),
    ] = "small",
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where to write.", rich_help_panel="Output")
    ] = Path("reproduction"),
    force: options.ForceOption = False,
    quiet: options.QuietOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Compute a table or figure of the paper and show it beside what was printed.

    Writes numbers with seed, versions and profile as JSON, and what they look like as Markdown and PNG.
    """
    with needs_extra("report,paper", "Reproducing the paper"):
        from laplacebridge.paper.artifact import Run, reproduced, text_of
        from laplacebridge.paper.artifacts import ARTIFACTS, page_of

    if name == "list":
        for artifact in ARTIFACTS.values():
            typer.echo(f"{artifact.name}  {artifact.title}")
        return
    _require_known(name, [*ARTIFACTS, "all", "list"], "NAME")
    _require_known(profile, PROFILES, "--profile")
    wanted = list(ARTIFACTS.values()) if name == "all" else [ARTIFACTS[name]]
    for artifact in wanted:
        outputs.require_new(output / f"{artifact.name}.json", force=force)
    output.mkdir(parents=True, exist_ok=True)
    console = Console(quiet=quiet or as_json)
    run = Run(profile, seed, progress=outputs.shows_progress(quiet or as_json))
    records = []
    for artifact in wanted:
        record = reproduced(artifact, run)
        records.append(record)
        text = text_of(artifact, record)
        outputs.write_text(output / f"{artifact.name}.json", json.dumps(record) + "\n")
        outputs.write_text(output / f"{artifact.name}.md", text)
        if artifact.figure is not None:
            with outputs.written_whole(output / f"{artifact.name}.png") as temporary:
                artifact.figure(record["result"]).savefig(temporary, format="png", dpi=150)
        console.print(Markdown(text))
        console.print(f"{record['seconds']} s; written to {output}/{artifact.name}.*\n")
    if name == "all":
        outputs.write_text(output / "README.md", page_of(records))
    if as_json:
        typer.echo(json.dumps(records))


def _require_known(name: str, known: list[str] | tuple[str, ...], option: str) -> None:
    if name not in known:
        raise typer.BadParameter(f"'{name}' is not one of {', '.join(known)}.", param_hint=option)
