"""Parts of the package that need more than its core: imported where they are used, with a message if they cannot be."""

from collections.abc import Iterator
from contextlib import contextmanager

from laplacebridge.errors import LaplaceBridgeError


@contextmanager
def needs_extra(name: str, what: str) -> Iterator[None]:
    """Turns a missing package into a message that says what to install.

    Args:
        name: The extra that brings it.
        what: What it is needed for.

    Yields:
        Nothing; import inside.

    Raises:
        LaplaceBridgeError: If a package is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise LaplaceBridgeError(
            f"{what} needs {error.name}, which is not installed. Install it with `pip install 'laplacebridge[{name}]'`."
        ) from error
