"""What commands leave behind of an evaluation: pages, tables, and what is printed."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from laplacebridge.cli import console
from laplacebridge.metrics import Interval
from laplacebridge.report import Evaluation, LabelEvaluation
from laplacebridge.report.table import COLUMNS, Row

# Columns whose headings alone do not say enough.
_EXPLAINED = ("aurc", "auroc", "set_size", "coverage", "distance", "microseconds")
# Below this width the columns stand in two tables, one under the other.
_WIDTH_OF_ALL = 134
_HALVES = (
    ("accuracy", "nll", "ece", "brier", "auroc"),
    ("aurc", "set_size", "coverage", "distance", "microseconds"),
)


def require_outputs(output: Path, pdf: Path | None, table: Path | None, *, force: bool) -> None:
    """Makes sure, before any work is done, that all of it can be written."""
    console.require_writable(output, force=force)
    if pdf is not None:
        from laplacebridge.report.pdf import require_browser

        console.require_writable(pdf, force=force, option="--pdf")
        require_browser()
    if table is not None:
        console.require_writable(table, force=force, option="--table")
        if table.suffix not in {".csv", ".json"}:
            raise typer.BadParameter(
                f"needs a name that ends in .csv or .json; got {table}.", param_hint="--table"
            )


def write_evaluation(
    evaluation: Evaluation | LabelEvaluation,
    text: str,
    output: Path,
    pdf: Path | None,
    table: Path | None,
    *,
    silent: bool,
    as_json: bool,
) -> None:
    """Writes the page and what else was asked for, and prints what was found."""
    console.write_text(output, text)
    if pdf is not None:
        from laplacebridge.report.pdf import write_pdf

        write_pdf(text, pdf)
    if isinstance(evaluation, Evaluation):
        print_and_write(evaluation, [table] if table else [], silent=silent, as_json=as_json)
    else:
        numbers = evaluation.to_dict()
        if table is not None:
            console.write_text(table, json.dumps(numbers, indent=1) + "\n")
        console.log(evaluation.headline, quiet=silent)
        if as_json:
            typer.echo(json.dumps(numbers))
    written = " and ".join(str(path) for path in (output, pdf) if path is not None)
    console.log(f"Written to {written}.", quiet=silent)


def print_and_write(
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
            _csv(evaluation) if is_csv else json.dumps(numbers, indent=1) + "\n",
        )
    _print(evaluation, quiet=silent)
    if as_json:
        typer.echo(json.dumps(numbers))


def _print(evaluation: Evaluation, *, quiet: bool) -> None:
    """Prints all methods and what they reach, the best of each column in bold with a
    star, and the verdict.
    """
    screen = Console(quiet=quiet)
    for columns in [tuple(COLUMNS)] if screen.width >= _WIDTH_OF_ALL else _HALVES:
        screen.print(_table(evaluation, columns))
    explained = "; ".join(
        f"[bold]{COLUMNS[name].heading}[/]: {COLUMNS[name].meaning}" for name in _EXPLAINED
    )
    screen.print(
        "* best. In brackets: a 95 % interval."
        f" {explained}.\n\n[bold]{escape(evaluation.headline)}[/]\n"
    )
    for figure in evaluation.figures:
        screen.print(
            f"  {escape(figure.light):<10} {escape(figure.title)}: [bold]{escape(figure.text)}[/]"
            + (f" ({escape(figure.detail)})" if figure.detail else "")
        )
    advice = evaluation.advice
    screen.print(f"\n[bold]Recommendation:[/] {escape(' '.join(advice.sentences))}")
    for line in (*advice.code.splitlines(), *advice.command.splitlines()):
        screen.print(f"    {escape(line)}", soft_wrap=True, highlight=False)
    screen.print(f"{escape(advice.beside)}\n")


def _csv(evaluation: Evaluation) -> str:
    """The same numbers, unrounded, with the ends of the interval as columns of their
    own.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["method", *COLUMNS, "auroc_low", "auroc_high"])
    for row in evaluation.rows:
        ends = ("", "") if row.auroc is None else (row.auroc.low, row.auroc.high)
        numbers = ("" if (value := row.value(column)) is None else value for column in COLUMNS)
        writer.writerow([row.method, *numbers, *ends])
    return text.getvalue()


def _table(evaluation: Evaluation, columns: Sequence[str]) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False, padding=(0, 1))
    table.add_column("Method", no_wrap=True)
    for column in columns:
        table.add_column(COLUMNS[column].heading, justify="right", no_wrap=True)
    best = {column: evaluation.best(column) for column in columns}
    for row in evaluation.rows:
        table.add_row(
            row.method, *(_cell(row, column, row.method in best[column]) for column in columns)
        )
    return table


def _cell(row: Row, column: str, is_best: bool) -> str:
    text = COLUMNS[column].text(row.value(column))
    interval = getattr(row, column)
    ends = (
        f" [dim]({interval.low:.3f}–{interval.high:.3f})[/]"
        if isinstance(interval, Interval)
        else ""
    )
    return f"[bold]{text}*[/]{ends}" if is_best else f"{text} {ends}"
