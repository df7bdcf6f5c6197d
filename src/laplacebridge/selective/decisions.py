"""What is done with an example: it is answered, gets a set of classes, or is deferred."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from jaxtyping import Int
from torch import Tensor

from laplacebridge.sets import ClassSets


class Action(IntEnum):
    """What is done with an example.

    Example:
        >>> Action(2).name
        'DEFER'
    """

    ANSWER = 0
    SET = 1
    DEFER = 2


class Decision(NamedTuple):
    """The decision for one example: "answer" with one class, "set" with several, or
    "defer" with none.

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
        answer: The most probable class of each, whether it is given as the answer or
            not, shape (B,).
        sets: The class sets, if there are any.

    Example:
        >>> list(Decisions(torch.tensor([0, 2]), torch.tensor([7, 1])))
        [Decision(action='answer', classes=[7]), Decision(action='defer', classes=[])]
    """

    action: Int[Tensor, " B"]
    answer: Int[Tensor, " B"]
    sets: ClassSets | None = None

    def to_lists(self) -> list[Decision]:
        """The decisions one by one."""
        sets = self.sets.to_lists() if self.sets is not None else [[] for _ in range(len(self))]
        decisions = []
        for action, answer, members in zip(self.action.tolist(), self.answer.tolist(), sets):
            classes = {Action.ANSWER: [answer], Action.SET: members, Action.DEFER: []}[
                Action(action)
            ]
            decisions.append(Decision(Action(action).name.lower(), classes))
        return decisions

    def __iter__(self) -> Iterator[Decision]:
        return iter(self.to_lists())

    def __len__(self) -> int:
        return len(self.action)
