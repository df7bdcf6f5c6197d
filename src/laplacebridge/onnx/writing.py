"""Writing an ONNX model with its uncertainty: the file as it was, and nodes behind it."""

import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from laplacebridge._files import atomic_write
from laplacebridge._provenance import versions
from laplacebridge._warnings import warn
from laplacebridge.bridges import name_of
from laplacebridge.classifier import Classifier
from laplacebridge.errors import InputError
from laplacebridge.multi_label.classifier import MultiLabelClassifier
from laplacebridge.onnx.answer_graph import OLDEST_OPSET, Wanted, append_answers
from laplacebridge.onnx.feeds import (
    example_axes,
    first_examples,
    num_examples,
    some_examples,
    type_name,
)
from laplacebridge.onnx.head import Head
from laplacebridge.onnx.model import FileGraph
from laplacebridge.onnx.rows import Read, free_prefix, read_by
from laplacebridge.onnx.running import Runner, Session
from laplacebridge.selective import Action
from laplacebridge.selective.policy import Policy

METADATA = "laplacebridge"
# The first version of the format that has stored tensors which are no inputs.
_FREE_INITIALIZERS = 4


def write_with_answers(
    graph: FileGraph,
    head: Head,
    classifier: Classifier,
    path: Path,
    *,
    check: Mapping[str, np.ndarray],
    wanted: Wanted,
    class_names: Sequence[str],
    own_logits: bool,
) -> list[str]:
    """Writes a model with answers, after a look at whether the model's own outputs stay
    the same bit for bit.

    Args:
        graph: The file that the model was read from.
        head: Its head.
        classifier: The classifier of that head.
        path: Where to write.
        check: Inputs for the look.
        wanted: The answers.
        class_names: For the metadata.
        own_logits: Whether to leave the graph's logits alone from the first.

    """
    best: tuple[Any, list[str]] | None = None
    differing: list[str] = []
    # Another reader of a tensor can keep a runtime from joining nodes, and so change how a
    # model's own output is rounded; then the logits are left alone.
    for computed in (True,) if own_logits else (False, True):
        model, names = extended(
            graph, head, classifier, wanted, class_names, check, own_logits=computed
        )
        changed = _changed_outputs(graph, model, check)
        if best is None or not changed:
            best, differing = (model, names), changed
        if not changed:
            break
    if differing:
        warn(
            f"ONNX Runtime rounds {', '.join(map(repr, differing))} of {graph.path} differently"
            " once other nodes read the features; everything else is as it was."
        )
    if 0 < graph.opset < OLDEST_OPSET:
        warn(
            f"{graph.path} has opset {graph.opset}, and {path.name} opset {OLDEST_OPSET}, which"
            " answers need; all its operators mean the same there, and are as they were."
        )
    assert best is not None  # noqa: S101
    model, names = best
    _copy_external(graph, path)
    with atomic_write(path) as temporary:
        temporary.write_bytes(model.SerializeToString())
    return names


def require_extensible(graph: FileGraph) -> None:
    """Refuses files in which answers cannot be written, before any work is done.

    Older files are accepted if their operators are the same in the oldest opset that
    answers need, as those of linear models from scikit-learn; `write` says that it
    declares that one.

    Args:
        graph: The file.

    Raises:
        InputError: If its operators are too old, or if it has answers already.
    """
    if any(entry.key == METADATA for entry in graph.model.metadata_props):
        raise InputError(
            f"{graph.path} was written by laplacebridge and has answers already. Give the model as"
            " it was before."
        )
    if 0 < graph.opset < OLDEST_OPSET and not _are_same_later(graph):
        raise InputError(
            f"{graph.path} uses opset {graph.opset}; answers need opset {OLDEST_OPSET} or later,"
            " in which some of its operators mean something else. Convert it first:"
            " `onnx.save(onnx.version_converter.convert_version(onnx.load(path), 17), path)`."
        )


def _declare_opset(model: Any) -> None:  # noqa: ANN401
    """Declares the oldest opset that answers need."""
    declared = [each for each in model.opset_import if each.domain in {"", "ai.onnx"}]
    for each in declared:
        each.version = OLDEST_OPSET
    if not declared:
        model.opset_import.add(domain="", version=OLDEST_OPSET)


def _are_same_later(graph: FileGraph) -> bool:
    """Whether all standard operators mean the same in the oldest opset that answers need."""
    if graph.model.functions or any(
        attribute.HasField("g") for node in graph.nodes for attribute in node.attribute
    ):
        return False
    own = [node.op_type for node in graph.nodes if node.domain in {"", "ai.onnx"}]
    return all(
        onnx.defs.get_schema(name, graph.opset, "").since_version
        == onnx.defs.get_schema(name, OLDEST_OPSET, "").since_version
        for name in own
    )


def extended(
    graph: FileGraph,
    head: Head,
    classifier: Classifier,
    wanted: Wanted,
    class_names: Sequence[str],
    check: Mapping[str, np.ndarray],
    *,
    own_logits: bool,
) -> tuple[Any, list[str]]:
    """A copy of a model with answers, and their names.

    Args:
        graph: The file.
        head: Its head.
        classifier: The classifier of that head.
        wanted: The answers.
        class_names: For the metadata.
        check: Inputs, to see where examples lie.
        own_logits: Whether logits are computed from features.
    """
    model = onnx.ModelProto()
    model.CopyFrom(graph.model)
    if graph.opset < OLDEST_OPSET:
        _declare_opset(model)
    counts = len(model.graph.node), len(model.graph.initializer)
    prefix = free_prefix(graph)
    read = read_by(graph, head, prefix, own_logits=own_logits)
    read.extension.append_to(model)
    leading: list[int | str | None] = [None] * (len(read.shape) - 1)
    axis = _examples_axis(graph, head, read, check)
    if axis is not None:
        leading[axis] = Runner(graph).fixed_rows or "batch"
    names = append_answers(
        model,
        classifier,
        features=read.features,
        logits=read.logits,
        wanted=wanted,
        inputs=[] if axis is None else _float_inputs(graph, check),
        rank=len(read.shape),
        examples_axis=axis or 0,
        leading_shape=leading,
        prefix=prefix,
    )
    if model.ir_version < _FREE_INITIALIZERS:
        _as_constants(model.graph, *counts)
    for key, value in _metadata(head, classifier, wanted, names, class_names).items():
        model.metadata_props.add(key=key, value=value)
    return model, names


def _examples_axis(
    graph: FileGraph, head: Head, read: Read, check: Mapping[str, np.ndarray]
) -> int | None:
    """Which dimension of the answers goes over examples; None if that cannot be told, or
    if it goes over other rows too.
    """
    if len(read.shape) == 2 and not head.layout.has_one_row:
        return None  # more time steps are more rows, even where there was one
    runner = Runner(graph, names=[read.features], extend=read.extension)
    try:
        place = runner.places(check, [read.features])[read.features]
    except InputError:
        return None
    is_leading = place is not None and place.is_whole and place.axis < len(read.shape) - 1
    return place.axis if place is not None and is_leading else None


def _float_inputs(graph: FileGraph, check: Mapping[str, np.ndarray]) -> list[str]:
    """Inputs in which NaN is looked for: numbers, examples first."""
    axes = example_axes(graph, check)
    return [
        name
        for name, each in graph.inputs.items()
        if type_name(each).startswith(("float", "double")) and axes.get(name) == 0
    ]


def _as_constants(graph: Any, old_nodes: int, old_arrays: int) -> None:  # noqa: ANN401
    """New arrays as nodes, for files of a format in which stored tensors are inputs too."""
    arrays = list(graph.initializer)[old_arrays:]
    nodes = list(graph.node)[old_nodes:]
    del graph.initializer[old_arrays:]
    del graph.node[old_nodes:]
    graph.node.extend(
        onnx.helper.make_node("Constant", [], [array.name], name=f"{array.name}_node", value=array)
        for array in arrays
    )
    graph.node.extend(nodes)


def _metadata(
    head: Head,
    classifier: Classifier,
    wanted: Wanted,
    names: Sequence[str],
    class_names: Sequence[str],
) -> dict[str, str]:
    policy = classifier.policy or Policy()
    return {
        METADATA: versions()["laplacebridge"],
        f"{METADATA}.outputs": json.dumps(list(names)),
        f"{METADATA}.level": str(wanted.level),
        f"{METADATA}.classes": json.dumps(list(class_names)),
        f"{METADATA}.multi_label": json.dumps(isinstance(classifier, MultiLabelClassifier)),
        f"{METADATA}.head": head.node,
        f"{METADATA}.of_output": head.output,
        f"{METADATA}.posterior": type(classifier.posterior).__name__,
        f"{METADATA}.bridge": name_of(classifier.bridge) or "",
        f"{METADATA}.prior": classifier.prior_choice.method,
        f"{METADATA}.actions": json.dumps([action.name.lower() for action in Action]),
        f"{METADATA}.policy": policy.to_text(),
        f"{METADATA}.promises": json.dumps(policy.promises()),
        f"{METADATA}.fingerprint": classifier.network.metadata().get("fingerprint", ""),
    }


def needs_own_logits(graph: FileGraph, head: Head, check: Mapping[str, np.ndarray]) -> bool:
    """Whether reading the logits of a graph would change its outputs, as where ONNX
    Runtime computes the softmax of integers if nobody else reads them. Of numbers that
    are not integers this is no more than the last bits, whoever reads what.

    Args:
        graph: The file.
        head: Its head.
        check: Inputs to look at.
    """
    if head.precision != "8-bit":
        return False
    changed = []
    for own_logits in (False, True):
        model = onnx.ModelProto()
        model.CopyFrom(graph.model)
        read = read_by(graph, head, free_prefix(graph), own_logits=own_logits)
        read.extension.append_to(model)
        for name in (read.features, read.logits):
            if name is not None:
                model.graph.output.append(onnx.ValueInfoProto(name=name))
        changed.append(bool(_changed_outputs(graph, model, check)))
    return changed == [True, False]


def _changed_outputs(
    graph: FileGraph,
    model: Any,  # noqa: ANN401
    check: Mapping[str, np.ndarray],
) -> list[str]:
    """Outputs that are not the same bit for bit, for all examples at once and for one."""
    before, after = Runner(graph), Session(model, graph)
    names = list(graph.outputs)
    feeds = [dict(check)]
    if before.fixed_rows is not None:
        count = before.fixed_rows
        order = np.arange(count) % num_examples(graph, check)
        feeds = [some_examples(graph, check, order)]
    old = [before.run(feed, names) for feed in feeds]
    if before.fixed_rows is None:
        feeds.append(first_examples(graph, check, 1))
        # a file may say that any batch will do, and hold the size of one all the same
        with suppress(InputError):
            old.append(before.run(feeds[-1], names))
    changed = []
    for feed, outputs in zip(feeds, old):
        new = after.run(feed, names)
        changed += [name for name in names if not _same(outputs[name], new[name])]
    return list(dict.fromkeys(changed))


def _same(first: Any, second: Any) -> bool:  # noqa: ANN401
    if isinstance(first, np.ndarray) and first.dtype.kind != "O":
        return first.tobytes() == second.tobytes()
    return bool(np.all(first == second)) if isinstance(first, np.ndarray) else first == second


def _copy_external(graph: FileGraph, path: Path) -> None:
    """Weights in files of their own, for a model that is written elsewhere.

    Raises:
        InputError: If another file has the name there.
    """
    source, target = graph.path.resolve().parent, path.resolve().parent
    if source == target:
        return
    for file in graph.external_files():
        there = target / file
        if there.exists() and there.read_bytes() != (source / file).read_bytes():
            raise InputError(
                f"{there} exists and is not {source / file}, which holds weights of the model."
                " Write to another folder, or beside the model."
            )
        there.parent.mkdir(parents=True, exist_ok=True)
        if not there.exists():
            shutil.copyfile(source / file, there)
