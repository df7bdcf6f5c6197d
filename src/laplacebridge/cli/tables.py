"""The table of a report in a terminal, and as CSV."""

import csv
import io
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from laplacebridge.metrics import Interval
from laplacebridge.report.evaluation import COLUMNS, Evaluation, Row

# What headings alone do not say.
_EXPLAINED = ("auroc", "set_size", "coverage", "distance", "microseconds")

# Below this width the columns stand in two tables, one under the other.
_WIDTH_OF_ALL = 124
_HALVES = (("accuracy", "nll", "ece", "brier", "auroc"), ("set_size", "coverage", "distance", "microseconds"))


def show(console: Console, evaluation: Evaluation) -> None:
    """Prints all methods and what they reach, the best of each column in bold with a star, and the verdict.

    Args:
        console: Where to print.
        evaluation: What was computed.
    """
    for columns in [tuple(COLUMNS)] if console.width >= _WIDTH_OF_ALL else _HALVES:
        console.print(_table(evaluation, columns))
    explained = "; ".join(f"[bold]{COLUMNS[name].heading}[/]: {COLUMNS[name].meaning}" for name in _EXPLAINED)
    console.print(f"* best. In brackets: a 95 % interval. {explained}.\n\n[bold]{escape(evaluation.verdict)}[/]\n")


def _table(evaluation: Evaluation, columns: Sequence[str]) -> Table:
    shown = Table(box=box.SIMPLE, pad_edge=False, padding=(0, 1))
    shown.add_column("Method", no_wrap=True)
    for column in columns:
        shown.add_column(COLUMNS[column].heading, justify="right", no_wrap=True)
    best = {column: evaluation.best(column) for column in columns}
    for row in evaluation.rows:
        shown.add_row(row.method, *(_cell(row, column, row.method in best[column]) for column in columns))
    return shown


def as_csv(evaluation: Evaluation) -> str:
    """The same numbers, unrounded, with the ends of the interval as columns of their own.

    Args:
        evaluation: What was computed.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["method", *COLUMNS, "auroc_low", "auroc_high"])
    for row in evaluation.rows:
        ends = ("", "") if row.auroc is None else (row.auroc.low, row.auroc.high)
        writer.writerow(
            [row.method, *("" if (value := row.value(column)) is None else value for column in COLUMNS), *ends]
        )
    return text.getvalue()


def _cell(row: Row, column: str, is_best: bool) -> str:
    text = COLUMNS[column].text(row.value(column))
    interval = getattr(row, column)
    ends = f" [dim]({interval.low:.3f}–{interval.high:.3f})[/]" if isinstance(interval, Interval) else ""
    return f"[bold]{text}*[/]{ends}" if is_best else f"{text} {ends}"
