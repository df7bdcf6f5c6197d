"""`laplacebridge demo`: a network, a table of methods, a report and a saved classifier, without a download."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import laplacebridge as lb
from laplacebridge.cli import options, outputs, tables
from laplacebridge.cli.extras import needs_extra

EXAMPLE = "Example: laplacebridge demo --seed 1 -o digits"
FILES = ("report.html", "classifier.safetensors", "table.csv", "table.json")


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where to write.", rich_help_panel="Output")
    ] = Path("laplacebridge-demo"),
    seed: Annotated[int, typer.Option(help="Of the split, the network, samples and intervals.")] = 0,
    force: options.ForceOption = False,
    quiet: options.QuietOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Train a small classifier on handwritten digits, fit its last layer, and compare every method on one table.

    Three digits are held out: the network never sees them, and should say so.
    """
    with needs_extra("report", "The demo"):  # scikit-learn and matplotlib take a second to import
        from laplacebridge import datasets
        from laplacebridge.report import evaluate, page
    for name in FILES:
        outputs.require_new(output / name, force=force)
    silent = quiet or as_json
    console, show = Console(quiet=silent), outputs.shows_progress(silent)
    known = ", ".join(str(digit) for digit in datasets.KNOWN)
    outputs.tell(f"Training a small network on the digits {known} …", quiet=silent)
    data = datasets.digits(seed)
    network = datasets.trained_network(data.train, seed=seed)
    classifier = lb.fit(
        network, datasets.loader(data.train), val_loader=datasets.loader(data.validation), progress=False
    )
    evaluation = evaluate(
        classifier,
        datasets.loader(data.test),
        ood=datasets.loader(data.unknown),
        validation=datasets.loader(data.validation),
        title="Handwritten digits, three of them unknown to the network",
        settings={
            "data": f"scikit-learn's digits; {', '.join(map(str, datasets.UNKNOWN))} are out of distribution (OOD)",
            "training examples": str(len(data.train[1])),
            "validation examples": str(len(data.validation[1])),
        },
        seed=seed,
        progress=show,
    )
    output.mkdir(parents=True, exist_ok=True)
    numbers = evaluation.to_dict()
    outputs.write_text(output / "report.html", page.html(evaluation))
    outputs.write_text(output / "table.csv", tables.as_csv(evaluation))
    outputs.write_text(output / "table.json", json.dumps(numbers, indent=1) + "\n")
    outputs.save_classifier(classifier, output / "classifier.safetensors")
    tables.show(console, evaluation)
    versions = ", ".join(f"{name} {evaluation.settings[name]}" for name in ("laplacebridge", "torch", "python"))
    console.print(f"Seed {seed}; {versions}.")
    outputs.tell(f"Written to {output}: {', '.join(FILES)}. Open report.html in a browser.", quiet=silent)
    if as_json:
        typer.echo(json.dumps(numbers))
