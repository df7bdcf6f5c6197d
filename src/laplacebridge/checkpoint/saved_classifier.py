"""A classifier in a file that was opened: checked as a whole, and joined with its
network.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from laplacebridge._files import checksum, read_safetensors
from laplacebridge.bridges import BRIDGES, Bridge
from laplacebridge.checkpoint.entries import labels_from, width_from
from laplacebridge.checkpoint.layout import (
    CHECKSUM,
    FORMAT,
    MULTI_LABEL,
    OF_LABELS,
    POLICY,
    UNUSUAL_HEAD,
    apart,
)
from laplacebridge.checkpoint.layout_checks import require_layout, require_version
from laplacebridge.checkpoint.matching import compare_body, network_for, require_weights
from laplacebridge.classifier import Classifier
from laplacebridge.errors import CheckpointError
from laplacebridge.laplace import head_posteriors
from laplacebridge.laplace.batch import Output
from laplacebridge.laplace.head import HeadNetwork
from laplacebridge.laplace.head_posteriors.base import HeadPosterior
from laplacebridge.laplace.label_statistics import LabelStatistics
from laplacebridge.laplace.layers.posterior import FullNetworkPosterior, NetworkPosterior
from laplacebridge.laplace.network import Network, name_in
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
        network = network_for(self, self.head() if model is None else model, output)
        chosen = bridge or BRIDGES.get(self.metadata["bridge"])
        if chosen is None and self.metadata.get(MULTI_LABEL) == OF_LABELS:
            chosen = logistic_bridge
        if chosen is None:
            raise CheckpointError(
                f"{self.path} was saved with a bridge of its own; give it: `load(path, model,"
                " bridge=...)`."
            )
        posterior = self._posterior()
        require_weights(self, network, posterior)
        compare_body(self, network.model, strict)
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
