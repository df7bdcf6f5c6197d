"""`laplacebridge predict`: class probabilities and how sure they are, for every
example.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Annotated

import torch
import typer
from torch import Tensor
from tqdm import tqdm

import laplacebridge as lb
from laplacebridge.cli import console, labels, options
from laplacebridge.cli.data import Batches, open_data, read_class_names
from laplacebridge.cli.models import load_classifier, seed_everything
from laplacebridge.cli.predictions import Predictions
from laplacebridge.cli.readers import Preparation
from laplacebridge.errors import InputError
from laplacebridge.laplace.batch import Batch, unpack_batch
from laplacebridge.laplace.label_checks import IGNORED_LABEL, flat_labels, require_known_classes
from laplacebridge.multi_label import MultiLabelClassifier
from laplacebridge.sets import overlap_sets

EXAMPLE = (
    "Example: laplacebridge predict classifier.safetensors images/ --model project.network:build"
    " --weights weights.pt --top 5 -o prediction.jsonl"
)
USUAL_SCORES = "msp,entropy_of_mean,expected_entropy,mutual_information"


def predict(
    classifier: options.ClassifierArgument,
    data: options.DataArgument,
    *,
    model: options.ModelOption = None,
    weights: options.WeightsOption = None,
    head_only: options.HeadOnlyOption = None,
    device: options.DeviceOption = "cpu",
    seed: options.SeedOption = 0,
    bridge: options.BridgeOption = None,
    batch_size: options.BatchSizeOption = 256,
    classes: options.ClassesOption = None,
    size: options.SizeOption = None,
    mean: options.MeanOption = "0",
    std: options.StdOption = "1",
    top: Annotated[
        int | None,
        typer.Option(
            min=1, help="Only so many of the most probable classes.", rich_help_panel="Output"
        ),
    ] = None,
    scores: Annotated[
        str,
        typer.Option(
            metavar="NAME,…",
            help=f"Scores to add: {', '.join(options.SCORES)}.",
            rich_help_panel="Output",
        ),
    ] = USUAL_SCORES,
    interval: Annotated[
        float,
        typer.Option(
            min=0,
            max=0.9999,
            help=(
                "Mass of the interval for the probability of the predicted class; 0 leaves it out."
            ),
            rich_help_panel="Output",
        ),
    ] = 0.95,
    threshold: Annotated[
        float | None,
        options.share(
            "Add the set of classes that overlap the best one; 0.05 is usual.",
            rich_help_panel="Output",
        ),
    ] = None,
    output: options.RowsOption = options.STANDARD_STREAM,
    file_format: options.FormatOption = None,
    force: options.ForceOption = False,
    quiet: options.QuietOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Predict, for every example, class probabilities and how sure they are.

    Without a model or its head, the data are features of the network's last layer,
    which is in the classifier's file.
    """
    chosen_format = console.require_rows_output(output, file_format, force=force)
    if top is not None and chosen_format is options.FileFormat.npz:
        raise typer.BadParameter("is for jsonl and csv; npz holds all classes.", param_hint="--top")
    wanted = _score_names(scores)
    class_names = read_class_names(classes)
    seed_everything(seed)
    preparation = Preparation.of_options(size, mean, std)
    batches = open_data(
        data, batch_size=batch_size, class_names=class_names, preparation=preparation
    )
    loaded = load_classifier(
        classifier,
        batches,
        model=model,
        weights=weights,
        head_only=head_only,
        device=device,
        bridge=bridge,
        multi_label=True,
    )
    batches.require_classes(loaded.num_classes, were_given=bool(class_names))
    batches.prepared_for(loaded.network.model)
    if isinstance(loaded, MultiLabelClassifier):
        labels.require_none_of_one_class(
            top=top, threshold=threshold, scores=wanted != _score_names(USUAL_SCORES)
        )
        _predict_labels(
            loaded, batches, interval, output, chosen_format, quiet=quiet, as_json=as_json
        )
        return
    counts: Counter[str] = Counter()
    with console.open_output(output) as stream:
        show = console.shows_progress(quiet)
        parts = _counted(_predictions(loaded, batches, wanted, interval, threshold, show), counts)
        rows = (console.Rows(part.records(top=top), part.arrays) for part in parts)
        console.write_rows(stream, chosen_format, rows, class_names=batches.class_names)
        _require_some(counts["rows"], batches)
    accuracy = counts["correct"] / counts["labelled"] if counts["labelled"] else None
    summary = {
        "output": output,
        "rows": counts["rows"],
        "labelled": counts["labelled"],
        "accuracy": accuracy,
    }
    correct = "" if accuracy is None else f", {accuracy:.1%} of {counts['labelled']} labels right"
    console.print_summary(
        summary,
        f"{console.output_name(output)}: {counts['rows']} predictions{correct}",
        quiet=quiet,
        as_json=as_json,
        rows_on_stdout=output == options.STANDARD_STREAM,
    )


def _predict_labels(
    classifier: MultiLabelClassifier,
    batches: Batches,
    interval: float,
    output: str,
    chosen_format: options.FileFormat,
    *,
    quiet: bool,
    as_json: bool,
) -> None:
    """Writes predictions of several labels at once, and says how good each label is."""
    figures = labels.LabelFigures()
    with console.open_output(output) as stream:
        parts = labels.label_rows(classifier, batches, interval, console.shows_progress(quiet))
        rows = (console.Rows(part.records(), part.arrays) for part in figures.counting(parts))
        console.write_rows(stream, chosen_format, rows, class_names=batches.class_names)
        _require_some(figures.num_rows, batches)
    by_label = figures.by_label(batches.class_names)
    summary = {
        "output": output,
        "rows": figures.num_rows,
        "labelled": figures.num_labelled,
        "labels": by_label,
    }
    console.print_summary(
        summary,
        f"{console.output_name(output)}: {figures.num_rows} predictions of"
        f" {classifier.num_classes} labels{labels.figures_in_words(by_label)}",
        quiet=quiet,
        as_json=as_json,
        rows_on_stdout=output == options.STANDARD_STREAM,
    )


def _require_some(number: int, batches: Batches) -> None:
    if not number:
        raise InputError(
            f"{batches.source} needs at least one example; it has none. Is it empty, or used up?"
        )


def _score_names(text: str) -> list[str]:
    wanted = [name.strip() for name in text.split(",") if name.strip()]
    for name in wanted:
        if name not in options.SCORES:
            raise typer.BadParameter(
                f"'{name}' is not one of {', '.join(options.SCORES)}.", param_hint="--scores"
            )
    return wanted


def _predictions(
    classifier: lb.Classifier,
    batches: Batches,
    scores: list[str],
    interval: float,
    threshold: float | None,
    show: bool,
) -> Iterator[Predictions]:
    first_row = 0
    for index, batch in enumerate(tqdm(batches, desc="predicting", unit="batch", disable=not show)):
        parts = unpack_batch(batch)
        prediction = lb.check(_prediction(classifier, parts, index))
        dirichlet = prediction.dirichlet
        rows = range(first_row, first_row + len(prediction))
        if not rows:
            continue
        yield Predictions(
            dirichlet,
            None if parts.labels is None else _labels(parts.labels, dirichlet, index),
            scores={name: options.SCORES[name](dirichlet) for name in scores}
            | _unusual(prediction),
            interval=_interval_of_label(prediction, interval) if interval else None,
            sets=None if threshold is None else overlap_sets(dirichlet, threshold),
            class_names=batches.class_names,
            example_names=_names_of(batches.example_names, parts, rows),
            first_row=first_row,
        )
        first_row = rows.stop


def _prediction(classifier: lb.Classifier, parts: Batch, index: int) -> lb.Prediction:
    try:
        with torch.no_grad():
            return classifier(*parts.arguments, **parts.keywords).as_rows().to("cpu")
    except InputError as error:
        takes = (
            f" Its last layer takes {classifier.network.num_features} features, which are the"
            " inputs if there is no --model."
        )
        raise InputError(
            f"In batch {index} (counted from 0): {error}{takes if error.__cause__ else ''}"
        ) from error


def _labels(labels: Tensor, dirichlet: lb.Dirichlet, index: int) -> Tensor:
    """One class for each prediction, −100 where it is not known."""
    flat = flat_labels(labels, len(dirichlet), index).cpu()
    require_known_classes(flat[flat != IGNORED_LABEL], dirichlet.num_classes, index)
    return flat


def _unusual(prediction: lb.Prediction) -> dict[str, Tensor]:
    """How unusual inputs are, as far as the classifier knows."""
    if prediction.unusual is None:
        return {}
    known = {"ood_score": prediction.ood_score}
    if len(prediction.unusual.reference):
        known["ood_quantile"] = prediction.ood_quantile
    return known


def _interval_of_label(prediction: lb.Prediction, level: float) -> tuple[Tensor, Tensor]:
    """The interval for the probability of the predicted class."""
    lower, upper = prediction.interval(level)
    label = prediction.label.unsqueeze(-1)
    return lower.gather(-1, label).squeeze(-1), upper.gather(-1, label).squeeze(-1)


def _names_of(example_names: tuple[str, ...], parts: Batch, rows: range) -> tuple[str, ...]:
    """Names of files; none where a file has several rows, as pixels are."""
    one_each = bool(parts.arguments) and len(parts.arguments[0]) == len(rows)
    return example_names[rows.start : rows.stop] if one_each else ()


def _counted(parts: Iterable[Predictions], counts: "Counter[str]") -> Iterator[Predictions]:
    """The same, counted on their way for the summary: predictions, labels, and labels
    that were predicted.
    """
    for part in parts:
        counts["rows"] += len(part.dirichlet)
        if part.labels is not None:
            counts["labelled"] += int((part.labels != IGNORED_LABEL).sum())
            counts["correct"] += int(
                (part.dirichlet.log_concentration.argmax(-1) == part.labels).sum()
            )
        yield part
