"""`laplacebridge sets`: which classes remain possible, from predictions that were saved or piped in."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from laplacebridge.cli import options, outputs, sources
from laplacebridge.cli.prediction_files import format_of, write_as
from laplacebridge.cli.predictions import Predictions, known
from laplacebridge.cli.saved_predictions import calibration_for, predictions_named
from laplacebridge.laplace.batch_checks import IGNORED_LABEL
from laplacebridge.sets import ClassSets, Overlap, calibrate, overlap_sets

EXAMPLE = "Example: laplacebridge sets prediction.npz --calibrate labelled.npz --coverage 0.9 -o sets.csv"
USUAL_THRESHOLD = 0.05


def sets(
    prediction: options.PredictionArgument,
    *,
    threshold: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="How much the marginals must overlap; less gives larger sets.", show_default="0.05"
        ),
    ] = None,
    max_size: Annotated[int | None, typer.Option(min=1, help="Where to cut sets off.")] = None,
    calibrate_on: Annotated[
        Path | None,
        typer.Option(
            "--calibrate", metavar="FILE", help="Predictions with labels (.npz), to choose the threshold by coverage."
        ),
    ] = None,
    coverage: Annotated[
        float, typer.Option(min=0, max=1, help="Chance that a set holds the label, with --calibrate.")
    ] = 0.9,
    classes: options.ClassesOption = None,
    output: options.RowsOption = outputs.STANDARD_STREAM,
    file_format: options.FormatOption = None,
    force: options.ForceOption = False,
    quiet: options.QuietOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Give each example the set of classes that cannot be told from the most probable one."""
    chosen_format = format_of(output, file_format)
    outputs.require_rows_writable(output, force=force, binary=chosen_format == "npz")
    _require_one_threshold(threshold, calibrate_on)
    predictions = predictions_named(prediction, sources.class_names_from(classes))
    summary: dict[str, Any] = {"output": output}
    if calibrate_on is not None:
        threshold, summary["coverage_interval"] = _calibrated(calibrate_on, coverage, predictions)
    found = overlap_sets(predictions.dirichlet, USUAL_THRESHOLD if threshold is None else threshold, max_size)
    summary |= {"threshold": USUAL_THRESHOLD if threshold is None else threshold} | _facts(found, predictions)
    with outputs.opened_whole(output) as stream:
        write_as(chosen_format, stream, _rows(found, predictions), lambda: _arrays(found, predictions))
    outputs.say(
        summary, _sentence(summary), quiet=quiet, as_json=as_json, rows_on_stdout=output == outputs.STANDARD_STREAM
    )


def _require_one_threshold(threshold: float | None, calibrate_on: Path | None) -> None:
    if threshold is not None and calibrate_on is not None:
        raise typer.BadParameter("is what --calibrate chooses; give one of them.", param_hint="--threshold")


def _calibrated(path: Path, coverage: float, predictions: Predictions) -> tuple[float, list[float]]:
    labelled = calibration_for(predictions, path)
    assert labelled.labels is not None  # noqa: S101
    calibrated = calibrate(Overlap(), labelled.dirichlet, labelled.labels, coverage=coverage)
    return calibrated.threshold, list(calibrated.coverage_interval())


def _facts(found: ClassSets, predictions: Predictions) -> dict[str, Any]:
    covered = _covered(found, predictions)
    return {
        "sets": len(found),
        "mean_size": float(found.size.double().mean()),
        "largest_size": int(found.size.max()),
        "single": float((found.size == 1).double().mean()),
        "coverage": None if covered is None else float(np.mean([inside for inside in covered if inside is not None])),
    }


def _covered(found: ClassSets, predictions: Predictions) -> list[bool | None] | None:
    """Whether each set holds its label; None without one."""
    labels = predictions.labels
    if labels is None or (labels == IGNORED_LABEL).all():
        return None
    has_label = labels != IGNORED_LABEL
    inside = found.contains(torch.where(has_label, labels, 0))
    return [bool(hit) if labelled else None for hit, labelled in zip(inside, has_label)]


def _rows(found: ClassSets, predictions: Predictions) -> Iterator[dict[str, Any]]:
    covered = _covered(found, predictions)
    for row, members in enumerate(found.to_lists()):
        record = predictions.beginning(row)
        record |= {"set": [predictions.named(member) for member in members], "size": len(members)}
        if predictions.labels is not None and covered is not None:
            record |= {"label": known(int(predictions.labels[row])), "covered": covered[row]}
        yield record


def _arrays(found: ClassSets, predictions: Predictions) -> dict[str, np.ndarray]:
    arrays = {"set_classes": found.classes.numpy(), "set_sizes": found.size.numpy()}
    if predictions.labels is not None:
        arrays["labels"] = predictions.labels.numpy()
    return arrays


def _sentence(summary: dict[str, Any]) -> str:
    text = (
        f"{outputs.shown(summary['output'])}: {summary['sets']} sets at threshold {summary['threshold']:.4g}, "
        f"mean size {summary['mean_size']:.2f}, largest {summary['largest_size']}, {summary['single']:.1%} of one class"
    )
    if summary["coverage"] is not None:
        text += f"; they hold {summary['coverage']:.1%} of the labels"
    if "coverage_interval" in summary:
        low, _ = summary["coverage_interval"]  # ties can only raise the coverage, beyond the upper end too
        text += f"; the calibration promises at least {low:.1%} (97.5 % chance)"
    return text
