"""The library's own exceptions. Each message says what was given, what is needed and
what to do.
"""


class LaplaceBridgeError(Exception):
    """Base class of everything that this library raises about what it was given."""


class InputError(LaplaceBridgeError, ValueError):
    """Something that was given cannot be used."""


class InputTypeError(LaplaceBridgeError, TypeError):
    """Something of another type was given than is needed."""


class ShapeError(InputError):
    """A tensor has the wrong shape, type or device."""


class HeadNotFoundError(LaplaceBridgeError, LookupError):
    """The last linear layer of a network was not found, or is not what gives its
    output.
    """


class CheckpointError(InputError):
    """A saved classifier cannot be read, or belongs to another model or version."""
