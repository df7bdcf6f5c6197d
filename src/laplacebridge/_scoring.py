"""Bulk scoring: one file in, one file out, written at once or not at all."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from laplacebridge._files import atomic_write, checksum
from laplacebridge._images import Prepare
from laplacebridge._scoring_sources import Source, arrow, open_source
from laplacebridge.classifier import Classifier
from laplacebridge.errors import InputError
from laplacebridge.laplace.network import network_fingerprint
from laplacebridge.multi_label import MultiLabelClassifier, MultiLabelPrediction
from laplacebridge.multi_label.carried import require_no_rule
from laplacebridge.prediction import Prediction
from laplacebridge.selective import Action
from laplacebridge.selective.policy import Policy
from laplacebridge.sets import overlap_sets

_PROVENANCE = b"laplacebridge"


class Scored(NamedTuple):
    """What became of a file.

    Attributes:
        source: Its name.
        target: The file of its scores.
        rows: How many examples it has.
        skipped: Whether its scores were there already.
    """

    source: str
    target: str
    rows: int
    skipped: bool


def score_file(
    classifier: Classifier,
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    keep: Sequence[str] = (),
    batch_size: int = 1024,
    level: float = 0.95,
    replace: bool = False,
    prepare: Prepare | None = None,
) -> Scored:
    """Scores the examples of a file, or the images of a folder, into a parquet file:
    label, probability with its bounds, set and OOD scores of every row, in order.

    What the classifier carries is used (`Classifier.with_rule`): its sets in place of
    overlap sets, its rule for the columns `decision` and `reason`, its names of classes
    for `label_name`; where it carries a limit for unusual inputs and no rule, a column
    `unusual` says which are beyond it. A classifier of several labels at once gives lists
    for every row: `labels` that apply, most probable first, with `label_names` if it
    carries them, and `probabilities`, `lower` and `upper` of all labels.

    The target appears complete or not at all. If it is there already, from the same
    file, classifier and options, nothing is done; so whatever runs this function may be
    killed and started again. Needs the extra `score`.

    Args:
        classifier: The classifier.
        source: A parquet or csv file, with a column `features` or `inputs` of lists or
            one column for each number; or an npz file with `features` or `inputs`. A
            column `label` is left out. Or a folder, of which the images in it are
            scored, in the order of their names, which are kept as `file` (extra
            `images`).
        target: The parquet file to write.
        keep: Columns of the source to copy, such as an identifier.
        batch_size: Rows that are in memory at a time.
        level: Of the bounds.
        replace: Whether to replace scores of another classifier or other options.
        prepare: From an image of pillow, in RGB, to what the network takes, such as a
            transform of torchvision; by default numbers from 0 to 1, shape (3, H, W).
            Another one is noticed by its `repr` and, of a function, by its own code;
            remove the target if something changed that neither shows.

    Raises:
        InputError: If the file cannot be scored, the target holds scores of another
            classifier, or the classifier carries a rule of a score that has no name
            in this library, or, of several labels, one for one class.

    Example:
        >>> import tempfile
        >>> from laplacebridge import fit
        >>> classifier = fit(
        ...     torch.nn.Linear(4, 3), [torch.eye(4)], prior_precision=1.0, progress=False
        ... )
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.savez(f"{folder}/day.npz", features=np.eye(4))
        ...     first = score_file(classifier, f"{folder}/day.npz", f"{folder}/day.parquet")
        ...     second = score_file(classifier, f"{folder}/day.npz", f"{folder}/day.parquet")
        >>> first.rows, first.skipped, second.skipped
        (4, False, True)
    """
    opened = open_source(Path(source), prepare)
    return score_source(
        classifier,
        opened,
        Path(target),
        keep=keep,
        batch_size=batch_size,
        level=level,
        replace=replace,
    )


def score_source(
    classifier: Classifier,
    source: Source,
    target: Path,
    *,
    keep: Sequence[str] = (),
    batch_size: int = 1024,
    level: float = 0.95,
    replace: bool = False,
) -> Scored:
    """As `score_file`, for examples that were opened.

    Args:
        classifier: The classifier.
        source: The examples.
        target: The parquet file to write.
        keep: Columns to copy.
        batch_size: Rows that are in memory at a time.
        level: Of the bounds.
        replace: Whether to replace scores of another classifier or other options.

    Raises:
        InputError: As of `score_file`.
    """
    pyarrow, parquet = arrow()
    if isinstance(classifier, MultiLabelClassifier):
        require_no_rule(classifier)
    options = {
        "classifier": _identity(classifier),
        "keep": list(keep),
        "level": level,
        "batch_size": batch_size,
    }
    about = source.about()
    if target.exists():
        held = parquet.read_metadata(target)
        found = json.loads((held.metadata or {}).get(_PROVENANCE, b"{}"))
        same = {name: found.get(name) for name in options} == options
        if same and {name: found.get(name) for name in about} == about:
            return Scored(str(source.path), str(target), held.num_rows, True)
        if not same and not replace:
            raise InputError(
                f"{target} holds scores of another classifier or with other options. Name another"
                " target, or replace them: `replace=True` (`--force` on the command line)."
            )
    rows = 0
    with atomic_write(target) as temporary:
        writer = None
        for inputs, kept in source.batches(keep, batch_size):
            table = _scores(pyarrow, classifier, inputs, kept, rows, level)
            if writer is None:
                metadata = {_PROVENANCE: json.dumps({**options, **about}).encode()}
                writer = parquet.ParquetWriter(
                    temporary, table.schema.with_metadata(metadata), compression="snappy"
                )
            writer.write_table(table)
            rows += len(inputs)
        if writer is None:
            raise InputError(f"{source.path} needs at least one example; it has none.")
        writer.close()
    return Scored(str(source.path), str(target), rows, False)


def _identity(classifier: Classifier) -> str:
    """What two classifiers that answer alike have in common."""
    model = network_fingerprint(classifier.network.model)
    about = {"network": model, "bridge": getattr(classifier.bridge, "__name__", "")}
    if classifier.policy is not None:
        about["policy"] = classifier.policy.to_text()
    tensors = dict(classifier.posterior.state_dict())
    if classifier.unusual is not None:
        tensors |= {f"unusual.{name}": t for name, t in classifier.unusual.state_dict().items()}
    return checksum(tensors, about)


def _scores(
    arrow: Any,  # noqa: ANN401
    classifier: Classifier,
    inputs: np.ndarray,
    kept: dict[str, Any],
    first_row: int,
    level: float,
) -> Any:  # noqa: ANN401
    weight = next(classifier.network.model.parameters())
    tensor = torch.from_numpy(inputs)
    whole = not tensor.is_floating_point()
    with torch.no_grad():
        prediction = classifier(tensor.to(weight.device, tensor.dtype if whole else weight.dtype))
    prediction = prediction.to("cpu")
    if len(prediction) != len(inputs):
        raise InputError(
            f"Scoring needs one prediction for each row; the network gives {len(prediction)} for"
            f" {len(inputs)}."
        )
    columns: dict[str, Any] = {"row": np.arange(first_row, first_row + len(inputs)), **kept}
    if isinstance(prediction, MultiLabelPrediction):
        columns |= _of_labels(arrow, classifier.policy or Policy(), prediction, level)
        return arrow.table(columns)
    label = prediction.label
    lower, upper = prediction.interval(level)

    def of_label(values: Tensor) -> np.ndarray:
        return values.gather(-1, label.unsqueeze(-1)).squeeze(-1).float().numpy()

    columns |= {
        "label": label.numpy(),
        "probability": of_label(prediction.mean),
        "lower": of_label(lower),
        "upper": of_label(upper),
    }
    columns |= _carried(arrow, classifier.policy or Policy(), prediction)
    if prediction.unusual is not None:
        columns["ood_score"] = prediction.ood_score.float().numpy()
        if len(prediction.unusual.reference):
            columns["ood_quantile"] = prediction.ood_quantile.float().numpy()
    return arrow.table(columns)


def _of_labels(
    arrow: Any,  # noqa: ANN401
    policy: Policy,
    prediction: MultiLabelPrediction,
    level: float,
) -> dict[str, Any]:
    """Which of several labels apply, and how probable each of them is."""
    mean = prediction.mean
    order = mean.sort(dim=-1, descending=True, stable=True).indices
    applying = [
        row[chosen].tolist() for row, chosen in zip(order, prediction.applies.gather(-1, order))
    ]
    columns = {"labels": arrow.array(applying, arrow.list_(arrow.int64()))}
    if policy.class_names is not None:
        names = [[policy.class_names[index] for index in row] for row in applying]
        columns["label_names"] = arrow.array(names, arrow.list_(arrow.string()))
    lower, upper = prediction.interval(level)
    for name, values in (("probabilities", mean), ("lower", lower), ("upper", upper)):
        columns[name] = arrow.array(list(values.float().numpy()), arrow.list_(arrow.float32()))
    has_score, has_quantile = prediction.knows_unusual
    if has_score:
        columns["ood_score"] = prediction.ood_score.float().numpy()
    if has_quantile:
        columns["ood_quantile"] = prediction.ood_quantile.float().numpy()
    if policy.unusual_above is not None:
        beyond = prediction.ood_quantile > policy.unusual_above
        columns["unusual"] = arrow.array(beyond.tolist())
    return columns


def _carried(arrow: Any, policy: Policy, prediction: Prediction) -> dict[str, Any]:  # noqa: ANN401
    """What follows from what a classifier carries: sets, decisions, names."""
    sets = overlap_sets(prediction) if policy.sets is None else policy.sets(prediction)
    columns = {"set": arrow.array(sets.to_lists(), arrow.list_(arrow.int64()))}
    if policy.rule is not None:
        decisions = policy(prediction)
        actions = [Action(action).name.lower() for action in decisions.action.tolist()]
        columns |= {"decision": arrow.array(actions), "reason": arrow.array(decisions.reasons())}
    elif policy.unusual_above is not None:
        beyond = prediction.as_rows().ood_quantile > policy.unusual_above
        columns["unusual"] = arrow.array(beyond.tolist())
    if policy.class_names is not None:
        names = [policy.class_names[index] for index in prediction.label.tolist()]
        columns["label_name"] = arrow.array(names)
    return columns
