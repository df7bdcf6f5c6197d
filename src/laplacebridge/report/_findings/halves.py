"""Two halves of the test data, each decided about by what the other chose: so that what
is promised and what is found come from different examples.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from laplacebridge import _scipy_special as special
from laplacebridge import sets
from laplacebridge.errors import ShapeError
from laplacebridge.metrics import Interval
from laplacebridge.sets import CalibratedSets, ClassSets

# What sets are asked to hold the label with: the first that the network does not reach
# with single answers, for sets of one class each say nothing.
COVERAGES = (0.9, 0.95, 0.99)
LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class FoundSets:
    """Calibrated sets of all test examples, each half by the threshold of the other.

    Attributes:
        coverage: What was asked for.
        rules: The rules that the two halves chose.
        parts: The sets of each half.
        sizes: How many classes each set has.
        held: Whether it holds the label.
    """

    coverage: float
    rules: tuple[CalibratedSets, CalibratedSets]
    parts: tuple[ClassSets, ClassSets]
    sizes: Int[Tensor, " N"]
    held: Bool[Tensor, " N"]


@dataclass(frozen=True, eq=False)
class Halves:
    """Rows of the test data, split in two at random.

    Attributes:
        first: Rows of the one half.
        second: Rows of the other.
    """

    first: Int[Tensor, " n"]
    second: Int[Tensor, " m"]

    @classmethod
    def of(cls, num_examples: int, seed: int) -> "Halves":
        """Splits so many examples.

        Raises:
            ShapeError: If there are no two.
        """
        if num_examples < 2:
            raise ShapeError(
                "A report needs at least two examples, so that one half decides about the other;"
                f" got {num_examples}."
            )
        order = torch.randperm(num_examples, generator=Generator().manual_seed(seed))
        return cls(order[: num_examples // 2], order[num_examples // 2 :])

    @property
    def fewest(self) -> int:
        """Size of the smaller half."""
        return min(len(self.first), len(self.second))

    def crossed(self) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Rows to choose by and rows to decide about, both ways round."""
        return (self.first, self.second), (self.second, self.first)

    def coverage_for(self, accuracy: float) -> float:
        """What to ask of sets: more than single answers reach, and what so few examples
        can promise.
        """
        wanted = next((each for each in COVERAGES if each > accuracy), COVERAGES[-1])
        return min(wanted, self.fewest / (self.fewest + 1))

    def sets(
        self, probabilities: Float[Tensor, "N K"], labels: Int[Tensor, " N"], coverage: float
    ) -> FoundSets:
        """Least ambiguous sets, never empty, calibrated on one half for the other."""
        sizes, held = torch.zeros_like(labels), torch.zeros_like(labels, dtype=torch.bool)
        rules, parts = [], []
        for chosen_by, decided in self.crossed():
            rule = sets.calibrate(
                sets.LeastAmbiguous(),
                probabilities[chosen_by],
                labels[chosen_by],
                coverage=coverage,
                never_empty=True,
            )
            found = rule(probabilities[decided])
            sizes[decided], held[decided] = found.size, found.contains(labels[decided])
            rules.append(rule)
            parts.append(found)
        return FoundSets(coverage, (rules[0], rules[1]), (parts[0], parts[1]), sizes, held)


def share(count: int, number: int) -> Interval | None:
    """A share that was counted, with its exact interval (Clopper and Pearson); None of
    nothing.

    Example:
        >>> print(share(3, 100))
        0.030 [0.006, 0.085]
    """
    if not number:
        return None
    tail = (1 - LEVEL) / 2
    low = 0.0 if count == 0 else float(special.betaincinv(count, number - count + 1, tail))
    high = (
        1.0 if count == number else float(special.betaincinv(count + 1, number - count, 1 - tail))
    )
    return Interval(count / number, low, high, LEVEL)
