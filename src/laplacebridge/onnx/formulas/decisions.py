"""Sets of classes and decisions in graphs: `sets/` and `selective/` once more."""

import math

import numpy as np

from laplacebridge.errors import InputError
from laplacebridge.onnx.formulas.nodes import Value
from laplacebridge.onnx.formulas.predictions import GraphPrediction
from laplacebridge.selective import Action, SelectiveRule
from laplacebridge.selective.policy import Policy, score_name, set_rule_name
from laplacebridge.sets import RAPS, CalibratedSets, LeastAmbiguous, Mass, TopK

_SCORES = (
    "msp",
    "entropy_of_mean",
    "expected_entropy",
    "mutual_information",
    "negative_log_total",
    "max_marginal_variance",
)


def set_members(prediction: GraphPrediction, sets: CalibratedSets, num_classes: int) -> Value:
    """Which classes are in the set of each row, shape (B, K).

    Args:
        prediction: The prediction.
        sets: A calibrated rule.
        num_classes: K.

    Raises:
        InputError: If the rule cannot be written.
    """
    rule, threshold, mean = sets.rule, sets.threshold, prediction.mean
    if isinstance(rule, LeastAmbiguous):
        members = ~(mean < threshold)
    elif isinstance(rule, RAPS) and rule.generator is not None:
        raise InputError(
            f"A graph draws no random numbers, which {set_rule_name(rule)} does by default."
            " Calibrate it without, `generator=None`; or calibrate `LeastAmbiguous`, whose sets"
            " are smaller."
        )
    elif isinstance(rule, (TopK, Mass, RAPS)):
        members = _ranked_members(mean, rule, threshold, num_classes)
    else:
        raise InputError(
            "A graph can hold sets of LeastAmbiguous, Mass, TopK, APS and RAPS; got"
            f" {type(rule).__name__}. Calibrate `LeastAmbiguous`."
        )
    if sets.never_empty:
        classes = mean.graph.constant(list(range(num_classes)), "int64")
        members = members | classes.equals(prediction.label)
    return members


def _ranked_members(
    mean: Value, rule: TopK | Mass | RAPS, threshold: float, num_classes: int
) -> Value:
    """Membership by the place in the ranking, brought back to the order of classes."""
    graph = mean.graph
    number = graph.constant([num_classes], "int64")
    names = graph.call("TopK", mean, number, gives=2, axis=-1, largest=1, sorted=1)
    ranked, order = mean.like(names[0]).cast("float64"), mean.like(names[1], "int64")
    places = np.arange(num_classes)
    before = ranked.apply("CumSum", graph.constant(1, "int64"), exclusive=1)
    if isinstance(rule, TopK):
        inside = (before * 0.0 + graph.constant(places, "float64")) < float(int(threshold))
    elif isinstance(rule, Mass):
        inside = (before < threshold) | graph.constant(places == 0, bool)
    else:
        penalties = rule.penalty * np.maximum(places + 1 - rule.free_places, 0)
        inside = ~((before + ranked + graph.constant(penalties, "float64")) > threshold)
    values = inside.cast("float32")
    return (mean * 0.0).apply("ScatterElements", order, values, axis=-1) > 0.5


def actions(
    prediction: GraphPrediction,
    policy: Policy,
    members: Value | None,
    quantile: Value | None,
    num_classes: int,
) -> Value:
    """The `Action` of each row, shape (B, 1).

    Args:
        prediction: The prediction.
        policy: With a rule.
        members: Of the sets, if there are any.
        quantile: How unusual each row is, if that is asked.
        num_classes: K.
    """
    assert policy.rule is not None  # noqa: S101  (checked by the caller)
    graph = prediction.mean.graph
    answered = _answered(prediction, policy.rule)
    action = answered.where(
        graph.constant(int(Action.ANSWER), "int64"), graph.constant(int(Action.DEFER), "int64")
    )
    if members is not None:
        size = members.cast("float32").sum()
        largest = min(policy.max_set_size or num_classes - 1, num_classes)
        named = (size > 1.5) & (size < largest + 0.5) & ~answered
        action = named.where(graph.constant(int(Action.SET), "int64"), action)
    if quantile is not None and policy.unusual_above is not None:
        unusual = quantile > policy.unusual_above
        action = unusual.where(graph.constant(int(Action.DEFER), "int64"), action)
    return action


def _answered(prediction: GraphPrediction, rule: SelectiveRule) -> Value:
    if math.isinf(rule.threshold):
        return ~(prediction.msp < -math.inf)
    return ~(_score(prediction, score_name(rule)).cast("float64") > rule.threshold)


def _score(prediction: GraphPrediction, name: str) -> Value:
    if name not in _SCORES:
        raise InputError(
            f"A graph can hold rules of the scores {', '.join(_SCORES)}; got {name}. Calibrate the"
            " rule with another."
        )
    if name == "negative_log_total":
        return -prediction.log_total
    if name == "max_marginal_variance":
        shrink = (-prediction.log_total).apply("Sigmoid")
        return (prediction.mean * prediction.others).max() * shrink
    parts = {
        "msp": "msp",
        "entropy_of_mean": "total",
        "expected_entropy": "aleatoric",
        "mutual_information": "epistemic",
    }
    value: Value = getattr(prediction, parts[name])
    return value
