"""SciPy's special functions, imported on first use: the import alone takes a sixth of the time that torch's does."""

from typing import Any


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever SciPy has under that name
    from scipy import special

    return getattr(special, name)
