"""Bulk scoring: one file in, one file out, written at once or not at all."""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from laplacebridge._files import atomic_write, checksum, read_arrays
from laplacebridge.classifier import Classifier
from laplacebridge.errors import InputError, LaplaceBridgeError
from laplacebridge.laplace.network import network_fingerprint
from laplacebridge.sets import overlap_sets

SUFFIXES = (".parquet", ".csv", ".npz")
INPUT_COLUMNS, LABEL_COLUMNS = ("features", "inputs"), ("label", "labels")
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
) -> Scored:
    """Scores the examples of a file into a parquet file: label, probability with its
    bounds, set and OOD scores of every row, in order.

    The target appears complete or not at all. If it is there already, from the same
    file, classifier and options, nothing is done; so whatever runs this function may be
    killed and started again. Needs the extra `score`.

    Args:
        classifier: The classifier.
        source: A parquet or csv file, with a column `features` or `inputs` of lists or
            one column for each number; or an npz file with `features` or `inputs`. A
            column `label` is left out.
        target: The parquet file to write.
        keep: Columns of the source to copy, such as an identifier.
        batch_size: Rows that are in memory at a time.
        level: Of the bounds.
        replace: Whether to replace scores of another classifier or other options.

    Raises:
        InputError: If the file cannot be scored, or the target holds scores of another
            classifier.

    Example:
        >>> import tempfile
        >>> from laplacebridge import fit
        >>> classifier = fit(torch.nn.Linear(4, 3), [torch.eye(4)], prior_precision=1.0, progress=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.savez(f"{folder}/day.npz", features=np.eye(4))
        ...     first = score_file(classifier, f"{folder}/day.npz", f"{folder}/day.parquet")
        ...     second = score_file(classifier, f"{folder}/day.npz", f"{folder}/day.parquet")
        >>> first.rows, first.skipped, second.skipped
        (4, False, True)
    """
    arrow, parquet = _arrow()
    source, target = Path(source), Path(target)
    options = {
        "classifier": _identity(classifier),
        "keep": list(keep),
        "level": level,
        "batch_size": batch_size,
    }
    status = source.stat()
    about = {"source": source.name, "bytes": status.st_size, "modified": status.st_mtime_ns}
    if target.exists():
        held = parquet.read_metadata(target)
        found = json.loads((held.metadata or {}).get(_PROVENANCE, b"{}"))
        same = {name: found.get(name) for name in options} == options
        if same and {name: found.get(name) for name in about} == about:
            return Scored(str(source), str(target), held.num_rows, True)
        if not same and not replace:
            raise InputError(
                f"{target} holds scores of another classifier or with other options. Name another"
                " folder, or replace them (`--force`)."
            )
    rows = 0
    with atomic_write(target) as temporary:
        writer = None
        for inputs, kept in _batches(source, tuple(keep), batch_size):
            table = _scores(arrow, classifier, inputs, kept, rows, level)
            if writer is None:
                metadata = {_PROVENANCE: json.dumps({**options, **about}).encode()}
                writer = parquet.ParquetWriter(
                    temporary, table.schema.with_metadata(metadata), compression="snappy"
                )
            writer.write_table(table)
            rows += len(inputs)
        if writer is None:
            raise InputError(f"{source} needs at least one example; it has none.")
        writer.close()
    return Scored(str(source), str(target), rows, False)


def _identity(classifier: Classifier) -> str:
    """What two classifiers that answer alike have in common."""
    model = network_fingerprint(classifier.network.model)
    bridge = getattr(classifier.bridge, "__name__", "")
    tensors = dict(classifier.posterior.state_dict())
    if classifier.unusual is not None:
        tensors |= {f"unusual.{name}": t for name, t in classifier.unusual.state_dict().items()}
    return checksum(tensors, {"network": model, "bridge": bridge})


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
    label = prediction.label
    lower, upper = prediction.interval(level)

    def of_label(values: Tensor) -> np.ndarray:
        return values.gather(-1, label.unsqueeze(-1)).squeeze(-1).float().numpy()

    columns: dict[str, Any] = {
        "row": np.arange(first_row, first_row + len(inputs)),
        **kept,
        "label": label.numpy(),
        "probability": of_label(prediction.mean),
        "lower": of_label(lower),
        "upper": of_label(upper),
        "set": arrow.array(overlap_sets(prediction).to_lists(), arrow.list_(arrow.int64())),
    }
    if prediction.unusual is not None:
        columns["ood_score"] = prediction.ood_score.float().numpy()
        if len(prediction.unusual.reference):
            columns["ood_quantile"] = prediction.ood_quantile.float().numpy()
    return arrow.table(columns)


def _batches(
    source: Path, keep: tuple[str, ...], batch_size: int
) -> Iterator[tuple[np.ndarray, dict[str, Any]]]:
    """Inputs, and the columns that are copied.

    Raises:
        InputError: If the file cannot be read as examples.
    """
    if source.suffix == ".npz":
        arrays = read_arrays(source)
        name = next((each for each in INPUT_COLUMNS if each in arrays), None)
        if name is None or not set(keep) <= arrays.keys():
            raise InputError(
                f"{source} needs `features` or `inputs`, and {list(keep)} to keep; it holds"
                f" {', '.join(arrays) or 'nothing'}."
            )
        for start in range(0, len(arrays[name]), batch_size):
            rows = slice(start, start + batch_size)
            yield arrays[name][rows], {each: arrays[each][rows] for each in keep}
    elif source.suffix == ".parquet":
        _, parquet = _arrow()
        with parquet.ParquetFile(source) as file:
            for batch in file.iter_batches(batch_size=batch_size):
                yield _of_table(source, batch, keep)
    elif source.suffix == ".csv":
        from pyarrow import csv

        table = csv.read_csv(source)
        for batch in table.to_batches(max_chunksize=batch_size):
            yield _of_table(source, batch, keep)
    else:
        raise InputError(f"{source} cannot be scored: it is none of {', '.join(SUFFIXES)}.")


def _of_table(source: Path, batch: Any, keep: tuple[str, ...]) -> tuple[np.ndarray, dict[str, Any]]:  # noqa: ANN401
    names = batch.schema.names
    missing = [name for name in keep if name not in names]
    if missing:
        raise InputError(f"{source} has no column '{missing[0]}' to keep: {', '.join(names)}.")
    kept = {name: batch.column(name) for name in keep}
    lists = next((name for name in INPUT_COLUMNS if name in names), None)
    try:
        if lists is not None:
            inputs = np.array(batch.column(lists).to_pylist(), np.float64)
        else:
            others = [name for name in names if name not in {*keep, *LABEL_COLUMNS}]
            columns = [
                np.asarray(batch.column(name).to_numpy(zero_copy_only=False), np.float64)
                for name in others
            ]
            inputs = np.stack(columns, -1)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{source} needs a column `features` of lists of numbers, of equal length, or columns"
            f" of numbers beside those to keep; it has {', '.join(names)}: {error}."
        ) from error
    return inputs, kept


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise LaplaceBridgeError(
            f"Scoring files needs {error.name}, which is not installed. Install it with `pip"
            " install 'laplacebridge[score]'`."
        ) from error
    return pyarrow, parquet
