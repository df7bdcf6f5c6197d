"""What was found in an ONNX model: its head, and how that lies in its tensors."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from laplacebridge.onnx import tail
from laplacebridge.onnx.following import Step
from laplacebridge.onnx.linear import Linear

SAID = {
    tail.SOFTMAX: "the softmax of its logits",
    tail.LOG_SOFTMAX: "the log-softmax of its logits",
    tail.LOGITS: "its logits",
    tail.SIGMOID: "the sigmoid of its logit",
    tail.LABEL: "the label of its largest logit",
    tail.TOP: "the top of the softmax of its logits",
}


@dataclass(frozen=True, eq=False)
class Head:
    """The last linear layer of an ONNX model, verified by numbers.

    Attributes:
        path: The file.
        output: The output that it gives.
        node: The node that multiplies features and weights.
        features: The tensor of features.
        logits: The tensor of logits; None if the graph has none, as `LinearClassifier`.
        weight: Shape (K, D), with scalings that follow folded in; one row if there is one
            logit for two classes.
        bias: Shape (K,), the same.
        relation: What the output is of the logits: softmax, log-softmax, logits, sigmoid,
            label or top classes.
        scale: What the tensor of logits is multiplied with to give ``features · weightᵀ +
            bias``.
        precision: "float32", "float16", "float64" or "8-bit".
        difference: Largest difference between the graph's logits and those of weight and
            bias on the feed, relative to their range.
        class_labels: What the file calls its classes, if it does.
        layout: How features and logits lie in their tensors.
    """

    path: str
    output: str
    node: str
    features: str
    logits: str | None
    weight: np.ndarray
    bias: np.ndarray
    relation: str
    scale: float
    precision: str
    difference: float
    class_labels: tuple[Any, ...]
    layout: "Layout"

    @property
    def num_classes(self) -> int:
        """K; two if there is one logit."""
        return max(2, len(self.weight))

    @property
    def num_features(self) -> int:
        """D."""
        return self.weight.shape[1]

    def described(self) -> str:
        """What was found, in a sentence."""
        classes = (
            "one logit for two classes"
            if len(self.weight) == 1
            else (f"{len(self.weight)} classes")
        )
        return (
            f"{self.node} ({self.num_features} features, {classes}, {self.precision}); output"
            f" '{self.output}' is {SAID[self.relation]}"
        )

    @property
    def rows_per_example(self) -> int:
        """Predictions for each example: one, or as many as there are time steps."""
        return self.layout.rows_per_example


@dataclass(frozen=True, eq=False)
class Layout:
    """How features and logits lie in their tensors, for those who read them.

    Attributes:
        linear: The layer.
        step: The tensor of logits; None if there is none.
        features_axis: Where the D features are.
        logits_axis: Where the K classes are.
        rows_per_example: Predictions for each example, in the feed that the head was
            verified by.
        has_one_row: Whether there is one prediction for each example, whatever is fed:
            one time step may be more of them elsewhere.
        features_shape: Of the tensor, on that feed.
        logits_shape: The same; empty if there is no such tensor.
        are_logits_coarse: Whether logits have half precision.
        are_features_coarse: Whether features have.
    """

    linear: Linear
    step: Step | None
    features_axis: int
    logits_axis: int
    rows_per_example: int
    has_one_row: bool
    features_shape: tuple[int, ...]
    logits_shape: tuple[int, ...] = ()
    are_logits_coarse: bool = False
    are_features_coarse: bool = False
