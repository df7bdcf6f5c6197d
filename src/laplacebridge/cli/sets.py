"""`laplacebridge sets`: which classes remain possible, from predictions that were saved or piped in."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

import laplacebridge as lb
from laplacebridge.cli import modules, options, outputs, sources
from laplacebridge.cli.prediction_files import Predictions, format_of, known, write_arrays, write_records, write_table
from laplacebridge.cli.saved_predictions import read_predictions, read_predictions_from
from laplacebridge.errors import LaplaceBridgeError
from laplacebridge.laplace.fitting import IGNORED_LABEL
from laplacebridge.sets import ClassSets, Overlap, calibrate, overlap_sets

EXAMPLE = "Example: laplacebridge sets prediction.npz --calibrate labelled.npz --coverage 0.9 -o sets.csv"
USUAL_THRESHOLD = 0.05


def sets(
    prediction: Annotated[
        str,
        typer.Argument(
            metavar="PREDICTION",
            help="What `laplacebridge predict` wrote: an .npz file, or - for .npz or JSON lines on standard input.",
            show_default=False,
        ),
    ],
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
    predictions = _read(prediction, sources.class_names_from(classes))
    summary: dict[str, Any] = {"output": output}
    if calibrate_on is not None:
        threshold, promised = _calibrated(calibrate_on, coverage, predictions)
        summary["promised_coverage"] = promised
    found = overlap_sets(predictions.dirichlet, USUAL_THRESHOLD if threshold is None else threshold, max_size)
    summary |= {"threshold": USUAL_THRESHOLD if threshold is None else threshold} | _facts(found, predictions)
    with outputs.opened_whole(output) as stream:
        if chosen_format == "npz":
            write_arrays(stream, _arrays(found, predictions))
        elif chosen_format == "csv":
            write_table(stream, ({**row, "set": ";".join(map(str, row["set"]))} for row in _rows(found, predictions)))
        else:
            write_records(stream, _rows(found, predictions))
    outputs.say(
        summary, _sentence(summary), quiet=quiet, as_json=as_json, rows_on_stdout=output == outputs.STANDARD_STREAM
    )


def _require_one_threshold(threshold: float | None, calibrate_on: Path | None) -> None:
    if threshold is not None and calibrate_on is not None:
        raise typer.BadParameter("is what --calibrate chooses; give one of them.", param_hint="--threshold")


def _read(prediction: str, class_names: tuple[str, ...]) -> Predictions:
    if prediction == outputs.STANDARD_STREAM:
        found = read_predictions_from(sys.stdin.buffer.read())
    else:
        modules.require_file(Path(prediction), "PREDICTION")
        found = read_predictions(Path(prediction))
    lb.check(found.dirichlet)
    return found.with_class_names(class_names)


def _calibrated(path: Path, coverage: float, predictions: Predictions) -> tuple[float, list[float]]:
    modules.require_file(path, "--calibrate")
    labelled = read_predictions(path)
    if labelled.labels is None:
        raise LaplaceBridgeError(
            f"{path} needs `labels` to calibrate with; it has none. Predict data that have labels."
        )
    if labelled.dirichlet.num_classes != predictions.dirichlet.num_classes:
        raise LaplaceBridgeError(
            f"{path} has {labelled.dirichlet.num_classes} classes, and the predictions have "
            f"{predictions.dirichlet.num_classes}. Calibrate with predictions of the same classifier."
        )
    rows = (labelled.labels != IGNORED_LABEL).nonzero().squeeze(-1)
    calibrated = calibrate(Overlap(), lb.check(labelled.dirichlet)[rows], labelled.labels[rows], coverage=coverage)
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
        record: dict[str, Any] = {"row": row}
        if predictions.example_names:
            record["name"] = predictions.example_names[row]
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
    if "promised_coverage" in summary:
        low, high = summary["promised_coverage"]
        text += f"; the calibration promises between {low:.1%} and {high:.1%} (95 % chance)"
    return text
