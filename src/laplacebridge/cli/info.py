"""`laplacebridge info`: what is in a saved file, or the versions that matter in a bug
report.
"""

import json
import platform
from pathlib import Path
from typing import Annotated

import torch
import typer

from laplacebridge._provenance import versions
from laplacebridge.checkpoint.layout import MULTI_LABEL, OF_LABELS, UNUSUAL_HEAD
from laplacebridge.cli import onnx_models, options
from laplacebridge.cli.classifier_files import read_classifier
from laplacebridge.cli.predictions import read_predictions
from laplacebridge.selective.policy import Policy, score_name, set_rule_name

EXAMPLE = "Example: laplacebridge info classifier.safetensors"
SHOWN_ENTRIES = 10


def info(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="A classifier, an ONNX model, or predictions as .npz.",
            exists=True,
            dir_okay=False,
            show_default=False,
        ),
    ] = None,
    as_json: options.JsonOption = False,
) -> None:
    """Say what is in a saved file; without a file, print the versions that matter in a
    bug report.
    """
    facts = (
        _versions()
        if file is None
        else _predictions(file)
        if file.suffix == ".npz"
        else onnx_models.onnx_facts(file)
        if file.suffix == onnx_models.SUFFIX
        else _classifier(file)
    )
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
    saved = read_classifier(path)
    metadata, labels = saved.metadata, saved.labels
    covered = (
        {"layers": saved.layer_names}
        if saved.layer_names
        else {
            "features": int(metadata["num_features"]),
            "head": metadata["head"] or "(the model itself)",
        }
    )
    return {
        "file": str(path),
        "bytes": path.stat().st_size,
        "format_version": int(metadata["version"]),
        "labels_at_once" if MULTI_LABEL in metadata else "classes": int(metadata["num_classes"]),
        **covered,
        "posterior": metadata["structure"],
        "bridge": metadata["bridge"]
        or ("logistic" if metadata.get(MULTI_LABEL) == OF_LABELS else None),
        "ood_score": UNUSUAL_HEAD in metadata,
        "prior_precision": float(saved.tensors["prior_precision"]),
        "temperature": float(saved.tensors["temperature"]),
        "prior_chosen_by": metadata["prior_method"],
        "log_likelihood": None if labels is None else labels.log_likelihood,
        "training_accuracy": None if labels is None else labels.accuracy,
        **_carried(saved.policy),
        "fingerprint_of_weights" if saved.layer_names else "fingerprint_of_head": metadata[
            "fingerprint"
        ],
    }


def _carried(policy: Policy | None) -> dict[str, object]:
    """What the file says about using the classifier; see `Classifier.with_rule`."""
    policy = policy or Policy()
    rule, sets = policy.rule, policy.sets
    found = {
        "sets": sets and f"{set_rule_name(sets.rule)} at {sets.threshold:.6g}",
        "max_set_size": policy.max_set_size,
        "unusual_above": policy.unusual_above,
        "promises": policy.promises(),
        "class_names": list(policy.class_names or ()),
        "preprocessing": policy.preprocessing,
    }
    return {
        "rule": rule and f"{score_name(rule)} at most {rule.threshold:.6g}",
        **{name: value for name, value in found.items() if value not in (None, [])},
    }


def _predictions(path: Path) -> dict[str, object]:
    predictions = read_predictions(str(path), option="FILE")
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
    if isinstance(value, dict):
        parts = (
            f"{name.replace('_', ' ')} {_shown(part)}"
            for name, part in value.items()
            if part is not None
        )
        return ", ".join(parts) or "none"
    if isinstance(value, list):
        more = f", … ({len(value)})" if len(value) > SHOWN_ENTRIES else ""
        return ", ".join(map(str, value[:SHOWN_ENTRIES])) + more
    return str(value)
