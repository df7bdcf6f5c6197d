"""`laplacebridge fit`: a Laplace approximation of a trained network, of its last layer or of more, saved to a file."""

import warnings
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import nn

import laplacebridge as lb
from laplacebridge.cli import modules, names, options, outputs, sources
from laplacebridge.cli.training_accuracy import CountedBatches
from laplacebridge.cli.weights import read_head
from laplacebridge.laplace.batch import unpack_batch
from laplacebridge.laplace.curvature import readable_size
from laplacebridge.laplace.head import HeadNetwork
from laplacebridge.laplace.layers.network import LinearisedNetwork

EXAMPLE = (
    "Example: laplacebridge fit project.data:train_batches --model project.network:build --weights weights.pt "
    "-o classifier.safetensors"
)


def fit(
    data: options.DataArgument,
    *,
    model: options.ModelOption = None,
    weights: options.WeightsOption = None,
    head_only: options.HeadOnlyOption = None,
    head: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The last linear layer, if it is not found.", rich_help_panel="Model"),
    ] = None,
    device: options.DeviceOption = "cpu",
    seed: options.SeedOption = 0,
    curvature: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"{', '.join(names.CURVATURES)}; by default kron, above 4000 classes diag-kron. With --layers not "
            "diag-kron, and full for up to 5000 weights.",
            callback=names.one_of(names.CURVATURES),
            autocompletion=lambda: list(names.CURVATURES),
            rich_help_panel="Method",
        ),
    ] = None,
    layers: options.LayersOption = None,
    bridge: options.BridgeOption = "race",
    prior_precision: Annotated[
        float | None,
        typer.Option(
            help="If known; otherwise chosen by validation, or by evidence without it.", rich_help_panel="Method"
        ),
    ] = None,
    validation: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="Labelled data that the network was not trained on, to choose the prior precision by.",
            rich_help_panel="Method",
        ),
    ] = None,
    temperature: Annotated[
        bool,
        typer.Option(
            "--temperature",
            help="Choose a temperature of the logits too; needs --validation.",
            rich_help_panel="Method",
        ),
    ] = False,
    batch_size: options.BatchSizeOption = 256,
    classes: options.ClassesOption = None,
    size: options.SizeOption = None,
    mean: options.MeanOption = "0",
    std: options.StdOption = "1",
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="Where to save the classifier.", rich_help_panel="Output"),
    ],
    force: options.ForceOption = False,
    quiet: options.QuietOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Fit a Laplace approximation to the last layer of a trained network, or to more: one pass over training data."""
    outputs.require_writable(output, force=force, is_file=True)
    _require_a_way_to_choose(prior_precision, validation, temperature, data)
    _require_one_choice(head, layers)
    reading = sources.Reading(batch_size, sources.class_names_from(classes), sources.preparation_of(size, mean, std))
    modules.seed_everything(seed)
    network = _network(model, weights, head_only).to(modules.device_named(device))
    training = sources.data_from(data, reading)
    held_out = None if validation is None else sources.data_from(validation, reading, option="--validation")
    chosen_by_evidence = prior_precision is None and held_out is None
    show = outputs.shows_progress(quiet)
    train_batches = sources.Prepared(
        training,
        network,
        progress="fitting" if show else "",
        labels_for="to choose the prior precision (or give --prior-precision or --validation)"
        if chosen_by_evidence
        else "",
    )
    val_batches = None
    if held_out is not None:
        val_batches = sources.Prepared(
            held_out, network, progress="validating" if show else "", labels_for="to choose the prior precision by"
        )
    counted = CountedBatches(train_batches, network)
    classifier = lb.fit(
        network,
        counted,
        curvature=names.CURVATURES[curvature] if curvature else None,
        prior_precision=prior_precision,
        val_loader=val_batches,
        bridge=names.BRIDGES[bridge or "race"],
        head=head,
        layers=layers or None,
        temperature=temperature,
        progress=False,  # the batches draw their own, on standard error
    )
    for given in (training, held_out):
        sources.require_all_classes(given, reading, classifier.num_classes)
    _check(classifier, train_batches.first)
    outputs.save_classifier(classifier, output)
    _warn_if_untrained(counted, has_weights=weights is not None or head_only is not None)
    summary = _summary(classifier, output) | {"training_accuracy": counted.accuracy}
    outputs.say(summary, _sentence(summary), quiet=quiet, as_json=as_json)


def _require_a_way_to_choose(
    prior_precision: float | None, validation: str | None, temperature: bool, data: str
) -> None:
    if prior_precision is not None and not prior_precision > 0:
        raise typer.BadParameter(f"needs a positive number; got {prior_precision}.", param_hint="--prior-precision")
    if temperature and (validation is None or prior_precision is not None):
        raise typer.BadParameter(
            "is chosen together with the prior precision on --validation data, without --prior-precision.",
            param_hint="--temperature",
        )
    if validation == data == outputs.STANDARD_STREAM:
        raise typer.BadParameter("standard input cannot be read twice.", param_hint="--validation")


def _require_one_choice(head: str | None, layers: list[str] | None) -> None:
    if head is not None and layers:
        raise typer.BadParameter("give the last layer or a choice of layers.", param_hint="--head or --layers")


def _network(model: str | None, weights: Path | None, head_only: Path | None) -> nn.Module:
    if (model is None) == (head_only is None):
        raise typer.BadParameter("give either a network or its last layer alone.", param_hint="--model or --head-only")
    if head_only is None:
        assert model is not None  # noqa: S101
        return modules.model_from(model, weights)
    if weights is not None:
        raise typer.BadParameter("belong to a --model.", param_hint="--weights")
    modules.require_file(head_only, "--head-only")
    return read_head(head_only)


def _warn_if_untrained(counted: CountedBatches, *, has_weights: bool) -> None:
    if counted.is_near_chance():
        advice = (
            "Are these the weights of this network, and the labels those of these inputs?"
            if has_weights
            else "Is the network trained? Without --weights it is as its factory returns it."
        )
        warnings.warn(
            f"The network gets {counted.accuracy:.1%} of the training labels right, hardly more than the "
            f"{counted.commonest:.1%} of always answering the commonest class. {advice}",
            stacklevel=2,
        )


def _check(classifier: lb.Classifier, batch: Any) -> None:  # noqa: ANN401
    """Makes sure that what is saved answers with valid numbers."""
    parts = unpack_batch(batch)
    with torch.no_grad():
        gaussian = lb.check(classifier.logits(*parts.arguments, **parts.keywords))
        lb.check(classifier.bridge(gaussian))


def _summary(classifier: lb.Classifier, output: Path) -> dict[str, Any]:
    posterior = classifier.posterior
    return {
        "classifier": str(output),
        "bytes": output.stat().st_size,
        **_covered(classifier.network),
        "classes": classifier.num_classes,
        "posterior": type(posterior).__name__,
        "bridge": names.name_of(classifier.bridge, names.BRIDGES),
        "prior_precision": float(posterior.prior_precision),
        "prior_chosen_by": classifier.prior_choice.method,
        "temperature": float(posterior.temperature),
        "log_evidence": None if classifier.log_likelihood is None else classifier.evidence(),
    }


def _covered(network: HeadNetwork | LinearisedNetwork) -> dict[str, Any]:
    if isinstance(network, HeadNetwork):
        return {"head": network.head_name, "features": network.num_features}
    return {"layers": list(network.layer_names), "weights": network.num_parameters}


def _sentence(summary: dict[str, Any]) -> str:
    heat = f", temperature {summary['temperature']:.3g}" if summary["temperature"] != 1 else ""
    if "layers" in summary:
        covered = f"{len(summary['layers'])} layers with {summary['weights']} weights"
    else:
        covered = f"{summary['features']} features"
    accuracy = summary["training_accuracy"]
    right = "" if accuracy is None else f", training accuracy {accuracy:.1%}"
    return (
        f"{summary['classifier']}: {covered}, {summary['classes']} classes{right}, "
        f"{summary['posterior']}, prior precision {summary['prior_precision']:.3g} "
        f"({summary['prior_chosen_by']}){heat}, {summary['bridge']} bridge, {readable_size(summary['bytes'])}"
    )
