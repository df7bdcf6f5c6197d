"""What commands leave behind: files written whole or not at all, and a summary for people or programs."""

import json
import os
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import cast

import typer
from safetensors import SafetensorError

import laplacebridge as lb
from laplacebridge.errors import LaplaceBridgeError

STANDARD_STREAM = "-"


def require_writable(path: Path, *, force: bool, is_file: bool = False, option: str = "--output") -> None:
    """Makes sure, before any work is done, that a file may be written where the user says.

    Args:
        path: The file.
        force: Whether it may replace another.
        is_file: Whether it must be a file, not a device or a pipe.
        option: What the user wrote it behind.

    Raises:
        BadParameter: If the folder does not exist, or the file does.
    """
    if path.is_dir():
        raise typer.BadParameter(f"{path} is a folder; name a file.", param_hint=option)
    if not path.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {path.parent}; make it first.", param_hint=option)
    if is_file and path.exists() and not path.is_file():
        raise typer.BadParameter(f"{path} is a device or a pipe; name a file.", param_hint=option)
    if path.is_file() and not force:
        raise typer.BadParameter(f"{path} exists; name another file, or replace it with --force.", param_hint=option)


def require_new(path: Path, *, force: bool) -> None:
    """Makes sure that a file of a folder, which need not exist yet, is not there or may be replaced.

    Args:
        path: The file.
        force: Whether it may be replaced.
    """
    if path.exists():
        require_writable(path, force=force)


def require_rows_writable(output: str, *, force: bool, binary: bool) -> None:
    """Makes sure, before any work is done, that rows may be written to a file or to standard output.

    Args:
        output: A path, or ``-``.
        force: Whether they may replace a file.
        binary: Whether they are no text.

    Raises:
        BadParameter: If they may not.
    """
    if output != STANDARD_STREAM:
        require_writable(Path(output), force=force)
    elif binary and sys.stdout.isatty():
        raise typer.BadParameter("is not for a terminal; name a file with --output.", param_hint="--format npz")


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A temporary file beside the wanted one, which takes its place in one step once all went well.

    After any failure, a full disk among them, the temporary file is gone and an old file is as it was.

    Args:
        path: The wanted file.

    Yields:
        The path to write to; of a device or pipe, which cannot be replaced, its own.

    Raises:
        OSError: If the disk is full or the folder cannot be written to; it names the wanted file.
    """
    target = path.resolve()  # through a link, so that what it points to is replaced and not the link
    replaces = target.is_file() or not target.exists()
    temporary = target
    try:
        if replaces:
            handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
            os.close(handle)
            temporary = Path(name)
        yield temporary
        if replaces:
            temporary.chmod(_mode_for(target))
            with open(temporary, "rb") as file:
                os.fsync(file)  # some file systems say only now that they are full
            os.replace(temporary, target)
    except BaseException as error:
        if temporary != target:
            temporary.unlink(missing_ok=True)
        # the user knows nothing of the temporary file; errors of files that were read keep their own name
        if isinstance(error, OSError) and error.errno and error.filename in {None, str(temporary)}:
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
        raise


@contextmanager
def opened_whole(output: str) -> Iterator[BufferedIOBase]:
    """A binary stream to a file that is written whole or not at all, or to standard output.

    Args:
        output: A path, or ``-``.

    Yields:
        The stream.
    """
    if output == STANDARD_STREAM:
        yield cast("BufferedIOBase", sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    with written_whole(Path(output)) as temporary, open(temporary, "wb") as stream:
        yield stream


def write_text(path: Path, text: str) -> None:
    """Writes a text file whole or not at all.

    Args:
        path: The file.
        text: What it will hold.
    """
    with written_whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def save_classifier(classifier: lb.Classifier, path: Path) -> None:
    """Saves a classifier whole or not at all.

    Args:
        classifier: The classifier.
        path: The file.

    Raises:
        LaplaceBridgeError: If the disk is full; it names the file.
    """
    with written_whole(path) as temporary:
        try:
            lb.save(classifier, temporary)
        except SafetensorError as error:
            raise LaplaceBridgeError(f"{path} could not be written: {error}") from error


def say(
    summary: Mapping[str, object], sentence: str, *, quiet: bool, as_json: bool, rows_on_stdout: bool = False
) -> None:
    """Says what a command did: to people on standard error, to programs on standard output unless that carries rows.

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
        tell(sentence, quiet=quiet)


def tell(sentence: str, *, quiet: bool) -> None:
    """Tells people how far a command is, or where it wrote to: on standard error, which carries no results.

    Args:
        sentence: What to say.
        quiet: Say nothing.
    """
    if not quiet:
        typer.echo(sentence, err=True)


def shown(output: str) -> str:
    """Where rows went, for people.

    Args:
        output: A path, or ``-``.
    """
    return "standard output" if output == STANDARD_STREAM else output


def shows_progress(quiet: bool) -> bool:
    """Whether to draw progress bars: for people who watch.

    Args:
        quiet: Whether the user asked for none.
    """
    return not quiet and sys.stderr.isatty()


def _mode_for(target: Path) -> int:
    """The permissions of the old file, or what a new one gets here; a temporary file is private at first."""
    if target.exists():
        return stat.S_IMODE(target.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
