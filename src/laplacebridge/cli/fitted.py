"""What commands say of a classifier that they fitted and saved."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.filesize import decimal

from laplacebridge.bridges import name_of
from laplacebridge.classifier import Classifier
from laplacebridge.cli import console
from laplacebridge.multi_label import MultiLabelClassifier, logistic_bridge

if TYPE_CHECKING:
    from laplacebridge.onnx.head import Head


def print_fitted(
    classifier: Classifier,
    output: Path,
    head: "Head | None" = None,
    *,
    quiet: bool,
    as_json: bool,
) -> None:
    """Says what was fitted and saved.

    Args:
        classifier: The classifier.
        output: Its file.
        head: The head of the ONNX model that it was fitted to, if it was to one.
        quiet: Say nothing to people.
        as_json: Say it to programs.
    """
    summary = _summary(classifier, output)
    sentence = _sentence(summary)
    if head is not None:
        summary["head"], sentence = head.node, f"{head.described()}\n{sentence}"
    console.print_summary(summary, sentence, quiet=quiet, as_json=as_json)


def _summary(classifier: Classifier, output: Path) -> dict[str, Any]:
    posterior, labels, width = (
        classifier.posterior,
        classifier.labels,
        classifier.prior_choice.width,
    )
    return {
        "classifier": str(output),
        "bytes": output.stat().st_size,
        **classifier.network.covered(),
        "classes": classifier.num_classes,
        "posterior": type(posterior).__name__,
        "multi_label": isinstance(classifier, MultiLabelClassifier),
        "bridge": name_of(classifier.bridge)
        or ("logistic" if classifier.bridge is logistic_bridge else None),
        "prior_precision": float(posterior.prior_precision),
        "prior_chosen_by": classifier.prior_choice.method,
        "temperature": float(posterior.temperature),
        "log_evidence": None if classifier.log_likelihood is None else classifier.evidence(),
        "training_accuracy": None if labels is None else labels.accuracy,
        "intervals": None if width is None else width.described(classifier.num_classes),
        "width": (
            None if width is None else width._asdict() | {"widening": width.widening._asdict()}
        ),
    }


def _sentence(summary: dict[str, Any]) -> str:
    if "layers" in summary:
        covered = f"{len(summary['layers'])} layers with {summary['weights']} weights"
    else:
        covered = f"{summary['features']} features"
    accuracy, temperature = summary["training_accuracy"], summary["temperature"]
    parts = [
        covered,
        f"{summary['classes']} {'labels at once' if summary['multi_label'] else 'classes'}",
        *([] if accuracy is None else [f"training accuracy {accuracy:.1%}"]),
        summary["posterior"],
        f"prior precision {summary['prior_precision']:.3g} ({summary['prior_chosen_by']})",
        *([] if temperature == 1 else [f"temperature {temperature:.3g}"]),
        f"{summary['bridge']} bridge",
        decimal(summary["bytes"]),
    ]
    intervals = "" if summary["intervals"] is None else f"\n{summary['intervals']}"
    return f"{summary['classifier']}: {', '.join(parts)}{intervals}"
