"""SciPy's special functions, imported on first use, because importing them takes long
beside importing torch.
"""

from typing import Any


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever SciPy has under that name
    from scipy import special

    return getattr(special, name)
