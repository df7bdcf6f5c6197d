"""Requirements that a report must meet, such as ``ece<0.03``: for continuous
integration.
"""

import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any

from laplacebridge.errors import InputError

_OPERATORS = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_FORM = re.compile(r"\s*([a-z_]+)\s*(<=|>=|<|>)\s*([-+0-9.eE]+)\s*(%?)\s*")
# What can be required, and what each is.
MEASURED = {
    "accuracy": "share of right answers",
    "nll": "negative log-likelihood",
    "ece": "calibration error",
    "brier": "Brier score",
    "aurc": "area under the risk–coverage curve",
    "set_size": "mean size of calibrated sets",
    "coverage": "share of calibrated sets that hold the label",
    "answered": "share answered at the stated risk",
    "wrong": "share of wrong answers among these",
    "deferred": "share that goes to a person",
    "intervals": "share of groups in which labels bear out the intervals",
    "auroc": "AUROC of the score of unusual inputs",
    "noticed": "share of unusual inputs noticed",
    "false_alarms": "share of ordinary inputs taken for unusual",
    "worst_class_accuracy": "smallest accuracy of a class",
    "worst_class_coverage": "smallest coverage of a class",
    "worst_group_accuracy": "smallest accuracy of a group",
}


def measured(record: Mapping[str, Any]) -> dict[str, float | None]:
    """Every figure that can be required, by name; None where it was not measured.

    Args:
        record: What `Evaluation.to_dict` gives.
    """
    own = next(row for row in record["rows"] if row["method"] == record["own"])
    rules, chosen = record["decisions"]["rules"], record["decisions"]["chosen_risk"]
    rule = next((each for each in rules if each["risk"] == chosen), None)
    figures = {figure["name"]: _estimate(figure["value"]) for figure in record["figures"]}
    scores = {row["name"]: _estimate(row["auroc"]) for row in record["scores"]}
    intervals, alarm = record["intervals"], record["alarm"]
    return {
        **{name: own[name] for name in ("accuracy", "nll", "ece", "brier", "aurc", "set_size")},
        "coverage": _estimate(record["sets"]["found"]),
        "answered": 0.0 if rule is None else _estimate(rule["answered"]),
        "wrong": None if rule is None else _estimate(rule["wrong"]),
        "deferred": 1.0 if rule is None else _estimate(rule["deferred"]),
        "intervals": (
            None if intervals is None else intervals["agreeing"] / len(intervals["bins"])
        ),
        "auroc": scores.get("ood_score", scores.get("msp")),
        "noticed": figures.get("noticed"),
        "false_alarms": None if alarm is None else _estimate(alarm["false"]),
        "worst_class_accuracy": _least(row["accuracy"] for row in record["classes"]),
        "worst_class_coverage": _least(row["coverage"] for row in record["classes"]),
        "worst_group_accuracy": _least(_estimate(row["accuracy"]) for row in record["groups"]),
    }


def unmet(record: Mapping[str, Any], requirements: Sequence[str]) -> list[str]:
    """Which requirements are not met, each with what was found.

    A requirement compares what was found on these data, not the ends of its interval. A
    figure that was not measured meets nothing.

    Args:
        record: What `Evaluation.to_dict` gives.
        requirements: Such as ``"ece<0.03"``, ``"coverage>=90%"``.

    Raises:
        InputError: If one cannot be read, or names nothing that is measured.

    Example:
        >>> unmet({}, ["ece"])
        Traceback (most recent call last):
        ...
        laplacebridge.errors.InputError: A requirement is a name, one of ...; got 'ece'.
    """
    wanted = [_read(requirement) for requirement in requirements]
    found = measured(record) if wanted else {}
    failed = []
    for name, sign, bound, text in wanted:
        value = found[name]
        if value is None:
            failed.append(f"{text}: {name} was not measured")
        elif not _OPERATORS[sign](value, bound):
            failed.append(f"{text}: {name} is {value:.4g}")
    return failed


def require_readable(requirements: Sequence[str]) -> None:
    """Reads requirements before any work is done.

    Args:
        requirements: As for `unmet`.
    """
    for requirement in requirements:
        _read(requirement)


def _read(requirement: str) -> tuple[str, str, float, str]:
    form = _FORM.fullmatch(requirement)
    try:
        bound = float(form[3]) if form else None
    except ValueError:
        bound = None
    if form is None or bound is None:
        raise InputError(
            "A requirement is a name, one of <, <=, >, >=, and a number, as in 'ece<0.03'; got"
            f" '{requirement}'."
        )
    name = form[1]
    if name not in MEASURED:
        raise InputError(
            f"A requirement names one of {', '.join(MEASURED)}; got '{name}' in '{requirement}'."
        )
    return name, form[2], bound / 100 if form[4] else bound, requirement.strip()


def _estimate(value: Any) -> float | None:  # noqa: ANN401 - an interval as JSON has it
    return None if value is None else value["estimate"]


def _least(values: Any) -> float | None:  # noqa: ANN401 - an iterable of numbers
    return min(values, default=None)
