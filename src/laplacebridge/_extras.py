"""Packages that only an extra of this one brings."""

from collections.abc import Iterator
from contextlib import contextmanager

from laplacebridge.errors import LaplaceBridgeError


@contextmanager
def needs_extra(name: str, what: str) -> Iterator[None]:
    """Around imports that need more than the core of the package: a missing one is an
    error that says what to install.

    Args:
        name: The extra that brings it.
        what: What it is needed for.

    Raises:
        LaplaceBridgeError: If a package is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise LaplaceBridgeError(
            f"{what} needs {error.name}, which is not installed. Install it with `pip install"
            f" 'laplacebridge[{name}]'`."
        ) from error
