"""What a file of scores says of each example, by columns."""

from typing import Any

import numpy as np
from torch import Tensor

from laplacebridge.multi_label import MultiLabelPrediction
from laplacebridge.prediction import Prediction
from laplacebridge.selective import Action
from laplacebridge.selective.policy import Policy
from laplacebridge.sets import overlap_sets


def columns_of_one_class(
    arrow: Any,  # noqa: ANN401
    policy: Policy,
    prediction: Prediction,
    level: float,
) -> dict[str, Any]:
    """The most probable class, how probable it is, and what follows from what a
    classifier carries.

    Args:
        arrow: The module pyarrow.
        policy: What the classifier carries.
        prediction: For some rows.
        level: Of the bounds.
    """
    label = prediction.label
    lower, upper = prediction.interval(level)

    def of_label(values: Tensor) -> np.ndarray:
        return values.gather(-1, label.unsqueeze(-1)).squeeze(-1).float().numpy()

    columns: dict[str, Any] = {
        "label": label.numpy(),
        "probability": of_label(prediction.mean),
        "lower": of_label(lower),
        "upper": of_label(upper),
    }
    columns |= _carried(arrow, policy, prediction)
    if prediction.unusual is not None:
        columns["ood_score"] = prediction.ood_score.float().numpy()
        if len(prediction.unusual.reference):
            columns["ood_quantile"] = prediction.ood_quantile.float().numpy()
    return columns


def columns_of_labels(
    arrow: Any,  # noqa: ANN401
    policy: Policy,
    prediction: MultiLabelPrediction,
    level: float,
) -> dict[str, Any]:
    """Which of several labels apply, and how probable each of them is.

    Args:
        arrow: The module pyarrow.
        policy: What the classifier carries.
        prediction: For some rows.
        level: Of the bounds.
    """
    mean = prediction.mean
    order = mean.sort(dim=-1, descending=True, stable=True).indices
    applying = [
        row[chosen].tolist() for row, chosen in zip(order, prediction.applies.gather(-1, order))
    ]
    columns = {"labels": arrow.array(applying, arrow.list_(arrow.int64()))}
    if policy.class_names is not None:
        names = [[policy.class_names[index] for index in row] for row in applying]
        columns["label_names"] = arrow.array(names, arrow.list_(arrow.string()))
    lower, upper = prediction.interval(level)
    for name, values in (("probabilities", mean), ("lower", lower), ("upper", upper)):
        columns[name] = arrow.array(list(values.float().numpy()), arrow.list_(arrow.float32()))
    has_score, has_quantile = prediction.knows_unusual
    if has_score:
        columns["ood_score"] = prediction.ood_score.float().numpy()
    if has_quantile:
        columns["ood_quantile"] = prediction.ood_quantile.float().numpy()
    if policy.unusual_above is not None:
        beyond = prediction.ood_quantile > policy.unusual_above
        columns["unusual"] = arrow.array(beyond.tolist())
    return columns


def _carried(arrow: Any, policy: Policy, prediction: Prediction) -> dict[str, Any]:  # noqa: ANN401
    """What follows from what a classifier carries: sets, decisions, names."""
    sets = overlap_sets(prediction) if policy.sets is None else policy.sets(prediction)
    columns = {"set": arrow.array(sets.to_lists(), arrow.list_(arrow.int64()))}
    if policy.rule is not None:
        decisions = policy(prediction)
        actions = [Action(action).name.lower() for action in decisions.action.tolist()]
        columns |= {"decision": arrow.array(actions), "reason": arrow.array(decisions.reasons())}
    elif policy.unusual_above is not None:
        beyond = prediction.as_rows().ood_quantile > policy.unusual_above
        columns["unusual"] = arrow.array(beyond.tolist())
    if policy.class_names is not None:
        names = [policy.class_names[index] for index in prediction.label.tolist()]
        columns["label_name"] = arrow.array(names)
    return columns
