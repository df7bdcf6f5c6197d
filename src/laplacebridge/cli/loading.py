"""Saved classifiers from the command line, with the network or the head that they need."""

import json
from pathlib import Path

import typer
from torch import nn

import laplacebridge as lb
from laplacebridge.cli import modules, names, sources
from laplacebridge.cli.weights import HeadAlone, head_in_classifier, read_head, read_metadata
from laplacebridge.errors import CheckpointError, HeadNotFoundError


def network_for(
    classifier: Path, model: str | None, weights: Path | None, head_only: Path | None, data: sources.Data
) -> nn.Module:
    """The network of a saved classifier, or its head alone under the name that the classifier knows it by.

    Args:
        classifier: The saved classifier.
        model: ``package.module:factory``, if given.
        weights: Weights for it.
        head_only: A file with the head, if given; without either, the one in the classifier's file.
        data: What will be predicted.

    Raises:
        BadParameter: If the options contradict each other, or the data or the classifier need a network.
    """
    if model is not None and head_only is not None:
        raise typer.BadParameter("give a network or its last layer, not both.", param_hint="--model or --head-only")
    if model is not None:
        return modules.model_from(model, weights)
    if weights is not None:
        raise typer.BadParameter("belong to a --model.", param_hint="--weights")
    metadata = read_metadata(classifier)
    if "layers" in metadata:
        raise typer.BadParameter(
            f"{classifier} covers the layers {', '.join(json.loads(metadata['layers']))} and needs the whole network.",
            param_hint="--model",
        )
    name = metadata["head"]
    if data.holds == "inputs" and name and head_only is None:
        raise typer.BadParameter(
            f"{data.source} has inputs, which need the network: give --model. Only features can do without.",
            param_hint="DATA",
        )
    if head_only is not None:
        modules.require_file(head_only, "--head-only")
    head = head_in_classifier(classifier) if head_only is None else read_head(head_only)
    return HeadAlone(head, name) if name else head


def load_classifier(classifier: Path, network: nn.Module, bridge: str | None) -> lb.Classifier:
    """A saved classifier with its network.

    Args:
        classifier: The file.
        network: The network, or its head.
        bridge: Name of another bridge than the saved one.

    Raises:
        CheckpointError: If it belongs to another network.
    """
    try:
        return lb.load(classifier, network, bridge=names.BRIDGES[bridge] if bridge else None)
    except HeadNotFoundError as error:
        raise CheckpointError(f"{classifier} belongs to another model. {error}") from error
