"""How unusual inputs are, beside held-out ones."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from laplacebridge._pytrees import register_value
from laplacebridge.errors import InputError


@dataclass(frozen=True, eq=False)
class Unusual:
    """How unusual inputs are, beside held-out ones.

    Attributes:
        score: Of each input, higher = more unusual.
        reference: Scores of held-out inputs, ascending; empty if there were none.

    Example:
        >>> Unusual(torch.tensor([0.5, 9.0]), torch.tensor([0.0, 1.0, 2.0])).quantile()
        tensor([0.2500, 0.7500])
    """

    score: Float[Tensor, " B"]
    reference: Float[Tensor, " N"]

    def quantile(self) -> Float[Tensor, " B"]:
        """1 − p with the conformal p-value p = (1 + how many of N held-out scores are
        as high)/(N + 1).

        Raises:
            InputError: If there are no held-out scores.
        """
        require_held_out(self.reference)
        below = torch.searchsorted(self.reference, self.score.detach().contiguous())
        return below.to(self.score.dtype) / (len(self.reference) + 1)

    def to(self, target: torch.dtype | torch.device | str) -> "Unusual":
        """The same on another device; scores keep their type, in which they were
        ordered.

        Args:
            target: A device, or a type, which changes nothing.
        """
        if isinstance(target, torch.dtype):
            return self
        return Unusual(self.score.to(target), self.reference.to(target))


def require_held_out(reference: Tensor) -> None:
    """Refuses to compare with held-out data where there were none.

    Args:
        reference: Their scores.

    Raises:
        InputError: If there are none.
    """
    if not len(reference):
        raise InputError(
            "`ood_quantile` compares with held-out data, and this classifier has seen none."
            " Fit with a `val_loader`; `ood_score` is there without."
        )


register_value(Unusual, "score", "reference")
