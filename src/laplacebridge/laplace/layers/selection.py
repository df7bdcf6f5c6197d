"""Which layers of a network a posterior covers: named by patterns, refused where their
weights are not supported.
"""

from collections import defaultdict
from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn

from laplacebridge._warnings import warn
from laplacebridge.errors import InputError

SUPPORTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
# in evaluation mode these shift and scale by constants; their few parameters are left
# as they were trained
FIXED = nn.modules.batchnorm._BatchNorm
SHOWN_NAMES = 20
EVERY = "*"  # the pattern of all layers that can be covered


def matching_layers(model: nn.Module, patterns: str | Sequence[str]) -> tuple[str, ...]:
    """Names of the linear layers and convolutions that match any of some patterns, in
    the order of the network.

    Args:
        model: The network.
        patterns: Like file names: ``"*"`` is every layer, ``"features.*"`` those of a
            part, ``"*.conv?"`` and so on.

    Raises:
        InputError: If a pattern matches nothing, or matches layers whose weights are
            not supported, or if batch normalisation couples examples.

    Example:
        >>> matching_layers(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)), "*")
        ('0', '2')
    """
    wanted = (patterns,) if isinstance(patterns, str) else tuple(patterns)
    owners = {
        name: module
        for name, module in model.named_modules()
        if [*module.parameters(recurse=False)]
    }
    for pattern in wanted or ("",):
        if not any(
            fnmatchcase(name, pattern) and not isinstance(owners[name], FIXED) for name in owners
        ):
            raise InputError(
                f"`layers={pattern!r}` matches no linear layer or convolution of"
                f" {type(model).__name__}. {_supported_layers(owners)}"
            )
    matched = [
        name
        for name, module in owners.items()
        if any(fnmatchcase(name, pattern) for pattern in wanted) and not isinstance(module, FIXED)
    ]
    unsupported = [name for name in matched if not isinstance(owners[name], SUPPORTED)]
    if unsupported and EVERY in wanted:
        matched = [name for name in matched if name not in unsupported]
        shown = ", ".join(f"'{name}'" for name in unsupported[:4])
        warn(
            f"`layers={EVERY!r}` covers linear layers and convolutions; {len(unsupported)} layers"
            f" of other kinds are left as they were trained: {shown}{_and_more(unsupported, 4)}."
        )
        if not matched:
            raise InputError(
                f"`layers={EVERY!r}` matches no linear layer or convolution of"
                f" {type(model).__name__}. {_supported_layers(owners)}"
            )
    elif unsupported:
        described = ", ".join(
            f"'{name}' ({_parameters_of(owners[name])})" for name in unsupported[:SHOWN_NAMES]
        )
        raise InputError(
            "`layers` may name linear layers and convolutions; it also matches layers whose"
            f" weights are not supported: {described}{_and_more(unsupported)}. Narrow `layers` to"
            f" leave them as they were trained. {_supported_layers(owners)}"
        )
    _require_untied(model, matched)
    _require_running_statistics(model)
    return tuple(matched)


def _require_untied(model: nn.Module, matched: Sequence[str]) -> None:
    names_of = defaultdict(list)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names_of[id(parameter)].append(name)
    for names in names_of.values():
        # one layer under two names is found when it runs twice
        if len(names) > 1 and any(name.rpartition(".")[0] in matched for name in names):
            raise InputError(
                f"The weights {', '.join(repr(name) for name in names)} are one and the same."
                " Weights in several places are not supported: narrow `layers` to leave them as"
                " they were trained."
            )


def _require_running_statistics(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, FIXED) and module.running_mean is None:
            raise InputError(
                f"The batch normalisation '{name}' keeps no running statistics, so that an answer"
                " depends on the other examples of its batch. A posterior over several layers"
                " needs examples on their own: leave out `layers` to fit the head alone."
            )


def _parameters_of(module: nn.Module) -> str:
    names = [name for name, _ in module.named_parameters(recurse=False)]
    return f"{type(module).__name__} with {', '.join(names[:4])}{_and_more(names, 4)}"


def _supported_layers(owners: dict[str, nn.Module]) -> str:
    names = [name for name, module in owners.items() if isinstance(module, SUPPORTED)]
    if not names:
        return "It has no linear layers and no convolutions."
    shown = ", ".join(f"'{name}'" for name in names[:SHOWN_NAMES])
    return f"Its linear layers and convolutions are {shown}{_and_more(names)}."


def _and_more(names: Sequence[str], shown: int = SHOWN_NAMES) -> str:
    return f" and {len(names) - shown} more" if len(names) > shown else ""
