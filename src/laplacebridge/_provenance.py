"""What someone needs to know about a machine to get the same numbers again."""

import platform
from importlib import metadata


def versions() -> dict[str, str]:
    """Versions that can change a number.

    Example:
        >>> sorted(versions())
        ['laplacebridge', 'numpy', 'python', 'scipy', 'torch']
    """
    packages = ("laplacebridge", "torch", "numpy", "scipy")
    return {
        **{name: metadata.version(name) for name in packages},
        "python": platform.python_version(),
    }
