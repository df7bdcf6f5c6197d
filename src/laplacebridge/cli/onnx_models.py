"""ONNX models on the command line: what `fit` and `info` do with an `.onnx` file."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from laplacebridge._files import read_arrays
from laplacebridge.cli.data import open_data
from laplacebridge.cli.readers import INPUT_NAMES
from laplacebridge.errors import HeadNotFoundError, InputError, LaplaceBridgeError
from laplacebridge.laplace.batch import LABEL_NAMES

if TYPE_CHECKING:
    from laplacebridge.onnx import FittedModel
    from laplacebridge.onnx.model import FileGraph

SUFFIX = ".onnx"


def fit_onnx(
    path: Path,
    data: str | None,
    *,
    validation: str | None,
    output: str | None,
    batch_size: int,
    **options: Any,  # noqa: ANN401
) -> "FittedModel":
    """The fit of an ONNX model; refusals name options of the command.

    Args:
        path: The model.
        data: Training data, as the user named them.
        validation: The same of held-out data.
        output: The output to cover, if the user named one.
        batch_size: Examples in a batch.
        options: Of the fit.

    Raises:
        HeadNotFoundError: If the model has no linear head, or several.
    """
    from laplacebridge import onnx
    from laplacebridge.onnx.model import FileGraph

    if data is None:
        raise typer.BadParameter(
            f"{path} needs training data behind it: laplacebridge fit {path} train.npz.",
            param_hint="DATA",
        )
    graph = FileGraph(path)
    held_out = None
    if validation is not None:
        held_out = _batches(graph, validation, batch_size, "--validation")
    batches = _batches(graph, data, batch_size, "DATA")
    try:
        return onnx.fit(path, batches, val=held_out, output=output, **options)
    except HeadNotFoundError as error:
        raise HeadNotFoundError(_by_option(error)) from error


def onnx_facts(path: Path) -> dict[str, object]:
    """What an ONNX model is, and what was found in it.

    Args:
        path: The file.
    """
    from laplacebridge import onnx
    from laplacebridge.onnx.feeds import described_inputs
    from laplacebridge.onnx.model import FileGraph

    graph = FileGraph(path)
    facts: dict[str, object] = {
        "file": str(path),
        "bytes": path.stat().st_size,
        "opset": graph.opset,
        "inputs": described_inputs(graph),
        "outputs": list(graph.outputs),
        "nodes": len(graph.nodes),
    }
    written = {entry.key: entry.value for entry in graph.model.metadata_props}
    held = {
        key.replace(".", "_"): _parsed(value)
        for key, value in written.items()
        if key.startswith("laplacebridge")
    }
    facts |= held
    policy = held.get("laplacebridge_policy")
    names = policy.get("class_names") if isinstance(policy, dict) else None
    # answers are outputs too; `lb.export` writes them behind the output `logits`
    of_output = written.get("laplacebridge.of_output", "logits" if held else None)
    try:
        head = onnx.find_head(path, output=of_output)
    except LaplaceBridgeError as error:
        return facts | {"head": None, "why": _by_option(error)}
    return facts | {
        "head": head.node,
        "classes": head.num_classes,
        "features": head.num_features,
        "precision": head.precision,
        "output": head.output,
        "output_is": head.relation,
        "class_names": list(head.class_labels) or names or [],
        "verified_on": "random inputs; `fit` verifies the head on your data",
    }


def _by_option(error: LaplaceBridgeError) -> str:
    """What an error says, with the name of the option instead of that of Python."""
    return re.sub(r"`output='([^`]*)'`", r"`--head \1`", str(error))


def _parsed(text: str) -> object:
    """What a line of the file's metadata says; a text that is no JSON stays as it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _batches(graph: "FileGraph", source: str, batch_size: int, option: str) -> Iterable[Any]:
    path = Path(source)
    if path.suffix == ".npz" and path.is_file():
        return _npz_batches(graph, path, batch_size)
    return open_data(source, batch_size=batch_size, option=option)


def _npz_batches(graph: "FileGraph", path: Path, batch_size: int) -> list[Any]:
    """Batches of arrays that are named as the inputs of a model, or `inputs` if it has one.

    Raises:
        InputError: If the file does not hold these, or not one of each for every example.
    """
    arrays = read_arrays(path)
    feed = {name: arrays[name] for name in graph.inputs if name in arrays}
    if not feed and len(graph.inputs) == 1:
        usual = next((name for name in INPUT_NAMES if name in arrays), None)
        feed = {} if usual is None else {next(iter(graph.inputs)): arrays[usual]}
    label = next((name for name in LABEL_NAMES if name in arrays and name not in feed), None)
    lengths = {len(array) for array in (*feed.values(), *([arrays[label]] if label else []))}
    if set(feed) != set(graph.inputs) or len(lengths) != 1:
        held = ", ".join(f"`{name}` {array.shape}" for name, array in arrays.items()) or "nothing"
        wanted = ", ".join(f"`{name}`" for name in graph.inputs)
        raise InputError(
            f"{path} needs {wanted}{' (or `inputs`)' if len(graph.inputs) == 1 else ''} and"
            f" `labels`, one row of each for every example; it holds {held}."
        )
    count = lengths.pop()
    cuts = range(0, count, batch_size)
    labels = np.asarray(arrays[label]) if label else None
    parts = [
        {name: array[start : start + batch_size] for name, array in feed.items()} for start in cuts
    ]
    if labels is None:
        return parts
    return [(part, labels[start : start + batch_size]) for part, start in zip(parts, cuts)]
