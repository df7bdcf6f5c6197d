"""Warnings that point at the line that called the library."""

import inspect
import warnings
from pathlib import Path


def warn(message: str) -> None:
    """Warns at the line that called the library, however many calls within it lie
    between.

    Args:
        message: What to say.
    """
    library = Path(__file__).parent
    frame, level = inspect.currentframe(), 1
    while frame is not None and library in Path(frame.f_code.co_filename).parents:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)
