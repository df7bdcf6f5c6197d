"""`laplacebridge score`: files of examples to files of scores, restartable."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from tqdm import tqdm

from laplacebridge._images import images_in
from laplacebridge._scoring_sources import SUFFIXES
from laplacebridge.cli import console, options
from laplacebridge.cli.engines import LOCAL, Job, Scoring, results
from laplacebridge.cli.readers import Preparation

EXAMPLE = (
    "Example: laplacebridge score classifier.safetensors days/ --model project.network:build"
    " --weights weights.pt --keep id -o scores/"
)
MANIFEST = "manifest.json"
IMAGES_TOGETHER = 1000  # in one file of scores: what is lost at most when a run is killed


def score(
    classifier: options.ClassifierArgument,
    inputs: Annotated[
        list[Path],
        typer.Argument(
            metavar="INPUT…",
            help=f"Files that end in {', '.join(SUFFIXES)}, or folders of them or of images.",
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
    size: options.SizeOption = None,
    mean: options.MeanOption = "0",
    std: options.StdOption = "1",
    engine: Annotated[
        str,
        typer.Option(
            metavar="local|dask://HOST:PORT",
            help=(
                "What does the work: this process, or the workers of the Dask scheduler at an"
                " address, which must see the same files (extra `dask`)."
            ),
        ),
    ] = LOCAL,
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
    started again as it was. Of images, a thousand of a folder go into each file.
    """
    jobs = _jobs(inputs, output)
    scoring = Scoring(
        os.getcwd(),
        str(classifier),
        holds="inputs" if any(job.images for job in jobs) else "",
        model=model,
        weights=None if weights is None else str(weights),
        head_only=None if head_only is None else str(head_only),
        device=device,
        seed=seed,
        bridge=bridge.value if bridge else None,
        keep=tuple(keep or ()),
        batch_size=batch_size,
        force=force,
        preparation=Preparation.of_options(size, mean, std),
    )
    ended = results(engine, scoring, jobs)
    hidden = not console.shows_progress(quiet)
    found = dict(tqdm(ended, "scoring", len(jobs), unit="file", disable=hidden))
    entries = [
        {"source": job.source, "target": job.target, "rows": found[number].rows}
        for number, job in enumerate(jobs)
    ]
    rows = sum(each.rows for each in found.values())
    manifest = {"files": entries, "rows": rows}
    console.write_text(output / MANIFEST, json.dumps(manifest, indent=1) + "\n")
    skipped = sum(each.skipped for each in found.values())
    summary = {"output": str(output), "files": len(jobs), "rows": rows, "skipped": skipped}
    console.print_summary(
        summary,
        f"{output}: {rows} rows of {len(jobs)} files, {skipped} of which were there already",
        quiet=quiet,
        as_json=as_json,
    )


def _jobs(inputs: list[Path], output: Path) -> list[Job]:
    """What is scored into what; a folder keeps its structure."""
    jobs: dict[str, Job] = {}
    for given in inputs:
        found = list(_in_folder(given, output)) if given.is_dir() else [_of_file(given, output)]
        if not found:
            raise typer.BadParameter(
                f"{given} has no images, and no files that end in {', '.join(SUFFIXES)}.",
                param_hint="INPUT",
            )
        for job in found:
            if job.target in jobs:
                raise typer.BadParameter(
                    f"{jobs[job.target].source} and {job.source} would both be scored into"
                    f" {job.target}.",
                    param_hint="INPUT",
                )
            jobs[job.target] = job
    return list(jobs.values())


def _of_file(source: Path, folder: Path) -> Job:
    suffix = "" if source.suffix == ".parquet" else ".parquet"
    return Job(str(source), str(folder / f"{source.name}{suffix}"))


def _in_folder(given: Path, output: Path) -> Iterator[Job]:
    """A job for each file of examples, and for every so many images of a folder."""
    for folder in [given, *sorted(each for each in given.rglob("*") if each.is_dir())]:
        target = output / folder.relative_to(given)
        for source in sorted(each for each in folder.iterdir() if each.suffix in SUFFIXES):
            yield _of_file(source, target)
        names = [path.name for path in images_in(folder)]
        for number, start in enumerate(range(0, len(names), IMAGES_TOGETHER)):
            yield Job(
                str(folder),
                str(target / f"images-{number:05}.parquet"),
                tuple(names[start : start + IMAGES_TOGETHER]),
            )
