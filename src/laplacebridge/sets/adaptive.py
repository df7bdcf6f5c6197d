"""Adaptive prediction sets, whose size follows the difficulty of the example: RAPS,
APS.
"""

from dataclasses import dataclass, field
from types import EllipsisType
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from laplacebridge._checks import Labels
from laplacebridge._predictions import AnyPrediction, probabilities_of
from laplacebridge.sets.class_sets import ClassSets
from laplacebridge.sets.ranking import ranked_before, ranked_prefixes
from laplacebridge.sets.rules import SetRule, checked, mass_before, mass_before_label


def _seeded() -> Generator:
    return Generator().manual_seed(0)


@dataclass(frozen=True)
class RAPS(SetRule):
    r"""Regularised adaptive prediction sets (Angelopoulos, Bates, Malik and Jordan
    2021).

    Class y is in the set if its score is at most the threshold:

    .. math:: \sum_{k\ \text{before}\ y} p_k + u\, p_y + \lambda \max(0, \mathrm{place}(y) - k_{\text{free}})

    with u uniform on [0, 1], drawn anew for every example. Drawing makes calibrated
    coverage exact instead of at least what was asked, and sets may be empty. Without it
    u = 1, and the sets of a confident network are several times as large as needed,
    because the most probable class alone exceeds the threshold of most of them.

    Attributes:
        penalty: λ, what each place beyond the free ones costs.
        free_places: Places that cost nothing.
        generator: Source of the u; by default seeded, so that a program that runs again
            draws the same. None for u = 1.

    Example:
        >>> rule = RAPS(penalty=0.1, free_places=1, generator=None)
        >>> rule(torch.tensor([[0.2, 0.5, 0.3]]), 0.95).to_lists()
        [[1, 2]]
    """

    penalty: float = 0.01
    free_places: int = 5
    generator: Generator | None = field(default_factory=_seeded, compare=False)
    grows_with_threshold: ClassVar[bool] = True

    def __call__(self, prediction: AnyPrediction, threshold: float) -> ClassSets:
        """The classes with a score up to the threshold.

        Args:
            prediction: Dirichlets, or probabilities of shape (B, K).
            threshold: The largest score.
        """
        probabilities = probabilities_of(f"{type(self).__name__}()(prediction)", prediction)
        uniforms = self.uniforms(probabilities)

        def count_members(
            rows: Int[Tensor, " b"], ranked: Float[Tensor, "b m"]
        ) -> Int[Tensor, " b"]:
            place = torch.arange(1, ranked.shape[1] + 1, device=ranked.device)
            score = (
                mass_before(ranked) + uniforms[rows].unsqueeze(-1) * ranked + self._penalties(place)
            )
            return (score <= threshold).sum(-1)

        return ranked_prefixes(probabilities, count_members)

    def entry(self, prediction: AnyPrediction, labels: Labels) -> Float[Tensor, " B"]:
        """The score of the label.

        Args:
            prediction: Dirichlets, or probabilities of shape (B, K).
            labels: One class for each example.
        """
        probabilities, wanted = checked(type(self).__name__, prediction, labels)
        own = probabilities.gather(-1, wanted.unsqueeze(-1)).squeeze(-1).double()
        place = ranked_before(probabilities, wanted).sum(-1) + 1
        mass = mass_before_label(probabilities, wanted)
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
    """Adaptive prediction sets (Romano, Sesia and Candès 2020): `RAPS` without a
    penalty.

    Args:
        generator: Source of the random u of each example, by default seeded; None for
            u = 1, see `RAPS`.

    Example:
        >>> APS(None)(torch.tensor([[0.2, 0.5, 0.3]]), 0.85).to_lists()
        [[1, 2]]
    """

    def __init__(self, generator: Generator | EllipsisType | None = ...) -> None:
        drawn = _seeded() if isinstance(generator, EllipsisType) else generator
        super().__init__(penalty=0.0, free_places=0, generator=drawn)
