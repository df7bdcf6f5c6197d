"""Whether a network is the one that a saved classifier was fitted to."""

from typing import TYPE_CHECKING

import torch
from torch import nn

from laplacebridge._warnings import warn
from laplacebridge.checkpoint.layout import LOGIT_SCALE, OUTPUT, SHIFT_LABELS
from laplacebridge.errors import CheckpointError, HeadNotFoundError
from laplacebridge.laplace.batch import Output
from laplacebridge.laplace.head import HeadNetwork
from laplacebridge.laplace.layers.network import LinearisedNetwork
from laplacebridge.laplace.layers.selection import SUPPORTED
from laplacebridge.laplace.network import Network, fingerprint, name_in, network_fingerprint
from laplacebridge.laplace.posterior import Posterior

if TYPE_CHECKING:
    from laplacebridge.checkpoint.saved_classifier import SavedClassifier


class OtherWeightsError(CheckpointError):
    """The layers that a posterior was fitted to have other weights in this model."""


def network_for(saved: "SavedClassifier", model: nn.Module, output: Output | None) -> Network:
    """The model as the posterior needs it.

    Args:
        saved: What was opened.
        model: The model.
        output: Where its logits are, if not where the file says.

    Raises:
        CheckpointError: If it is not the one that the posterior was fitted to.
        OtherWeightsError: If only its weights are others.
    """
    names = [name_in(model, name) for name in saved.layer_names]
    if names:
        supported = {
            name for name, module in model.named_modules() if isinstance(module, SUPPORTED)
        }
        missing = [name for name in names if name not in supported]
        if missing:
            raise CheckpointError(
                f"{saved.path} belongs to another model: {type(model).__name__} has no linear"
                f" layers or convolutions {', '.join(map(repr, missing))}. Give the network"
                " that it was fitted to."
            )
        linearised = LinearisedNetwork(model, names)
        if linearised.metadata()["fingerprint"] != saved.metadata["fingerprint"]:
            raise OtherWeightsError(
                f"{saved.path} belongs to another model: its layers"
                f" {', '.join(map(repr, names))} have other weights than those of this one."
                " Load the weights that it was fitted to, or fit again."
            )
        return linearised
    try:
        network = HeadNetwork(
            model,
            "" if isinstance(model, nn.Linear) else name_in(model, saved.metadata["head"]),
            num_features=int(saved.metadata["num_features"]),
            output=output or saved.metadata.get(OUTPUT),
        )
    except HeadNotFoundError as error:
        raise CheckpointError(f"{saved.path} belongs to another model. {error}") from error
    if not isinstance(model, nn.Linear):  # of a head alone the features are given
        network.scale = float(saved.metadata.get(LOGIT_SCALE, 1))
    if network.metadata()["fingerprint"] != saved.metadata["fingerprint"]:
        shape = f"{network.num_features} features and {network.weight().shape[0]} classes"
        raise OtherWeightsError(
            f"{saved.path} belongs to another model: its head has"
            f" {saved.metadata['num_features']} features and {saved.metadata['num_classes']}"
            f" classes and other weights than this one's, with {shape}. Load the weights that"
            " it was fitted to, or fit again."
        )
    network.shift_labels = SHIFT_LABELS in saved.metadata
    return network


def require_weights(saved: "SavedClassifier", network: Network, posterior: Posterior) -> None:
    """Makes sure that the weights in the file are those whose fingerprint is beside
    them, which the model has.

    Args:
        saved: What was opened.
        network: The model as the posterior needs it.
        posterior: The posterior in the file.

    Raises:
        CheckpointError: If they are not.
    """
    if isinstance(network, LinearisedNetwork):
        parts = []
        for layer in network.layers:
            weight, bias = layer.weight(), layer.bias()
            parts.append(weight if bias is None else torch.cat([weight, bias.unsqueeze(-1)], -1))
        expected = torch.cat([part.flatten() for part in parts]).cpu().float()
        agree = torch.equal(posterior.trained().flatten().float(), expected)
    else:
        held = fingerprint(saved.tensors["weight"], saved.tensors.get("bias"))
        agree = held == saved.metadata["fingerprint"]
    if not agree:
        raise CheckpointError(
            f"{saved.path} is not a sound classifier: the weights in it are not those that its"
            " fingerprint says. Take a copy, or fit and save again."
        )


def compare_body(saved: "SavedClassifier", model: nn.Module, strict: bool) -> None:
    """Warns, or refuses, if the rest of the network is not as it was. A head alone
    has no rest.

    Args:
        saved: What was opened.
        model: The model.
        strict: Refuse it.

    Raises:
        CheckpointError: If it is to be refused.
    """
    if (
        isinstance(model, nn.Linear)
        or network_fingerprint(model) == saved.metadata["network_fingerprint"]
    ):
        return
    message = (
        f"{saved.path} was saved for a network with the same fitted weights, but other weights"
        " or buffers elsewhere: its features are not those that were fitted, and uncertainty"
        " may be wrong. Load the weights that it was saved with, or fit again."
    )
    if strict:
        raise CheckpointError(message)
    warn(message)
