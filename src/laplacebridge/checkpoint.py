"""Saving and loading a fitted classifier: one safetensors file, no pickle, no training data.

The file holds the posterior (of the weights that it covers: their values, eigenvalues and eigenvectors, and the prior)
and, as metadata, what it needs to be recognised. The network itself is not in it: give it when loading.
"""

import hashlib
import json
import os
import stat
import uuid
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from laplacebridge import bridges
from laplacebridge.classifier import Bridge, Classifier
from laplacebridge.errors import CheckpointError
from laplacebridge.laplace import head_posteriors
from laplacebridge.laplace.head import HeadNetwork
from laplacebridge.laplace.layers.network import LinearisedNetwork
from laplacebridge.laplace.layers.posterior import FullNetworkPosterior, NetworkPosterior
from laplacebridge.laplace.layers.selection import SUPPORTED
from laplacebridge.laplace.posterior import HeadPosterior, Posterior
from laplacebridge.laplace.prior import PriorChoice

FORMAT = "laplacebridge"
FORMAT_VERSION = 1

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

    A file that is there already is replaced without asking, and keeps its permissions. A bridge that is not one of the
    library's is not stored: give it to `load`.

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
        raise CheckpointError(f"`save` knows {', '.join((*STRUCTURES, *NETWORK_STRUCTURES))}; got {given}.")
    name = getattr(classifier.bridge, "__name__", "")
    known = BRIDGES.get(name) is classifier.bridge
    metadata = {
        "format": FORMAT,
        "version": str(FORMAT_VERSION),
        "structure": structure,
        "bridge": name if known else "",
        "num_classes": str(classifier.num_classes),
        **_covered(classifier.network, classifier.posterior),
        "log_likelihood": json.dumps(classifier.log_likelihood),
        "prior_method": classifier.choice.method,
    }
    tensors = {key: value.contiguous().cpu() for key, value in classifier.posterior.state_dict().items()}
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    temporary.touch(exist_ok=False)  # with the permissions that a new file has here, which safetensors ignores
    try:
        permissions = stat.S_IMODE((target if target.exists() else temporary).stat().st_mode)
        save_file(tensors, temporary, metadata=metadata)
        temporary.chmod(permissions)
        os.replace(temporary, target)  # in one step: a crash leaves the old file or the new one
    except BaseException:
        os.unlink(temporary)
        raise


def load(path: str | os.PathLike[str], model: nn.Module, *, bridge: Bridge | None = None) -> Classifier:
    """Reads a classifier, for the model that it was fitted to.

    Its tensors stay in the file until they are needed: replace that file as `save` does, but do not write into it while
    the classifier is in use.

    Args:
        path: A file written by `save`.
        model: The same trained network; the posterior goes to its device.
        bridge: A bridge other than the stored one.

    Raises:
        CheckpointError: If the file is damaged, of another version, or of another model.

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
    tensors, metadata = _read(Path(path))
    if metadata.get("format") != FORMAT:
        raise CheckpointError(f"{path} is a safetensors file, but not a classifier saved by `laplacebridge.save`.")
    if metadata.get("version") != str(FORMAT_VERSION):
        raise CheckpointError(
            f"{path} has format version {metadata.get('version')}; this laplacebridge reads version {FORMAT_VERSION}. "
            "Save it again with this version, or install the one that wrote it."
        )
    network = _network(path, model, metadata)
    chosen = bridge or BRIDGES.get(metadata["bridge"])
    if chosen is None:
        raise CheckpointError(f"{path} was saved with a bridge of its own; give it: `load(path, model, bridge=...)`.")
    posterior = _posterior(tensors, metadata).to(network.device)
    choice = PriorChoice(float(posterior.prior_precision), metadata["prior_method"])
    return Classifier(
        network,
        posterior,
        bridge=chosen,  # type: ignore[arg-type]
        log_likelihood=json.loads(metadata["log_likelihood"]),
        choice=choice,
    )


def _covered(network: HeadNetwork | LinearisedNetwork, posterior: Posterior) -> dict[str, str]:
    """What a posterior covers, and how to recognise it."""
    if isinstance(network, HeadNetwork):
        return {
            "num_features": str(network.num_features),
            "head": network.head_name,
            "fingerprint": fingerprint(network.weight(), network.bias()),
        }
    assert isinstance(posterior, NetworkPosterior)  # noqa: S101
    return {
        "num_features": str(network.num_features),
        "head": network.layer_names[-1],
        "layers": json.dumps(network.layer_names),
        "block": type(posterior.blocks[0]).__name__,
        "fingerprint": _fingerprint_of_layers(network),
    }


def _fingerprint_of_layers(network: LinearisedNetwork) -> str:
    return fingerprint(*(tensor for layer in network.layers for tensor in (layer.weight(), layer.bias())))


def _network(
    path: str | os.PathLike[str], model: nn.Module, metadata: dict[str, str]
) -> HeadNetwork | LinearisedNetwork:
    """The model as the posterior needs it.

    Raises:
        CheckpointError: If it is not the one that the posterior was fitted to.
    """
    if "layers" in metadata:
        names = json.loads(metadata["layers"])
        supported = {name for name, module in model.named_modules() if isinstance(module, SUPPORTED)}
        missing = [name for name in names if name not in supported]
        if missing:
            raise CheckpointError(
                f"{path} belongs to another model: {type(model).__name__} has no linear layers or convolutions "
                f"{', '.join(map(repr, missing))}. Give the network that it was fitted to."
            )
        linearised = LinearisedNetwork(model, names)
        if _fingerprint_of_layers(linearised) != metadata["fingerprint"]:
            raise CheckpointError(
                f"{path} belongs to another model: its layers {', '.join(map(repr, names))} have other weights than "
                "those of this one. Load the weights that it was fitted to, or fit again."
            )
        return linearised
    network = HeadNetwork(model, metadata["head"])
    if fingerprint(network.weight(), network.bias()) != metadata["fingerprint"]:
        shape = f"{network.num_features} features and {network.weight().shape[0]} classes"
        raise CheckpointError(
            f"{path} belongs to another model: its head has {metadata['num_features']} features and "
            f"{metadata['num_classes']} classes and other weights than this one's, with {shape}. Load the weights that "
            "it was fitted to, or fit again."
        )
    return network


def _posterior(tensors: dict[str, Tensor], metadata: dict[str, str]) -> Posterior:
    if metadata["structure"] in STRUCTURES:
        return STRUCTURES[metadata["structure"]].from_buffers(tensors)
    kind = NETWORK_STRUCTURES[metadata["structure"]]
    return kind.from_buffers(tensors, STRUCTURES[metadata["block"]], int(metadata["num_classes"]))


def fingerprint(*tensors: Tensor | None) -> str:
    """A hash of weights, the same on every device and in float32 and float64."""
    digest = hashlib.sha256()
    for tensor in tensors:
        if tensor is not None:
            digest.update(str(tuple(tensor.shape)).encode())
            digest.update(tensor.detach().cpu().to(torch.float32).contiguous().numpy())  # type: ignore[arg-type]
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
