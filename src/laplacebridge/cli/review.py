"""`laplacebridge review`: which predictions a person should look at first, and why."""

from collections import Counter
from typing import Annotated, Any

import numpy as np
import typer

from laplacebridge.cli import console, options
from laplacebridge.cli.data import read_class_names
from laplacebridge.cli.predictions import Predictions, read_predictions, rounded
from laplacebridge.selective.reviewing import ReviewCase, ranked

EXAMPLE = "Example: laplacebridge review prediction.npz --number 20 -o look-at-these.csv"


def review(
    prediction: options.PredictionArgument,
    *,
    number: Annotated[
        int | None,
        typer.Option("--number", "-n", min=1, help="How many; by default all, in order."),
    ] = None,
    ambiguous_above: Annotated[
        float,
        options.share("From which 1 − largest probability on a label is called ambiguous."),
    ] = 0.1,
    classes: options.ClassesOption = None,
    output: options.RowsOption = options.STANDARD_STREAM,
    file_format: options.FormatOption = None,
    force: options.ForceOption = False,
    quiet: options.QuietOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Rank predictions by how probable it is that they are wrong, with the reason: the
    label is ambiguous, the input is unusual, or both. Needs no labels, and promises
    nothing.
    """
    chosen_format = console.require_rows_output(output, file_format, force=force)
    found = read_predictions(prediction, read_class_names(classes))
    cases = ranked(
        found.dirichlet.mean,
        number,
        found.class_names or None,
        ambiguous_above,
        found.scores.get("ood_quantile"),
        found.scores.get("ood_score"),
    )
    records = [
        {**found.identity(case.row), **_given_label(found, case.row), **_record(case)}
        for case in cases
    ]
    with console.open_output(output) as stream:
        arrays = lambda: {  # noqa: E731
            "row": np.array([case.row for case in cases]),
            "chance_wrong": np.array([case.chance_wrong for case in cases]),
            "reason": np.array([case.reason for case in cases]),
        }
        console.write_rows(stream, chosen_format, [console.Rows(records, arrays)])
    reasons = Counter(case.reason or "next in line" for case in cases)
    summary = {
        "output": output,
        "predictions": len(found.dirichlet),
        "cases": len(cases),
        "reasons": dict(reasons),
    }
    counted = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
    console.print_summary(
        summary,
        f"{console.output_name(output)}: {len(cases)} of {len(found.dirichlet)} predictions to look"
        f" at, first those that are most probably wrong: {counted}",
        quiet=quiet,
        as_json=as_json,
        rows_on_stdout=output == options.STANDARD_STREAM,
    )


def _given_label(found: Predictions, row: int) -> dict[str, Any]:
    """The label of an example by name, where labels are known."""
    if found.labels is None:
        return {}
    label = found.label(row)
    return {"label": None if label is None else found.named(label)}


def _record(case: ReviewCase) -> dict[str, Any]:
    held = case._asdict()
    del held["row"]  # it comes first, with the name of the example
    return {
        name: rounded(value) if isinstance(value, float) else value for name, value in held.items()
    } | {"why": case.why}
