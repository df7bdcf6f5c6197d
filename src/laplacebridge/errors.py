"""The library's own exceptions. Each message says what was given, what is needed and what to do."""


class LaplaceBridgeError(Exception):
    """Base class of every exception that this library defines."""


class ShapeError(LaplaceBridgeError, ValueError):
    """A tensor has the wrong shape, type or device."""
