"""Rules that need probabilities alone: fixed size, cumulative mass, least ambiguous, APS and RAPS."""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor
from torch.nn import functional

from laplacebridge._checks import Labels, labels_of
from laplacebridge._predictions import Prediction, probabilities_of
from laplacebridge.sets.class_sets import ClassSets
from laplacebridge.sets.ranking import before, fronts
from laplacebridge.sets.rule import SetRule


def top_k_sets(prediction: Prediction, k: int = 5) -> ClassSets:
    """The k most probable classes of every example.

    Args:
        prediction: Dirichlets, or probabilities of shape (B, K).
        k: How many; all of them if there are fewer.

    Example:
        >>> top_k_sets(torch.tensor([[0.2, 0.5, 0.3]]), 2).to_lists()
        [[1, 2]]
    """
    return TopK().sets(prediction, float(k))


def mass_sets(prediction: Prediction, mass: float = 0.95) -> ClassSets:
    """The fewest classes that hold this much probability.

    Args:
        prediction: Dirichlets, or probabilities of shape (B, K).
        mass: How much, from 0 to 1.

    Raises:
        ValueError: If the mass is not from 0 to 1.

    Example:
        >>> mass_sets(torch.tensor([[0.2, 0.5, 0.3]]), 0.6).to_lists()
        [[1, 2]]
    """
    if not 0 <= mass <= 1:
        raise ValueError(f"`mass_sets(mass)` needs a probability from 0 to 1; got {mass}. 0.95 is usual.")
    return Mass().sets(prediction, mass)


def least_ambiguous_sets(prediction: Prediction, probability: float = 0.1) -> ClassSets:
    """The classes with at least this probability: of all rules with the same coverage, the smallest sets on average.

    Sets are empty where no class is that probable.

    Args:
        prediction: Dirichlets, or probabilities of shape (B, K).
        probability: The least that a class must have.

    Raises:
        ValueError: If it is not from 0 to 1.

    Example:
        >>> least_ambiguous_sets(torch.tensor([[0.2, 0.5, 0.3]]), 0.25).to_lists()
        [[1, 2]]
    """
    if not 0 <= probability <= 1:
        raise ValueError(f"`least_ambiguous_sets(probability)` needs a number from 0 to 1; got {probability}.")
    return LeastAmbiguous().sets(prediction, probability)


@dataclass(frozen=True)
class TopK(SetRule):
    """`top_k_sets` as a rule; its threshold is the size.

    Example:
        >>> TopK().entry(torch.tensor([[0.2, 0.5, 0.3]]), [2])
        tensor([2.], dtype=torch.float64)
    """

    grows_with_threshold: ClassVar[bool] = True

    def sets(self, prediction: Prediction, threshold: float) -> ClassSets:
        """The most probable classes, as many as the threshold says.

        Args:
            prediction: Dirichlets or probabilities.
            threshold: How many.

        Raises:
            ValueError: If that is not at least one.
        """
        probabilities = probabilities_of("TopK.sets(prediction)", prediction)
        size = min(int(threshold), probabilities.shape[1])
        if size < 1:
            raise ValueError(f"top-k sets need k ≥ 1; got {threshold:g}. Without a class there is no answer.")
        return fronts(
            probabilities, lambda rows, ranked: torch.full_like(rows, ranked.shape[1]), first_length=size, max_size=size
        )

    def entry(self, prediction: Prediction, labels: Labels) -> Float[Tensor, " B"]:
        """The place of the label in the ranking, counted from 1.

        Args:
            prediction: Dirichlets or probabilities.
            labels: One class for each example.
        """
        probabilities, wanted = _checked("TopK", prediction, labels)
        return before(probabilities, wanted).sum(-1).double() + 1


@dataclass(frozen=True)
class Mass(SetRule):
    """`mass_sets` as a rule: a class is in the set while the classes before it hold less than the threshold.

    Example:
        >>> Mass().sets(torch.tensor([[0.2, 0.5, 0.3]]), 0.6).to_lists()
        [[1, 2]]
    """

    grows_with_threshold: ClassVar[bool] = True

    def sets(self, prediction: Prediction, threshold: float) -> ClassSets:
        """The fewest classes that hold the threshold.

        Args:
            prediction: Dirichlets or probabilities.
            threshold: How much probability.
        """

        def count_members(rows: Int[Tensor, " b"], ranked: Float[Tensor, "b m"]) -> Int[Tensor, " b"]:
            return (
                (_mass_before(ranked) < threshold).sum(-1).clamp_min(1)
            )  # the first class is in even when nothing is asked for

        return fronts(probabilities_of("Mass.sets(prediction)", prediction), count_members)

    def entry(self, prediction: Prediction, labels: Labels) -> Float[Tensor, " B"]:
        """The probability of all classes before the label.

        Args:
            prediction: Dirichlets or probabilities.
            labels: One class for each example.
        """
        return _mass_before_label(*_checked("Mass", prediction, labels))


@dataclass(frozen=True)
class LeastAmbiguous(SetRule):
    """`least_ambiguous_sets` as a rule (LAC; Sadinle, Lei and Wasserman 2019): lower thresholds give larger sets.

    Example:
        >>> LeastAmbiguous().sets(torch.tensor([[0.2, 0.5, 0.3]]), 0.25).to_lists()
        [[1, 2]]
    """

    grows_with_threshold: ClassVar[bool] = False

    def sets(self, prediction: Prediction, threshold: float) -> ClassSets:
        """The classes at least as probable as the threshold.

        Args:
            prediction: Dirichlets or probabilities.
            threshold: The least probability.
        """
        probabilities = probabilities_of("LeastAmbiguous.sets(prediction)", prediction)
        return fronts(probabilities, lambda rows, ranked: (ranked >= threshold).sum(-1))

    def entry(self, prediction: Prediction, labels: Labels) -> Float[Tensor, " B"]:
        """The probability of the label.

        Args:
            prediction: Dirichlets or probabilities.
            labels: One class for each example.
        """
        probabilities, wanted = _checked("LeastAmbiguous", prediction, labels)
        return probabilities.gather(-1, wanted.unsqueeze(-1)).squeeze(-1)


@dataclass(frozen=True)
class RAPS(SetRule):
    r"""Regularised adaptive prediction sets (Angelopoulos, Bates, Malik and Jordan 2021).

    Class y is in the set if its score is at most the threshold:

    .. math:: \sum_{k\ \text{before}\ y} p_k + u\, p_y + \lambda \max(0, \mathrm{place}(y) - k_{\text{free}})

    with u uniform on [0, 1], drawn anew for every example, or 1 without a generator. Drawing makes calibrated coverage
    exact instead of at least what was asked, and sets may be empty.

    Attributes:
        penalty: λ, what each place beyond the free ones costs.
        free_places: Places that cost nothing.
        generator: Source of the u.

    Example:
        >>> RAPS(penalty=0.1, free_places=1).sets(torch.tensor([[0.2, 0.5, 0.3]]), 0.95).to_lists()
        [[1, 2]]
    """

    penalty: float = 0.01
    free_places: int = 5
    generator: Generator | None = field(default=None, compare=False)
    grows_with_threshold: ClassVar[bool] = True

    def sets(self, prediction: Prediction, threshold: float) -> ClassSets:
        """The classes with a score up to the threshold.

        Args:
            prediction: Dirichlets or probabilities.
            threshold: The largest score.
        """
        probabilities = probabilities_of(f"{type(self).__name__}.sets(prediction)", prediction)
        uniforms = self.uniforms(probabilities)

        def count_members(rows: Int[Tensor, " b"], ranked: Float[Tensor, "b m"]) -> Int[Tensor, " b"]:
            place = torch.arange(1, ranked.shape[1] + 1, device=ranked.device)
            score = _mass_before(ranked) + uniforms[rows].unsqueeze(-1) * ranked + self._penalties(place)
            return (score <= threshold).sum(-1)

        return fronts(probabilities, count_members)

    def entry(self, prediction: Prediction, labels: Labels) -> Float[Tensor, " B"]:
        """The score of the label.

        Args:
            prediction: Dirichlets or probabilities.
            labels: One class for each example.
        """
        probabilities, wanted = _checked(type(self).__name__, prediction, labels)
        own = probabilities.gather(-1, wanted.unsqueeze(-1)).squeeze(-1).double()
        place = before(probabilities, wanted).sum(-1) + 1
        mass = _mass_before_label(probabilities, wanted)
        return mass + self.uniforms(probabilities) * own + self._penalties(place)

    def uniforms(self, probabilities: Float[Tensor, "B K"]) -> Float[Tensor, " B"]:
        """The u of each example.

        Args:
            probabilities: The predictions.
        """
        if self.generator is None:
            return torch.ones(len(probabilities), dtype=torch.float64, device=probabilities.device)
        drawn = torch.rand(len(probabilities), generator=self.generator, dtype=torch.float64)
        return drawn.to(probabilities.device)

    def _penalties(self, place: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
        return self.penalty * (place - self.free_places).clamp_min(0).double()


class APS(RAPS):
    """Adaptive prediction sets (Romano, Sesia and Candès 2020): `RAPS` without a penalty.

    Args:
        generator: Source of the random u of each example; without it u = 1, and sets are a little larger than needed.

    Example:
        >>> APS().sets(torch.tensor([[0.2, 0.5, 0.3]]), 0.85).to_lists()
        [[1, 2]]
    """

    def __init__(self, generator: Generator | None = None) -> None:
        super().__init__(penalty=0.0, free_places=0, generator=generator)


def _checked(name: str, prediction: Prediction, labels: Labels) -> tuple[Float[Tensor, "B K"], Int[Tensor, " B"]]:
    probabilities = probabilities_of(f"{name}.entry(prediction)", prediction)
    wanted = labels_of(f"{name}.entry(labels)", labels, *probabilities.shape)
    return probabilities, wanted.to(probabilities.device)


def _mass_before(ranked: Float[Tensor, "b m"]) -> Float[Tensor, "b m"]:
    """Sum of the values before each, added up in float64."""
    return functional.pad(ranked.double().cumsum(-1)[:, :-1], (1, 0))


def _mass_before_label(probabilities: Float[Tensor, "B K"], labels: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
    return torch.where(before(probabilities, labels), probabilities, 0.0).sum(-1, dtype=torch.float64)
