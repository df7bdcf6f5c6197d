"""`laplacebridge fit`: a Laplace approximation of a trained network, of its last layer
or of more, saved to a file.
"""

from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

import laplacebridge as lb
from laplacebridge.bridges import BRIDGES
from laplacebridge.cli import console, onnx_models, options, project_file
from laplacebridge.cli.data import open_data, read_class_names
from laplacebridge.cli.fitted import print_fitted
from laplacebridge.cli.models import network_to_fit, seed_everything
from laplacebridge.cli.readers import Preparation
from laplacebridge.laplace.curvature import Curvature

EXAMPLE = (
    "Example: laplacebridge fit project.data:train_batches --model project.network:build --weights"
    " weights.pt -o classifier.safetensors"
)
CURVATURES: dict[str, type[Curvature]] = {
    "diag": lb.laplace.Diag,
    "kron": lb.laplace.Kron,
    "diag-kron": lb.laplace.DiagKron,
    "full": lb.laplace.Full,
}
CurvatureName = Enum("CurvatureName", {name: name for name in CURVATURES})  # type: ignore[misc]


def fit(
    data: options.DataArgument,
    data_of_onnx: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA_OF_ONNX",
            help=(
                "Training data of an ONNX model, if the first argument is one: fit model.onnx"
                " train.npz, arrays named as its inputs, and `labels`."
            ),
            show_default=False,
        ),
    ] = None,
    *,
    model: options.ModelOption = None,
    weights: options.WeightsOption = None,
    head_only: options.HeadOnlyOption = None,
    head: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The last linear layer, if it is not found; of an ONNX model, its output.",
            rich_help_panel="Model",
        ),
    ] = None,
    device: options.DeviceOption = "cpu",
    seed: options.SeedOption = 0,
    curvature: Annotated[
        CurvatureName | None,
        typer.Option(
            help=(
                "Structure of the curvature; by default kron, from 1000 classes on diag-kron. With"
                " --layers not "
                "diag-kron, and full for up to 5000 weights."
            ),
            rich_help_panel="Method",
        ),
    ] = None,
    multi_label: Annotated[
        bool,
        typer.Option(
            "--multi-label",
            help=(
                "Labels are yes-or-no questions, of which any number may apply: ones and zeros, a"
                " column for each (`labels` of an .npz file; columns label_… of a table)."
            ),
            rich_help_panel="Method",
        ),
    ] = False,
    layers: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help=(
                "Cover these linear layers and convolutions instead of the last layer alone: * for"
                " all, features.* "
                "for a part; may be given several times."
            ),
            rich_help_panel="Method",
        ),
    ] = None,
    bridge: options.BridgeOption = None,
    prior_precision: options.PriorPrecisionOption = None,
    validation: options.HeldOutOption = None,
    tune_temperature: Annotated[
        bool,
        typer.Option(
            "--tune-temperature",
            help=(
                "Choose prior precision and temperature together by the likelihood of the labels of"
                " --validation, for "
                "comparison: means are good then, intervals are not."
            ),
            rich_help_panel="Method",
        ),
    ] = False,
    temperature: Annotated[bool, options.renamed("--tune-temperature")] = False,
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER/COUNT",
            help=(
                "Only sum over every COUNT-th batch, for `laplacebridge merge`: 3/16 is the third"
                " of 16 parts, which may run on 16 machines."
            ),
            rich_help_panel="Data",
        ),
    ] = None,
    batch_size: options.BatchSizeOption = 256,
    classes: options.ClassesOption = None,
    size: options.SizeOption = None,
    mean: options.MeanOption = "0",
    std: options.StdOption = "1",
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where to save the classifier; as .onnx, an ONNX model with its uncertainty.",
            rich_help_panel="Output",
        ),
    ],
    force: options.ForceOption = False,
    quiet: options.QuietOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Fit a Laplace approximation to the last layer of a trained network, or to more:
    one pass over training data.
    """
    named = project_file.output_option("fit", output)
    console.require_writable(output, force=force, is_file=True, option=named)
    if data.endswith(onnx_models.SUFFIX):
        _require_plain(
            model=model,
            weights=weights,
            head_only=head_only,
            layers=layers,
            shard=shard,
            multi_label=multi_label,
        )
        fitted = onnx_models.fit_onnx(
            Path(data),
            data_of_onnx,
            validation=validation,
            output=head,
            batch_size=batch_size,
            curvature=CURVATURES[curvature.value] if curvature else None,
            prior_precision=prior_precision,
            tune_temperature=tune_temperature,
            bridge=BRIDGES[bridge.value] if bridge else lb.race_bridge,
            progress=console.shows_progress(quiet),
        )
        if output.suffix == onnx_models.SUFFIX:
            fitted.write(output, class_names=read_class_names(classes))
        else:
            lb.save(fitted.classifier, output)
        print_fitted(fitted.classifier, output, fitted.head, quiet=quiet, as_json=as_json)
        return
    if data_of_onnx is not None:
        raise typer.BadParameter(
            f"'{data}' is no .onnx model, and the only data.", param_hint="DATA"
        )
    _require_consistent(data, validation, prior_precision, tune_temperature, head, layers)
    part = _shard_of(shard, validation, prior_precision, tune_temperature, layers)
    if multi_label and (shard or layers):
        raise typer.BadParameter(
            f"fits the last layer in one go; leave out {'--shard' if shard else '--layers'}.",
            param_hint="--multi-label",
        )
    class_names = read_class_names(classes)
    seed_everything(seed)
    network = network_to_fit(model, weights, head_only, device)
    preparation = Preparation.of_options(size, mean, std)
    read = partial(
        open_data, batch_size=batch_size, class_names=class_names, preparation=preparation
    )
    training, held_out = read(data), None
    by_evidence = prior_precision is None and validation is None
    needed = (
        "to choose the prior precision (or give --prior-precision or --validation)"
        if by_evidence and part is None
        else ""
    )
    training.prepared_for(network, labels_for=needed)
    if validation is not None:
        held_out = read(validation, option="--validation")
        held_out.prepared_for(
            network, labels_for="to choose temperature and width of predictions by"
        )
        held_out.require_same_classes(training)
    if part is not None:
        training.shard(*part)
        sums = lb.partial(
            network,
            training,
            curvature=CURVATURES[curvature.value] if curvature else None,
            head=head,
            shard=shard,
            progress=console.shows_progress(quiet),
        )
        sums.save(output)
        console.print_summary(
            {"sums": str(output), "shard": shard, "examples": sums.num_examples},
            f"{output}: sums over {sums.num_examples} examples, shard {shard}",
            quiet=quiet,
            as_json=as_json,
        )
        return
    classifier = lb.fit(
        network,
        training,
        val_loader=held_out,
        curvature=CURVATURES[curvature.value] if curvature else None,
        prior_precision=prior_precision,
        tune_temperature=tune_temperature,
        bridge=BRIDGES[bridge.value] if bridge else None,
        head=head,
        multi_label=True if multi_label else None,
        layers=layers or None,
        progress=console.shows_progress(quiet),
    )
    for batches in (training, *(() if held_out is None else (held_out,))):
        batches.require_classes(classifier.num_classes, were_given=bool(class_names))
    lb.save(classifier, output)
    print_fitted(classifier, output, quiet=quiet, as_json=as_json)


def _shard_of(text: str | None, *others: object) -> tuple[int, int] | None:
    """Which shard ``3/16`` is."""
    if text is None:
        return None
    number, slash, count = text.partition("/")
    known = slash and number.isdecimal() and count.isdecimal()
    if not known or not 1 <= int(number) <= int(count):
        raise typer.BadParameter(
            f"is written NUMBER/COUNT, counted from 1, as 3/16; got '{text}'.", param_hint="--shard"
        )
    if any(others):
        raise typer.BadParameter(
            "gives sums of the last layer: leave out --layers, and give --validation,"
            " --prior-precision and --tune-temperature to `laplacebridge merge`.",
            param_hint="--shard",
        )
    return int(number), int(count)


def _require_plain(**given: object) -> None:
    """Refuses options of torch networks beside an ONNX model."""
    for name, value in given.items():
        if value:
            raise typer.BadParameter(
                "is for torch networks; an ONNX model is complete.",
                param_hint=f"--{name.replace('_', '-')}",
            )


def _require_consistent(
    data: str,
    validation: str | None,
    prior_precision: float | None,
    tune_temperature: bool,
    head: str | None,
    layers: list[str] | None,
) -> None:
    """Refuses options that contradict each other, before any work is done."""
    if prior_precision is not None and not prior_precision > 0:
        raise typer.BadParameter(
            f"needs a positive number; got {prior_precision}.", param_hint="--prior-precision"
        )
    if tune_temperature and (validation is None or prior_precision is not None):
        raise typer.BadParameter(
            "chooses the temperature together with the prior precision on --validation data,"
            " without --prior-precision.",
            param_hint="--tune-temperature",
        )
    if validation == data == options.STANDARD_STREAM:
        raise typer.BadParameter("standard input cannot be read twice.", param_hint="--validation")
    if head is not None and layers:
        raise typer.BadParameter(
            "give the last layer or a choice of layers.", param_hint="--head or --layers"
        )
