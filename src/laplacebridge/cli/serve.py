"""`laplacebridge serve`: classifiers behind an address."""

import json
import os
from dataclasses import dataclass, fields, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import torch
import typer

from laplacebridge import selective
from laplacebridge._saved_classifier import SavedClassifier
from laplacebridge.cli import console, options
from laplacebridge.cli.data import read_class_names
from laplacebridge.cli.models import device_named, network_from, seed_everything
from laplacebridge.cli.predictions import read_predictions
from laplacebridge.errors import InputError
from laplacebridge.laplace.label_checks import IGNORED_LABEL
from laplacebridge.scores import msp
from laplacebridge.selective import SelectiveRule

if TYPE_CHECKING:
    from laplacebridge.serve import Served

EXAMPLE = (
    "Example: laplacebridge serve digits=classifier.safetensors --model project.network:build"
    " --weights weights.pt --input image:FP32:1,28,28 --classes names.txt --port 8080"
)
TOKEN_VARIABLE = "LAPLACEBRIDGE_TOKEN"  # noqa: S105  (the name of a variable)
MEGABYTE = 2**20
LogLevel = Enum("LogLevel", {name: name for name in ("info", "warning", "error")})  # type: ignore[misc]


@dataclass(frozen=True)
class Description:
    """One model to serve, as the command line or an entry of a ``--models`` file says.

    Attributes:
        file: A saved classifier.
        name: Its name in addresses; by default that of the file.
        version: Its version.
        model: ``package.module:factory``.
        weights: A file of the network's weights.
        head_only: A file with its last layer.
        classes: A file of class names.
        inputs: What the network takes.
        calibrate: Labelled predictions to choose a rule by.
        risk: What share of the answers may be wrong.
        threshold: How much marginals must overlap for a set.
        max_set_size: The largest set worth naming.
        unusual: Which share of held-out data an input may be more unusual than.
    """

    file: str
    name: str = ""
    version: str = "1"
    model: str | None = None
    weights: str | None = None
    head_only: str | None = None
    classes: str | None = None
    inputs: tuple[str, ...] = ()
    calibrate: str | None = None
    risk: float = 0.05
    threshold: float = 0.05
    max_set_size: int = 2
    unusual: float | None = 0.99


def serve(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME[:VERSION]=]CLASSIFIER…",
            help=(
                "What `laplacebridge fit` saved, with a name and a version for its address; by"
                " default the name of the file, and 1."
            ),
            show_default=False,
        ),
    ] = None,
    *,
    models: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=(
                "Models of several networks: a JSON list of objects with `file` and, as the"
                " options here, `name`, `version`, `model`, `weights`, `head_only`, `classes`,"
                " `inputs`, `calibrate`, `risk`, `threshold`, `max_set_size`, `unusual`."
            ),
            exists=True,
            dir_okay=False,
            rich_help_panel="Model",
        ),
    ] = None,
    model: options.ModelOption = None,
    weights: options.WeightsOption = None,
    head_only: options.HeadOnlyOption = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="NAME:TYPE:SIZE,…",
            help=(
                "What the network takes, without the number of examples: image:FP32:3,32,32 or"
                " input_ids:INT64:-1; may be given several times. Features need none."
            ),
            rich_help_panel="Model",
        ),
    ] = None,
    device: options.DeviceOption = "cpu",
    seed: options.SeedOption = 0,
    classes: options.ClassesOption = None,
    calibrate: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=(
                "Labelled predictions (.npz of `laplacebridge predict`) to choose by which"
                " examples are answered; without them those whose set has one class, which"
                " promises nothing."
            ),
            exists=True,
            dir_okay=False,
            rich_help_panel="Decisions",
        ),
    ] = None,
    risk: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            help="With --calibrate: what share of the answers may be wrong.",
            rich_help_panel="Decisions",
        ),
    ] = 0.05,
    threshold: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            help="How much marginals must overlap for a set.",
            rich_help_panel="Decisions",
        ),
    ] = 0.05,
    max_set_size: Annotated[
        int,
        typer.Option(
            min=0,
            help="The largest set worth naming where there is no answer; below 2 for no sets.",
            rich_help_panel="Decisions",
        ),
    ] = 2,
    unusual: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            help=(
                "Defer inputs that are more unusual than this share of held-out data, if the"
                " classifier was fitted with some; 1 defers none."
            ),
            rich_help_panel="Decisions",
        ),
    ] = 0.99,
    host: Annotated[
        str,
        typer.Option(
            help="Where to listen; the loopback is not reached from other machines.",
            rich_help_panel="Server",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="0 for a free one.", rich_help_panel="Server")
    ] = 8080,
    max_megabytes: Annotated[
        int, typer.Option(min=1, help="The largest request.", rich_help_panel="Server")
    ] = 16,
    max_batch: Annotated[
        int,
        typer.Option(
            min=1,
            help="Examples that are answered together; 1 answers requests one by one.",
            rich_help_panel="Server",
        ),
    ] = 64,
    max_waiting: Annotated[
        int,
        typer.Option(
            min=1,
            help="Requests that may wait for a model; others get 503.",
            rich_help_panel="Server",
        ),
    ] = 256,
    timeout: Annotated[
        float,
        typer.Option(min=0.001, help="Seconds that a request may take.", rich_help_panel="Server"),
    ] = 30.0,
    shutdown_timeout: Annotated[
        int,
        typer.Option(
            min=0,
            help="Seconds that requests in flight may take after SIGTERM.",
            rich_help_panel="Server",
        ),
    ] = 30,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, help="Threads of the network; by default torch's.", rich_help_panel="Server"
        ),
    ] = None,
    log_level: Annotated[
        LogLevel,
        typer.Option(
            help="info for a line on every request; error for those that the server failed on.",
            rich_help_panel="Server",
        ),
    ] = LogLevel("info"),
) -> None:
    """Serve classifiers over HTTP by the Open Inference Protocol, version 2.

    Requests that wait are answered together. Figures for Prometheus are at /metrics, a
    page to try a model at /. If the environment variable LAPLACEBRIDGE_TOKEN is set,
    clients must send it as bearer token.
    """
    with console.needs_extra("serve", "Serving"):
        from laplacebridge.serve import Settings, run
    shared = Description(
        "",
        model=model,
        weights=_text(weights),
        head_only=_text(head_only),
        classes=_text(classes),
        inputs=tuple(inputs or ()),
        calibrate=_text(calibrate),
        risk=risk,
        threshold=threshold,
        max_set_size=max_set_size,
        unusual=unusual,
    )
    described = [_named(text, shared) for text in files or ()]
    described += [] if models is None else _read_descriptions(models)
    if not described:
        raise typer.BadParameter("name at least one, here or in --models.", param_hint="CLASSIFIER")
    if threads is not None:
        torch.set_num_threads(threads)
    seed_everything(seed)
    where = device_named(device)
    served: dict[tuple[str, str], Served] = {}
    for each in described:
        place = (each.name or Path(each.file).name.partition(".")[0], each.version)
        if place in served:
            raise InputError(
                f"Two models are called '{place[0]}', version {place[1]}: name them, as in"
                " digits:2=classifier.safetensors."
            )
        served[place] = _served(each, where)
    settings = Settings(
        host=host,
        port=port,
        max_bytes=max_megabytes * MEGABYTE,
        max_batch=max_batch,
        max_waiting=max_waiting,
        request_seconds=timeout,
        shutdown_seconds=shutdown_timeout,
        token=os.environ.get(TOKEN_VARIABLE) or None,
        log_level=log_level.value,
    )
    run(served, settings)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _named(text: str, shared: Description) -> Description:
    """A model from ``NAME:VERSION=FILE``."""
    place, equals, file = text.rpartition("=")
    name, _, version = place.partition(":")
    if equals and not (name and file):
        raise typer.BadParameter(
            f"is written NAME:VERSION=FILE; got '{text}'.", param_hint="CLASSIFIER"
        )
    return replace(shared, file=file, name=name, version=version or "1")


def _read_descriptions(path: Path) -> list[Description]:
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
            name: str(path.parent / entry[name])
            for name in ("file", "weights", "head_only", "classes", "calibrate")
            if entry.get(name) is not None
        }
        inputs = {"inputs": tuple(entry["inputs"])} if "inputs" in entry else {}
        version = {"version": str(entry["version"])} if "version" in entry else {}
        described.append(Description(**{**entry, **beside, **inputs, **version}))
    return described


def _served(described: Description, device: torch.device) -> "Served":
    """A model, loaded and tried."""
    from laplacebridge.serve import Policy, ServedClassifier, TensorSpec

    path = Path(described.file)
    if not path.is_file():
        raise typer.BadParameter(f"there is no file {path}.", param_hint="CLASSIFIER")
    network = network_from(described.model, _path(described.weights), _path(described.head_only))
    saved = SavedClassifier.read(path)
    classifier = saved.with_model((network or saved.head()).to(device))
    if network is not None and not described.inputs and saved.metadata["head"]:
        raise typer.BadParameter(
            "say what the network takes, as image:FP32:3,32,32.", param_hint="--input"
        )
    return ServedClassifier(
        classifier,
        [TensorSpec.parsed(text) for text in described.inputs] or None,
        class_names=read_class_names(_path(described.classes)),
        policy=Policy(
            rule=_rule(described, classifier.num_classes),
            threshold=described.threshold,
            max_set_size=described.max_set_size,
            unusual=described.unusual,
        ),
    )


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _rule(described: Description, num_classes: int) -> SelectiveRule | None:
    """The rule that labelled predictions give, if there are some."""
    if described.calibrate is None:
        return None
    found = read_predictions(described.calibrate, option="--calibrate")
    if found.labels is None or found.dirichlet.num_classes != num_classes:
        raise InputError(
            f"{described.calibrate} needs labelled predictions of {num_classes} classes to"
            " calibrate with: `laplacebridge predict` writes them for data that have labels."
        )
    rows = (found.labels != IGNORED_LABEL).nonzero().squeeze(-1)
    quantiles = found.scores.get("ood_quantile")
    unusual = None
    if described.unusual is not None and quantiles is not None:
        unusual = quantiles[rows] > described.unusual
    return selective.calibrate(
        msp, found.dirichlet[rows], found.labels[rows], risk=described.risk, unusual=unusual
    )
