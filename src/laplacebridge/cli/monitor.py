"""`laplacebridge monitor`: is a new batch of data like the one before?"""

from pathlib import Path
from typing import Annotated

import torch
import typer

from laplacebridge.classifier import Classifier
from laplacebridge.cli import console, options
from laplacebridge.cli.data import open_data, read_class_names
from laplacebridge.cli.models import load_classifier, seed_everything
from laplacebridge.cli.readers import Preparation
from laplacebridge.cli.report import NOT_MET
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.errors import InputError
from laplacebridge.laplace.batch import unpack_batch
from laplacebridge.prediction import Prediction
from laplacebridge.report.monitor import ALARM_RATE, DEFER_ABOVE, Baseline, Comparison, compare
from laplacebridge.unusual import Unusual

EXAMPLE = (
    "Example: laplacebridge monitor classifier.safetensors new.npz --model project.network:build"
    " --weights weights.pt --baseline baseline.json"
)


def monitor(
    classifier: options.ClassifierArgument,
    data: options.DataArgument,
    *,
    model: options.ModelOption = None,
    weights: options.WeightsOption = None,
    head_only: options.HeadOnlyOption = None,
    device: options.DeviceOption = "cpu",
    seed: options.SeedOption = 0,
    baseline: Annotated[
        Path | None,
        options.existing_file("Compare the data with this baseline.", rich_help_panel="Baseline"),
    ] = None,
    save_baseline: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Make a baseline of the data instead: data as they should be, not trained on.",
            rich_help_panel="Baseline",
        ),
    ] = None,
    alarm_rate: Annotated[
        float,
        options.share(
            "Share of unchanged batches for which an alarm may go off.", rich_help_panel="Baseline"
        ),
    ] = ALARM_RATE,
    defer_above: Annotated[
        float,
        options.share(
            "With --save-baseline: 1 − largest probability from which on an example counts"
            " as deferred.",
            rich_help_panel="Baseline",
        ),
    ] = DEFER_ABOVE,
    batch_size: options.BatchSizeOption = 256,
    classes: options.ClassesOption = None,
    size: options.SizeOption = None,
    mean: options.MeanOption = "0",
    std: options.StdOption = "1",
    force: options.ForceOption = False,
    quiet: options.QuietOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Compare a new batch with a baseline: scores of unusual inputs, confidence, share
    deferred, predicted classes. Exit code 3 if something has changed.

    Examples of both must be independent, and not trained on. Then at most the stated
    share of unchanged batches gives an alarm. It does not say that answers are worse.
    """
    if (baseline is None) == (save_baseline is None):
        raise typer.BadParameter(
            "give one of them: a baseline to compare with, or where to save a new one.",
            param_hint="--baseline or --save-baseline",
        )
    if save_baseline is not None:
        console.require_writable(save_baseline, force=force, option="--save-baseline")
    before = None if baseline is None else Baseline.load(baseline)
    seed_everything(seed)
    batches = open_data(
        data,
        batch_size=batch_size,
        class_names=read_class_names(classes),
        preparation=Preparation.of_options(size, mean, std),
    )
    loaded = load_classifier(
        classifier,
        batches,
        model=model,
        weights=weights,
        head_only=head_only,
        device=device,
        bridge=None,
    )
    prediction = _predicted(loaded, batches.prepared_for(loaded.network.model), data)
    if save_baseline is not None:
        Baseline.of(prediction, defer_above=defer_above).save(save_baseline)
        console.print_summary(
            {"baseline": str(save_baseline), "examples": len(prediction)},
            f"{save_baseline}: baseline of {len(prediction)} examples",
            quiet=quiet,
            as_json=as_json,
        )
        return
    assert before is not None  # noqa: S101  (one of them was given)
    found = compare(before, prediction, alarm_rate=alarm_rate, seed=seed)
    console.print_summary(found.to_dict(), _sentence(found), quiet=quiet, as_json=as_json)
    if found.is_alarm:
        raise typer.Exit(NOT_MET)


def _predicted(classifier: Classifier, batches: object, source: str) -> Prediction:
    """Predictions for all examples, labels unread."""
    parts = []
    with torch.no_grad():
        for batch in batches:  # type: ignore[attr-defined]
            given = unpack_batch(batch)
            parts.append(classifier(*given.arguments, **given.keywords).as_rows().to("cpu"))
    if not parts:
        raise InputError(f"{source} needs at least one example; it has none.")
    unusual = None
    if parts[0].unusual is not None:
        scored = torch.cat([part.ood_score for part in parts])
        unusual = Unusual(scored, parts[0].unusual.reference)
    return Prediction(
        Dirichlet(torch.cat([part.dirichlet.log_concentration for part in parts])),
        torch.cat([part.log_odds_variance for part in parts]),
        unusual,
    )


def _sentence(found: Comparison) -> str:
    head = (
        "ALARM: this batch is not like the baseline"
        if found.is_alarm
        else "No alarm: nothing shows that this batch differs from the baseline"
    )
    lines = [
        f"  {'!' if test.is_alarm else ' '} {test.name}: {test.before} before, {test.now} now"
        f" (p = {test.p_value:.2g})"
        for test in found.tests
    ]
    return "\n".join([f"{head} ({found.num_examples} examples).", *lines])
