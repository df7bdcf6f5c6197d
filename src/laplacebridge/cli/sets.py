"""`laplacebridge sets`: which classes remain possible, from predictions that were saved
or piped in.
"""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from laplacebridge.cli import console, options
from laplacebridge.cli.calibration import read_calibration
from laplacebridge.cli.data import read_class_names
from laplacebridge.cli.predictions import Predictions, read_predictions
from laplacebridge.sets import (
    APS,
    RAPS,
    CalibratedSets,
    ClassSets,
    LeastAmbiguous,
    Overlap,
    SetRule,
    calibrate,
    overlap_sets,
)

EXAMPLE = (
    "Example: laplacebridge sets prediction.npz --calibrate labelled.npz --coverage 0.9 -o sets.csv"
)
USUAL_THRESHOLD, USUAL_COVERAGE = 0.05, 0.9
RULES: dict[str, type[SetRule]] = {
    "lac": LeastAmbiguous,
    "aps": APS,
    "raps": RAPS,
    "overlap": Overlap,
}


def sets(
    prediction: options.PredictionArgument,
    *,
    threshold: Annotated[
        float | None,
        options.share(
            "How much the marginals must overlap; less gives larger sets.",
            show_default=str(USUAL_THRESHOLD),
        ),
    ] = None,
    max_size: Annotated[int | None, typer.Option(min=1, help="Where to cut sets off.")] = None,
    calibrate_on: Annotated[
        Path | None,
        options.existing_file(
            "Predictions with labels (.npz), used for nothing else, to choose the threshold by"
            " coverage.",
            "--calibrate",
        ),
    ] = None,
    coverage: Annotated[
        float | None,
        options.share(
            "Probability that a set holds the label; needs --calibrate.",
            show_default=str(USUAL_COVERAGE),
        ),
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(RULES),
            help=(
                "Which classes a calibrated set holds: the probable ones (lac), those up to a mass"
                " (aps, raps), or those that overlap the best one. Without --calibrate sets are"
                " those of overlap."
            ),
            show_default="lac",
        ),
    ] = None,
    never_empty: Annotated[
        bool,
        typer.Option(
            "--never-empty",
            help=(
                "Give empty sets of a calibrated rule their most probable class; they then hold the"
                " label more often than was asked."
            ),
        ),
    ] = False,
    classes: options.ClassesOption = None,
    output: options.RowsOption = options.STANDARD_STREAM,
    file_format: options.FormatOption = None,
    force: options.ForceOption = False,
    quiet: options.QuietOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Give each example a set of classes: those that cannot be told from the most
    probable one, or, calibrated, as few as hold the label as often as was asked.
    """
    chosen_format = console.require_rows_output(output, file_format, force=force)
    _require_one_threshold(threshold, calibrate_on, coverage)
    chosen_rule = _require_rule(rule, calibrate_on, never_empty, max_size)
    predictions = read_predictions(prediction, read_class_names(classes))
    summary: dict[str, Any] = {
        "output": output,
        "threshold": USUAL_THRESHOLD if threshold is None else threshold,
    }
    calibrated = None
    if calibrate_on is not None:
        calibrated = _calibrated(
            chosen_rule,
            calibrate_on,
            USUAL_COVERAGE if coverage is None else coverage,
            predictions,
            never_empty,
        )
        summary |= {
            "threshold": calibrated.threshold,
            "coverage_interval": list(calibrated.coverage_interval()),
        }
    if calibrated is None or chosen_rule == "overlap":
        found = overlap_sets(predictions.dirichlet, summary["threshold"], max_size)
    else:
        found = calibrated(predictions.dirichlet)
    summary["rule"] = chosen_rule
    records = _records(found, predictions)
    covered = [record["covered"] for record in records if record.get("covered") is not None]
    summary |= {
        "sets": len(found),
        "mean_size": float(found.size.double().mean()),
        "largest_size": int(found.size.max()),
        "single": float((found.size == 1).double().mean()),
        "coverage": float(np.mean(covered)) if covered else None,
    }
    with console.open_output(output) as stream:
        console.write_rows(
            stream, chosen_format, [console.Rows(records, lambda: _arrays(found, predictions))]
        )
    console.print_summary(
        summary,
        _sentence(summary),
        quiet=quiet,
        as_json=as_json,
        rows_on_stdout=output == options.STANDARD_STREAM,
    )


def _require_one_threshold(
    threshold: float | None, calibrate_on: Path | None, coverage: float | None
) -> None:
    if threshold is not None and calibrate_on is not None:
        raise typer.BadParameter(
            "is what --calibrate chooses; give one of them.", param_hint="--threshold"
        )
    if coverage is not None and calibrate_on is None:
        raise typer.BadParameter(
            "needs labelled predictions to choose the threshold by: --calibrate labelled.npz. A"
            " threshold alone promises no coverage.",
            param_hint="--coverage",
        )


def _require_rule(
    rule: str | None, calibrate_on: Path | None, never_empty: bool, max_size: int | None
) -> str:
    if rule is not None and rule not in RULES:
        raise typer.BadParameter(f"is one of {', '.join(RULES)}; got {rule}.", param_hint="--rule")
    if calibrate_on is None and (never_empty or rule not in {None, "overlap"}):
        raise typer.BadParameter(
            "needs labelled predictions to choose the threshold by: --calibrate labelled.npz.",
            param_hint="--never-empty" if never_empty else "--rule",
        )
    chosen = rule or ("overlap" if calibrate_on is None else "lac")
    if chosen != "overlap" and max_size is not None:
        raise typer.BadParameter(
            "cuts off sets of --rule overlap; others keep what was calibrated.",
            param_hint="--max-size",
        )
    return chosen


def _calibrated(
    rule: str, path: Path, coverage: float, predictions: Predictions, never_empty: bool
) -> CalibratedSets:
    labelled = read_calibration(path, predictions)
    assert labelled.labels is not None  # noqa: S101  (they were needed)
    return calibrate(
        RULES[rule](),
        labelled.dirichlet,
        labelled.labels,
        coverage=coverage,
        never_empty=never_empty,
    )


def _records(found: ClassSets, predictions: Predictions) -> list[dict[str, Any]]:
    return [
        {
            **predictions.identity(row),
            "set": [predictions.named(member) for member in members],
            "size": len(members),
            **predictions.outcome(row, members),
        }
        for row, members in enumerate(found.to_lists())
    ]


def _arrays(found: ClassSets, predictions: Predictions) -> dict[str, np.ndarray]:
    arrays = {"set_classes": found.classes.numpy(), "set_sizes": found.size.numpy()}
    return arrays | ({} if predictions.labels is None else {"labels": predictions.labels.numpy()})


def _sentence(summary: dict[str, Any]) -> str:
    text = (
        f"{console.output_name(summary['output'])}: {summary['sets']} sets at threshold"
        f" {summary['threshold']:.4g}, mean size {summary['mean_size']:.2f}, largest"
        f" {summary['largest_size']}, {summary['single']:.1%} of one class"
    )
    if summary["coverage"] is not None:
        text += f"; they hold {summary['coverage']:.1%} of the labels"
    if "coverage_interval" in summary:
        low, _ = summary[
            "coverage_interval"
        ]  # ties can only raise the coverage, beyond the upper end too
        text += f"; the calibration promises at least {low:.1%} (97.5 % chance)"
    return text
