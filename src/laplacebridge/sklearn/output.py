"""Answers as arrays or as frames."""

from typing import Any

import numpy as np
import numpy.typing as npt

from laplacebridge.errors import LaplaceBridgeError

FORMS = ("default", "pandas", "polars")


def labelled(
    model: Any,
    values: npt.NDArray[Any] | list[Any],
    inputs: Any,
    columns: list[str] | None = None,
    rows: npt.NDArray[Any] | None = None,
) -> Any:
    """Answers in the form that `set_output` asked for.

    Args:
        model: The classifier.
        values: One row for each input.
        inputs: What was asked about; rows of a frame keep their index.
        columns: Names of the columns; by default the classes.
        rows: Which inputs the answers are for; by default all, in order.

    Raises:
        LaplaceBridgeError: If the package for that form is not installed.
    """
    form = getattr(model, "_output", "default")
    if form == "default":
        return values
    names = list(model.classes_) if columns is None else columns
    try:
        if form == "pandas":
            import pandas as pd

            index = getattr(inputs, "index", None)
            if index is not None and rows is not None:
                index = index[rows]
            return pd.DataFrame(values, columns=names, index=index)
        import polars as pl
    except ModuleNotFoundError as error:
        raise LaplaceBridgeError(
            f"`set_output(transform={form!r})` needs {form}, which is not installed."
        ) from error
    data = values if isinstance(values, np.ndarray) else [list(row) for row in values]
    return pl.DataFrame(data, schema=[str(name) for name in names], orient="row")
