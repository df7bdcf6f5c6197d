"""Bulk scoring: one file in, one file out, written at once or not at all."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from laplacebridge._files import atomic_write, checksum
from laplacebridge._images import Prepare
from laplacebridge._scoring_columns import columns_of_labels, columns_of_one_class
from laplacebridge._scoring_sources import Source, arrow, open_source
from laplacebridge.classifier import Classifier
from laplacebridge.errors import InputError
from laplacebridge.laplace.network import network_fingerprint
from laplacebridge.multi_label import MultiLabelPrediction
from laplacebridge.selective.policy import Policy

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
    `unusual` says which are beyond it. A classifier of several labels at once gives
    lists for every row: `labels` that apply, most probable first, with `label_names` if
    it carries them, and `probabilities`, `lower` and `upper` of all labels.

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
            in this library.

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
    options = {
        "classifier": _identity(classifier),
        "keep": list(keep),
        "level": level,
        "batch_size": batch_size,
    }
    about = source.about()
    if target.exists():
        held = _rows_held(target, options, about, replace)
        if held is not None:
            return Scored(str(source.path), str(target), held, True)
    rows = 0
    with atomic_write(target) as temporary:
        writer = None
        for inputs, kept in source.batches(keep, batch_size):
            try:
                table = _scores(pyarrow, classifier, inputs, kept, rows, level)
            except (InputError, pyarrow.ArrowInvalid) as error:
                counted = f", where row {rows} is counted as 0" if rows else ""
                raise InputError(f"In {source.path}{counted}: {error}") from error
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


def _rows_held(
    target: Path, options: dict[str, Any], about: dict[str, Any], replace: bool
) -> int | None:
    """How many rows a file of scores has, if it need not be written again.

    Raises:
        InputError: If it is something else and must not be replaced.
    """
    pyarrow, parquet = arrow()
    try:
        held = parquet.read_metadata(target)
        found = json.loads((held.metadata or {}).get(_PROVENANCE, b"{}"))
    except (OSError, pyarrow.ArrowInvalid) as error:
        if replace and target.is_file():
            return None
        raise InputError(
            f"{target} is there and is no file of scores. Name another target, or remove it."
        ) from error
    same = {name: found.get(name) for name in options} == options
    if same and {name: found.get(name) for name in about} == about:
        return int(held.num_rows)
    if not same and not replace:
        raise InputError(
            f"{target} holds scores of another classifier or with other options. Name another"
            " target, or replace them: `replace=True` (`--force` on the command line)."
        )
    return None


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
    policy = classifier.policy or Policy()
    made = (
        columns_of_labels(arrow, policy, prediction, level)
        if isinstance(prediction, MultiLabelPrediction)
        else columns_of_one_class(arrow, policy, prediction, level)
    )
    for name in kept:
        if name in {"row", *made}:
            raise InputError(
                f"the column '{name}' to keep has the name of a column of scores. Call it something"
                " else in the file."
            )
    return arrow.table({"row": np.arange(first_row, first_row + len(inputs)), **kept, **made})
