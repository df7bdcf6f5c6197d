"""The command `laplacebridge`: its commands, and the one place where a failure becomes
a message and an exit code.

Other distributions add commands through the entry point group
``laplacebridge.commands``. Such an entry point names a function with typer's
annotations, like the commands of this package; an ``EXAMPLE`` in its module ends its
help. It is imported when its command, or the list of all commands, is asked for.
"""

import sys
import warnings
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import laplacebridge
from laplacebridge.cli import (
    bench,
    decide,
    demo,
    export,
    fit,
    info,
    merge,
    monitor,
    predict,
    project_file,
    report,
    review,
    score,
    serve,
    sets,
)
from laplacebridge.errors import LaplaceBridgeError

FAILED, INTERRUPTED = 1, 130  # a wrong command line is 2, as everywhere

# What data, files and models can do wrong. Anything else is a mistake of this program
# and shows where it happened.
FAILURES = (LaplaceBridgeError, ValueError, OSError, RuntimeError, MemoryError)

GROUP = "laplacebridge.commands"
# Commands that come with this repository, but not with this package, and how to get
# them.
INSTALLED_APART = {
    "reproduce": (
        "reproduce is in a package of its own, laplacebridge-reproduction, which is not installed."
        " Install it with `pip install ./reproduction` in a clone of the repository."
    )
}


class Commands(TyperGroup):
    """All commands, those of other distributions last. A failure is one message on
    standard error, no traceback.
    """

    def main(self, *args: Any, **settings: Any) -> Any:  # noqa: ANN401
        """Runs a command line. Messages are plain text: the frame of rich would cut
        them into pieces.
        """
        self.rich_markup_mode = None
        return super().main(*args, **settings)

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
        """Help has the frames of rich all the same, as that of every command. The list
        of commands has the first sentence of each: rich would keep the line breaks of
        the docstrings.
        """
        self.rich_markup_mode = "rich"
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            command.short_help = " ".join(command.help.split()).partition(". ")[0].rstrip(".") + "."
        super().format_help(ctx, formatter)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401
        """Names of all commands."""
        own = super().list_commands(ctx)
        return [
            *own,
            *(name for name in sorted(entry_points(group=GROUP).names) if name not in own),
        ]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401
        """The command of that name, or None. A command of another distribution cannot
        replace one of these.
        """
        return super().get_command(ctx, cmd_name) or _command_of_another_distribution(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401
        """The command that was asked for, with what `laplacebridge.toml` in the current
        folder says about it.
        """
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and not ctx.resilient_parsing:
            ctx.default_map = {name: project_file.defaults(name, rest)}
        return name, command, rest

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401
        """Runs the command that was asked for; a failure ends it with a message and an
        exit code.
        """
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                result = super().invoke(ctx)
            sys.stdout.flush()  # a full disk must be noticed here, not at exit
        except (typer.Exit, typer.Abort, BrokenPipeError):  # typer ends quietly on a closed pipe
            raise
        except KeyboardInterrupt:
            _print_error("Interrupted.")
            raise typer.Exit(INTERRUPTED) from None
        except FAILURES as error:
            if ctx.params.get("traceback"):
                raise
            _print_error(
                f"{typer.style('Error:', fg=typer.colors.RED, bold=True)} {_message(error)}"
            )
            _give_up_output()
            raise typer.Exit(FAILED) from None
        return result


def _message(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}."
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}."
    if isinstance(error, (LaplaceBridgeError, ValueError)):
        return str(error)
    return (
        f"{type(error).__name__}: {error}. `laplacebridge --traceback …` shows where it came from."
    )


def _print_error(message: str) -> None:
    typer.echo(message, err=True)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    _print_error(f"Warning: {message}")


def _give_up_output() -> None:
    """Keeps Python from reporting at exit, a second time, that standard output cannot
    be written.
    """
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = None


def _command_of_another_distribution(
    name: str,
) -> Any:  # noqa: ANN401 - typer's own class, or click's, by its version
    """The command of that name; one that says what is wrong if it cannot be had; None
    if nobody knows it.
    """
    found = entry_points(group=GROUP)
    if name in found.names:
        return _loaded(found[name])
    if name in INSTALLED_APART:
        return _failing(name, typer.BadParameter(INSTALLED_APART[name], param_hint="COMMAND"))
    return None


def _loaded(entry_point: "EntryPoint | Any") -> Any:  # noqa: ANN401 - or that of the backport
    try:
        function = entry_point.load()
        example = getattr(sys.modules[function.__module__], "EXAMPLE", None)
        return _command(entry_point.name, function, epilog=example)
    except Exception as error:  # whatever another package does wrong, the other commands must work
        owner = f"the package {entry_point.dist.name}" if entry_point.dist else "another package"
        failure = LaplaceBridgeError(
            f"`laplacebridge {entry_point.name}` comes from {owner}, where {entry_point.value}"
            f" cannot be loaded ({type(error).__name__}: {error}). Install that package again with"
            " what it needs, or uninstall it."
        )
        failure.__cause__ = error
        return _failing(entry_point.name, failure)


def _failing(name: str, failure: Exception) -> Any:  # noqa: ANN401
    """A command that fails whatever its arguments are, ``--help`` among them."""

    def fail() -> None:
        raise failure

    return _command(
        name,
        fail,
        help="Cannot be loaded; run it to see why.",
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )


def _command(name: str, function: Callable[..., None], **settings: Any) -> Any:  # noqa: ANN401
    single = typer.Typer(add_completion=False)
    single.command(name, **settings)(function)
    return typer.main.get_command(single)


app = typer.Typer(
    cls=Commands,
    help="Turn a Gaussian over logits into a Dirichlet over class probabilities, in closed form.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _print_version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"laplacebridge {laplacebridge.__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def laplacebridge_command(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    traceback: Annotated[
        bool,
        typer.Option(
            "--traceback", help="Show where in the code an error came from. Before the command."
        ),
    ] = False,
) -> None:
    """Turn a Gaussian over logits into a Dirichlet over class probabilities, in closed
    form.
    """


# Each command is a function with its options, in a module with an EXAMPLE for its help.
app.command(epilog=demo.EXAMPLE)(demo.demo)
app.command(epilog=fit.EXAMPLE)(fit.fit)
app.command(epilog=merge.EXAMPLE)(merge.merge)
app.command(epilog=predict.EXAMPLE)(predict.predict)
app.command(epilog=sets.EXAMPLE)(sets.sets)
app.command(epilog=decide.EXAMPLE)(decide.decide)
app.command(epilog=review.EXAMPLE)(review.review)
app.command(epilog=report.EXAMPLE)(report.report)
app.command("export", epilog=export.EXAMPLE)(export.export_command)
app.command(epilog=score.EXAMPLE)(score.score)
app.command(epilog=serve.EXAMPLE)(serve.serve)
app.command(epilog=monitor.EXAMPLE)(monitor.monitor)
app.command(epilog=bench.EXAMPLE)(bench.bench)
app.command(epilog=info.EXAMPLE)(info.info)
