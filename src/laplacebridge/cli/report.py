"""`laplacebridge report`: one page that judges the user's own classifier.
`laplacebridge demo`: one on digits.
"""

import json
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

import laplacebridge as lb
from laplacebridge.cli import console, options
from laplacebridge.cli.data import Batches, open_data, read_class_names
from laplacebridge.cli.models import load_classifier, seed_everything
from laplacebridge.cli.readers import Preparation
from laplacebridge.report import Evaluation, evaluate

EXAMPLE = (
    "Example: laplacebridge report classifier.safetensors project.data:test_batches --model"
    " project.network:build --weights weights.pt --ood project.data:ood_batches -o report.html"
)
EXAMPLE_OF_DEMO = "Example: laplacebridge demo --seed 1 -o digits"
FILES_OF_DEMO = ("report.html", "classifier.safetensors", "table.csv", "table.json")


def report(
    classifier: options.ClassifierArgument,
    data: options.DataArgument,
    *,
    model: options.ModelOption = None,
    weights: options.WeightsOption = None,
    head_only: options.HeadOnlyOption = None,
    device: options.DeviceOption = "cpu",
    seed: options.SeedOption = 0,
    bridge: options.BridgeOption = None,
    ood: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help=(
                "Out-of-distribution (OOD) inputs, which belong to no class, to see whether they"
                " are detected."
            ),
            rich_help_panel="Data",
        ),
    ] = None,
    outside: Annotated[str | None, options.renamed("--ood")] = None,
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
        str, typer.Option(help="Title of the page.", rich_help_panel="Output")
    ] = "A classifier and its uncertainty",
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="The page.", rich_help_panel="Output"),
    ] = Path("report.html"),
    table: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The table too, as .csv or .json.", rich_help_panel="Output"
        ),
    ] = None,
    force: options.ForceOption = False,
    quiet: options.QuietOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Judge a classifier on labelled test data: one HTML page with a verdict, a table
    and plots.
    """
    with console.needs_extra(
        "report", "A report"
    ):  # plots take a second to import, which other commands need not wait for
        from laplacebridge.report import page
    console.require_writable(output, force=force)
    if table is not None:
        console.require_writable(table, force=force, option="--table")
        if table.suffix not in {".csv", ".json"}:
            raise typer.BadParameter(
                f"needs a name that ends in .csv or .json; got {table}.", param_hint="--table"
            )
    class_names = read_class_names(classes)
    seed_everything(seed)
    preparation = Preparation.of_options(size, mean, std)
    read = partial(
        open_data, batch_size=batch_size, class_names=class_names, preparation=preparation
    )
    given = read(data)
    loaded = load_classifier(
        classifier,
        given,
        model=model,
        weights=weights,
        head_only=head_only,
        device=device,
        bridge=bridge,
    )
    given.require_classes(loaded.num_classes, were_given=bool(class_names))

    def other(source: str | None, option: str, labels_for: str) -> Batches | None:
        if source is None:
            return None
        return read(source, option=option).prepared_for(loaded.network.model, labels_for=labels_for)

    silent = quiet or as_json
    evaluation = evaluate(
        loaded,
        given.prepared_for(loaded.network.model, labels_for="to judge predictions by"),
        ood=other(ood, "--ood", ""),
        validation=other(validation, "--validation", "for temperature scaling"),
        class_names=given.class_names or None,
        title=title,
        settings={"data": given.source, "OOD data": ood or "none"},
        seed=seed,
        progress=console.shows_progress(silent),
    )
    console.write_text(output, page.html(evaluation))
    _print_and_write(evaluation, [table] if table else [], silent=silent, as_json=as_json)
    console.log(f"Written to {output}.", quiet=silent)


def demo(
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FOLDER", help="Where to write.", rich_help_panel="Output"
        ),
    ] = Path("laplacebridge-demo"),
    seed: options.SeedOption = 0,
    force: options.ForceOption = False,
    quiet: options.QuietOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Train a small classifier on handwritten digits, fit its last layer, and compare
    every method on one table.

    Three digits are out of distribution: the network never sees them, and should say
    so.
    """
    with console.needs_extra(
        "report", "The demo"
    ):  # scikit-learn and matplotlib take a second to import
        from laplacebridge import datasets
        from laplacebridge.report import page
    report_path, saved, *tables = (output / name for name in FILES_OF_DEMO)
    for path in (report_path, saved, *tables):
        console.require_new(path, force=force)
    silent = quiet or as_json
    known = ", ".join(str(digit) for digit in datasets.KNOWN)
    console.log(f"Training a small network on the digits {known} …", quiet=silent)
    data = datasets.digits(seed)
    network = datasets.trained_network(data.train, seed=seed)
    classifier = lb.fit(
        network,
        datasets.loader(data.train),
        val_loader=datasets.loader(data.validation),
        progress=False,
    )
    evaluation = evaluate(
        classifier,
        datasets.loader(data.test),
        ood=datasets.loader(data.unknown),
        validation=datasets.loader(data.validation),
        title="Handwritten digits, three of them unknown to the network",
        settings={
            "data": (
                f"scikit-learn's digits; {', '.join(map(str, datasets.UNKNOWN))} are out of"
                " distribution (OOD)"
            ),
            "training examples": str(len(data.train[1])),
            "validation examples": str(len(data.validation[1])),
        },
        seed=seed,
        progress=console.shows_progress(silent),
    )
    output.mkdir(parents=True, exist_ok=True)
    lb.save(classifier, saved)
    console.write_text(report_path, page.html(evaluation))
    _print_and_write(evaluation, tables, silent=silent, as_json=as_json)
    versions = ", ".join(
        f"{name} {evaluation.settings[name]}" for name in ("laplacebridge", "torch", "python")
    )
    if not silent:
        typer.echo(f"Seed {seed}; {versions}.")
    console.log(
        f"Written to {output}: {', '.join(FILES_OF_DEMO)}. Open report.html in a browser.",
        quiet=silent,
    )


def _print_and_write(
    evaluation: Evaluation, tables: list[Path], *, silent: bool, as_json: bool
) -> None:
    """Shows the table to people, or its JSON to programs, and writes it as .csv or
    .json.
    """
    numbers = evaluation.to_dict()
    for path in tables:
        is_csv = path.suffix == ".csv"
        console.write_text(
            path,
            console.evaluation_csv(evaluation) if is_csv else json.dumps(numbers, indent=1) + "\n",
        )
    console.print_evaluation(evaluation, quiet=silent)
    if as_json:
        typer.echo(json.dumps(numbers))
