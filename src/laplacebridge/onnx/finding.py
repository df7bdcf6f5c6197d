"""`find_head`: the linear layer that gives an ONNX model its logits, found by the ways
through the graph and verified by numbers.
"""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from laplacebridge.errors import HeadNotFoundError, InputError, LaplaceBridgeError
from laplacebridge.onnx.choosing import all_reasons, chosen_of
from laplacebridge.onnx.feeds import (
    drawn_feed,
    feed_of,
    lengthened,
    num_examples,
    some_examples,
)
from laplacebridge.onnx.following import Step, drops, followed
from laplacebridge.onnx.head import Head, Layout
from laplacebridge.onnx.layers import is_product, linear_of
from laplacebridge.onnx.linear import BEFORE_LAST, CLASSIFIER, Linear
from laplacebridge.onnx.model import RANDOM, FileGraph, attribute, before_packing, named
from laplacebridge.onnx.parts import Part
from laplacebridge.onnx.refusals import why_no_layer
from laplacebridge.onnx.relating import judged, relation_to
from laplacebridge.onnx.running import Runner
from laplacebridge.onnx.tail import Pair
from laplacebridge.onnx.verifying import (
    FLOAT,
    chosen,
    precision_of,
    probed,
    values_of,
    verified,
)


def find_head(
    path: str | os.PathLike[str],
    feed: Any = None,  # noqa: ANN401
    *,
    output: str | None = None,
) -> Head:
    """The linear layer that gives an ONNX model its logits.

    Candidates are matrix products with constant weights that every way from the inputs
    to the output crosses. The last of them is taken if numbers agree: features times
    weights are the logits on the feed, and what follows makes softmax, log-softmax, a
    sigmoid (of one logit), a label or a multiple of them, on logits of all sizes.

    Args:
        path: An `.onnx` file.
        feed: Inputs to verify by, best some real ones: a mapping by name, or an array if
            the model takes one. Without it numbers are drawn, which only works where any
            numbers will do.
        output: The output to look at, needed if several heads have outputs.

    Raises:
        HeadNotFoundError: If there is no such layer; the message says what there is
            instead and what to do.

    Example:
        >>> import torch
        >>> from laplacebridge.onnx.examples import small_model
        >>> path, feed, _ = small_model()
        >>> head = find_head(path, feed)
        >>> head.relation, head.weight.shape
        ('softmax', (3, 8))
    """
    graph = FileGraph(path)
    return find_in(graph, drawn_feed(graph) if feed is None else feed_of(graph, feed), output)


def find_in(graph: FileGraph, feed: Mapping[str, np.ndarray], output: str | None) -> Head:
    """The same for a graph and a feed that were read.

    Args:
        graph: The file.
        feed: Every input.
        output: The output, or None to look at all.

    Raises:
        HeadNotFoundError: If there is none, or several.
        InputError: If the feed is empty.
    """
    empty = [name for name, array in feed.items() if array.size == 0]
    if empty:
        raise InputError(
            f"A head is verified by numbers, and '{empty[0]}' has none: its shape is"
            f" {feed[empty[0]].shape}. Give at least one example."
        )
    if output is not None:
        if output not in graph.outputs:
            names = ", ".join(map(repr, graph.outputs))
            raise HeadNotFoundError(f"{graph.path} has no output '{output}'; it has {names}.")
        return _head_of(graph, feed, output)
    found: list[Head] = []
    reasons: dict[str, str] = {}
    for name in graph.outputs:
        head, reason = _tried(graph, feed, name)
        if head is None:
            reasons[name] = reason
        else:
            found.append(head)
    if not found:
        raise HeadNotFoundError(all_reasons(graph, reasons))
    return chosen_of(graph, found, reasons)


def _tried(
    graph: FileGraph, feed: Mapping[str, np.ndarray], output: str
) -> tuple[Head | None, str]:
    """The head of an output, or why there is none."""
    try:
        return _head_of(graph, feed, output), ""
    except HeadNotFoundError as error:
        return None, str(error)


def _head_of(graph: FileGraph, feed: Mapping[str, np.ndarray], output: str) -> Head:
    linear = _last_cut(graph, output)
    if linear.node.op_type == CLASSIFIER:
        return _classifier_head(graph, feed, output, linear)
    steps = followed(graph, linear, output)
    values = values_of(graph, feed, linear, steps, output)
    if linear.weight is None:
        linear = probed(graph, linear, feed, values[linear.features])
        steps = followed(graph, linear, output)
        values |= values_of(graph, feed, linear, steps, output)
    step, axis, features_axis, difference = verified(graph, linear, steps, values)
    relation = relation_to(graph, feed, output, linear, step, axis, values)
    weight = step.weight(linear)
    scale, shift = (
        np.broadcast_to(each, len(weight)) * relation.scale for each in (step.scale, step.shift)
    )
    features, logits = values[chosen(linear, step)[1]], values[step.tensor]
    rows_per_example = max(1, features.size // weight.shape[1] // num_examples(graph, feed))
    if linear.logits_axis == BEFORE_LAST and len(weight) == 1 and rows_per_example > 1:
        raise HeadNotFoundError(
            f"Output '{output}' of {graph.path} cannot be covered: {named(linear.node)} multiplies"
            f" one row of weights with {weight.shape[1]} rows of numbers, which is a mean of"
            " them, as over time steps, and no layer of one logit. Export the mean as ReduceMean"
            " behind the last layer, or before it."
        )
    return Head(
        path=str(graph.path),
        output=output,
        node=named(linear.node),
        features=linear.features,
        logits=step.tensor,
        weight=(weight * scale[:, None]).astype(np.float32),
        bias=shift.astype(np.float32),
        relation=relation.kind,
        scale=relation.scale,
        precision=precision_of(linear, steps, features, logits),
        difference=difference,
        class_labels=_class_labels(graph, output) or relation.labels,
        layout=Layout(
            linear,
            step,
            features_axis,
            axis,
            rows_per_example,
            rows_per_example == 1
            and not _may_have_more_rows(graph, feed, linear, step, features_axis),
            features.shape,
            logits.shape,
            are_logits_coarse=logits.dtype == np.float16,
            are_features_coarse=features.dtype == np.float16,
        ),
    )


def _may_have_more_rows(
    graph: FileGraph,
    feed: Mapping[str, np.ndarray],
    linear: Linear,
    step: Step,
    features_axis: int,
) -> bool:
    """Whether an example with more time steps or pixels has more than one prediction."""
    longer = lengthened(graph, some_examples(graph, feed, [0]))
    if longer is None or linear.weight is None:
        return False
    extension, name = chosen(linear, step)
    try:
        features = Runner(graph, names=[name], extend=extension).run(longer, [name])[name]
    except LaplaceBridgeError:  # it takes no longer ones, whatever it declares
        return False
    size = linear.weight.shape[1]
    # where several dimensions are one row of features, there is no place for more
    return features.shape[features_axis] == size < features.size


def _last_cut(graph: FileGraph, output: str) -> Linear:
    """The last linear layer that every value on its way to the output crosses.

    Raises:
        HeadNotFoundError: If there is none.
    """
    above = graph.ancestors([output])
    nodes = [node for node in graph.nodes if id(node) in above]
    if any(node.op_type in RANDOM or drops(graph, node) for node in nodes):
        raise HeadNotFoundError(why_no_layer(graph, output, nodes))
    for node in reversed(nodes):
        linear = linear_of(graph, node) if is_product(node) else None
        if linear is None:
            continue
        cut = list(node.output) if linear.logits is None else [linear.logits]
        if not graph.depends_on_inputs(output, without=cut):
            return linear
    raise HeadNotFoundError(why_no_layer(graph, output, nodes))


def _classifier_head(
    graph: FileGraph, feed: Mapping[str, np.ndarray], output: str, linear: Linear
) -> Head:
    """A `LinearClassifier`, which gives labels and probabilities and keeps its logits to
    itself.
    """
    assert linear.weight is not None  # noqa: S101
    end = before_packing(graph, output)
    names = [linear.features, end]
    values = Runner(graph, names=names).run(feed, names)
    bias = np.zeros(len(linear.weight)) if linear.bias is None else linear.bias
    part = Part(graph, [linear.features], [end])
    beside = Runner(graph, names=part.needed).run(feed, part.needed) if part.needed else {}
    features = values[linear.features]
    generator = np.random.default_rng(0)
    pairs = []
    real = features.astype(np.float64)
    for factor in (0.3, 1.0):
        drawn = (factor * generator.permuted(real, axis=0)).astype(features.dtype)
        given = part.run({linear.features: drawn}, beside)
        logits = drawn.astype(np.float64).reshape(len(drawn), -1) @ linear.weight.T + bias
        pairs.append(Pair(logits, given[end]))
    pairs.append(Pair(real.reshape(len(real), -1) @ linear.weight.T + bias, values[end]))
    relation = judged(graph, output, named(linear.node), pairs, part.nodes[1:], FLOAT)
    labels = linear.class_labels or _class_labels(graph, output)
    # its only logit is that of the second class, also if the output is the share of the first
    scale = abs(relation.scale) if len(linear.weight) == 1 else relation.scale
    return Head(
        path=str(graph.path),
        output=output,
        node=named(linear.node),
        features=linear.features,
        logits=None,
        weight=(linear.weight * scale).astype(np.float32),
        bias=(bias * scale).astype(np.float32),
        relation=relation.kind,
        scale=scale,
        precision=str(features.dtype) if features.dtype.kind == "f" else "float32",
        difference=0.0,
        class_labels=labels,
        layout=Layout(linear, None, -1, -1, 1, has_one_row=True, features_shape=features.shape),
    )


def _class_labels(graph: FileGraph, output: str) -> tuple[Any, ...]:
    """What a ZipMap calls the classes."""
    maker = graph.producers.get(output)
    if maker is None or maker.op_type != "ZipMap":
        return ()
    names = attribute(maker, "classlabels_strings") or attribute(maker, "classlabels_int64s")
    return tuple(names or ())
