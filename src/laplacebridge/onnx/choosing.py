"""Which head is meant, where a file has several outputs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from onnx import TensorProto

from laplacebridge.errors import HeadNotFoundError
from laplacebridge.onnx import tail
from laplacebridge.onnx.head import SAID, Head
from laplacebridge.onnx.layers import is_product
from laplacebridge.onnx.model import FileGraph

_PROBABILITIES = frozenset({tail.SOFTMAX, tail.LOG_SOFTMAX, tail.SIGMOID})
_FLOATS = frozenset(
    {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16}
)


def chosen_of(graph: FileGraph, found: Sequence[Head], reasons: Mapping[str, str]) -> Head:
    """The head that is meant.

    Args:
        graph: The file.
        found: The heads of its outputs.
        reasons: Why other outputs have none, by name.

    Raises:
        HeadNotFoundError: If there are several, or if it may be of something else.
    """
    heads: dict[tuple[Any, ...], list[Head]] = {}
    for head in found:  # classes of one layer that are cut apart are heads of their own
        step = head.layout.step
        classes = () if step is None or step.classes is None else tuple(step.classes.tolist())
        heads.setdefault((id(head.layout.linear.node), classes), []).append(head)
    last = [same for same in heads.values() if not _is_below(graph, same[0], found)]
    if len(last) > 1:
        listed = "; ".join(
            f"'{same[0].output}' by {same[0].node} with {same[0].num_classes} classes"
            for same in last
        )
        raise HeadNotFoundError(
            f"{graph.path} has several heads: {listed}. Name the output of one, as"
            f" `output={last[0][0].output!r}`; each can be fitted by itself."
        )
    _require_probabilities(graph, last[0], reasons)
    order = (tail.SOFTMAX, tail.SIGMOID, tail.LOG_SOFTMAX, tail.LOGITS, tail.TOP, tail.LABEL)
    best = min(last[0], key=lambda head: order.index(head.relation))
    labels = next((head.class_labels for head in last[0] if head.class_labels), ())
    return replace(best, class_labels=labels)


def _is_below(graph: FileGraph, head: Head, others: Sequence[Head]) -> bool:
    """Whether another head takes what this one gives, as where an embedding is an output
    too.
    """
    node = head.layout.linear.node
    return any(
        id(node) in graph.ancestors([other.features])
        for other in others
        if other.layout.linear.node is not node
    )


def _require_probabilities(
    graph: FileGraph, heads: Sequence[Head], reasons: Mapping[str, str]
) -> None:
    """Refuses a head that is known only by labels or raw numbers, if another output was
    refused that may be the model's probabilities: the head may be of an embedding or a
    regression. Outputs of no other layers than those above the head are no such, as the
    features themselves or a state.

    Raises:
        HeadNotFoundError: If there is such an output.
    """
    if any(head.relation in _PROBABILITIES for head in heads):
        return
    head = heads[0]
    above = graph.ancestors([head.features])
    other = [
        name
        for name in reasons
        if _may_be_probabilities(graph, name)
        and any(
            is_product(node) and place not in above
            for place, node in graph.ancestors([name]).items()
        )
    ]
    if other:
        raise HeadNotFoundError(
            f"{reasons[other[0]]} Output '{head.output}' alone, {SAID[head.relation]} of"
            f" {head.node}, can be covered: name it, `output={head.output!r}`, if these are the"
            " logits of classes that exclude each other."
        )


def _may_be_probabilities(graph: FileGraph, output: str) -> bool:
    """Whether an output has numbers, in a tensor or as a mapping for each example."""
    kind = graph.outputs[output].type
    return not kind.HasField("tensor_type") or kind.tensor_type.elem_type in _FLOATS


def all_reasons(graph: FileGraph, reasons: Mapping[str, str]) -> str:
    """Why no output comes from a head.

    Args:
        graph: The file.
        reasons: Why each does not, by name.
    """
    if len(reasons) == 1:
        return next(iter(reasons.values()))
    listed = "\n".join(f"- '{name}': {reason}" for name, reason in reasons.items())
    return f"No output of {graph.path} comes from a head:\n{listed}"
