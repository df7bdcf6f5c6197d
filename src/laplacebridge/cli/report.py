"""`laplacebridge report`: one page that judges the user's own classifier on the user's own data."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from laplacebridge.cli import loading, modules, options, outputs, sources, tables
from laplacebridge.cli.extras import needs_extra

EXAMPLE = (
    "Example: laplacebridge report classifier.safetensors project.data:test_batches --model project.network:build "
    "--weights weights.pt --outside project.data:strange_batches -o report.html"
)


def report(
    classifier: Annotated[
        Path, typer.Argument(metavar="CLASSIFIER", help="What `laplacebridge fit` saved.", show_default=False)
    ],
    data: options.DataArgument,
    *,
    model: options.ModelOption = None,
    weights: options.WeightsOption = None,
    head_only: options.HeadOnlyOption = None,
    device: options.DeviceOption = "cpu",
    seed: options.SeedOption = 0,
    bridge: options.BridgeOption = None,
    outside: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="Inputs that belong to no class, to see whether they are told apart.",
            rich_help_panel="Data",
        ),
    ] = None,
    validation: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="Labelled data for temperature scaling and the curve of the prior precision.",
            rich_help_panel="Data",
        ),
    ] = None,
    batch_size: options.BatchSizeOption = 256,
    classes: options.ClassesOption = None,
    size: options.SizeOption = None,
    mean: options.MeanOption = "0",
    std: options.StdOption = "1",
    title: Annotated[
        str, typer.Option(help="Of the page.", rich_help_panel="Output")
    ] = "A classifier and its uncertainty",
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The page.", rich_help_panel="Output")
    ] = Path("report.html"),
    table: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The table too, as .csv or .json.", rich_help_panel="Output"),
    ] = None,
    force: options.ForceOption = False,
    quiet: options.QuietOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Judge a classifier on labelled test data: one HTML page with a verdict, a table and plots."""
    with needs_extra("report", "A report"):  # plots take a second to import, which other commands need not wait for
        from laplacebridge.report import evaluate, page
    outputs.require_writable(output, force=force)
    if table is not None:
        outputs.require_writable(table, force=force, option="--table")
        _require_table_format(table)
    modules.require_file(classifier, "CLASSIFIER")
    reading = sources.Reading(batch_size, sources.class_names_from(classes), sources.preparation_of(size, mean, std))
    modules.seed_everything(seed)
    given = sources.data_from(data, reading)
    network = loading.network_for(classifier, model, weights, head_only, given)
    loaded = loading.load_classifier(classifier, network.to(modules.device_named(device)), bridge)
    sources.require_all_classes(given, reading, loaded.num_classes)
    show = outputs.shows_progress(quiet or as_json)

    def batches(source: str | None, option: str, labels_for: str) -> sources.Prepared | None:
        if source is None:
            return None
        read = sources.data_from(source, reading, option=option)
        return sources.Prepared(read, network, progress="", labels_for=labels_for)

    evaluation = evaluate(
        loaded,
        sources.Prepared(given, network, progress="", labels_for="to judge predictions by"),
        ood=batches(outside, "--outside", ""),
        validation=batches(validation, "--validation", "for temperature scaling"),
        class_names=reading.class_names or given.class_names or None,
        title=title,
        settings={"data": given.source, "OOD data": outside or "none"},
        seed=seed,
        progress=show,
    )
    numbers = evaluation.to_dict()
    outputs.write_text(output, page.html(evaluation))
    if table is not None:
        rows = tables.as_csv(evaluation) if table.suffix == ".csv" else json.dumps(numbers, indent=1) + "\n"
        outputs.write_text(table, rows)
    tables.show(Console(quiet=quiet or as_json), evaluation)
    outputs.tell(f"Written to {output}.", quiet=quiet or as_json)
    if as_json:
        typer.echo(json.dumps(numbers))


def _require_table_format(table: Path) -> None:
    if table.suffix not in {".csv", ".json"}:
        raise typer.BadParameter(f"needs a name that ends in .csv or .json; got {table}.", param_hint="--table")
