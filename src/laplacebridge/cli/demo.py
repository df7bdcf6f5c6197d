"""`laplacebridge demo`: two small tasks that show what uncertainty is good for, and
where it is not.
"""

import functools
import http.server
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

import laplacebridge as lb
from laplacebridge._extras import needs_extra
from laplacebridge.cli import console, options
from laplacebridge.cli.evaluations import print_and_write
from laplacebridge.report import Evaluation, evaluate

EXAMPLE = "Example: laplacebridge demo --seed 1 -o demo --serve"
FILES = (
    "report.html",
    "wrong-unit.html",
    "classifier.safetensors",
    "table.csv",
    "table.json",
    "wrong-unit.json",
)


def demo(
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FOLDER", help="Where to write.", rich_help_panel="Output"
        ),
    ] = Path("laplacebridge-demo"),
    seed: options.SeedOption = 0,
    serve: Annotated[
        bool,
        typer.Option(
            "--serve",
            help="Show the pages in a browser, on an address of this machine alone, until Ctrl-C.",
            rich_help_panel="Output",
        ),
    ] = False,
    port: Annotated[
        int,
        typer.Option(
            min=0,
            max=65535,
            help="Port of --serve; 0 takes a free one.",
            rich_help_panel="Output",
        ),
    ] = 0,
    force: options.ForceOption = False,
    quiet: options.QuietOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Train two small classifiers, judge them, and write two pages: digits, of which
    three are unknown, and a medical table with one column in the wrong unit.

    Nothing is downloaded. Each page begins with what the classifier can do by itself,
    and with what it is better and worse at than temperature scaling.
    """
    with needs_extra("report", "The demo"):  # scikit-learn and matplotlib take a second to import
        from laplacebridge.report import page
    paths = {name: output / name for name in FILES}
    for path in paths.values():
        console.require_new(path, force=force)
    silent = quiet or as_json
    show = console.shows_progress(silent)
    console.log("Training a small network on seven of ten handwritten digits …", quiet=silent)
    classifier, digits = _digits(seed, progress=show)
    console.log("Training a small network on a table of breast cancer cells …", quiet=silent)
    cells = _cells(seed, progress=show)
    output.mkdir(parents=True, exist_ok=True)
    lb.save(classifier, paths["classifier.safetensors"])
    console.write_text(paths["report.html"], page.html(digits))
    console.write_text(paths["wrong-unit.html"], page.html(cells))
    cells.save(paths["wrong-unit.json"])
    tables = [paths["table.csv"], paths["table.json"]]
    print_and_write(digits, tables, silent=silent, as_json=as_json)
    if not silent:
        typer.echo(f"{cells.title}\n{cells.verdict}\n")
        versions = ", ".join(
            f"{name} {digits.identity[name]}" for name in ("laplacebridge", "torch", "python")
        )
        typer.echo(f"Seed {seed}; {versions}.")
    console.log(
        f"Written to {output}: {', '.join(FILES)}. Open report.html in a browser.", quiet=silent
    )
    if serve:
        _serve(output, port, quiet=silent)


def _digits(seed: int, *, progress: bool) -> tuple[lb.Classifier, Evaluation]:
    from laplacebridge import datasets

    data = datasets.digits(seed)
    network = datasets.trained_network(data.train, seed=seed)
    validation = datasets.loader(data.validation)
    classifier = lb.fit(network, datasets.loader(data.train), val_loader=validation, progress=False)
    evaluation = evaluate(
        classifier,
        datasets.loader(data.test),
        ood={
            f"unknown digits ({', '.join(map(str, datasets.UNKNOWN))})": [data.unknown[0]],
            **{kind: [inputs] for kind, inputs in datasets.ood_digits(data, seed).items()},
        },
        validation=validation,
        title="Handwritten digits, three of them unknown to the network",
        card={
            "intended use": "A demonstration: digits from 0 to 6, of 8 × 8 pixels.",
            "limits": "200 training examples. Digits 7, 8 and 9 are no classes of it.",
        },
        identity={"data": "scikit-learn's digits", "training examples": str(len(data.train[1]))},
        seed=seed,
        progress=progress,
    )
    return classifier, evaluation


def _cells(seed: int, *, progress: bool) -> Evaluation:
    from laplacebridge import datasets

    data = datasets.cells(seed)
    network = datasets.trained_network(data.train, seed=seed, epochs=datasets.CELL_EPOCHS)
    validation = datasets.loader(data.validation)
    classifier = lb.fit(network, datasets.loader(data.train), val_loader=validation, progress=False)
    return evaluate(
        classifier,
        datasets.loader(data.test),
        ood={name: [rows] for name, rows in data.wrong_unit.items()},
        validation=validation,
        class_names=data.class_names,
        feature_names=data.feature_names,
        title=f"Breast cancer cells, and {data.column} in a wrong unit",
        card={
            "intended use": "A demonstration: tell malignant from benign cells by 30 numbers.",
            "limits": f"{len(data.train[1])} training examples. Not for patients.",
        },
        identity={
            "data": "scikit-learn's breast cancer data, standardised",
            "unusual inputs": f"the test rows with {data.column} in a wrong unit:"
            f" {', '.join(datasets.WRONG_UNITS)}",
            "training examples": str(len(data.train[1])),
        },
        seed=seed,
        progress=progress,
    )


def _serve(folder: Path, port: int, *, quiet: bool) -> None:
    """Serves the pages on the loopback address until Ctrl-C, and opens the first."""
    handler = functools.partial(_Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        # no "://" may stand in a page; this is an address, of this machine
        address = f"http://127.0.0.1:{server.server_address[1]}/report.html"
        console.log(f"Serving {address} until Ctrl-C.", quiet=quiet)
        webbrowser.open(address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            console.log("Stopped.", quiet=quiet)


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Says nothing about requests."""

    def log_message(self, *_: object) -> None:
        pass
