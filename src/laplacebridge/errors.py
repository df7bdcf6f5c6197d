"""The library's own exceptions. Each message says what was given, what is needed and what to do."""


class LaplaceBridgeError(Exception):
    """Base class of every exception that this library defines."""


class ShapeError(LaplaceBridgeError, ValueError):
    """A tensor has the wrong shape, type or device."""


class HeadNotFoundError(LaplaceBridgeError, LookupError):
    """The last linear layer of a network was not found, or is not what gives its output."""


class CheckpointError(LaplaceBridgeError, ValueError):
    """A saved classifier cannot be read, or belongs to another model or version."""
