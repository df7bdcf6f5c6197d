"""Saving and loading a fitted classifier: one safetensors file, no pickle, no training
data.

The file holds the posterior (of the weights that it covers: their values, eigenvalues
and eigenvectors, and the prior) and, as metadata, what it needs to be recognised. The
network itself is not in it: give it when loading.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from laplacebridge._files import read_safetensors, write_safetensors
from laplacebridge.bridges import BRIDGES, Bridge, name_of
from laplacebridge.classifier import Classifier
from laplacebridge.errors import CheckpointError, HeadNotFoundError
from laplacebridge.laplace import head_posteriors
from laplacebridge.laplace.head import HeadNetwork
from laplacebridge.laplace.label_statistics import LabelStatistics
from laplacebridge.laplace.layers.network import LinearisedNetwork
from laplacebridge.laplace.layers.posterior import FullNetworkPosterior, NetworkPosterior
from laplacebridge.laplace.layers.selection import SUPPORTED
from laplacebridge.laplace.network import Network
from laplacebridge.laplace.posterior import HeadPosterior, Posterior, Widening
from laplacebridge.laplace.prior import PriorChoice
from laplacebridge.laplace.width import Width

FORMAT = "laplacebridge"
FORMAT_VERSION = 2

STRUCTURES: dict[str, type[HeadPosterior]] = {
    kind.__name__: kind
    for kind in (
        head_posteriors.DiagPosterior,
        head_posteriors.KronPosterior,
        head_posteriors.MatrixNormalPosterior,
        head_posteriors.DiagKronPosterior,
        head_posteriors.FullPosterior,
    )
}
NETWORK_STRUCTURES: dict[str, type[NetworkPosterior]] = {
    kind.__name__: kind for kind in (NetworkPosterior, FullNetworkPosterior)
}


def save(classifier: Classifier, path: str | os.PathLike[str]) -> None:
    """Writes a classifier's posterior to a file, atomically.

    A file that is there already is replaced without asking, and keeps its permissions.
    A bridge that is not one of the library's is not stored: give it to `load`.

    Args:
        classifier: A fitted classifier.
        path: Where to write, usually with the suffix ``.safetensors``.

    Raises:
        CheckpointError: If its posterior is of a kind that `load` does not know.

    Example:
        >>> import tempfile
        >>> from laplacebridge import fit
        >>> model = nn.Linear(4, 3)
        >>> classifier = fit(model, [torch.eye(4)], prior_precision=1.0, progress=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(classifier, f"{folder}/classifier.safetensors")
        ...     again = load(f"{folder}/classifier.safetensors", model)
        >>> torch.equal(again(torch.eye(4)).mean, classifier(torch.eye(4)).mean)
        True
    """
    structure = type(classifier.posterior).__name__
    blocks = [type(block).__name__ for block in getattr(classifier.posterior, "blocks", ())]
    if structure not in {**STRUCTURES, **NETWORK_STRUCTURES} or not set(blocks) <= set(STRUCTURES):
        given = ", ".join(sorted({structure, *blocks}))
        raise CheckpointError(
            f"`save` knows {', '.join((*STRUCTURES, *NETWORK_STRUCTURES))}; got {given}."
        )
    block = {"block": blocks[0]} if blocks else {}
    metadata = {
        "format": FORMAT,
        "version": str(FORMAT_VERSION),
        "structure": structure,
        "bridge": name_of(classifier.bridge) or "",
        "num_classes": str(classifier.num_classes),
        **classifier.network.metadata(),
        **block,
        "labels": json.dumps(_described(classifier.labels)),
        "prior_method": classifier.prior_choice.method,
        "width": json.dumps(classifier.prior_choice.width),
    }
    write_safetensors(Path(path), classifier.posterior.state_dict(), metadata)


def load(
    path: str | os.PathLike[str], model: nn.Module | None = None, *, bridge: Bridge | None = None
) -> Classifier:
    """Reads a classifier, for the model that it was fitted to.

    Its tensors stay in the file until they are needed: replace that file as `save`
    does, but do not write into it while the classifier is in use.

    Args:
        path: A file written by `save`.
        model: The same trained network, or its head alone as an `nn.Linear`; the
            posterior goes to its device. Without it the classifier is that of the head
            in the file, and takes features.
        bridge: A bridge other than the stored one.

    Raises:
        CheckpointError: If the file is damaged, of another version, or of another
            model.

    Example:
        >>> import tempfile
        >>> from laplacebridge import fit
        >>> model = nn.Linear(4, 3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(fit(model, [torch.eye(4)], prior_precision=2.0, progress=False), f"{folder}/model.safetensors")
        ...     classifier = load(f"{folder}/model.safetensors", model)
        >>> classifier.posterior.prior_precision
        tensor(2., dtype=torch.float64)
    """
    return SavedClassifier.read(path).with_model(model, bridge=bridge)


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
        if metadata.get("version") != str(FORMAT_VERSION):
            raise CheckpointError(
                f"{path} has format version {metadata.get('version')}; this laplacebridge reads"
                f" version {FORMAT_VERSION}. Fit and save it again, or install the version that"
                " wrote it."
            )
        return cls(path, tensors, metadata)

    @property
    def layer_names(self) -> list[str]:
        """Layers that the posterior covers, if it covers more than the head."""
        names: list[str] = json.loads(self.metadata.get("layers", "[]"))
        return names

    @property
    def labels(self) -> LabelStatistics | None:
        """What the labels of the fit said, if there were any."""
        held = json.loads(self.metadata["labels"])
        return held and LabelStatistics(
            **held | {"class_counts": torch.tensor(held["class_counts"])}
        )

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
        self, model: nn.Module | None = None, *, bridge: Bridge | None = None
    ) -> Classifier:
        """The classifier of a network.

        Args:
            model: As for `load`.
            bridge: A bridge other than the stored one.

        Raises:
            CheckpointError: If the network is not the one that it was fitted to, or the
                bridge is not in the file.
        """
        network = self._network(self.head() if model is None else model)
        chosen = bridge or BRIDGES.get(self.metadata["bridge"])
        if chosen is None:
            raise CheckpointError(
                f"{self.path} was saved with a bridge of its own; give it: `load(path, model,"
                " bridge=...)`."
            )
        posterior = self._posterior().to(network.device)
        width = json.loads(self.metadata["width"])
        return Classifier(
            network,
            posterior,
            bridge=chosen,
            labels=self.labels,
            prior_choice=PriorChoice(
                float(posterior.prior_precision),
                self.metadata["prior_method"],
                float(posterior.temperature),
                width=width and Width(Widening(*width[0]), *width[1:]),
            ),
        )

    def _network(self, model: nn.Module) -> Network:
        """The model as the posterior needs it.

        Raises:
            CheckpointError: If it is not the one that the posterior was fitted to.
        """
        names = self.layer_names
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
                raise CheckpointError(
                    f"{self.path} belongs to another model: its layers"
                    f" {', '.join(map(repr, names))} have other weights than those of this one."
                    " Load the weights that it was fitted to, or fit again."
                )
            return linearised
        try:
            network = HeadNetwork(
                model, "" if isinstance(model, nn.Linear) else self.metadata["head"]
            )
        except HeadNotFoundError as error:
            raise CheckpointError(f"{self.path} belongs to another model. {error}") from error
        if network.metadata()["fingerprint"] != self.metadata["fingerprint"]:
            shape = f"{network.num_features} features and {network.weight().shape[0]} classes"
            raise CheckpointError(
                f"{self.path} belongs to another model: its head has"
                f" {self.metadata['num_features']} features and {self.metadata['num_classes']}"
                f" classes and other weights than this one's, with {shape}. Load the weights that"
                " it was fitted to, or fit again."
            )
        return network

    def _posterior(self) -> Posterior:
        structure = self.metadata["structure"]
        if structure in STRUCTURES:
            return STRUCTURES[structure].from_buffers(self.tensors)
        block, num_classes = STRUCTURES[self.metadata["block"]], int(self.metadata["num_classes"])
        return NETWORK_STRUCTURES[structure].from_buffers(self.tensors, block, num_classes)


def _described(labels: LabelStatistics | None) -> dict[str, object] | None:
    return (
        None if labels is None else asdict(labels) | {"class_counts": labels.class_counts.tolist()}
    )


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
