"""`laplacebridge score`: files of examples to files of scores, restartable."""

import json
from pathlib import Path
from typing import Annotated

import typer
from tqdm import tqdm

import laplacebridge as lb
from laplacebridge._scoring import SUFFIXES, Scored
from laplacebridge.cli import console, options
from laplacebridge.cli.data import Batches
from laplacebridge.cli.models import load_classifier, seed_everything

EXAMPLE = (
    "Example: laplacebridge score classifier.safetensors days/ --model project.network:build"
    " --weights weights.pt --keep id -o scores/"
)
MANIFEST = "manifest.json"


def score(
    classifier: options.ClassifierArgument,
    inputs: Annotated[
        list[Path],
        typer.Argument(
            metavar="INPUT…",
            help=f"Files that end in {', '.join(SUFFIXES)}, or folders of them.",
            exists=True,
            show_default=False,
        ),
    ],
    *,
    model: options.ModelOption = None,
    weights: options.WeightsOption = None,
    head_only: options.HeadOnlyOption = None,
    device: options.DeviceOption = "cpu",
    seed: options.SeedOption = 0,
    bridge: options.BridgeOption = None,
    batch_size: options.BatchSizeOption = 1024,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="A column to copy, such as an identifier; may be given several times.",
            rich_help_panel="Data",
        ),
    ] = None,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FOLDER",
            help="Where a parquet file for each input goes, and a manifest of all.",
            rich_help_panel="Output",
        ),
    ],
    force: options.ForceOption = False,
    quiet: options.QuietOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Score files of examples, one file out for each file in.

    Files that are scored already are passed over, so that a run that was killed is
    started again as it was.
    """
    seed_everything(seed)
    files = _targets(inputs, output)
    loaded = load_classifier(
        classifier,
        Batches(str(inputs[0]), ()),
        model=model,
        weights=weights,
        head_only=head_only,
        device=device,
        bridge=bridge,
    )
    scored: list[Scored] = []
    bar = tqdm(
        files.items(), desc="scoring", unit="file", disable=not console.shows_progress(quiet)
    )
    for target, source in bar:
        target.parent.mkdir(parents=True, exist_ok=True)
        scored.append(
            lb.score_file(
                loaded,
                source,
                target,
                keep=keep or (),
                batch_size=batch_size,
                replace=force,
            )
        )
    entries = [{"source": each.source, "target": each.target, "rows": each.rows} for each in scored]
    rows = sum(each.rows for each in scored)
    manifest = {"files": entries, "rows": rows}
    console.write_text(output / MANIFEST, json.dumps(manifest, indent=1) + "\n")
    skipped = sum(each.skipped for each in scored)
    summary = {"output": str(output), "files": len(scored), "rows": rows, "skipped": skipped}
    console.print_summary(
        summary,
        f"{output}: {rows} rows of {len(scored)} files, {skipped} of which were there already",
        quiet=quiet,
        as_json=as_json,
    )


def _targets(inputs: list[Path], output: Path) -> dict[Path, Path]:
    """Which file is scored into which; a folder keeps its structure."""
    found: dict[Path, Path] = {}
    for given in inputs:
        sources = (
            sorted(each for each in given.rglob("*") if each.suffix in SUFFIXES)
            if given.is_dir()
            else [given]
        )
        if not sources:
            raise typer.BadParameter(
                f"{given} has no files that end in {', '.join(SUFFIXES)}.", param_hint="INPUT"
            )
        for source in sources:
            name = source.relative_to(given) if given.is_dir() else Path(source.name)
            suffix = "" if name.suffix == ".parquet" else ".parquet"
            target = output / name.with_name(name.name + suffix)
            if target in found:
                raise typer.BadParameter(
                    f"{found[target]} and {source} would both be scored into {target}.",
                    param_hint="INPUT",
                )
            found[target] = source
    return found
