"""A linear layer of an ONNX graph, whoever wrote it, and numbers by class."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from laplacebridge.onnx.model import attribute

LAST, SECOND, BEFORE_LAST = -1, 1, -2  # where classes or features are
CLASSIFIER = "LinearClassifier"


@dataclass(frozen=True)
class Dequantise:
    """Scale and zero point of a tensor of integers, by the names of their tensors."""

    scale: str
    zero_point: str


@dataclass(frozen=True, eq=False)
class Linear:
    """A linear layer: logits = features · weight + bias.

    Attributes:
        node: The node that multiplies.
        features: The tensor that it takes.
        logits: The tensor that it gives; None if it keeps them to itself.
        weight: Shape (K, D); None if it can only be had by running the layer.
        bias: Shape (K,); of what the node adds itself.
        features_axis: Where in `features` the D features are; −1 also where all but the
            first dimension are features.
        logits_axis: Where in `logits` the K classes are.
        dequantise: How integers in `features` become numbers.
        is_quantised: Whether products are of integers, and so no more than near.
        class_labels: What the file calls its classes, if the layer says so.
        post_transform: What a `LinearClassifier` makes of the logits.
    """

    node: Any
    features: str
    logits: str | None
    weight: np.ndarray | None
    bias: np.ndarray | None = None
    features_axis: int = LAST
    logits_axis: int = LAST
    dequantise: Dequantise | None = None
    is_quantised: bool = False
    class_labels: tuple[Any, ...] = ()
    post_transform: str = ""


def per_class(value: np.ndarray, num_classes: int) -> np.ndarray | None:
    """A constant that is combined with logits as one number for each class; None if it is
    more than that.

    Args:
        value: The constant, of any shape.
        num_classes: K.
    """
    flat = value.astype(np.float64).reshape(-1)
    if flat.size == 1:
        return np.full(num_classes, flat[0])
    longest = max(value.shape)
    return flat if flat.size == longest == num_classes else None


def is_plain_convolution(node: Any, kernel: np.ndarray) -> bool:  # noqa: ANN401
    """Whether a convolution over one pixel, or over all that there are, is a linear layer
    there: without groups, padding and, over one, without strides.

    Args:
        node: The node.
        kernel: Its weights.
    """
    over_one = all(size == 1 for size in kernel.shape[2:])
    is_whole = (
        attribute(node, "group", 1) == 1
        and (over_one or attribute(node, "auto_pad", "NOTSET") in {"NOTSET", "VALID"})
        and not any(attribute(node, "pads", [0]))
    )
    return is_whole and not (
        over_one and any(step != 1 for step in attribute(node, "strides", [1]))
    )
