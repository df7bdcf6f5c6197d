"""A rule comes first: what everything that calibrates one says if it does not."""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

from laplacebridge.errors import InputTypeError
from laplacebridge.sets.rules import SetRule

P = ParamSpec("P")
T = TypeVar("T")


def rule_first(function: Callable[P, T]) -> Callable[P, T]:
    """Refuses calls without a rule of sets by name, before Python counts arguments.

    Args:
        function: Something that calibrates, with `rule` as its first argument.

    Raises:
        InputTypeError: When called with something else first.

    Example:
        >>> from laplacebridge.sets import LeastAmbiguous
        >>> number_of = rule_first(lambda rule, labels: len(labels))
        >>> number_of(LeastAmbiguous(), [0, 1])
        2
    """
    names = [
        name
        for name, parameter in signature(function).parameters.items()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]

    @wraps(function)
    def wrapped(*arguments: P.args, **keywords: P.kwargs) -> T:
        rule: Any = arguments[0] if arguments else keywords.get("rule")
        if not isinstance(rule, SetRule):
            raise InputTypeError(
                f"`{function.__name__}({', '.join(names)})` needs a rule of sets first, such as"
                f" `lb.sets.LeastAmbiguous()`; got {_named(rule)}. `LeastAmbiguous` gives the"
                " smallest sets, `APS` sets that grow with the difficulty of an input."
            )
        return function(*arguments, **keywords)

    return wrapped


def _named(given: object) -> str:
    """What was given: a rule that was not called, a name, or the type of something
    else.
    """
    if given is None:
        return "none"
    if isinstance(given, type):
        return f"the class {given.__name__}, without its brackets"
    return repr(given) if isinstance(given, str) else type(given).__name__
