"""`laplacebridge predict`: class probabilities and how sure they are, for every example."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

import laplacebridge as lb
from laplacebridge.cli import loading, modules, names, options, outputs, sources
from laplacebridge.cli.prediction_files import FORMATS, format_of
from laplacebridge.cli.predictions import Interval, Predictions
from laplacebridge.errors import LaplaceBridgeError
from laplacebridge.laplace.batch import Batch, unpack_batch
from laplacebridge.laplace.fitting import IGNORED_LABEL
from laplacebridge.sets import overlap_sets

EXAMPLE = (
    "Example: laplacebridge predict classifier.safetensors images/ --model project.network:build --weights weights.pt "
    "--top 5 -o prediction.jsonl"
)
USUAL_SCORES = "msp,entropy_of_mean,expected_entropy,mutual_information"


def predict(
    classifier: Annotated[
        Path, typer.Argument(metavar="CLASSIFIER", help="What `laplacebridge fit` saved.", show_default=False)
    ],
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
        typer.Option(min=1, help="Only so many of the most probable classes.", rich_help_panel="Output"),
    ] = None,
    scores: Annotated[
        str,
        typer.Option(metavar="NAME,…", help=f"Scores to add: {', '.join(names.SCORES)}.", rich_help_panel="Output"),
    ] = USUAL_SCORES,
    interval: Annotated[
        float,
        typer.Option(
            min=0,
            max=0.9999,
            help="Mass of the interval for the probability of the predicted class; 0 leaves it out.",
            rich_help_panel="Output",
        ),
    ] = 0.95,
    threshold: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Add the set of classes that overlap the best one; 0.05 is usual.",
            rich_help_panel="Output",
        ),
    ] = None,
    output: options.RowsOption = outputs.STANDARD_STREAM,
    file_format: options.FormatOption = None,
    force: options.ForceOption = False,
    quiet: options.QuietOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Predict, for every example, class probabilities and how sure they are.

    Without a model or its head, the data are features of the network's last layer, which is in the classifier's file.
    """
    chosen_format = format_of(output, file_format)
    _require_text_for(top, chosen_format)
    outputs.require_rows_writable(output, force=force, binary=chosen_format == "npz")
    wanted = _score_names(scores)
    modules.require_file(classifier, "CLASSIFIER")
    reading = sources.Reading(batch_size, sources.class_names_from(classes), sources.preparation_of(size, mean, std))
    modules.seed_everything(seed)
    given = sources.data_from(data, reading)
    network = loading.network_for(classifier, model, weights, head_only, given)
    loaded = loading.load_classifier(classifier, network.to(modules.device_named(device)), bridge)
    sources.require_all_classes(given, reading, loaded.num_classes)
    batches = sources.Prepared(given, network, progress="predicting" if outputs.shows_progress(quiet) else "")
    tally = Tally()
    with outputs.opened_whole(output) as stream:
        predictions = _predictions(
            loaded, batches, wanted, interval, threshold, reading.class_names or given.class_names
        )
        FORMATS[chosen_format](stream, map(tally.counted, predictions), top=top)
        tally.require_some(given.source)
    outputs.say(
        tally.summary(output),
        tally.sentence(output),
        quiet=quiet,
        as_json=as_json,
        rows_on_stdout=output == outputs.STANDARD_STREAM,
    )


class Tally:
    """Counts of what was predicted, for the summary."""

    def __init__(self) -> None:
        self.rows = self.labelled = self.right = 0

    def counted(self, batch: Predictions) -> Predictions:
        """Counts a batch and hands it on.

        Args:
            batch: The batch.
        """
        self.rows += len(batch.dirichlet)
        if batch.labels is not None:
            has_label = batch.labels != IGNORED_LABEL
            self.labelled += int(has_label.sum())
            self.right += int((batch.dirichlet.mean.argmax(-1) == batch.labels)[has_label].sum())
        return batch

    def require_some(self, source: str) -> None:
        """Requires that there was something to predict.

        Args:
            source: Where it should have come from.

        Raises:
            LaplaceBridgeError: If there was not.
        """
        if self.rows == 0:
            raise LaplaceBridgeError(f"{source} needs at least one example; it has none. Is it empty, or used up?")

    def summary(self, output: str) -> dict[str, object]:
        """The counts.

        Args:
            output: Where the predictions went.
        """
        accuracy = self.right / self.labelled if self.labelled else None
        return {"output": output, "rows": self.rows, "labelled": self.labelled, "accuracy": accuracy}

    def sentence(self, output: str) -> str:
        """The counts for people.

        Args:
            output: Where the predictions went.
        """
        right = f", {self.right / self.labelled:.1%} of {self.labelled} labels right" if self.labelled else ""
        return f"{outputs.shown(output)}: {self.rows} predictions{right}"


def _require_text_for(top: int | None, chosen_format: str) -> None:
    if top is not None and chosen_format == "npz":
        raise typer.BadParameter("is for jsonl and csv; npz holds all classes.", param_hint="--top")


def _score_names(text: str) -> list[str]:
    wanted = [name.strip() for name in text.split(",") if name.strip()]
    for name in wanted:
        if name not in names.SCORES:
            raise typer.BadParameter(f"'{name}' is not one of {', '.join(names.SCORES)}.", param_hint="--scores")
    return wanted


def _predictions(
    classifier: lb.Classifier,
    batches: sources.Prepared,
    scores: list[str],
    interval: float,
    threshold: float | None,
    class_names: tuple[str, ...],
) -> Iterator[Predictions]:
    first_row = 0
    for index, batch in enumerate(batches):
        parts = unpack_batch(batch)
        dirichlet = lb.check(_answer(classifier, parts, index))
        if len(dirichlet) == 0:
            continue
        yield Predictions(
            dirichlet,
            None if parts.labels is None else _labels(parts.labels, dirichlet, index),
            scores={name: names.SCORES[name](dirichlet) for name in scores},
            interval=Interval.of_the_best_class(dirichlet, interval) if interval else None,
            sets=None if threshold is None else overlap_sets(dirichlet, threshold),
            class_names=class_names,
            example_names=_names_of(batches.data.example_names, parts, range(first_row, first_row + len(dirichlet))),
            first_row=first_row,
        )
        first_row += len(dirichlet)


def _names_of(example_names: tuple[str, ...], parts: Batch, rows: range) -> tuple[str, ...]:
    """Names of files; none where a file has several rows, as pixels are."""
    one_each = bool(parts.arguments) and len(parts.arguments[0]) == len(rows)
    return example_names[rows.start : rows.stop] if one_each else ()


def _answer(classifier: lb.Classifier, parts: Batch, index: int) -> lb.Dirichlet:
    try:
        with torch.no_grad():
            return classifier(*parts.arguments, **parts.keywords).to("cpu")
    except (RuntimeError, TypeError) as error:
        inputs = [*parts.arguments, *parts.keywords.values()]
        given = ", ".join(
            f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            for value in inputs
        )
        raise LaplaceBridgeError(
            f"The model could not run batch {index} (counted from 0), whose inputs are {given}: {error}. Its last "
            f"layer takes {classifier.network.num_features} features, which are the inputs if there is no --model."
        ) from error


def _labels(labels: Any, dirichlet: lb.Dirichlet, index: int) -> Tensor:  # noqa: ANN401
    found = torch.as_tensor(labels).flatten().cpu()
    if found.is_floating_point() or len(found) != len(dirichlet):
        raise LaplaceBridgeError(
            f"Batch {index} (counted from 0) needs one integer label for each of {len(dirichlet)} predictions; got "
            f"{found.dtype} of shape {tuple(torch.as_tensor(labels).shape)}."
        )
    outside = (found != IGNORED_LABEL) & ((found < 0) | (found >= dirichlet.num_classes))
    if outside.any():
        raise LaplaceBridgeError(
            f"Batch {index} (counted from 0) has the label {int(found[outside][0])}; the classifier has "
            f"{dirichlet.num_classes} classes, counted from 0. Are inputs and labels in the right order?"
        )
    return found.long()
