"""Appending answers to an ONNX graph: what a classifier says of its logits, as nodes that
any runtime can run.

The nodes are a template, written from the formulas of the library with the classifier's
arrays put in: a few hundred standard operators, whatever the network is. A graph's own
nodes, arrays, outputs and opset stay as they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from laplacebridge._answers import ANSWERS, LABEL_ANSWERS, USUAL, require_answers
from laplacebridge._checks import require_level
from laplacebridge.bridges.precision import MANY_CLASSES
from laplacebridge.classifier import Classifier
from laplacebridge.errors import InputError
from laplacebridge.laplace.head_posteriors.base import HeadPosterior
from laplacebridge.multi_label.classifier import MultiLabelClassifier
from laplacebridge.multi_label.logistic import logistic_bridge
from laplacebridge.onnx.formulas.decisions import actions, set_members
from laplacebridge.onnx.formulas.gaussians import wide_and_narrow
from laplacebridge.onnx.formulas.labels import GraphLabels, joint_logit
from laplacebridge.onnx.formulas.nodes import Graph, Value, joined
from laplacebridge.onnx.formulas.predictions import GraphPrediction
from laplacebridge.onnx.formulas.unusual import GraphUnusual
from laplacebridge.selective import Action
from laplacebridge.selective.policy import Policy

PREFIX = "lb_"
OLDEST_OPSET = 11
_FLOAT32 = 1  # of `onnx.TensorProto.DataType`


@dataclass(frozen=True)
class Wanted:
    """Which answers a file gives.

    Attributes:
        outputs: Names of `ANSWERS`.
        level: Of the intervals.
        float16: Whether arrays are stored in half precision.
        policy: For ``set`` and ``decision``, in place of the classifier's own.

    Raises:
        InputError: If the level is not between 0 and 1.
    """

    outputs: Sequence[str] = USUAL
    level: float = 0.95
    float16: bool = False
    policy: Policy | None = None

    def __post_init__(self) -> None:
        require_level("Wanted(level)", self.level)


def append_answers(
    model: Any,  # noqa: ANN401  (an onnx.ModelProto)
    classifier: Classifier,
    *,
    features: str,
    logits: str | None,
    wanted: Wanted | None = None,
    inputs: Sequence[str] = (),
    rank: int = 2,
    examples_axis: int = 0,
    leading_shape: Sequence[int | str | None] = ("batch",),
    prefix: str = PREFIX,
) -> list[str]:
    """Appends the answers of a classifier to a model, as nodes and outputs; nothing that
    is there is changed.

    Args:
        model: An `onnx.ModelProto`, of opset 11 or later, which is extended in place.
        classifier: A classifier with a posterior of its head alone.
        features: Name of the tensor that the head takes, shape (…, D), in any floating
            type.
        logits: Name of the tensor that the head gives, shape (…, K); of a binary head
            with one logit, (…, 1). None to compute them from the features with the
            weights of the posterior, which are then stored.
        wanted: Which answers; by default probabilities with intervals and the parts of
            uncertainty.
        inputs: Names of float inputs of the graph, examples first: rows in which one of
            them is not finite answer NaN, also where the network has turned NaN into
            something else.
        rank: How many dimensions features and logits have; above two, as for time
            steps, answers have the same dimensions but the last.
        examples_axis: Which of these dimensions goes over examples.
        leading_shape: What the outputs declare of these dimensions, `rank − 1` of them:
            a number, the name of a dynamic dimension, or None.
        prefix: Of all new names.

    Returns:
        Names of the new outputs, in order.

    Raises:
        InputError: If the classifier cannot be written, an answer is not known, or the
            opset is too old.
    """
    wanted = wanted or Wanted()
    posterior, opset = classifier.posterior, _opset(model)
    several = isinstance(classifier, MultiLabelClassifier)
    if not isinstance(posterior, HeadPosterior):
        raise InputError(
            "A graph can hold the posterior of a head alone; this one covers"
            f" {classifier.network.described()}, and runs the network backward for each"
            " prediction. Fit without `layers`."
        )
    require_answers(wanted.outputs, several_labels=several)
    known = LABEL_ANSWERS if several else ANSWERS
    number = posterior.num_classes
    many = None if several or number < MANY_CLASSES else number
    graph = Graph(opset, prefix, float16=wanted.float16, num_classes=many)
    rows = _Rows(graph, classifier, features, logits, rank, _float32_tensors(model))
    answers = (_LabelAnswers if several else _Answers)(classifier, rows, wanted)
    bad = rows.not_finite(inputs, examples_axis)
    names = []
    for name in wanted.outputs:
        for output, value in zip(known[name], answers.values(name)):
            dtype, by_class = known[name][output]
            if dtype == "float32":
                value = bad.where(graph.constant(np.nan), value)
            elif output == "decision":
                value = bad.where(graph.constant(int(Action.DEFER), np.int64), value)
            elif output == "applies":
                value = value & ~bad
            elif output == "set":  # nothing is known: no class can be left out
                value = value | bad
            names.append(rows.give(model, prefix + output, value, by_class, leading_shape))
    nodes, arrays = graph.needed(names)
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(arrays)
    return names


def _opset(model: Any) -> int:  # noqa: ANN401
    """The opset of a model's standard operators.

    Raises:
        InputError: If it is too old.
    """
    versions = [entry.version for entry in model.opset_import if entry.domain in {"", "ai.onnx"}]
    if not versions or versions[0] < OLDEST_OPSET:
        raise InputError(
            f"Answers need opset {OLDEST_OPSET} or later; this model has"
            f" {versions[0] if versions else 'none'}. Convert it first:"
            " `onnx.version_converter.convert_version(model, 17)`."
        )
    return versions[0]


def _float32_tensors(model: Any) -> set[str]:  # noqa: ANN401
    """Tensors that a model declares to be in float32, which need no cast."""
    declared = (*model.graph.input, *model.graph.value_info, *model.graph.output)
    return {value.name for value in declared if value.type.tensor_type.elem_type == _FLOAT32}


class _Rows:
    """Features and logits as rows in float32, and answers in the dimensions of the graph."""

    def __init__(
        self,
        graph: Graph,
        classifier: Classifier,
        features: str,
        logits: str | None,
        rank: int,
        are_float32: set[str],
    ) -> None:
        posterior = classifier.posterior
        assert isinstance(posterior, HeadPosterior)  # noqa: S101  (checked by the caller)
        self.graph = graph
        self.rank = rank
        self._are_float32 = are_float32
        self._given = graph.value(features)
        self.num_classes = posterior.num_classes
        self.features = self._flat(features, posterior.num_features)
        if logits is None:
            self.logits = _computed_logits(posterior, self.features)
        elif getattr(classifier.network, "is_binary", False):
            half = self._flat(logits, 1) * 0.5
            self.logits = joined([-half, half], -1)
        else:
            self.logits = self._flat(logits, posterior.num_classes)

    def _flat(self, name: str, last: int) -> Value:
        value = self._float32(name)
        return value if self.rank == 2 else value.reshaped(-1, last)

    def _float32(self, name: str) -> Value:
        value = self.graph.value(name)
        return value if name in self._are_float32 else value.cast(np.float32)

    def not_finite(self, inputs: Sequence[str], examples_axis: int) -> Value:
        """Which rows are not finite, shape (B, 1): 0 · x is not 0 where x is NaN or
        infinite.
        """
        broken = (self.features * 0.0).sum() + (self.logits * 0.0).sum()
        for name in inputs:
            flat = self._float32(name).apply("Flatten", axis=1)
            of_example = (flat * 0.0).sum()
            if self.rank == 2:
                broken = broken + of_example
            else:  # of every place of an example
                shape = self._leading()
                sizes = [1] * (self.rank - 1)
                sizes[examples_axis] = -1
                spread = broken.apply("Reshape", shape) + of_example.reshaped(*sizes)
                broken = spread.reshaped(-1, 1)
        return broken.apply("IsNaN", dtype=bool)

    def _leading(self) -> Value:
        """The graph's own dimensions but the last."""
        return self._given.apply("Shape", dtype=np.int64).slice(0, self.rank - 1, 0)

    def give(
        self,
        model: Any,  # noqa: ANN401
        name: str,
        value: Value,
        by_class: bool,
        leading: Sequence[int | str | None],
    ) -> str:
        """Declares a value as an output of the model."""
        from onnx import helper

        shape: list[int | str | None] = [*leading]
        if self.rank == 2:
            value = value if by_class else value.squeezed(-1)
        else:
            wanted = self._leading()
            if by_class:
                wanted = joined([wanted, self.graph.constant([self.num_classes], np.int64)], 0)
            value = value.apply("Reshape", wanted)
        if by_class:
            shape.append(self.num_classes)
        self.graph.rename(value, name)
        kind = helper.np_dtype_to_tensor_dtype(value.dtype)
        model.graph.output.append(helper.make_tensor_value_info(name, kind, shape))
        return name


def _computed_logits(posterior: HeadPosterior, features: Value) -> Value:
    weight = features.graph.array(posterior.weight.double().cpu().numpy(), "weight", exact=True)
    inputs = [weight]
    if posterior.bias is not None:
        bias = posterior.bias.double().cpu().numpy()
        inputs.append(features.graph.array(bias, "bias", exact=True))
    return features.apply("Gemm", *inputs, transB=1)


class _Answers:
    """What a classifier answers, each part written when it is asked for."""

    def __init__(self, classifier: Classifier, rows: _Rows, wanted: Wanted) -> None:
        posterior = classifier.posterior
        assert isinstance(posterior, HeadPosterior)  # noqa: S101  (checked by the caller)
        self._wanted = wanted
        self._policy = wanted.policy or classifier.policy or Policy()
        self._num_classes = classifier.num_classes
        self._unusual = _unusual(classifier, rows.features, rows.logits)
        beyond = _beyond(classifier, self._unusual)
        gaussians = wide_and_narrow(posterior, rows.features, rows.logits, beyond)
        self.prediction = GraphPrediction(*gaussians, classifier.bridge)

    def values(self, name: str) -> tuple[Value, ...]:
        """The values of one answer, as many as it has outputs."""
        if name == "probabilities":
            return (self.prediction.mean,)
        if name in {"interval", "top_interval"}:
            return getattr(self.prediction, name)(self._wanted.level)
        if name in {"ood_score", "ood_quantile"}:
            unusual = self._known_unusual()
            return (unusual.score() if name == "ood_score" else unusual.quantile(),)
        if name == "set":
            return (self._members(needed=True),)
        if name == "decision":
            return (self._actions(),)
        if name == "log_odds_variance":
            return (self.prediction.spread,)
        return (getattr(self.prediction, name),)

    def _members(self, *, needed: bool = False) -> Any:  # noqa: ANN401
        if self._policy.sets is not None:
            return set_members(self.prediction, self._policy.sets, self._num_classes)
        if needed:
            raise InputError(
                "`set` needs calibrated sets: `classifier.with_rule(sets=lb.sets.calibrate(...))`."
            )
        return None

    def _actions(self) -> Value:
        if self._policy.rule is None:
            raise InputError(
                "`decision` needs a rule: `classifier.with_rule(lb.selective.calibrate(...))`."
            )
        asked = self._policy.unusual_above is not None
        quantile = self._known_unusual().quantile() if asked else None
        return actions(self.prediction, self._policy, self._members(), quantile, self._num_classes)

    def _known_unusual(self) -> GraphUnusual:
        return _required(self._unusual)


class _LabelAnswers:
    """What a classifier with several labels at once answers."""

    def __init__(self, classifier: Classifier, rows: _Rows, wanted: Wanted) -> None:
        posterior = classifier.posterior
        assert isinstance(posterior, HeadPosterior)  # noqa: S101  (checked by the caller)
        if classifier.bridge is not logistic_bridge:
            raise InputError(
                "Of several labels at once a graph can hold `logistic_bridge`; got another."
                " Choose it: `classifier.with_bridge(lb.multi_label.logistic_bridge)`."
            )
        self._level = wanted.level
        self._unusual = _unusual(classifier, rows.features, joint_logit(rows.logits))
        beyond = _beyond(classifier, self._unusual)
        self.prediction = GraphLabels(posterior, rows.features, rows.logits, beyond)

    def values(self, name: str) -> tuple[Value, ...]:
        """The values of one answer, as many as it has outputs."""
        if name == "probabilities":
            return (self.prediction.mean,)
        if name == "interval":
            return self.prediction.interval(self._level)
        if name in {"ood_score", "ood_quantile"}:
            unusual = _required(self._unusual)
            return (unusual.score() if name == "ood_score" else unusual.quantile(),)
        return (getattr(self.prediction, name),)


def _unusual(classifier: Classifier, features: Value, logits: Value) -> GraphUnusual | None:
    found = classifier.unusual
    return None if found is None else GraphUnusual(found, features, logits)


def _beyond(classifier: Classifier, unusual: GraphUnusual | None) -> Value | None:
    return None if unusual is None or classifier._fading is None else unusual.beyond()


def _required(unusual: GraphUnusual | None) -> GraphUnusual:
    if unusual is None:
        raise InputError(
            "`ood_score` needs a classifier whose fit summed its features. Fit with"
            " `feature_statistics=True`, or leave it out."
        )
    return unusual
