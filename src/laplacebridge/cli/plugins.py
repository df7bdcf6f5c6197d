"""Commands of other distributions, found through the entry point group ``laplacebridge.commands``.

Such an entry point names a function with typer's annotations, like the commands of this package; an ``EXAMPLE`` in its
module ends its help. A function is imported when its command, or the list of all commands, is asked for.
"""

import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer

from laplacebridge.errors import LaplaceBridgeError

GROUP = "laplacebridge.commands"
# Commands that come with this repository, but not with this package, and how to get them.
INSTALLED_APART = {
    "reproduce": (
        "reproduce is in a package of its own, laplacebridge-reproduction, which is not installed. Install it with "
        "`pip install ./reproduction` in a clone of the repository."
    )
}


def names() -> list[str]:
    """Names of the commands that installed distributions add."""
    return sorted(entry_points(group=GROUP).names)


def command(name: str) -> Any:  # noqa: ANN401 - typer's own class, or click's, by its version
    """The command of that name; one that says what is wrong if it cannot be had; None if nobody knows it.

    Args:
        name: As on the command line.
    """
    found = entry_points(group=GROUP)
    if name in found.names:
        return _loaded(found[name])
    if name in INSTALLED_APART:
        return _failing(name, typer.BadParameter(INSTALLED_APART[name], param_hint="COMMAND"))
    return None


def _loaded(entry_point: EntryPoint) -> Any:  # noqa: ANN401
    try:
        function = entry_point.load()
        example = getattr(sys.modules[function.__module__], "EXAMPLE", None)
        return _command(entry_point.name, function, epilog=example)
    except Exception as error:  # whatever another package does wrong, the other commands must work
        owner = f"the package {entry_point.dist.name}" if entry_point.dist else "another package"
        failure = LaplaceBridgeError(
            f"`laplacebridge {entry_point.name}` comes from {owner}, where {entry_point.value} cannot be loaded "
            f"({type(error).__name__}: {error}). Install that package again with what it needs, or uninstall it."
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
