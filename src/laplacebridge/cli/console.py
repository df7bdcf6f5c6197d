"""What commands leave behind: rows and other files, a summary for people or programs."""

import codecs
import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BufferedIOBase, BytesIO
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import typer

from laplacebridge._files import atomic_write
from laplacebridge.cli.options import STANDARD_STREAM, FileFormat

SUFFIXES = {f".{each.value}": each for each in FileFormat} | {".ndjson": FileFormat.jsonl}


def require_writable(
    path: Path, *, force: bool, is_file: bool = False, option: str = "--output"
) -> None:
    """Makes sure, before any work is done, that a file may be written where the user
    says.

    Args:
        path: The file.
        force: Whether it may replace another.
        is_file: Whether it must be a file, not a device or a pipe.
        option: The option that it was given with.

    Raises:
        BadParameter: If the folder does not exist, or the file does.
    """
    if path.is_dir():
        raise typer.BadParameter(f"{path} is a folder; name a file.", param_hint=option)
    if not path.parent.is_dir():
        raise typer.BadParameter(
            f"there is no folder {path.parent}; make it first.", param_hint=option
        )
    if is_file and path.exists() and not path.is_file():
        raise typer.BadParameter(f"{path} is a device or a pipe; name a file.", param_hint=option)
    if path.is_file() and not force:
        raise typer.BadParameter(
            f"{path} exists; name another file, or replace it with --force.", param_hint=option
        )


def require_new(path: Path, *, force: bool) -> None:
    """Makes sure that a file in a folder, which need not exist yet, is not there or may
    be replaced.
    """
    if path.exists():
        require_writable(path, force=force)


@contextmanager
def open_output(output: str) -> Iterator[BufferedIOBase]:
    """A binary stream to a file, which is written atomically, or to standard output."""
    if output == STANDARD_STREAM:
        yield cast("BufferedIOBase", sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    with atomic_write(Path(output)) as temporary, open(temporary, "wb") as stream:
        yield stream


def write_text(path: Path, text: str) -> None:
    """Writes a text file atomically."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


class Rows(NamedTuple):
    """What a command writes about some examples: as text, or as arrays."""

    records: Iterable[Mapping[str, Any]]
    arrays: Callable[[], Mapping[str, np.ndarray]]


def require_rows_output(output: str, chosen: FileFormat | None, *, force: bool) -> FileFormat:
    """Makes sure, before any work is done, that rows may be written, and says in which
    format.

    Args:
        output: A path, or ``-`` for standard output.
        chosen: The format, if given; otherwise what the name of the file ends in.
        force: Whether a file may be replaced.
    """
    usual = (
        FileFormat.jsonl if output == STANDARD_STREAM else SUFFIXES.get(Path(output).suffix.lower())
    )
    file_format = chosen or usual
    if file_format is None:
        raise typer.BadParameter(
            f"{output} does not say what to write: end it in {', '.join(SUFFIXES)}, or give"
            " --format.",
            param_hint="--output",
        )
    if output != STANDARD_STREAM:
        require_writable(Path(output), force=force)
    elif file_format is FileFormat.npz and sys.stdout.isatty():
        raise typer.BadParameter(
            "is not for a terminal; name a file with --output.", param_hint="--format npz"
        )
    return file_format


def write_rows(
    stream: BufferedIOBase,
    file_format: FileFormat,
    parts: Iterable[Rows],
    *,
    class_names: Sequence[str] = (),
) -> None:
    """Writes rows as they come, except for npz, which needs all of them.

    Args:
        stream: Where to.
        file_format: JSON lines, CSV under a line of names, or arrays.
        parts: What to write, batch by batch.
        class_names: Names of the classes, for the columns of a CSV and in an npz file.
    """
    if file_format is FileFormat.npz:
        held = [part.arrays() for part in parts]
        arrays = {
            name: np.concatenate([each[name] for each in held])
            for name in (held[0] if held else ())
        }
        buffer = BytesIO()  # a pipe cannot be written to out of order
        np.savez(
            buffer,
            allow_pickle=False,
            **arrays,
            **({"class_names": np.array(class_names)} if class_names else {}),
        )
        stream.write(buffer.getbuffer())
        return
    records = (record for part in parts for record in part.records)
    if file_format is FileFormat.csv:
        writer = csv.writer(codecs.getwriter("utf-8")(stream), lineterminator="\n")
        for place, record in enumerate(records):
            cells = _cells(record, class_names)
            if place == 0:
                writer.writerow(cells.keys())
            writer.writerow(cells.values())
    else:
        lines = (json.dumps(record, ensure_ascii=False, allow_nan=False) for record in records)
        stream.writelines(f"{line}\n".encode() for line in lines)


def print_summary(
    summary: Mapping[str, object],
    sentence: str,
    *,
    quiet: bool,
    as_json: bool,
    rows_on_stdout: bool = False,
) -> None:
    """Says what a command did: to people on standard error, to programs on standard
    output unless that carries rows.

    Args:
        summary: What was done, for programs.
        sentence: The same for people.
        quiet: Say nothing, unless JSON is asked for.
        as_json: Say it as one line of JSON.
        rows_on_stdout: Whether standard output is taken.
    """
    if as_json:
        typer.echo(json.dumps(summary), err=rows_on_stdout)
    else:
        log(sentence, quiet=quiet)


def log(sentence: str, *, quiet: bool) -> None:
    """Tells people how far a command is, or where it wrote to: on standard error, which
    carries no results.
    """
    if not quiet:
        typer.echo(sentence, err=True)


def output_name(output: str) -> str:
    """Where rows went, for people."""
    return "standard output" if output == STANDARD_STREAM else output


def shows_progress(quiet: bool) -> bool:
    """Whether to draw progress bars: for people who watch."""
    return not quiet and sys.stderr.isatty()


# What has a number for each class, or label, and how its columns begin.
_OF_CLASSES = {
    "probabilities": "p",
    "interval_low": "low",
    "interval_high": "high",
    "epistemic": "epistemic",
}


def _cells(record: Mapping[str, Any], class_names: Sequence[str]) -> dict[str, Any]:
    """A record with one value in each column; classes of a set have semicolons between."""
    cells: dict[str, Any] = {}
    record = {name: _no_formula(value) for name, value in record.items()}
    for name, value in record.items():
        if name in _OF_CLASSES and isinstance(value, list):
            columns = class_names or range(len(value))
            cells |= {f"{_OF_CLASSES[name]}_{column}": each for column, each in zip(columns, value)}
        elif name == "top":
            for place, (member, probability) in enumerate(
                zip(value, record["top_probabilities"]), start=1
            ):
                cells |= {f"top_{place}": member, f"top_{place}_probability": probability}
        elif name != "top_probabilities":
            cells[name] = ";".join(map(str, value)) if isinstance(value, list) else value
    return cells


def _no_formula(value: Any) -> Any:  # noqa: ANN401
    """A value, or each of several, with an apostrophe before what a spreadsheet would
    compute: names of classes may come from anybody.
    """
    if isinstance(value, list):
        return [_no_formula(each) for each in value]
    if not isinstance(value, str) or not value.startswith(_OF_FORMULAS):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value  # a class called "-1"


# What begins a formula in spreadsheets.
_OF_FORMULAS = ("=", "+", "-", "@", "\t", "\r")
