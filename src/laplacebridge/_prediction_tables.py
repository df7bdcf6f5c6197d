"""Predictions as people look at them: lines of text, a table in a notebook, a frame."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from laplacebridge._arrays import array_of
from laplacebridge.errors import LaplaceBridgeError

# How many predictions are shown.
ROWS_OF_TEXT, ROWS_OF_HTML = 3, 9

Arrays = Mapping[str, np.ndarray]


def arrays_of(prediction: Any, answer: str, level: float, unusual: Any) -> dict[str, np.ndarray]:  # noqa: ANN401
    """Everything that predictions say, by name.

    Args:
        prediction: What has an attribute of each name.
        answer: That of what is predicted, such as `label`.
        level: Of the intervals.
        unusual: How unusual the inputs are, if that is known.
    """
    lower, upper = prediction.interval(level)
    names = [answer, "total", "aleatoric", "epistemic"]
    if unusual is not None:
        names += ["ood_score", "ood_quantile"] if len(unusual.reference) else ["ood_score"]
    values = {"mean": prediction.mean, "lower": lower, "upper": upper}
    values |= {name: getattr(prediction, name) for name in names}
    return {name: array_of(value) for name, value in values.items()}


def as_text(found: Arrays, count: int) -> str:
    """The most probable class of each with its probability and interval.

    Args:
        found: Arrays of the first predictions, as `Prediction.numpy` gives them.
        count: How many predictions there are.
    """
    lines = [_title(found, count)]
    for label, mean, low, high in zip(*_of_top(found).values(), strict=True):
        lines.append(f"  class {label}: {mean:.3f} ({low:.3f} to {high:.3f})")
    return "\n".join([*lines, "  …"] if count > len(found["label"]) else lines)


def as_html(found: Arrays, count: int) -> str:
    """The same as a table, with the parts of uncertainty.

    Args:
        found: As for `as_text`.
        count: How many predictions there are.
    """
    columns = ["", "class", "probability", "95 % interval", "aleatoric", "epistemic"]
    rows = []
    for row, (label, mean, low, high) in enumerate(zip(*_of_top(found).values(), strict=True)):
        cells = [str(row), str(label), f"{mean:.3f}", f"{low:.3f} to {high:.3f}"]
        cells += [f"{found[part][row]:.3f}" for part in ("aleatoric", "epistemic")]
        if "ood_quantile" in found:
            cells.append(f"{found['ood_quantile'][row]:.1%}")
        rows.append("".join(f"<td>{cell}</td>" for cell in cells))
    columns += ["more unusual than"] if "ood_quantile" in found else []
    head = "".join(f"<th>{column}</th>" for column in columns)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f"<p>{_title(found, count)}</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        + ("<p>…</p>" if count > len(rows) else "")
    )


def frame_of(found: Arrays, names: Sequence[object]) -> Any:  # noqa: ANN401
    """A frame with a row for each prediction.

    Args:
        found: Arrays of all of them.
        names: Of the classes.

    Raises:
        LaplaceBridgeError: If pandas is not installed.
    """
    columns = _of_top(found)
    columns["label"] = np.array(names, dtype=object)[columns["label"]]
    kept = ("total", "aleatoric", "epistemic", "ood_score", "ood_quantile")
    columns |= {name: found[name] for name in kept if name in found}
    columns |= {f"p({name})": found["mean"][:, place] for place, name in enumerate(names)}
    return imported_pandas().DataFrame(columns)


def imported_pandas() -> Any:  # noqa: ANN401
    """pandas, imported when it is needed: it is an extra.

    Raises:
        LaplaceBridgeError: If it is not installed.
    """
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise LaplaceBridgeError(
            "`to_pandas` needs pandas, which is not installed: `pip install"
            " 'laplacebridge[pandas]'`. `prediction.numpy()` has the same as arrays."
        ) from error
    return pandas


def _title(found: Arrays, count: int) -> str:
    classes = found["mean"].shape[-1]
    return f"Prediction of {count} example{'s' * (count != 1)}, {classes} classes"


def _of_top(found: Arrays) -> dict[str, np.ndarray]:
    """The most probable class of each, its probability and interval."""
    top = np.arange(len(found["label"])), found["label"]
    return {
        "label": found["label"],
        "probability": found["mean"][top],
        "lower": found["lower"][top],
        "upper": found["upper"][top],
    }
