"""Saved classifiers from the command line: what is said about files of other kinds, and
networks without their weights.
"""

import zipfile
from pathlib import Path

from torch import nn

from laplacebridge.bridges import Bridge
from laplacebridge.checkpoint.matching import OtherWeightsError
from laplacebridge.checkpoint.saved_classifier import SavedClassifier
from laplacebridge.classifier import Classifier
from laplacebridge.errors import CheckpointError

_BEGINNING = 1024  # bytes that a file of text is known by
_HTML = ("<!doctype html", "<html")


def read_classifier(path: Path) -> SavedClassifier:
    """Opens what `laplacebridge fit` saved.

    Args:
        path: The file.

    Raises:
        CheckpointError: If it is something else; says what it looks like.
    """
    try:
        return SavedClassifier.read(path)
    except CheckpointError as error:
        seen = _other_kind(path)
        if seen is None:
            raise
        raise CheckpointError(f"{path} is no saved classifier: it looks like {seen}") from error


def with_network(
    saved: SavedClassifier,
    network: nn.Module,
    *,
    model: str | None,
    weights: Path | None,
    bridge: Bridge | None = None,
) -> Classifier:
    """A saved classifier with its network.

    Args:
        saved: The classifier.
        network: Its network, or its head.
        model: How the network was named, if it was.
        weights: The file of its weights, if there was one.
        bridge: Another bridge than the saved one.

    Raises:
        CheckpointError: If the network is another one; says so if no weights were
            given.
    """
    try:
        return saved.with_model(network, bridge=bridge)
    except OtherWeightsError as error:
        if model is None or weights is not None:
            raise
        raise CheckpointError(
            f"{error} Is `--weights` missing? Without it the network is as `{model}` returns it,"
            " which may be untrained."
        ) from error


def _other_kind(path: Path) -> str | None:
    """What a file looks like and what to do with it; None for what may be a damaged
    classifier.
    """
    after = f"`laplacebridge predict classifier.safetensors {path}`"
    if path.suffix == ".onnx":
        return (
            f"an ONNX model. Run it in ONNX Runtime, or with `laplacebridge serve {path}`; what is"
            f" in it says `laplacebridge info {path}`."
        )
    if zipfile.is_zipfile(path):
        try:
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
        except zipfile.BadZipFile:
            names = []
        if any(name.endswith("data.pkl") for name in names):
            return f"weights that torch saved. Give them as `--weights {path}`."
        arrays = names and all(name.endswith(".npy") for name in names)
        kind = "an .npz file of arrays" if arrays else "a zip archive"
        return f"{kind}. The first argument is the classifier, data come after it: {after}."
    with path.open("rb") as file:
        beginning = file.read(_BEGINNING)
    text = beginning.decode("utf-8", errors="ignore")
    # a character may be cut at the end
    if not text or "\0" in text or len(beginning) - len(text.encode()) >= 4:
        return None
    if text.lstrip().lower().startswith(_HTML):
        return "an HTML page. Open it in a browser; commands take what `laplacebridge fit` saved."
    return f"text. The first argument is the classifier, data come after it: {after}."
