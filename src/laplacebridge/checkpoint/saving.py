"""Saving and loading a fitted classifier: one safetensors file, no pickle, no training
data.

The file holds the posterior (of the weights that it covers: their values, eigenvalues
and eigenvectors, and the prior), class means and covariances of features for the score
of unusual inputs unless they were left out, and, as metadata, what it needs to be
recognised. The network itself is not in it: give it when loading. A checksum covers all
of it, and `layout.py` says what it must hold.
"""

import json
import os
from pathlib import Path

from torch import nn

from laplacebridge._files import checksum, write_safetensors
from laplacebridge.bridges import Bridge, name_of
from laplacebridge.checkpoint.entries import described_labels
from laplacebridge.checkpoint.layout import (
    CHECKSUM,
    FORMAT,
    FORMAT_VERSION,
    MULTI_LABEL,
    OF_LABELS,
    OTHERWISE,
    POLICY,
    UNUSUAL,
    UNUSUAL_HEAD,
)
from laplacebridge.checkpoint.saved_classifier import (
    NETWORK_STRUCTURES,
    STRUCTURES,
    SavedClassifier,
)
from laplacebridge.classifier import Classifier
from laplacebridge.errors import CheckpointError, InputTypeError
from laplacebridge.laplace.batch import Output
from laplacebridge.laplace.network import network_fingerprint
from laplacebridge.multi_label.classifier import MultiLabelClassifier
from laplacebridge.multi_label.logistic import logistic_bridge


def save(classifier: Classifier, path: str | os.PathLike[str] = "") -> None:
    """Writes a classifier's posterior to a file, atomically: it is complete and on the
    disk, or the old one is as it was.

    A file that is there already is replaced without asking, and keeps its permissions;
    through a link, the file that it points to. A bridge that is not one of the
    library's is not stored: give it to `load`.

    Args:
        classifier: A fitted classifier.
        path: Where to write, usually with the suffix ``.safetensors``; it has to be
            given.

    Raises:
        InputTypeError: If it is no classifier, or the path no name of a file.
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
    if not isinstance(classifier, Classifier):
        raise InputTypeError(
            "`save(classifier, path)` needs what `lb.fit` returns; got"
            f" {type(classifier).__name__}. Weights of a network are saved with"
            " `torch.save(model.state_dict(), path)`."
        )
    if not isinstance(path, (str, os.PathLike)) or path == "":
        raise InputTypeError(
            "`save(classifier, path)` needs the name of a file, such as"
            f" 'classifier.safetensors'; got {type(path).__name__ if path != '' else 'none'}."
        )
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
        "network_fingerprint": network_fingerprint(classifier.network.model),
        **block,
        "labels": json.dumps(described_labels(classifier.labels)),
        "prior_method": classifier.prior_choice.method,
        "width": json.dumps(classifier.prior_choice.width),
    }
    if isinstance(classifier, MultiLabelClassifier):
        metadata[MULTI_LABEL] = OF_LABELS if classifier.bridge is logistic_bridge else OTHERWISE
    if classifier.policy is not None:
        metadata[POLICY] = classifier.policy.to_text()
    tensors = dict(classifier.posterior.state_dict())
    if classifier.unusual is not None:
        metadata[UNUSUAL_HEAD] = classifier.unusual.head_name
        state = classifier.unusual.buffers_by_name()
        tensors |= {UNUSUAL + name: tensor for name, tensor in state.items()}
    write_safetensors(Path(path), tensors, {**metadata, CHECKSUM: checksum(tensors, metadata)})


def load(
    path: str | os.PathLike[str],
    model: nn.Module | None = None,
    *,
    bridge: Bridge | None = None,
    strict: bool = False,
    output: Output | None = None,
) -> Classifier:
    """Reads a classifier, for the model that it was fitted to.

    The file is checked as a whole before anything of it is used: its checksum, every
    tensor against the structure, the stored weights against the model's. Its tensors
    then stay in the file until they are needed: replace that file as `save` does, but
    do not write into it while the classifier is in use.

    Args:
        path: A file written by `save`.
        model: The same trained network, or its head alone as an `nn.Linear`; the
            posterior goes to its device. Without it the classifier is that of the head
            in the file, and takes features.
        bridge: A bridge other than the stored one.
        strict: Refuse a model whose other layers are not as they were when the
            classifier was saved, instead of warning: its features are then not those
            that were fitted.
        output: As for `fit`, if that was a function; a key is in the file.

    Raises:
        CheckpointError: If the file is damaged, of another version, or of another
            model.

    Example:
        >>> import tempfile
        >>> from laplacebridge import fit
        >>> model = nn.Linear(4, 3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(
        ...         fit(model, [torch.eye(4)], prior_precision=2.0, progress=False),
        ...         f"{folder}/model.safetensors",
        ...     )
        ...     classifier = load(f"{folder}/model.safetensors", model)
        >>> classifier.posterior.prior_precision
        tensor(2., dtype=torch.float64)
    """
    return SavedClassifier.read(path).with_model(model, bridge=bridge, strict=strict, output=output)
