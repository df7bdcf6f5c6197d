"""`laplacebridge serve`: classifiers behind an address."""

import os
from enum import Enum
from pathlib import Path
from typing import Annotated

import torch
import typer

from laplacebridge._extras import needs_extra
from laplacebridge.cli import options
from laplacebridge.cli.models import device_named, seed_everything
from laplacebridge.cli.served_models import (
    USUAL_RISK,
    Description,
    load_all,
    named,
    read_descriptions,
)
from laplacebridge.errors import InputError

EXAMPLE = (
    "Example: laplacebridge serve digits=classifier.safetensors --model project.network:build"
    " --weights weights.pt --input image:FP32:1,28,28 --classes names.txt --port 8080"
)
TOKEN_VARIABLE = "LAPLACEBRIDGE_TOKEN"  # noqa: S105  (the name of a variable)
MEGABYTE = 2**20
LogLevel = Enum("LogLevel", {name: name for name in ("info", "warning", "error")})  # type: ignore[misc]


def serve(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME[:VERSION]=]FILE…",
            help=(
                "What `laplacebridge fit` saved, or an .onnx file with its answers, with a name and"
                " a version for its address; by default the name of the file, and 1."
            ),
            show_default=False,
        ),
    ] = None,
    *,
    models: Annotated[
        Path | None,
        options.existing_file(
            "Models of several networks: a JSON list of objects with `file` and, as the"
            " options here, `name`, `version`, `model`, `weights`, `head_only`, `classes`,"
            " `inputs`, `calibrate`, `risk`, `threshold`, `max_set_size`, `unusual`.",
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
        options.existing_file(
            "Labelled predictions (.npz of `laplacebridge predict`) to choose by which"
            " examples are answered; without them by the rule that the classifier carries, or"
            " those whose set has one class, which promises nothing.",
            rich_help_panel="Decisions",
        ),
    ] = None,
    risk: Annotated[
        float | None,
        options.share(
            "With --calibrate: what share of the answers may be wrong.",
            rich_help_panel="Decisions",
            show_default=str(USUAL_RISK),
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        options.share(
            "How much marginals must overlap for a set.",
            rich_help_panel="Decisions",
            show_default="0.05",
        ),
    ] = None,
    max_set_size: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="The largest set worth naming where there is no answer; below 2 for no sets.",
            rich_help_panel="Decisions",
            show_default="as the classifier carries, or 2",
        ),
    ] = None,
    unusual: Annotated[
        float | None,
        options.share(
            "Defer inputs that are more unusual than this share of held-out data, if the"
            " classifier was fitted with some; 1 defers none.",
            rich_help_panel="Decisions",
            show_default="as the classifier carries, or 0.99",
        ),
    ] = None,
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
    with needs_extra("serve", "Serving"):
        from laplacebridge.serve import Settings, run
    shared = Description(
        Path(),
        model=model,
        weights=weights,
        head_only=head_only,
        classes=classes,
        inputs=tuple(inputs or ()),
        calibrate=calibrate,
        risk=risk,
        threshold=threshold,
        max_set_size=max_set_size,
        unusual=unusual,
    )
    described = [named(text, shared) for text in files or ()]
    described += [] if models is None else read_descriptions(models)
    if not described:
        raise typer.BadParameter(
            "name at least one, here, in --models or as `classifier` in laplacebridge.toml.",
            param_hint="FILE",
        )
    if threads is not None:
        torch.set_num_threads(threads)
    seed_everything(seed)
    served = load_all(described, device_named(device), threads or 0)
    settings = Settings(
        host=host,
        port=port,
        max_bytes=max_megabytes * MEGABYTE,
        max_batch=max_batch,
        max_waiting=max_waiting,
        request_seconds=timeout,
        shutdown_seconds=shutdown_timeout,
        token=_token(),
        log_level=log_level.value,
    )
    run(served, settings)


def _token() -> str | None:
    """What clients must send, if the environment says so.

    Raises:
        InputError: If it says so and names nothing, which would let everybody in.
    """
    given = os.environ.get(TOKEN_VARIABLE)
    if given is not None and not given.strip():
        raise InputError(
            f"{TOKEN_VARIABLE} is set and empty: give it a token, or unset it to serve without."
        )
    return None if given is None else given.strip()
