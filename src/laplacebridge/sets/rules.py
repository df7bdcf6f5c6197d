"""Rules for class sets: what every rule is, and the simple ones that need probabilities
alone.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from laplacebridge._arrays import takes_arrays
from laplacebridge._checks import Labels, labels_of
from laplacebridge._predictions import AnyPrediction, probabilities_of
from laplacebridge.errors import InputError
from laplacebridge.sets.class_sets import ClassSets
from laplacebridge.sets.ranking import ranked_before, ranked_prefixes

# Rows of probabilities may add up to a little more than 1, and so may a threshold that
# was calibrated on them.
_HIGHEST_PROBABILITY = 1.05


class SetRule(ABC):
    """A way to choose sets with one number to turn, which `calibrate` turns.

    A subclass answers two questions: which classes are in the sets at a threshold, and
    from which threshold on a label is in its set.

    Attributes:
        grows_with_threshold: Whether a larger threshold gives larger sets.

    Example:
        >>> from laplacebridge.sets import Mass
        >>> rule, probabilities = Mass(), torch.tensor([[0.2, 0.5, 0.3]])
        >>> rule(probabilities, 0.6).to_lists(), rule.entry(probabilities, [2])
        ([[1, 2]], tensor([0.5000], dtype=torch.float64))
    """

    grows_with_threshold: ClassVar[bool]

    def __init_subclass__(cls, **keywords: Any) -> None:  # noqa: ANN401
        """Lets every rule take arrays."""
        super().__init_subclass__(**keywords)
        for name in {"__call__", "entry"} & vars(cls).keys():
            setattr(cls, name, takes_arrays(vars(cls)[name]))

    @abstractmethod
    def __call__(self, prediction: AnyPrediction, threshold: float) -> ClassSets:
        """The sets at a threshold.

        Args:
            prediction: What to choose from.
            threshold: The number to turn.
        """

    @abstractmethod
    def entry(self, prediction: AnyPrediction, labels: Labels) -> Float[Tensor, " B"]:
        """The strictest threshold at which the label is in its set, up to rounding.

        Args:
            prediction: What to choose from.
            labels: One class for each example.
        """


@dataclass(frozen=True)
class TopK(SetRule):
    """The k most probable classes of every example; the threshold is k.

    Example:
        >>> TopK()(torch.tensor([[0.2, 0.5, 0.3]]), 2).to_lists()
        [[1, 2]]
    """

    grows_with_threshold: ClassVar[bool] = True

    def __call__(self, prediction: AnyPrediction, threshold: int | float) -> ClassSets:
        """The most probable classes, as many as the threshold says; all of them if
        there are fewer.

        Args:
            prediction: Dirichlets, or probabilities of shape (B, K).
            threshold: How many.

        Raises:
            InputError: If that is not at least one.
        """
        probabilities = probabilities_of("TopK()(prediction)", prediction)
        size = min(int(threshold), probabilities.shape[1])
        if size < 1:
            raise InputError(
                f"`TopK()(prediction, k)` needs k ≥ 1; got {threshold:g}. Without a class there is"
                " no answer."
            )
        return ranked_prefixes(
            probabilities,
            lambda rows, ranked: torch.full_like(rows, ranked.shape[1]),
            first_length=size,
            max_size=size,
        )

    def entry(self, prediction: AnyPrediction, labels: Labels) -> Float[Tensor, " B"]:
        """The place of the label in the ranking, counted from 1.

        Args:
            prediction: Dirichlets, or probabilities of shape (B, K).
            labels: One class for each example.
        """
        probabilities, wanted = checked("TopK", prediction, labels)
        return ranked_before(probabilities, wanted).sum(-1).double() + 1


@dataclass(frozen=True)
class Mass(SetRule):
    """The fewest classes that hold a stated probability: a class is in while those
    before it hold less than that.

    Example:
        >>> Mass()(torch.tensor([[0.2, 0.5, 0.3]]), 0.6).to_lists()
        [[1, 2]]
    """

    grows_with_threshold: ClassVar[bool] = True

    def __call__(self, prediction: AnyPrediction, threshold: float) -> ClassSets:
        """The fewest classes that hold the threshold; the most probable one is always
        in.

        Args:
            prediction: Dirichlets, or probabilities of shape (B, K).
            threshold: How much probability, from 0 to 1; 0.95 is usual.
        """
        _require_probability("Mass()(prediction, threshold)", threshold, "0.95 is usual")

        def count_members(
            rows: Int[Tensor, " b"], ranked: Float[Tensor, "b m"]
        ) -> Int[Tensor, " b"]:
            return (mass_before(ranked) < threshold).sum(-1).clamp_min(1)

        return ranked_prefixes(probabilities_of("Mass()(prediction)", prediction), count_members)

    def entry(self, prediction: AnyPrediction, labels: Labels) -> Float[Tensor, " B"]:
        """The probability of all classes before the label.

        Args:
            prediction: Dirichlets, or probabilities of shape (B, K).
            labels: One class for each example.
        """
        return mass_before_label(*checked("Mass", prediction, labels))


@dataclass(frozen=True)
class LeastAmbiguous(SetRule):
    """The classes with at least a stated probability (LAC; Sadinle, Lei and Wasserman
    2019).

    Of all rules with the same coverage it has the smallest sets on average, and is the
    one to calibrate unless there is a reason for another. Lower thresholds give larger
    sets; where no class is probable enough the set is empty, which `calibrate` can
    forbid.

    Example:
        >>> LeastAmbiguous()(torch.tensor([[0.2, 0.5, 0.3]]), 0.25).to_lists()
        [[1, 2]]
    """

    grows_with_threshold: ClassVar[bool] = False

    def __call__(self, prediction: AnyPrediction, threshold: float) -> ClassSets:
        """The classes at least as probable as the threshold.

        Args:
            prediction: Dirichlets, or probabilities of shape (B, K).
            threshold: The least probability that a class must have, from 0 to 1; 0.1 is
                usual.
        """
        _require_probability("LeastAmbiguous()(prediction, threshold)", threshold, "0.1 is usual")
        probabilities = probabilities_of("LeastAmbiguous()(prediction)", prediction)
        return ranked_prefixes(probabilities, lambda rows, ranked: (ranked >= threshold).sum(-1))

    def entry(self, prediction: AnyPrediction, labels: Labels) -> Float[Tensor, " B"]:
        """The probability of the label.

        Args:
            prediction: Dirichlets, or probabilities of shape (B, K).
            labels: One class for each example.
        """
        probabilities, wanted = checked("LeastAmbiguous", prediction, labels)
        return probabilities.gather(-1, wanted.unsqueeze(-1)).squeeze(-1)


def checked(
    name: str, prediction: AnyPrediction, labels: Labels
) -> tuple[Float[Tensor, "B K"], Int[Tensor, " B"]]:
    """Probabilities, and labels where they are.

    Args:
        name: Of the rule.
        prediction: Dirichlets, or probabilities of shape (B, K).
        labels: One class for each example.
    """
    probabilities = probabilities_of(f"{name}().entry(prediction)", prediction)
    wanted = labels_of(f"{name}().entry(labels)", labels, *probabilities.shape)
    return probabilities, wanted.to(probabilities.device)


def mass_before(ranked: Float[Tensor, "b m"]) -> Float[Tensor, "b m"]:
    """Sum of the values before each, added up in float64.

    Args:
        ranked: Probabilities in falling order.
    """
    return functional.pad(ranked.double().cumsum(-1)[:, :-1], (1, 0))


def mass_before_label(
    probabilities: Float[Tensor, "B K"], labels: Int[Tensor, " B"]
) -> Float[Tensor, " B"]:
    """The probability of all classes before the label.

    Args:
        probabilities: Of every class.
        labels: One class for each example.
    """
    return torch.where(ranked_before(probabilities, labels), probabilities, 0.0).sum(
        -1, dtype=torch.float64
    )


def _require_probability(call: str, threshold: float, advice: str) -> None:
    if not 0 <= threshold <= _HIGHEST_PROBABILITY:
        raise InputError(f"`{call}` needs a probability from 0 to 1; got {threshold}. {advice}.")
