"""A classifier in a file that was opened: checked as a whole, and joined with its network."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from laplacebridge._files import checksum, read_safetensors
from laplacebridge._warnings import warn
from laplacebridge.bridges import BRIDGES, Bridge
from laplacebridge.checkpoint.entries import labels_from, width_from
from laplacebridge.checkpoint.layout import (
    CHECKSUM,
    FORMAT,
    LOGIT_SCALE,
    MULTI_LABEL,
    OF_LABELS,
    OUTPUT,
    POLICY,
    SHIFT_LABELS,
    UNUSUAL_HEAD,
    apart,
)
from laplacebridge.checkpoint.layout_checks import require_layout, require_version
from laplacebridge.classifier import Classifier
from laplacebridge.errors import CheckpointError, HeadNotFoundError
from laplacebridge.laplace import head_posteriors
from laplacebridge.laplace.batch import Output
from laplacebridge.laplace.head import HeadNetwork
from laplacebridge.laplace.head_posteriors.base import HeadPosterior
from laplacebridge.laplace.label_statistics import LabelStatistics
from laplacebridge.laplace.layers.network import LinearisedNetwork
from laplacebridge.laplace.layers.posterior import FullNetworkPosterior, NetworkPosterior
from laplacebridge.laplace.layers.selection import SUPPORTED
from laplacebridge.laplace.network import Network, fingerprint, name_in, network_fingerprint
from laplacebridge.laplace.posterior import Posterior
from laplacebridge.laplace.prior import PriorChoice
from laplacebridge.laplace.unusual import UnusualScore
from laplacebridge.multi_label.classifier import MultiLabelClassifier
from laplacebridge.multi_label.logistic import logistic_bridge
from laplacebridge.selective.policy import Policy

STRUCTURES: dict[str, type[HeadPosterior]] = {
    kind.__name__: kind
    for kind in (
        head_posteriors.DiagPosterior,
        head_posteriors.KronPosterior,
        head_posteriors.MatrixNormalPosterior,
        head_posteriors.DiagKronPosterior,
        head_posteriors.FullPosterior,
        head_posteriors.LabelBlocksPosterior,
    )
}


NETWORK_STRUCTURES: dict[str, type[NetworkPosterior]] = {
    kind.__name__: kind for kind in (NetworkPosterior, FullNetworkPosterior)
}


class OtherWeightsError(CheckpointError):
    """The layers that a posterior was fitted to have other weights in this model."""


@dataclass(frozen=True, eq=False)
class SavedClassifier:
    """A classifier in a file that was opened, without its network.

    Attributes:
        path: The file.
        tensors: Of the posterior.
        metadata: What the file says about them.
    """

    path: str | os.PathLike[str]
    tensors: dict[str, Tensor]
    metadata: dict[str, str]

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "SavedClassifier":
        """Opens a file written by `save`, once.

        Args:
            path: The file.

        Raises:
            CheckpointError: If it is damaged, of another format or of another version.
        """
        tensors, metadata = read_safetensors(Path(path))
        if metadata.get("format") != FORMAT:
            raise CheckpointError(
                f"{path} is a safetensors file, but not a classifier saved by `laplacebridge.save`."
            )
        require_version(path, metadata.get("version", ""))
        claimed = metadata.get(CHECKSUM)
        described = {name: text for name, text in metadata.items() if name != CHECKSUM}
        if claimed != checksum(tensors, described):
            raise CheckpointError(
                f"{path} is damaged: its contents do not have the checksum that was stored with"
                " them. Take a copy, or fit and save again."
            )
        require_layout(path, tensors, metadata)
        return cls(path, tensors, metadata)

    @property
    def layer_names(self) -> list[str]:
        """Layers that the posterior covers, if it covers more than the head."""
        names: list[str] = json.loads(self.metadata.get("layers", "[]"))
        return names

    @property
    def labels(self) -> LabelStatistics | None:
        """What the labels of the fit said, if there were any."""
        return labels_from(self.metadata["labels"])

    @property
    def policy(self) -> Policy | None:
        """What is done with predictions, if that is in the file."""
        text = self.metadata.get(POLICY)
        return None if text is None else Policy.from_text(text)

    def head(self) -> nn.Linear:
        """The head that the classifier was fitted to, which is in the file.

        Raises:
            CheckpointError: If the posterior covers more layers, which need the whole
                network.
        """
        if self.layer_names:
            raise CheckpointError(
                f"{self.path} covers the layers {', '.join(self.layer_names)} and needs the whole"
                " network: give the model."
            )
        weight, bias = self.tensors["weight"], self.tensors.get("bias")
        return linear_layer(weight, bias)

    def with_model(
        self,
        model: nn.Module | None = None,
        *,
        bridge: Bridge | None = None,
        strict: bool = False,
        output: Output | None = None,
    ) -> Classifier:
        """The classifier of a network.

        Args:
            model: As for `load`.
            bridge: A bridge other than the stored one.
            strict: As for `load`.
            output: As for `load`.

        Raises:
            CheckpointError: If the network is not the one that it was fitted to, or the
                bridge is not in the file.
        """
        network = self._network(self.head() if model is None else model, output)
        chosen = bridge or BRIDGES.get(self.metadata["bridge"])
        if chosen is None and self.metadata.get(MULTI_LABEL) == OF_LABELS:
            chosen = logistic_bridge
        if chosen is None:
            raise CheckpointError(
                f"{self.path} was saved with a bridge of its own; give it: `load(path, model,"
                " bridge=...)`."
            )
        posterior = self._posterior()
        self._require_weights(network, posterior)
        self._compare_body(network.model, strict)
        posterior = posterior.to(network.device)
        kind = MultiLabelClassifier if MULTI_LABEL in self.metadata else Classifier
        return kind(
            network,
            posterior,
            bridge=chosen,
            labels=self.labels,
            prior_choice=PriorChoice(
                float(posterior.prior_precision),
                self.metadata["prior_method"],
                float(posterior.temperature),
                width=width_from(self.metadata["width"]),
            ),
            unusual=self._unusual(network),
            policy=self.policy,
        )

    def _unusual(self, network: Network) -> UnusualScore | None:
        _, held = apart(self.tensors)
        if not held:
            return None
        head = network.head_name if isinstance(network, HeadNetwork) else None
        stored = name_in(network.model, self.metadata[UNUSUAL_HEAD])
        return UnusualScore.from_buffers(held, stored if head is None else head).to(network.device)

    def _network(self, model: nn.Module, output: Output | None = None) -> Network:
        """The model as the posterior needs it.

        Raises:
            CheckpointError: If it is not the one that the posterior was fitted to.
            OtherWeightsError: If only its weights are others.
        """
        names = [name_in(model, name) for name in self.layer_names]
        if names:
            supported = {
                name for name, module in model.named_modules() if isinstance(module, SUPPORTED)
            }
            missing = [name for name in names if name not in supported]
            if missing:
                raise CheckpointError(
                    f"{self.path} belongs to another model: {type(model).__name__} has no linear"
                    f" layers or convolutions {', '.join(map(repr, missing))}. Give the network"
                    " that it was fitted to."
                )
            linearised = LinearisedNetwork(model, names)
            if linearised.metadata()["fingerprint"] != self.metadata["fingerprint"]:
                raise OtherWeightsError(
                    f"{self.path} belongs to another model: its layers"
                    f" {', '.join(map(repr, names))} have other weights than those of this one."
                    " Load the weights that it was fitted to, or fit again."
                )
            return linearised
        try:
            network = HeadNetwork(
                model,
                "" if isinstance(model, nn.Linear) else name_in(model, self.metadata["head"]),
                num_features=int(self.metadata["num_features"]),
                output=output or self.metadata.get(OUTPUT),
            )
        except HeadNotFoundError as error:
            raise CheckpointError(f"{self.path} belongs to another model. {error}") from error
        if not isinstance(model, nn.Linear):  # of a head alone the features are given
            network.scale = float(self.metadata.get(LOGIT_SCALE, 1))
        if network.metadata()["fingerprint"] != self.metadata["fingerprint"]:
            shape = f"{network.num_features} features and {network.weight().shape[0]} classes"
            raise OtherWeightsError(
                f"{self.path} belongs to another model: its head has"
                f" {self.metadata['num_features']} features and {self.metadata['num_classes']}"
                f" classes and other weights than this one's, with {shape}. Load the weights that"
                " it was fitted to, or fit again."
            )
        network.shift_labels = SHIFT_LABELS in self.metadata
        return network

    def _require_weights(self, network: Network, posterior: Posterior) -> None:
        """Makes sure that the weights in the file are those whose fingerprint is beside
        them, which the model has.

        Raises:
            CheckpointError: If they are not.
        """
        if isinstance(network, LinearisedNetwork):
            parts = []
            for layer in network.layers:
                weight, bias = layer.weight(), layer.bias()
                parts.append(
                    weight if bias is None else torch.cat([weight, bias.unsqueeze(-1)], -1)
                )
            expected = torch.cat([part.flatten() for part in parts]).cpu().float()
            agree = torch.equal(posterior.trained().flatten().float(), expected)
        else:
            held = fingerprint(self.tensors["weight"], self.tensors.get("bias"))
            agree = held == self.metadata["fingerprint"]
        if not agree:
            raise CheckpointError(
                f"{self.path} is not a sound classifier: the weights in it are not those that its"
                " fingerprint says. Take a copy, or fit and save again."
            )

    def _compare_body(self, model: nn.Module, strict: bool) -> None:
        """Warns, or refuses, if the rest of the network is not as it was. A head alone
        has no rest.

        Raises:
            CheckpointError: If it is to be refused.
        """
        if (
            isinstance(model, nn.Linear)
            or network_fingerprint(model) == self.metadata["network_fingerprint"]
        ):
            return
        message = (
            f"{self.path} was saved for a network with the same fitted weights, but other weights"
            " or buffers elsewhere: its features are not those that were fitted, and uncertainty"
            " may be wrong. Load the weights that it was saved with, or fit again."
        )
        if strict:
            raise CheckpointError(message)
        warn(message)

    def _posterior(self) -> Posterior:
        structure = self.metadata["structure"]
        tensors, _ = apart(self.tensors)
        if structure in STRUCTURES:
            posterior = STRUCTURES[structure].from_buffers(tensors)
            return posterior.of_labels() if MULTI_LABEL in self.metadata else posterior
        block, num_classes = STRUCTURES[self.metadata["block"]], int(self.metadata["num_classes"])
        return NETWORK_STRUCTURES[structure].from_buffers(tensors, block, num_classes)


def linear_layer(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """A linear layer with given weights.

    Args:
        weight: Shape (K, D).
        bias: Shape (K,), or None.
    """
    num_classes, num_features = weight.shape
    layer = nn.Linear(
        num_features, num_classes, bias=bias is not None, dtype=weight.dtype, device="meta"
    )
    layer.weight = nn.Parameter(weight)
    if bias is not None:
        layer.bias = nn.Parameter(bias)
    return layer
