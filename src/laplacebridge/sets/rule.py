"""What a rule must be able to say so that it can be calibrated."""

from abc import ABC, abstractmethod
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from laplacebridge._checks import Labels
from laplacebridge._predictions import Prediction
from laplacebridge.sets.class_sets import ClassSets


class SetRule(ABC):
    """A way to choose sets with one number to turn, which `calibrate` turns.

    A subclass answers two questions: which classes are in the sets at a threshold, and from which threshold on a label
    is in its set.

    Attributes:
        grows_with_threshold: Whether a larger threshold gives larger sets.

    Example:
        >>> import torch
        >>> from laplacebridge.sets import Mass
        >>> rule, probabilities = Mass(), torch.tensor([[0.2, 0.5, 0.3]])
        >>> rule.sets(probabilities, 0.6).to_lists(), rule.entry(probabilities, [2])
        ([[1, 2]], tensor([0.5000], dtype=torch.float64))
    """

    grows_with_threshold: ClassVar[bool]

    @abstractmethod
    def sets(self, prediction: Prediction, threshold: float) -> ClassSets:
        """The sets at a threshold.

        Args:
            prediction: What to choose from.
            threshold: The number to turn.
        """

    @abstractmethod
    def entry(self, prediction: Prediction, labels: Labels) -> Float[Tensor, " B"]:
        """The strictest threshold at which the label is in its set, up to rounding.

        Args:
            prediction: What to choose from.
            labels: One class for each example.
        """
