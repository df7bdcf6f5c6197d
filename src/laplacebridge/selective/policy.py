"""What a classifier does with its predictions, once it is used: a rule, sets, and the
names of its classes, in a form that files can hold.
"""

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from laplacebridge._warnings import warn
from laplacebridge.errors import InputError, InputTypeError
from laplacebridge.prediction import Prediction
from laplacebridge.scores import DIRICHLET_SCORES, LOGIT_SCORES, SCORES, Score
from laplacebridge.selective.conditional import ConditionalRule
from laplacebridge.selective.decisions import Decisions
from laplacebridge.selective.selective_rule import SelectiveRule
from laplacebridge.sets import (
    APS,
    RAPS,
    CalibratedSets,
    ClassConditionalSets,
    GroupConditionalSets,
    LeastAmbiguous,
    Mass,
    Overlap,
    TopK,
)
from laplacebridge.sets.rules import SetRule

# Scores and rules for sets that files can name.
NAMED_SCORES: dict[str, Score] = {**SCORES, **DIRICHLET_SCORES}
NAMED_SETS: dict[str, type[SetRule]] = {
    kind.__name__: kind for kind in (TopK, Mass, LeastAmbiguous, RAPS, APS, Overlap)
}


@dataclass(frozen=True)
class Policy:
    """What is done with predictions; made by `Classifier.with_rule`.

    Attributes:
        rule: Which predictions are answered.
        sets: Calibrated sets of classes.
        max_set_size: The largest set worth naming where there is no answer; see
            `SelectiveRule`.
        unusual_above: Inputs that are more unusual than this share of held-out data are
            deferred.
        class_names: A name for each class.
        preprocessing: How inputs are made, in words or as a name that users know.

    Example:
        >>> from laplacebridge.scores import msp
        >>> rule = SelectiveRule(msp, threshold=0.3, num_examples=10, num_answered=8)
        >>> policy = Policy(rule, class_names=("cat", "dog"))
        >>> Policy.from_text(policy.to_text()) == policy
        True
    """

    rule: SelectiveRule | None = None
    sets: CalibratedSets | None = None
    max_set_size: int | None = None
    unusual_above: float | None = None
    class_names: tuple[str, ...] | None = None
    preprocessing: str | None = None

    def __post_init__(self) -> None:
        for value, kind, made_by in (
            (self.rule, SelectiveRule, "lb.selective.calibrate"),
            (self.sets, CalibratedSets, "lb.sets.calibrate"),
        ):
            if isinstance(value, ConditionalRule | ClassConditionalSets | GroupConditionalSets):
                raise InputTypeError(
                    f"A classifier carries one threshold for all inputs; got {type(value).__name__},"
                    " which has one for each group or class, and whose groups a classifier does not"
                    " know. Keep it beside the classifier and call it with its predictions, or"
                    f" carry what `{made_by}` gives."
                )
            if value is not None and not isinstance(value, kind):
                raise InputTypeError(
                    f"`with_rule` needs what `{made_by}` gives; got {type(value).__name__}."
                )
        if self.rule is not None and self.rule.score in LOGIT_SCORES.values():
            raise InputError(
                "`with_rule` needs a rule of predictions; this one is of logits. Calibrate a score"
                f" of predictions: {', '.join(NAMED_SCORES)}."
            )
        if self.unusual_above is not None and not 0 <= self.unusual_above <= 1:
            raise InputError(
                "`with_rule(unusual_above)` needs a share of held-out data from 0 to 1; got"
                f" {self.unusual_above}. 0.99 defers one in a hundred inputs like them."
            )
        if self.max_set_size is not None and self.max_set_size < 2:
            raise InputError(
                "`with_rule(max_set_size)` needs a largest size of at least 2, because a set of one"
                f" class is an answer; got {self.max_set_size}. Without sets leave it out."
            )

    def require_classes(self, num_classes: int) -> None:
        """Refuses names of other classes.

        Args:
            num_classes: K.

        Raises:
            InputError: If there are more or fewer.
        """
        if self.class_names is not None and len(self.class_names) != num_classes:
            raise InputError(
                f"`with_rule(class_names)` needs a name for each of {num_classes} classes; got"
                f" {len(self.class_names)}."
            )

    def __call__(self, prediction: Prediction) -> Decisions:
        """Answers, names a set, or defers, with the reason.

        Args:
            prediction: Of the classifier that has this policy.

        Raises:
            InputError: If there is no rule.
        """
        if self.rule is None:
            raise InputError(
                "Decisions need a rule: `classifier.with_rule(lb.selective.calibrate(...))`."
            )
        prediction = prediction.as_rows()  # a decision for every token
        unusual = None
        if self.unusual_above is not None:
            unusual = prediction.ood_quantile > self.unusual_above
        sets = None if self.sets is None else self.sets(prediction)
        return self.rule(prediction, sets=sets, max_set_size=self.max_set_size, unusual=unusual)

    def updated(self, **changes: Any) -> "Policy":  # noqa: ANN401
        """The same with what is given put in its place; None keeps what is there.

        Args:
            changes: By the names of the attributes.
        """
        return replace(
            self, **{name: value for name, value in changes.items() if value is not None}
        )

    def promises(self) -> list[str]:
        """What stands behind the thresholds, in words."""
        found = []
        if self.rule is not None:
            found.append(_promise_of_rule(self.rule))
        if self.sets is not None:
            found.append(
                f"sets hold the label with probability at least {self.sets.coverage:g}, on average"
                f" over calibration sets of {self.sets.num_examples} examples, if new examples are"
                " exchangeable with them"
            )
        if self.unusual_above is not None:
            found.append(
                "an input like the held-out data is deferred as unusual with probability at most"
                f" {1 - self.unusual_above:.4g}"
            )
        return found

    def to_text(self) -> str:
        """As JSON, for files.

        Raises:
            InputError: If the score or the rule for sets is not one of the library's.
        """
        held: dict[str, Any] = {
            "max_set_size": self.max_set_size,
            "unusual_above": self.unusual_above,
            "class_names": None if self.class_names is None else list(self.class_names),
            "preprocessing": self.preprocessing,
        }
        if self.rule is not None:
            held["rule"] = {
                **{name: getattr(self.rule, name) for name in _RULE_FIELDS},
                "score": score_name(self.rule),
                # JSON has no infinity, which answers everything
                "threshold": _finite_or_none(self.rule.threshold),
            }
        if self.sets is not None:
            held["sets"] = {
                **{name: getattr(self.sets, name) for name in _SETS_FIELDS},
                "rule": set_rule_name(self.sets.rule),
                **_options_of(self.sets.rule),
            }
        return json.dumps(held)

    @classmethod
    def from_text(cls, text: str) -> "Policy":
        """From JSON, as `to_text` gives it.

        Args:
            text: The JSON.
        """
        held = json.loads(text)
        rule, sets, names = held.pop("rule", None), held.pop("sets", None), held["class_names"]
        if rule is not None:
            threshold = rule["threshold"]
            rule = SelectiveRule(
                **rule
                | {
                    "score": NAMED_SCORES[rule["score"]],
                    "threshold": math.inf if threshold is None else threshold,
                }
            )
        if sets is not None:
            named = NAMED_SETS[sets.pop("rule")]
            sets = CalibratedSets(
                _rule_of(named, sets), **{name: sets[name] for name in _SETS_FIELDS}
            )
        return cls(rule, sets, **held | {"class_names": None if names is None else tuple(names)})


_RULE_FIELDS = ("num_examples", "num_answered", "num_wrong", "risk_bound", "confidence")
_SETS_FIELDS = ("threshold", "coverage", "num_examples", "rank", "never_empty")


def score_name(rule: SelectiveRule) -> str:
    """The name of a rule's score.

    Args:
        rule: The rule.

    Raises:
        InputError: If it is none of the library's scores of predictions.
    """
    for name, score in NAMED_SCORES.items():
        if score is rule.score:
            return name
    raise InputError(
        "A file can hold a rule of one of the library's scores of predictions,"
        f" {', '.join(NAMED_SCORES)}; got {getattr(rule.score, '__name__', rule.score)!r}. Leave"
        " the rule out, and keep it beside the file."
    )


def set_rule_name(rule: SetRule) -> str:
    """The name of a rule for sets.

    Args:
        rule: The rule.

    Raises:
        InputError: If it is none of the library's.
    """
    name = type(rule).__name__
    if NAMED_SETS.get(name) is not type(rule):
        raise InputError(
            f"A file can hold the library's rules for sets, {', '.join(NAMED_SETS)}; got {name}."
            " Leave the sets out, and keep them beside the file."
        )
    return name


def _options_of(rule: SetRule) -> dict[str, Any]:
    if not isinstance(rule, RAPS):
        return {}
    options: dict[str, Any] = {"randomised": rule.generator is not None}
    if not isinstance(rule, APS):
        options |= {"penalty": rule.penalty, "free_places": rule.free_places}
    return options


def _rule_of(kind: type[SetRule], held: dict[str, Any]) -> SetRule:
    if not issubclass(kind, RAPS):
        return kind()
    generator = torch.Generator().manual_seed(0) if held["randomised"] else None
    if kind is APS:
        return APS(generator)
    return RAPS(held["penalty"], held["free_places"], generator)


def _finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _promise_of_rule(rule: SelectiveRule) -> str:
    if rule.risk_bound is not None and rule.confidence is not None:
        return (
            f"at most {rule.risk_bound:.4g} of the answers are wrong, with confidence"
            f" {rule.confidence:g}, from {rule.num_examples} examples, if new ones are independent"
            " draws like them"
        )
    return (
        f"{rule.answered_share:.4g} of {rule.num_examples} calibration examples are answered;"
        " nothing is promised about errors"
    )


def names_of(class_names: Sequence[str] | None) -> tuple[str, ...] | None:
    """Names of classes as a policy holds them.

    Args:
        class_names: The names.

    Raises:
        InputTypeError: If they are one text.
    """
    if class_names is None:
        return None
    if isinstance(class_names, str):
        raise InputTypeError(
            "`with_rule(class_names)` needs a list with a name for each class; got the text"
            f" {class_names!r}, whose letters are no names."
        )
    names = tuple(str(name) for name in class_names)
    repeated = next((name for name, number in Counter(names).items() if number > 1), None)
    if repeated is not None:
        warn(
            f"Among the class names '{repeated}' comes more than once: answers by name do not tell"
            " these classes apart."
        )
    return names
