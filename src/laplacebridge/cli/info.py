"""`laplacebridge info`: what is in a saved file, or the versions that matter in a bug report."""

import json
import platform
from pathlib import Path
from typing import Annotated

import torch
import typer

from laplacebridge import checkpoint
from laplacebridge._provenance import versions
from laplacebridge.cli import modules, names, options
from laplacebridge.cli.saved_predictions import read_predictions
from laplacebridge.cli.weights import read_metadata, read_scalars

EXAMPLE = "Example: laplacebridge info classifier.safetensors"
SHOWN_ENTRIES = 10


def info(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="A classifier, or predictions as .npz.", show_default=False),
    ] = None,
    as_json: options.JsonOption = False,
) -> None:
    """Say what is in a saved file; without a file, print the versions that matter in a bug report."""
    if file is not None:
        modules.require_file(file, "FILE")
    facts = _versions() if file is None else _predictions(file) if file.suffix == ".npz" else _classifier(file)
    if as_json:
        typer.echo(json.dumps(facts))
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        typer.echo(f"{name.replace('_', ' '):<{width}}  {_shown(value)}")


def _versions() -> dict[str, object]:
    return {
        **versions(),
        "system": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
    }


def _classifier(path: Path) -> dict[str, object]:
    metadata = read_metadata(path)
    scalars = read_scalars(path, ("prior_precision", "temperature"))
    bridge = checkpoint.BRIDGES.get(metadata["bridge"])
    return {
        "file": str(path),
        "bytes": path.stat().st_size,
        "format_version": int(metadata["version"]),
        "classes": int(metadata["num_classes"]),
        **_covered(metadata),
        "posterior": metadata["structure"],
        "bridge": names.name_of(bridge, names.BRIDGES) if bridge else None,
        **scalars,
        "prior_chosen_by": metadata["prior_method"],
        "log_likelihood": json.loads(metadata["log_likelihood"]),
        "fingerprint_of_weights" if "layers" in metadata else "fingerprint_of_head": metadata["fingerprint"],
    }


def _covered(metadata: dict[str, str]) -> dict[str, object]:
    """The layers that a posterior is over."""
    if "layers" in metadata:
        return {"layers": json.loads(metadata["layers"])}
    return {"features": int(metadata["num_features"]), "head": metadata["head"] or "(the model itself)"}


def _predictions(path: Path) -> dict[str, object]:
    predictions = read_predictions(path)
    return {
        "file": str(path),
        "bytes": path.stat().st_size,
        "rows": len(predictions.dirichlet),
        "classes": predictions.dirichlet.num_classes,
        "class_names": list(predictions.class_names),
        "labels": predictions.labels is not None,
        "scores": list(predictions.scores),
    }


def _shown(value: object) -> str:
    if value is None or value == []:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        more = f", … ({len(value)})" if len(value) > SHOWN_ENTRIES else ""
        return ", ".join(map(str, value[:SHOWN_ENTRIES])) + more
    return str(value)
