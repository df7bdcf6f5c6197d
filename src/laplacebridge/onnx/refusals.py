"""Why a model cannot be covered, in words that say what to do."""

from collections.abc import Sequence
from typing import Any

from laplacebridge.onnx import tail
from laplacebridge.onnx.following import drops
from laplacebridge.onnx.layers import OPTIMISED, is_product, linear_of
from laplacebridge.onnx.model import RANDOM, FileGraph, named
from laplacebridge.onnx.tail import Pair

_SHOWN = 8
_FUSED = frozenset({"FusedGemm", "FusedConv"})  # a layer and its activation
WITHOUT_IT = (
    "Export the model without what stands between; if that belongs to the network, add a linear"
    " layer behind it and train that."
)


def why_no_layer(graph: FileGraph, output: str, nodes: Sequence[Any]) -> str:
    """Why an output has no linear layer that all values cross.

    Args:
        graph: The file.
        output: The output.
        nodes: What makes it, in order.
    """
    begin = f"Output '{output}' of {graph.path} has no linear layer that gives its logits:"
    reason = known_reason(graph, nodes)
    if reason is not None:
        return f"{begin} {reason}"
    beside = [node for node in nodes if is_product(node) and linear_of(graph, node) is not None]
    if beside:
        listed = ", ".join(named(node) for node in beside[-3:])
        made = [name for node in beside for name in node.output]
        around = graph.inputs_of(output, without=made)
        values = f"values of {', '.join(map(repr, around))}" if around else "values"
        return (
            f"{begin} {values} reach it on ways that cross none of {listed}, as with several heads"
            " that are added, or a shortcut around the last layer. Give the output of one layer"
            " that all values cross."
        )
    last = ", ".join(node.op_type for node in nodes[-_SHOWN:]) or "an input as it is"
    return (
        f"{begin} it is made by {last}, without a matrix product with constant weights. Give a"
        " classifier whose last layer is linear."
    )


def known_reason(graph: FileGraph, nodes: Sequence[Any]) -> str | None:
    """Why nodes hold no head, where their kinds tell; None otherwise.

    Args:
        graph: The file.
        nodes: The nodes.
    """
    kinds = {node.op_type for node in nodes}
    trees = sorted(kind for kind in kinds if kind.startswith(("TreeEnsemble", "SVM")))
    if trees:
        return (
            f"it comes from {trees[0]}. Only the last linear layer of a network or of a linear"
            " model can be covered; train one of these, or use another method for"
            f" {'trees' if trees[0].startswith('Tree') else 'support vectors'}."
        )
    drawn = [node for node in nodes if node.op_type in RANDOM or drops(graph, node)]
    if drawn:
        return (
            f"{named(drawn[-1])} draws random numbers, so that no two runs agree. Export the model"
            " for inference, without them."
        )
    fed = [
        node
        for node in nodes
        if is_product(node) and any(_is_fed(graph, name) for name in list(node.input)[1:2])
    ]
    if fed:
        return (
            f"the weights of {named(fed[-1])} are fed as the input '{fed[-1].input[1]}'. Store them"
            " in the file as an initializer."
        )
    called = {(each.domain, each.name) for each in graph.model.functions}
    if any((node.domain, node.op_type) in called for node in nodes):
        return (
            "it may be inside one of the file's functions. Put these in their place first:"
            " `onnx.save(onnx.inliner.inline_local_functions(onnx.load(path)), path)`."
        )
    layers = [node for node in nodes if is_product(node) or node.op_type in _FUSED]
    if layers and (layers[-1].op_type in _FUSED or layers[-1].domain == OPTIMISED):
        return (
            f"ONNX Runtime has optimised the file, and {named(layers[-1])} has weights or an"
            " activation inside that cannot be told apart. Give the model as it was before, or as"
            " it is with ORT_ENABLE_BASIC."
        )
    inner = [node for node in nodes if node.op_type in {"If", "Loop", "Scan", "SequenceMap"}]
    if inner:
        return (
            f"it may be inside the subgraph of {named(inner[-1])}, whose tensors cannot be read"
            " from outside. Export the model without control flow, or with the last layer outside"
            " of it."
        )
    return None


def why_unrelated(
    graph: FileGraph, name: str, pairs: Sequence[Pair], nodes: Sequence[Any], room: float
) -> str:
    """Why an output is nothing that is known of the logits.

    Args:
        graph: The file.
        name: The linear layer.
        pairs: Logits, and what came out.
        nodes: What stands between.
        room: What counts as rounding.
    """
    reason = known_reason(graph, nodes)
    if reason is not None:
        return f"the last linear layer that can be read is {name}, and {reason}"
    if classes_of(pairs) > 1 and tail.is_multilabel(pairs, room):
        return (
            f"it is a sigmoid for each of {classes_of(pairs)} classes, which do not exclude each"
            " other (several labels may hold). A distribution over class probabilities needs one"
            " class for each example: cut out one logit at a time as a model of its own, which is a"
            " binary head; or give a file whose output are the logits, before the sigmoid, and fit"
            " that with `multi_label=True`."
        )
    beside = [node for node in nodes if is_product(node)]
    if beside and all(linear_of(graph, node) is None for node in beside):
        return (
            f"the last linear layer that can be read is {name}, and {named(beside[-1])} behind it is"
            " none: its weights would have to be constants that are multiplied with every feature"
            " vector alike, and its bias one number for each class. Export the last layer as"
            " MatMul and Add, or as Gemm."
        )
    if beside:
        return (
            f"the last linear layer that all values cross is {name}, and behind it"
            f" {', '.join(named(node) for node in beside[:3])} stand on several ways that meet"
            " again. Give an output that one linear layer makes."
        )
    listed = ", ".join(node.op_type for node in nodes[:_SHOWN])
    return (
        f"between the last linear layer, {name}, and this output stand {listed}"
        f"{', …' if len(nodes) > _SHOWN else ''}, which make neither softmax, log-softmax, a label"
        f" nor a multiple of its logits. {WITHOUT_IT}"
    )


def _is_fed(graph: FileGraph, name: str) -> bool:
    """Whether a tensor is an input, perhaps in another layout or type."""
    while name not in graph.inputs:
        maker = graph.producers.get(name)
        if maker is None or maker.op_type not in {"Identity", "Transpose", "Cast", "Reshape"}:
            return False
        name = maker.input[0]
    return True


def classes_of(pairs: Sequence[Pair]) -> int:
    """Logits in a row.

    Args:
        pairs: Logits and outputs.
    """
    return pairs[0].logits.shape[1]
