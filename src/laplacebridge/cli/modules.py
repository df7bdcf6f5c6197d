"""What the command line names: `package.module:name` in Python modules, files and devices."""

import importlib
import os
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer
from torch import nn

from laplacebridge.cli.weights import load_weights
from laplacebridge.errors import LaplaceBridgeError


def model_from(source: str, weights: Path | None, *, option: str = "--model") -> nn.Module:
    """The network that a factory returns, with weights from a file if there is one.

    Args:
        source: ``package.module:factory``.
        weights: A file of weights.
        option: What the user wrote the source behind.

    Raises:
        BadParameter: If there is no such factory or file.
        LaplaceBridgeError: If it returns something else.
    """
    if weights is not None:
        require_file(weights, "--weights")
    found = imported(source, option)
    model = found if isinstance(found, nn.Module) else called(source, found)
    if not isinstance(model, nn.Module):
        raise LaplaceBridgeError(f"`{source}` must return a torch.nn.Module; it returned {type(model).__name__}.")
    if weights is not None:
        load_weights(model, weights)
    return model


def imported(source: str, option: str) -> Any:  # noqa: ANN401
    """What ``package.module:name`` stands for; the current folder can be imported from.

    Args:
        source: The module and the name in it.
        option: What the user wrote it behind.

    Raises:
        BadParameter: If it is not written so, or there is no such module or name.
        LaplaceBridgeError: If the module fails while it is imported.
    """
    module_name, _, name = source.partition(":")
    if not module_name or not name:
        raise typer.BadParameter(f"needs package.module:name; got '{source}'.", param_hint=option)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            raise typer.BadParameter(
                f"there is no module '{error.name}' in {os.getcwd()} or among the installed packages. Write it as "
                "after `import`, without .py.",
                param_hint=option,
            ) from error
        raise LaplaceBridgeError(f"Importing `{module_name}` failed: {type(error).__name__}: {error}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise typer.BadParameter(f"'{module_name}' has no '{name}'.", param_hint=option)
        found = getattr(found, part)
    return found


def called(source: str, factory: object) -> Any:  # noqa: ANN401
    """What a user's function returns.

    Args:
        source: What the user wrote.
        factory: What should be a function without arguments.

    Raises:
        LaplaceBridgeError: If it is none, or fails.
    """
    if not callable(factory):
        raise LaplaceBridgeError(f"`{source}` must be a function without arguments; it is a {type(factory).__name__}.")
    try:
        return factory()
    except Exception as error:
        raise LaplaceBridgeError(f"`{source}` failed: {type(error).__name__}: {error}") from error


def require_file(path: Path, option: str) -> None:
    """Requires that a file exists.

    Args:
        path: The file.
        option: What the user wrote it behind.

    Raises:
        BadParameter: If it does not.
    """
    if not path.is_file():
        raise typer.BadParameter(f"there is no file {path}.", param_hint=option)


def device_named(name: str) -> torch.device:
    """A device that is there.

    Args:
        name: As torch calls it.

    Raises:
        BadParameter: If it is not.
    """
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise typer.BadParameter(f"'{name}' cannot be used here: {reason}", param_hint="--device") from error


def seed_everything(seed: int) -> None:
    """Seeds the global random numbers, for the user's factories and loaders; this library draws none of them.

    Args:
        seed: The seed.
    """
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  (loaders use it)
    torch.manual_seed(seed)
