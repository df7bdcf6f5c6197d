"""Saving and loading a fitted classifier: one safetensors file, no pickle, no training data.

The file holds the posterior of the head (weights, eigenvalues and eigenvectors, prior) and, as metadata, what it needs
to be recognised. The network itself is not in it: give it when loading.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from laplacebridge import bridges
from laplacebridge.classifier import Bridge, Classifier
from laplacebridge.errors import CheckpointError
from laplacebridge.laplace import posteriors
from laplacebridge.laplace.features import SplitNetwork
from laplacebridge.laplace.posterior import Posterior
from laplacebridge.laplace.prior import PriorChoice

FORMAT = "laplacebridge"
FORMAT_VERSION = 1

STRUCTURES: dict[str, type[Posterior]] = {
    kind.__name__: kind
    for kind in (
        posteriors.DiagPosterior,
        posteriors.KronPosterior,
        posteriors.MatrixNormalPosterior,
        posteriors.DiagKronPosterior,
        posteriors.FullPosterior,
    )
}
BRIDGES: dict[str, Callable[..., object]] = {
    bridge.__name__: bridge
    for bridge in (
        bridges.race_bridge,
        bridges.one_vs_rest_bridge,
        bridges.kl_bridge,
        bridges.delta_bridge,
        bridges.laplace_bridge,
        bridges.laplace_bridge_norm,
        bridges.laplace_bridge_raw,
    )
}


def save(classifier: Classifier, path: str | os.PathLike[str]) -> None:
    """Writes a classifier's posterior to a file, whole or not at all.

    A bridge that is not one of the library's is not stored: give it to `load`.

    Args:
        classifier: A fitted classifier.
        path: Where to write, usually with the suffix ``.safetensors``.

    Raises:
        CheckpointError: If its posterior is of a kind that `load` does not know.
    """
    structure = type(classifier.posterior).__name__
    if structure not in STRUCTURES:
        raise CheckpointError(f"`save` knows {', '.join(STRUCTURES)}; got a `{structure}`.")
    name = getattr(classifier.bridge, "__name__", "")
    known = BRIDGES.get(name) is classifier.bridge
    metadata = {
        "format": FORMAT,
        "version": str(FORMAT_VERSION),
        "structure": structure,
        "bridge": name if known else "",
        "num_classes": str(classifier.num_classes),
        "num_features": str(classifier.posterior.num_features),
        "head": classifier.network.head_name,
        "fingerprint": fingerprint(classifier.network.weight(), classifier.network.bias()),
        "log_likelihood": json.dumps(classifier.log_likelihood),
        "prior_method": classifier.choice.method,
    }
    tensors = {key: value.contiguous().cpu() for key, value in classifier.posterior.state_dict().items()}
    target = Path(path)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    os.close(handle)
    try:
        save_file(tensors, temporary, metadata=metadata)
        os.replace(temporary, target)  # in one step: a crash leaves the old file or the new one
    except BaseException:
        os.unlink(temporary)
        raise


def load(path: str | os.PathLike[str], model: nn.Module, *, bridge: Bridge | None = None) -> Classifier:
    """Reads a classifier, for the model that it was fitted to.

    Args:
        path: A file written by `save`.
        model: The same trained network; the posterior goes to its device.
        bridge: A bridge other than the stored one.

    Raises:
        CheckpointError: If the file is damaged, of another version, or of another model.
    """
    tensors, metadata = _read(Path(path))
    if metadata.get("format") != FORMAT:
        raise CheckpointError(f"{path} is a safetensors file, but not a classifier saved by `laplacebridge.save`.")
    if metadata.get("version") != str(FORMAT_VERSION):
        raise CheckpointError(
            f"{path} has format version {metadata.get('version')}; this laplacebridge reads version {FORMAT_VERSION}. "
            "Save it again with this version, or install the one that wrote it."
        )
    network = SplitNetwork(model, metadata["head"])
    found = fingerprint(network.weight(), network.bias())
    if found != metadata["fingerprint"]:
        shape = f"{network.weight().shape[1]} features and {network.weight().shape[0]} classes"
        raise CheckpointError(
            f"{path} belongs to another model: its head has {metadata['num_features']} features and "
            f"{metadata['num_classes']} classes and other weights than this one's, with {shape}. Load the weights that "
            "it was fitted to, or fit again."
        )
    chosen = bridge or BRIDGES.get(metadata["bridge"])
    if chosen is None:
        raise CheckpointError(f"{path} was saved with a bridge of its own; give it: `load(path, model, bridge=...)`.")
    posterior = STRUCTURES[metadata["structure"]].from_buffers(tensors).to(network.weight().device)
    choice = PriorChoice(float(posterior.prior_precision), metadata["prior_method"])
    return Classifier(
        network,
        posterior,
        bridge=chosen,  # type: ignore[arg-type]
        log_likelihood=json.loads(metadata["log_likelihood"]),
        choice=choice,
    )


def fingerprint(weight: Tensor, bias: Tensor | None) -> str:
    """A hash of the head's weights, the same on every device and in float32 and float64."""
    digest = hashlib.sha256()
    for tensor in (weight, bias):
        if tensor is not None:
            digest.update(str(tuple(tensor.shape)).encode())
            digest.update(tensor.detach().cpu().to(torch.float32).contiguous().numpy().tobytes())
    return digest.hexdigest()


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        with safe_open(path, framework="pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except FileNotFoundError:
        raise
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} cannot be read as a safetensors file: it is damaged, cut short or of another format ({error})."
        ) from error
