"""What a classifier does with its predictions, once it is used: a rule, sets, and the
names of its classes, in a form that files can hold.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from laplacebridge._warnings import warn
from laplacebridge.errors import InputError, InputTypeError
from laplacebridge.prediction import Prediction
from laplacebridge.scores import LOGIT_SCORES
from laplacebridge.selective.conditional import ConditionalRule
from laplacebridge.selective.decisions import Decisions
from laplacebridge.selective.entries import (
    NAMED_SCORES,
    rule_entry,
    rule_from,
    sets_entry,
    sets_from,
)
from laplacebridge.selective.entries import score_name as score_name
from laplacebridge.selective.entries import set_rule_name as set_rule_name
from laplacebridge.selective.selective_rule import SelectiveRule
from laplacebridge.sets import CalibratedSets, ClassConditionalSets, GroupConditionalSets


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
            held["rule"] = rule_entry(self.rule)
        if self.sets is not None:
            held["sets"] = sets_entry(self.sets)
        return json.dumps(held)

    @classmethod
    def from_text(cls, text: str) -> "Policy":
        """From JSON, as `to_text` gives it.

        Args:
            text: The JSON.
        """
        held = json.loads(text)
        rule, sets, names = held.pop("rule", None), held.pop("sets", None), held["class_names"]
        return cls(
            None if rule is None else rule_from(rule),
            None if sets is None else sets_from(sets),
            **held | {"class_names": None if names is None else tuple(names)},
        )


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
