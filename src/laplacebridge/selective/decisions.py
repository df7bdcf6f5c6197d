"""What is done with an example: it is answered, gets a set of classes, or is deferred."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from laplacebridge._arrays import takes_arrays
from laplacebridge.sets import ClassSets

REASONS = ("", "ambiguous", "unusual", "both")


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
        reason: Why there is no answer: "ambiguous", because the label is in doubt;
            "unusual", because the input is unlike those of the calibration; "both"; or
            nothing, where there is one.

    Example:
        >>> action, classes, reason = Decision("set", [3, 5], "ambiguous")
        >>> classes
        [3, 5]
    """

    action: str
    classes: list[int]
    reason: str = ""


@dataclass(frozen=True, eq=False)
class Decisions:
    """What to do with each of B examples.

    Attributes:
        action: An `Action` for each, shape (B,).
        answer: The most probable class of each, whether it is given as the answer or
            not, shape (B,).
        sets: The class sets, if there are any.
        unusual: Which examples are deferred because they are unusual; None if that was
            not asked.
        ambiguous: Which labels are in doubt; by default those of all that are not
            answered and not unusual.

    Example:
        >>> decisions = Decisions(
        ...     torch.tensor([0, 2]), torch.tensor([7, 1]), unusual=torch.tensor([False, True])
        ... )
        >>> for decision in decisions:
        ...     print(decision)
        Decision(action='answer', classes=[7], reason='')
        Decision(action='defer', classes=[], reason='unusual')
    """

    action: Int[Tensor, " B"]
    answer: Int[Tensor, " B"]
    sets: ClassSets | None = None
    unusual: Bool[Tensor, " B"] | None = None
    ambiguous: Bool[Tensor, " B"] | None = None

    @takes_arrays
    def reasons(self) -> list[str]:
        """Why each example is not answered: "ambiguous", "unusual", "both", or nothing."""
        refused = self.action != Action.ANSWER
        unusual = torch.zeros_like(refused) if self.unusual is None else self.unusual
        ambiguous = refused & ~unusual if self.ambiguous is None else self.ambiguous
        code = (refused & ambiguous).long() + 2 * (refused & unusual).long()
        return [REASONS[index] for index in code.tolist()]

    @takes_arrays
    def to_lists(self) -> list[Decision]:
        """The decisions one by one."""
        sets = self.sets.to_lists() if self.sets is not None else [[] for _ in range(len(self))]
        decisions = []
        for action, answer, members, reason in zip(
            self.action.tolist(), self.answer.tolist(), sets, self.reasons()
        ):
            classes = {Action.ANSWER: [answer], Action.SET: members, Action.DEFER: []}[
                Action(action)
            ]
            decisions.append(Decision(Action(action).name.lower(), classes, reason))
        return decisions

    def __iter__(self) -> Iterator[Decision]:
        return iter(self.to_lists())

    def __len__(self) -> int:
        return len(self.action)
