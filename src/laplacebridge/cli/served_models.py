"""Which models `laplacebridge serve` serves: from the command line or a file, loaded."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import typer

from laplacebridge import selective
from laplacebridge._extras import needs_extra
from laplacebridge.cli.calibration import calibrating
from laplacebridge.cli.classifier_files import read_classifier, with_network
from laplacebridge.cli.data import read_class_names
from laplacebridge.cli.models import network_from
from laplacebridge.cli.onnx_models import SUFFIX
from laplacebridge.cli.predictions import read_predictions
from laplacebridge.errors import InputError
from laplacebridge.laplace.label_checks import IGNORED_LABEL
from laplacebridge.multi_label import MultiLabelClassifier
from laplacebridge.scores import msp
from laplacebridge.selective import SelectiveRule

if TYPE_CHECKING:
    from laplacebridge.serve import Served

USUAL_RISK = 0.05
# What decides on sets of classes, of which one is right.
_OF_ONE_CLASS = ("threshold", "max_set_size")


@dataclass(frozen=True)
class Description:
    """One model to serve, as the command line or an entry of a ``--models`` file says.

    Attributes:
        file: A saved classifier, or an .onnx file with answers; what follows on
            networks and decisions is for the first alone, an .onnx file holds both.
        name: Its name in addresses; by default that of the file.
        version: Its version.
        model: ``package.module:factory``.
        weights: A file of the network's weights.
        head_only: A file with its last layer.
        classes: A file of class names.
        inputs: What the network takes.
        calibrate: Labelled predictions to choose a rule by.
        risk: What share of the answers may be wrong; None for the usual one.
        threshold: How much marginals must overlap for a set; None for the usual one.
        max_set_size: The largest set worth naming; None for what the classifier
            carries.
        unusual: Which share of held-out data an input may be more unusual than; the
            same.
    """

    file: Path
    name: str = ""
    version: str = "1"
    model: str | None = None
    weights: Path | None = None
    head_only: Path | None = None
    classes: Path | None = None
    inputs: tuple[str, ...] = ()
    calibrate: Path | None = None
    risk: float | None = None
    threshold: float | None = None
    max_set_size: int | None = None
    unusual: float | None = None


def named(text: str, shared: Description) -> Description:
    """A model from ``NAME:VERSION=FILE``."""
    place, equals, file = text.rpartition("=")
    name, _, version = place.partition(":")
    if equals and not (name and file):
        raise typer.BadParameter(f"is written NAME:VERSION=FILE; got '{text}'.", param_hint="FILE")
    return replace(shared, file=Path(file), name=name, version=version or "1")


def read_descriptions(path: Path) -> list[Description]:
    """The models of a file; paths in it are beside it."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}.") from error
    known = {field.name for field in fields(Description)}
    described = []
    for entry in entries if isinstance(entries, list) else [entries]:
        if not isinstance(entry, dict) or "file" not in entry or not entry.keys() <= known:
            unknown = sorted(entry.keys() - known) if isinstance(entry, dict) else []
            raise InputError(
                f"{path} needs a list of objects with `file` and, of {', '.join(sorted(known))},"
                f" what is not as usual; got {unknown[0] if unknown else 'something else'}."
            )
        beside = {
            name: path.parent / entry[name]
            for name in ("file", "weights", "head_only", "classes", "calibrate")
            if entry.get(name) is not None
        }
        inputs = {"inputs": tuple(entry["inputs"])} if "inputs" in entry else {}
        version = {"version": str(entry["version"])} if "version" in entry else {}
        described.append(Description(**{**entry, **beside, **inputs, **version}))
    return described


def load_all(
    described: Sequence[Description], device: torch.device, threads: int = 0
) -> "dict[tuple[str, str], Served]":
    """Models by name and version, loaded and tried.

    Args:
        described: The models.
        device: Where networks compute.
        threads: Of ONNX Runtime; 0 for its own choice.

    Raises:
        InputError: If two have one name and version, or one cannot be served.
    """
    served: dict[tuple[str, str], Served] = {}
    for each in described:
        place = (each.name or each.file.name.partition(".")[0], each.version)
        if place in served:
            raise InputError(
                f"Two models are called '{place[0]}', version {place[1]}: name them, as in"
                " digits:2=classifier.safetensors."
            )
        if not each.file.is_file():
            raise typer.BadParameter(f"there is no file {each.file}.", param_hint="FILE")
        if each.file.suffix == SUFFIX:
            served[place] = _served_onnx(each, threads)
        else:
            served[place] = _served_classifier(each, device, place[0])
    return served


def _served_onnx(described: Description, threads: int) -> "Served":
    with needs_extra("onnx", "Serving an ONNX file"):
        from laplacebridge.serve.onnx_file import ServedOnnx
    given = ("model", "weights", "head_only", "calibrate", "risk", *_OF_ONE_CLASS, "unusual")
    unfit = [name for name in given if getattr(described, name) is not None]
    unfit += ["inputs"] if described.inputs else []
    if unfit:
        raise InputError(
            f"{described.file} holds its network and its rules; `{unfit[0]}` is for saved"
            " classifiers. Serve both with --models, each with its own."
        )
    names = read_class_names(described.classes)
    return ServedOnnx(described.file, class_names=names, threads=threads)


def _served_classifier(described: Description, device: torch.device, name: str) -> "Served":
    from laplacebridge.serve import Policy, ServedClassifier, ServedLabels, TensorSpec
    from laplacebridge.serve.logs import Log

    network = network_from(described.model, described.weights, described.head_only)
    saved = read_classifier(described.file)
    classifier = with_network(
        saved,
        (network or saved.head()).to(device),
        model=described.model,
        weights=described.weights,
    )
    if network is not None and not described.inputs and saved.metadata["head"]:
        raise typer.BadParameter(
            "say what the network takes, as image:FP32:3,32,32.", param_hint="--input"
        )
    if network is None and saved.metadata["head"]:
        Log().announce(
            "head only",
            model=name,
            message=(
                f"No network is given (--model, --weights): '{name}' takes the"
                f" {saved.metadata['num_features']} features of its last layer."
            ),
        )
    inputs = [TensorSpec.parsed(text) for text in described.inputs] or None
    names = read_class_names(described.classes)
    if isinstance(classifier, MultiLabelClassifier):
        for option in ("calibrate", "risk", *_OF_ONE_CLASS):
            if getattr(described, option) is not None:
                raise InputError(
                    f"{described.file} is of several labels at once; `{option}` is for one class"
                    " out of several. Leave it out."
                )
        return ServedLabels(classifier, inputs, class_names=names, unusual=described.unusual)
    if described.risk is not None and described.calibrate is None:
        raise InputError(
            "`risk` is what a rule is chosen for: give labelled predictions to choose it by"
            " (`calibrate`), or leave it out."
        )
    policy = Policy.of(
        classifier,
        threshold=described.threshold,
        max_set_size=described.max_set_size,
        unusual=described.unusual,
    )
    if described.calibrate is not None:
        risk = USUAL_RISK if described.risk is None else described.risk
        rule = _rule(described.calibrate, risk, policy.unusual, classifier.num_classes)
        policy = replace(policy, rule=rule)
    return ServedClassifier(classifier, inputs, class_names=names, policy=policy)


def _rule(path: Path, risk: float, unusual_above: float | None, num_classes: int) -> SelectiveRule:
    """The rule that labelled predictions give."""
    found = read_predictions(str(path), option="--calibrate")
    if found.labels is None or found.dirichlet.num_classes != num_classes:
        raise InputError(
            f"{path} needs labelled predictions of {num_classes} classes to calibrate with:"
            " `laplacebridge predict` writes them for data that have labels."
        )
    rows = (found.labels != IGNORED_LABEL).nonzero().squeeze(-1)
    quantiles = found.scores.get("ood_quantile")
    unusual = None
    if unusual_above is not None and quantiles is not None:
        unusual = quantiles[rows] > unusual_above
    with calibrating(str(path)):
        return selective.calibrate(
            msp, found.dirichlet[rows], found.labels[rows], risk=risk, unusual=unusual
        )
