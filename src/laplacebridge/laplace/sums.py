"""Sums over examples, which add: of batches in any split and order, of several
processes, of a fit that was interrupted.
"""

from dataclasses import dataclass, fields

import torch
from jaxtyping import Float
from torch import Tensor

from laplacebridge.errors import ShapeError

BYTES_PER_NUMBER = 8


def readable_size(num_bytes: int) -> str:
    """How much memory or file that is, for people.

    Args:
        num_bytes: In bytes.

    Example:
        >>> readable_size(3_210), readable_size(25_690_000)
        ('3.2 kB', '25.7 MB')
    """
    return f"{num_bytes / 1e3:.1f} kB" if num_bytes < 1e6 else f"{num_bytes / 1e6:.1f} MB"


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over examples, which add.

    Attributes:
        num_examples: N, how many examples were summed, as a tensor, so that it adds and
            travels like the others.
    """

    num_examples: Float[Tensor, ""]

    @property
    def number(self) -> Float[Tensor, ""]:
        """N to divide by: one for sums over nothing. Weights may make it less than one."""
        return torch.where(self.num_examples > 0, self.num_examples, 1.0)

    def tensors(self) -> dict[str, Tensor]:
        """The sums by name."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    def with_tensors(self, tensors: dict[str, Tensor]) -> "Sums":
        """The same kind of sums with other tensors.

        Args:
            tensors: As `tensors` gives them.
        """
        return type(self)(**tensors)

    def __add__(self, other: "Sums") -> "Sums":
        """Sums over both sets of examples.

        Raises:
            ShapeError: If the other is of another kind, or of other weights.
        """
        if type(other) is not type(self):
            raise ShapeError(
                f"A `{type(self).__name__}` curvature adds to another one of its kind; got"
                f" `{type(other).__name__}`. Fit both halves with the same structure."
            )
        mine, theirs = self.tensors(), other.tensors()
        if mine.keys() != theirs.keys():
            raise ShapeError(
                "Curvatures add when they are of the same layers and structure; one of these has"
                f" {', '.join(sorted(mine.keys() ^ theirs.keys()))}, and the other has not. Fit"
                " both halves alike."
            )
        for name, tensor in mine.items():
            if tensor.shape != theirs[name].shape:
                raise ShapeError(
                    f"Curvatures add when they are of the same head; `{name}` has shapes"
                    f" {tuple(tensor.shape)} and {tuple(theirs[name].shape)}. Fit both halves with"
                    " the same model."
                )
        return self.with_tensors({name: tensor + theirs[name] for name, tensor in mine.items()})

    def scaled(self, factor: float) -> "Sums":
        """The sums over the same examples, each with a weight.

        Args:
            factor: The weight.
        """
        if factor == 1:
            return self
        return self.with_tensors({name: tensor * factor for name, tensor in self.tensors().items()})

    def to(self, device: torch.device | str) -> "Sums":
        """The same sums on another device."""
        return self.with_tensors(
            {name: tensor.to(device) for name, tensor in self.tensors().items()}
        )
