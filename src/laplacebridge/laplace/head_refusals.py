"""Why a network has no head that can be split off, in words that say what to do."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from laplacebridge.laplace.affine import linear_layers
from laplacebridge.laplace.batch import Batch, Output, logits_of
from laplacebridge.laplace.rounding import common_scale, nearly_equal
from laplacebridge.laplace.running import eval_mode

_PRODUCTS = {
    nn.functional.linear: "F.linear",
    torch.matmul: "matmul",
    torch.mm: "mm",
    Tensor.matmul: "matmul",
    Tensor.__matmul__: "@",
    Tensor.mm: "mm",
}


def layers_of(model: nn.Module) -> str:
    """The last linear layers of a network, in words.

    Args:
        model: The network.
    """
    names = [f"'{name}'" for name in linear_layers(model)]
    return f"its linear layers are {', '.join(names[-8:])}" if names else "it has no linear layers"


def known_endings(found: Tensor, expected: Tensor, name: str, *, is_binary: bool) -> str | None:
    """What follows the head, if it is a softmax or a sigmoid; else None.

    Args:
        found: What the network gives.
        expected: The logits of its head, of the same shape.
        name: Of the head.
        is_binary: Whether it has a single logit.
    """
    for transform, word in ((torch.softmax, "softmax"), (torch.log_softmax, "log-softmax")):
        if nearly_equal(found, transform(expected, -1)):
            return (
                f"The model ends in {word} after '{name}'; logits are needed. Remove the"
                f" {word}, or wrap the model up to that layer (losses such as cross-entropy"
                " take logits as they are)."
            )
    if not nearly_equal(found, expected.sigmoid()):
        return None
    advice = (
        "Remove the sigmoid."
        if is_binary
        else "Are these several labels at once, of which any number may apply?"
        " Then give `fit(..., multi_label=True)`, and the sigmoid may stay. If one"
        " class is right, remove the sigmoid and train with cross-entropy."
    )
    return f"The model ends in a sigmoid after '{name}'; logits are needed. {advice}"


def not_its_head(found: Tensor, expected: Tensor, name: str, model: nn.Module) -> str:
    """Says that the last linear layer does not give the network's logits, and what to
    do.

    Args:
        found: What the network gives.
        expected: What the layer gives.
        name: Of the layer.
        model: The network.
    """
    said = (
        f"The output of shape {tuple(found.shape)} is not what the last linear layer '{name}'"
        f" gives, of shape {tuple(expected.shape)}:"
    )
    if found.shape[-1:] != expected.shape[-1:]:
        return (
            f"{said} something follows it, or something else makes the logits. They must come from"
            " one linear layer of all classes; what several layers give of the same features is one"
            f" layer with their weights joined; {layers_of(model)}."
        )
    return (
        f"{said} something follows it, or is added to it. The model must end in its linear layer,"
        " with at most a fixed number that logits are multiplied or divided by. Put a fixed offset,"
        " order or scale of the classes into the layer's weight and bias; make layers whose results"
        " are added one layer of their features joined by `torch.cat`; of anything else, wrap the"
        f" model up to that layer. Or name another one; {layers_of(model)}."
    )


def computed_in_forward(model: nn.Module, batch: Batch, where: Output | None) -> str | None:
    """Says so, if the network computes its logits in `forward`, with weights that no
    layer applies; else None.

    Args:
        model: The network.
        batch: Its first.
        where: Where the logits are in what it returns.
    """
    calls = _Products()
    with torch.no_grad(), eval_mode(model), calls:
        output = model(*batch.arguments, **batch.keywords)
    found = logits_of(output, where)
    if calls.made is None or calls.made.numel() != found.numel():
        return None
    made = calls.made.reshape(found.shape)
    if not found.isfinite().all():
        return None
    is_scaled = not nearly_equal(made, found)
    if is_scaled and common_scale(*(each.flatten(0, -2) for each in (found, made))) is None:
        return None
    weight = calls.weight
    held = {id(parameter): name for name, parameter in model.named_parameters()}
    name = held.get(id(weight)) or held.get(id(getattr(weight, "_base", None)))
    if is_scaled and name is not None and name.rpartition(".")[0] in linear_layers(model):
        return None  # a layer whose weight does not say what it does
    if name is None:
        return (
            f"{type(model).__name__} computes its logits itself, by `{calls.name}` with a weight"
            " that it makes in `forward`, such as a normalised one, so that no layer has their"
            " features as its input. Copy that weight once after training into a layer,"
            " `self.head = nn.Linear(..., bias=False)` with `self.head.weight = ...`, and call"
            " `self.head(features)` there; the answers stay the same."
        )
    what = f"the parameter '{name}'"
    return (
        f"{type(model).__name__} computes its logits itself, by `{calls.name}` with {what} in"
        " `forward`, so that no layer has their features as its input. Give the weight a layer,"
        " `self.head = nn.Linear(...)` with `self.head.weight = ...`, and call"
        " `self.head(features)` there; the answers stay the same."
    )


class _Products(TorchFunctionMode):
    """Notes the last product with a matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.made: Tensor | None = None
        self.weight: Any = None
        self.name = ""

    def __torch_function__(
        self,
        func: Any,  # noqa: ANN401
        types: Any,  # noqa: ANN401
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        result = func(*args, **(kwargs or {}))
        if func in _PRODUCTS and len(args) > 1 and isinstance(result, Tensor):
            self.made, self.weight, self.name = result, args[1], _PRODUCTS[func]
        return result
