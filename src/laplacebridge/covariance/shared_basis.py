"""One basis for all examples: what a Kronecker posterior gives."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from laplacebridge._checks import require_alike, require_tensor
from laplacebridge._values import replaced
from laplacebridge.covariance.base import (
    Covariance,
    largest_variance,
    standard_deviation,
    standard_normal,
)
from laplacebridge.errors import InputError, ShapeError

T = TypeVar("T")


class _Basis:
    """A shared basis and what follows from it, computed at most once however many
    batches use it.
    """

    def __init__(self, columns: Tensor, *, is_centered: bool = False) -> None:
        self.columns = columns
        self.is_centered = is_centered
        self._known: dict[str, Any] = {}

    def once(self, derive: Callable[[Tensor], T]) -> T:
        """What a function makes of the columns."""
        if self.columns.requires_grad:  # a stored result would belong to the graph of one call
            return derive(self.columns)
        name = derive.__name__
        if name not in self._known:
            # so that it serves under any gradient mode
            with torch.inference_mode(False), torch.no_grad():
                self._known[name] = derive(self.columns)
        return self._known[name]


def _column_sums(columns: Tensor) -> Tensor:
    return columns.sum(0)


def _centered(columns: Tensor) -> _Basis:
    return _Basis(columns - columns.mean(0), is_centered=True)


@dataclass(frozen=True, eq=False)
class SharedBasis(Covariance):
    """Q diag(d_b) Qᵀ: one basis for all examples, weights for each; and, if asked for,
    a square a_b a_bᵀ beside it.

    Centring acts on the basis, once. So the large variance along **1** of a Kronecker
    posterior, which softmax cannot see, disappears without subtracting two large
    numbers for every example.

    Attributes:
        weights: Non-negative weights d, shape (B, R).
        basis: Columns Q, shape (K, R). They need not be orthogonal, and R may be
            smaller than K.
        along: Directions a, shape (B, K), or None.

    Example:
        >>> basis = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
        >>> covariance = SharedBasis(torch.tensor([[100.0, 1.0]]), basis)
        >>> covariance.diagonal(), covariance.centered().diagonal()
        (tensor([[101., 101.]]), tensor([[1., 1.]]))
    """

    weights: Float[Tensor, "B R"]
    basis: Float[Tensor, "K R"]
    along: Float[Tensor, "B K"] | None = None
    # a _Basis, made in __post_init__ and kept when rows are chosen
    _derived: Any = field(default=None, repr=False)
    _known: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)
    shared: ClassVar[frozenset[str]] = frozenset({"basis"})

    def __post_init__(self) -> None:
        call = "SharedBasis(weights, basis)"
        require_tensor(
            call, self.weights, "B R", hint="`weights` holds one number per example and column."
        )
        hint = "`basis` is one matrix, shared by all examples."
        require_tensor(call, self.basis, "K R", hint=hint, classes=0)
        if self.weights.shape[1] != self.basis.shape[1]:
            raise ShapeError(
                f"`{call}` needs one weight per column of the basis; got weights"
                f" {tuple(self.weights.shape)} and basis {tuple(self.basis.shape)}. Classes are the"
                " rows of the basis: transpose it?"
            )
        require_alike(call, self.weights, self.basis, ("weights", "basis"))
        if self.along is not None:
            if self.along.shape != self.shape:
                raise ShapeError(
                    f"`{call}` needs a direction `along` of every example, shape {self.shape}; got"
                    f" {tuple(self.along.shape)}."
                )
            require_alike(call, self.weights, self.along, ("weights", "along"))
        if self._derived is None:
            object.__setattr__(self, "_derived", _Basis(self.basis))

    @property
    def shape(self) -> tuple[int, int]:
        """(B, K)."""
        return self.weights.shape[0], self.basis.shape[0]

    def diagonal(self) -> Float[Tensor, "B K"]:
        """d (Q²)ᵀ, a product with a K x K matrix that is computed once, unless it must
        carry a gradient.
        """
        if "diagonal" in self._known:
            return self._known["diagonal"]
        variance = self.weights @ self._derived.once(torch.square).T
        if self.along is not None:
            variance = torch.addcmul(variance, self.along, self.along)
        # not what a gradient may be asked of later; `requires_grad` of tensors, because every
        # prediction comes by here
        wanted = self.weights.requires_grad or self.basis.requires_grad
        wanted = wanted or (self.along is not None and self.along.requires_grad)
        infers = (
            not torch.compiler.is_compiling()  # which cannot ask
            and torch.is_inference_mode_enabled()
            and not self.weights.is_inference()
        )
        if not wanted and not infers:
            self._known["diagonal"] = variance
        return variance

    def trace(self) -> Float[Tensor, " B"]:
        """d · 1ᵀQ²."""
        return self._with_square(
            self.weights @ self._derived.once(torch.square).sum(0),
            lambda along: along.square().sum(-1),
        )

    def matvec(self, vector: Float[Tensor, "B K"]) -> Float[Tensor, "B K"]:
        """(d · pQ) Qᵀ."""
        found = (self.weights * (vector @ self.basis)) @ self.basis.T
        if self.along is None:  # not `_with_square`: every prediction asks for one product
            return found
        return found + self.along * (self.along * vector).sum(-1, keepdim=True)

    def matmat(self, vectors: Float[Tensor, "B K N"]) -> Float[Tensor, "B K N"]:
        """Two products with the basis for all rows together."""
        batch, classes, number = vectors.shape
        along = (vectors.mT.reshape(-1, classes) @ self.basis).view(batch, number, -1)
        scaled = (self.weights.unsqueeze(1) * along).flatten(0, 1)
        return self._with_square(
            (scaled @ self.basis.T).view(batch, number, classes).mT,
            lambda along: along.unsqueeze(-1) * (along.unsqueeze(1) @ vectors),
        )

    def column(self, classes: Int[Tensor, "B 1"]) -> Float[Tensor, "B K"]:
        """(d · Q_k) Qᵀ."""
        found = (self.weights * self.basis[classes.squeeze(-1)]) @ self.basis.T
        if self.along is None:  # nor here
            return found
        return found + self.along * self.along.gather(-1, classes)

    def columns(self, classes: Int[Tensor, "B N"]) -> Float[Tensor, "B K N"]:
        """(d · Q_k) Qᵀ for several classes, one product for all rows together."""
        scaled = self.weights.unsqueeze(1) * self.basis[classes]
        return self._with_square(
            (scaled.flatten(0, 1) @ self.basis.T).view(*classes.shape, -1).mT,
            lambda along: along.unsqueeze(-1) * along.gather(-1, classes).unsqueeze(1),
        )

    def row_sums(self) -> Float[Tensor, "B K"]:
        """(d · 1ᵀQ) Qᵀ."""
        return self._with_square(
            (self.weights * self._derived.once(_column_sums)) @ self.basis.T,
            lambda along: along * along.sum(-1, keepdim=True),
        )

    def grand_sum(self) -> Float[Tensor, " B"]:
        """d · (1ᵀQ)²."""
        return self._with_square(
            self.weights @ self._derived.once(_column_sums).square(),
            lambda along: along.sum(-1).square(),
        )

    def sample(
        self, num_samples: int, generator: Generator | None = None
    ) -> Float[Tensor, "S B K"]:
        """Q √d times independent noise."""
        noise = standard_normal(self.weights, num_samples, *self.weights.shape, generator=generator)
        draws = (noise * standard_deviation(self.weights)) @ self.basis.T
        if self.along is None:
            return draws
        single = standard_normal(draws, *draws.shape[:2], 1, generator=generator)
        return draws + single * self.along

    def centered(self) -> "SharedBasis":
        """The same weights on the centred basis CQ."""
        if self._derived.is_centered:
            return self
        derived = self._derived.once(_centered)
        along = None if self.along is None else self.along - self.along.mean(-1, keepdim=True)
        return replaced(self, basis=derived.columns, along=along, _derived=derived, _known={})

    def plus_square(self, along: Float[Tensor, "B K"]) -> "SharedBasis":
        """Σ + aaᵀ, of a covariance that has no square yet.

        Args:
            along: a. Of a centred basis it is centred too.

        Raises:
            InputError: If there is a square already.
        """
        if self.along is not None:
            raise InputError(
                "`SharedBasis.plus_square` adds one square aaᵀ; this covariance has one. Write"
                " both as columns of the basis, or use `Dense`."
            )
        if self._derived.is_centered:
            along = along - along.mean(-1, keepdim=True)
        return replaced(self, along=along, _known={})

    modulo_shift = centered

    def with_weights(self, weights: Float[Tensor, "B R"]) -> "SharedBasis":
        """The same basis, and what follows from it, with other weights, which are not
        checked.

        Args:
            weights: As many for each example as there are columns.
        """
        return replaced(self, weights=weights, _known={})

    def scaled(self, factor: Float[Tensor, " B"]) -> "SharedBasis":
        """Scales the weights, and the square beside them."""
        factor = factor.unsqueeze(-1)
        along = None if self.along is None else self.along * standard_deviation(factor)
        return replaced(self, weights=self.weights * factor, along=along, _known={})

    def bounded(self) -> "SharedBasis":
        """With bounded weights, and a bounded square."""
        limit = largest_variance(self.weights.dtype)
        root = math.sqrt(limit)
        along = None if self.along is None else self.along.clamp(-root, root)
        return replaced(self, weights=self.weights.clamp_max(limit), along=along, _known={})

    def to_dense(self) -> Float[Tensor, "B K K"]:
        """The matrices."""
        return self._with_square(
            torch.einsum("kr,br,lr->bkl", self.basis, self.weights, self.basis),
            lambda along: along.unsqueeze(-1) * along.unsqueeze(-2),
        )

    def _with_square(self, answer: Tensor, of_square: Callable[[Tensor], Tensor]) -> Tensor:
        """An answer of Q diag(d) Qᵀ plus that of aaᵀ, if there is one."""
        return answer if self.along is None else answer + of_square(self.along)

    def problems(self) -> Iterator[tuple[str, Bool[Tensor, " B"]]]:
        """As for every covariance, and negative weights."""
        yield from super().problems()
        yield "a weight is negative", (self.weights < 0).any(-1)
