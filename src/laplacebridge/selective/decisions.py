"""What is done with an example: it is answered, gets a set of classes, or is asked about."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from laplacebridge._checks import values_of
from laplacebridge._predictions import Prediction, probabilities_of
from laplacebridge.errors import ShapeError
from laplacebridge.sets import ClassSets


class Action(IntEnum):
    """What is done with an example.

    Example:
        >>> Action(2).name
        'ASK'
    """

    ANSWER = 0
    SET = 1
    ASK = 2


class Decision(NamedTuple):
    """The decision for one example: "answer" with one class, "set" with several, or "ask" with none.

    Attributes:
        action: The name of the `Action`, in lower case.
        classes: The classes that are named.

    Example:
        >>> action, classes = Decision("set", [3, 5])
        >>> classes
        [3, 5]
    """

    action: str
    classes: list[int]


@dataclass(frozen=True, eq=False)
class Decisions:
    """What to do with each of B examples.

    Attributes:
        action: An `Action` for each, shape (B,).
        answer: The most probable class of each, whether it is given as the answer or not, shape (B,).
        sets: The class sets, if there are any.

    Example:
        >>> list(Decisions(torch.tensor([0, 2]), torch.tensor([7, 1])))
        [Decision(action='answer', classes=[7]), Decision(action='ask', classes=[])]
    """

    action: Int[Tensor, " B"]
    answer: Int[Tensor, " B"]
    sets: ClassSets | None = None

    def to_lists(self) -> list[Decision]:
        """The decisions one by one."""
        sets = self.sets.to_lists() if self.sets is not None else [[] for _ in range(len(self))]
        decisions = []
        for action, answer, members in zip(self.action.tolist(), self.answer.tolist(), sets):
            classes = {Action.ANSWER: [answer], Action.SET: members, Action.ASK: []}[Action(action)]
            decisions.append(Decision(Action(action).name.lower(), classes))
        return decisions

    def __iter__(self) -> Iterator[Decision]:
        return iter(self.to_lists())

    def __len__(self) -> int:
        return len(self.action)


@dataclass(frozen=True)
class AnswerRule:
    """Answers examples whose score is at most a threshold; made by `for_coverage` or `for_risk`.

    Attributes:
        threshold: The largest score that is answered.
        num_examples: How many validation examples it was chosen on.
        num_answered: How many of them it answers.
        num_wrong: How many of its answers are wrong, if that was given.
        risk_bound: What the error rate among answers is at most, with this confidence, if that was asked for.
        confidence: The confidence of the bound.

    Example:
        >>> rule = AnswerRule(threshold=0.3, num_examples=10, num_answered=8)
        >>> rule.answers(torch.tensor([0.1, 0.5])), rule.answered_share
        (tensor([ True, False]), 0.8)
    """

    threshold: float
    num_examples: int
    num_answered: int
    num_wrong: int | None = None
    risk_bound: float | None = None
    confidence: float | None = None

    @property
    def answered_share(self) -> float:
        """Share of the validation examples that is answered."""
        return self.num_answered / self.num_examples

    def answers(self, scores: Tensor) -> Bool[Tensor, " B"]:
        """Whether each example is answered.

        Args:
            scores: The score that the rule was made with, shape (B,).
        """
        # in float64, because torch would round the threshold to the type of the scores
        return values_of("AnswerRule.answers(scores)", scores).double() <= self.threshold

    def decide(
        self,
        prediction: Prediction,
        scores: Tensor,
        *,
        sets: ClassSets | None = None,
        max_set_size: int | None = None,
    ) -> Decisions:
        """Answers, names a set, or asks.

        An example that is not answered gets its set, if that is small enough and not empty. The bound on the risk is
        about answers only; what sets promise is up to them.

        Args:
            prediction: Dirichlets, or probabilities of shape (B, K).
            scores: The score that the rule was made with, shape (B,).
            sets: A set of classes for each example.
            max_set_size: The largest set worth naming, from 2; by default all but those of all K classes, which say
                nothing. A set of one class is not named: it would be the answer that the rule refuses.

        Raises:
            ShapeError: If predictions, scores and sets are not of the same examples and classes.
            ValueError: If the largest set is to have fewer than two classes, or there are no sets.

        Example:
            >>> probabilities = torch.tensor([[0.9, 0.1, 0.0], [0.5, 0.4, 0.1], [0.4, 0.3, 0.3]])
            >>> rule = AnswerRule(threshold=0.2, num_examples=100, num_answered=80)
            >>> sets = ClassSets.from_lists([[0], [0, 1], [0, 1, 2]], num_classes=3)
            >>> for decision in rule.decide(probabilities, 1 - probabilities.amax(-1), sets=sets):
            ...     print(*decision)
            answer [0]
            set [0, 1]
            ask []
        """
        call = "AnswerRule.decide(prediction, scores)"
        probabilities = probabilities_of(call, prediction)
        answered = self.answers(scores)
        if len(answered) != len(probabilities):
            raise ShapeError(
                f"`{call}` needs one score for each of {len(probabilities)} predictions; got {len(answered)}. Compute "
                "the score from these predictions."
            )
        action = torch.where(answered, Action.ANSWER, Action.ASK)
        if sets is not None or max_set_size is not None:
            named = _worth_naming(sets, max_set_size, *probabilities.shape).to(answered.device)
            action = torch.where(~answered & named, Action.SET, action)
        return Decisions(action, probabilities.argmax(-1), sets)


def _worth_naming(sets: ClassSets | None, max_set_size: int | None, num_rows: int, num_classes: int) -> Tensor:
    """Which sets are small enough, and have more than one class.

    Raises:
        ShapeError: If the sets are of other examples or classes.
        ValueError: If there are none, or none could be small enough.
    """
    call = "AnswerRule.decide(sets, max_set_size)"
    if sets is None or (max_set_size is not None and max_set_size < 2):
        raise ValueError(
            f"`{call}` needs sets and a largest size of at least 2; got {'no sets' if sets is None else max_set_size}. "
            "Without sets leave both out: examples are then answered or asked about."
        )
    if len(sets) != num_rows or sets.num_classes != num_classes:
        raise ShapeError(
            f"`{call}` needs a set for each of {num_rows} predictions of {num_classes} classes; got {len(sets)} sets "
            f"of {sets.num_classes} classes. Make the sets from these predictions."
        )
    largest = num_classes - 1 if max_set_size is None else max_set_size
    return (sets.size >= 2) & (sets.size <= largest)  # one class would be the answer that the rule has refused
