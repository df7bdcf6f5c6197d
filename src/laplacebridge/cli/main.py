"""The command `laplacebridge`: its commands, and the one place where a failure becomes a message and an exit code."""

import sys
import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import laplacebridge
from laplacebridge.cli import bench as bench_command
from laplacebridge.cli import decide as decide_command
from laplacebridge.cli import demo as demo_command
from laplacebridge.cli import fit as fit_command
from laplacebridge.cli import info as info_command
from laplacebridge.cli import plugins
from laplacebridge.cli import predict as predict_command
from laplacebridge.cli import report as report_command
from laplacebridge.cli import sets as sets_command
from laplacebridge.errors import LaplaceBridgeError

FAILED, INTERRUPTED = 1, 130  # a wrong command line is 2, as everywhere

# What data, files and models can do wrong. Anything else is a mistake of this program and shows where it happened.
FAILURES = (LaplaceBridgeError, ValueError, OSError, RuntimeError, MemoryError)

# By its version, typer imports click or carries its own copy; both have this class above the one that typer exports.
ClickException: Any = typer.BadParameter.__mro__[2]


class Commands(TyperGroup):
    """All commands, those of other distributions last. A failure is one message on standard error, no traceback."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401
        """Names of all commands.

        Args:
            ctx: The parsed command line.
        """
        own = super().list_commands(ctx)
        return [*own, *(name for name in plugins.names() if name not in own)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401
        """The command of that name, or None. A command of another distribution cannot replace one of these.

        Args:
            ctx: The parsed command line.
            cmd_name: The name.
        """
        return super().get_command(ctx, cmd_name) or plugins.command(cmd_name)

    def main(self, *args: Any, **settings: Any) -> Any:  # noqa: ANN401
        """Runs a command line and ends the process with an exit code.

        Args:
            *args: As `TyperGroup.main` has them.
            **settings: The same.
        """
        ends_process = settings.get("standalone_mode", True)
        settings["standalone_mode"] = False
        try:
            result = super().main(*args, **settings)
        except ClickException as error:
            if not ends_process:
                raise
            error.show()  # plain text: in typer's frame, messages are cut into pieces
            sys.exit(error.exit_code)
        return sys.exit(result or 0) if ends_process else result

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401
        """Runs the command that was asked for.

        Args:
            ctx: The parsed command line.

        Raises:
            Exit: With the code of a failure, after its message; typer's own and a closed pipe pass through.
            Abort: From typer.
            BrokenPipeError: Which typer ends quietly on.
        """
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                result = super().invoke(ctx)
            sys.stdout.flush()  # a full disk must be noticed here, not at exit
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            _say("Interrupted.")
            raise typer.Exit(INTERRUPTED) from None
        except FAILURES as error:
            if ctx.params.get("traceback"):
                raise
            _say(f"{_label('Error:')} {_message(error)}")
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
    return f"{type(error).__name__}: {error}. `laplacebridge --traceback …` shows where it came from."


def _label(word: str) -> str:
    return typer.style(word, fg=typer.colors.RED, bold=True)


def _say(message: str) -> None:
    typer.echo(message, err=True)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    _say(f"Warning: {message}")


def _give_up_output() -> None:
    """Keeps Python from reporting at exit, a second time, that standard output cannot be written."""
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = None


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
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show where in the code an error came from. Before the command.")
    ] = False,
) -> None:
    """Turn a Gaussian over logits into a Dirichlet over class probabilities, in closed form."""


# Each command is a function with its options, in a module of its own with an EXAMPLE for its help.
app.command(epilog=demo_command.EXAMPLE)(demo_command.demo)
app.command(epilog=fit_command.EXAMPLE)(fit_command.fit)
app.command(epilog=predict_command.EXAMPLE)(predict_command.predict)
app.command(epilog=sets_command.EXAMPLE)(sets_command.sets)
app.command(epilog=decide_command.EXAMPLE)(decide_command.decide)
app.command(epilog=report_command.EXAMPLE)(report_command.report)
app.command(epilog=bench_command.EXAMPLE)(bench_command.bench)
app.command(epilog=info_command.EXAMPLE)(info_command.info)
