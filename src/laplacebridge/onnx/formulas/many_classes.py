"""Covariances of many classes that share a basis: what is linear in the posterior is
computed once for the Gaussian that predictions are as wide as and the one of the mean.
"""

from dataclasses import dataclass, replace
from functools import cached_property

from laplacebridge.onnx.formulas.covariances import (
    LARGEST_VARIANCE,
    GraphCovariance,
    SharedBasis,
)
from laplacebridge.onnx.formulas.nodes import Value, joined


@dataclass(frozen=True)
class FewCoordinates:
    """Weights d = yS of few coordinates y of each row; see `laplace.separated`."""

    coordinates: Value
    columns: Value  # S

    @cached_property
    def weights(self) -> Value:
        """d."""
        return self.coordinates @ self.columns

    def diagonal(self, basis: Value) -> Value:
        """d (Q²)ᵀ, by a small matrix that a runtime computes once."""
        return self.coordinates @ self.columns.times_transposed(basis.square())


@dataclass(frozen=True)
class AllWeights:
    """Weights d as they are."""

    weights: Value

    def diagonal(self, basis: Value) -> Value:
        """d (Q²)ᵀ."""
        return self.weights.times_transposed(basis.square())


@dataclass(frozen=True)
class ManySharedBasis(GraphCovariance):
    """f Q diag(d) Qᵀ + g I + c aaᵀ, with f, g and c the same for all classes; Q is
    orthonormal and complete.
    """

    shared: FewCoordinates | AllWeights
    basis: Value
    num_classes: int
    factor: Value | float = 1.0
    added: Value | float = 0.0
    along: Value | None = None  # a, which sums to zero
    square: Value | float = 0.0  # c
    is_centered: bool = False

    def scaled(self, factor: Value | float) -> "ManySharedBasis":
        """Each matrix times a number."""
        return replace(
            self,
            factor=self.factor * factor,
            added=self.added * factor,
            square=self.square * factor,
        )

    def plus_identity(self, variance: Value | float) -> "ManySharedBasis":
        """Σ + cI."""
        return replace(self, added=self.added + variance)

    def plus_square(self, along: Value, factor: float) -> "ManySharedBasis":
        """Σ + c aaᵀ, of a covariance that has no square yet."""
        return replace(self, along=along, square=factor)

    def bounded(self) -> "ManySharedBasis":
        """Itself: what is asked of it is bounded."""
        return self

    def centered(self) -> "ManySharedBasis":
        """The same weights on the centred basis, which a runtime computes once."""
        if self.is_centered:
            return self
        return replace(self, basis=self.basis - self.basis.mean(0), is_centered=True)

    @cached_property
    def weights(self) -> Value:
        """What the basis is weighted with, fd + g."""
        weights = self.shared.weights.at_most(LARGEST_VARIANCE) * self.factor + self.added
        return weights.at_most(LARGEST_VARIANCE)

    def diagonal(self) -> Value:
        """f d (Q²)ᵀ + g + c a²."""
        squares = 1 - 1 / self.num_classes if self.is_centered else 1.0
        variance = self.shared.diagonal(self.basis) * self.factor + self.added * squares
        if self.along is not None:
            variance = variance + self.along.square() * self.square
        return variance.at_most(LARGEST_VARIANCE)

    def matvec(self, vector: Value) -> Value:
        """Σp."""
        product = self._in_basis.matvec(vector)
        if self.along is None:
            return product
        return product + self.along * ((self.along * vector).sum() * self.square)

    def column(self, classes: Value) -> Value:
        """Covariances with one class of each example."""
        column = self._in_basis.column(classes)
        if self.along is None:
            return column
        return column + self.along * (self.along.at(classes) * self.square)

    def row_sums(self) -> Value:
        """Σ1, of which a has nothing: it sums to zero."""
        return self._in_basis.row_sums()

    def stacked(self, other: GraphCovariance) -> "StackedSharedBasis":
        """The matrices of both."""
        assert isinstance(other, ManySharedBasis)  # noqa: S101  (of the same posterior)
        return StackedSharedBasis((self, other), self.num_classes)

    @property
    def _in_basis(self) -> SharedBasis:
        return SharedBasis(self.weights, self.basis, self.num_classes, self.is_centered)

    def with_weights(self, weights: Value, top: Value) -> tuple[Value, Value, Value]:
        """See `GraphCovariance.with_weights`."""
        return StackedSharedBasis((self,), self.num_classes).with_weights(weights, top)


@dataclass(frozen=True)
class StackedSharedBasis(GraphCovariance):
    """Several on the same basis, one batch after the other: products with the basis are
    made of all of them together.
    """

    parts: tuple[ManySharedBasis, ...]
    num_classes: int

    def centered(self) -> "StackedSharedBasis":
        """Each centred."""
        return replace(self, parts=tuple(part.centered() for part in self.parts))

    def diagonal(self) -> Value:
        """The variances of each."""
        return joined([part.diagonal() for part in self.parts], 0)

    def with_weights(self, weights: Value, top: Value) -> tuple[Value, Value, Value]:
        """See `GraphCovariance.with_weights`."""
        of_basis = joined([part.weights for part in self.parts], 0)
        shared = SharedBasis(of_basis, self.parts[0].basis, self.num_classes, True)
        product, with_top, squared = shared.with_weights(weights, top)
        if self.parts[0].along is None:
            return product, with_top, squared
        along = joined([part.along for part in self.parts if part.along is not None], 0)
        square = joined([_column(part.square, part.along) for part in self.parts], 0)
        of_others, own = (along * weights).sum(), along.at(top)
        scaled = of_others * square
        product = product + along * (scaled + own * square)
        return product, with_top + scaled * own, squared + scaled * of_others

    def matvec(self, vector: Value) -> Value:
        """Not asked of several."""
        raise NotImplementedError

    column = row_sums = matvec  # type: ignore[assignment]
    scaled = plus_identity = plus_square = bounded = stacked = matvec  # type: ignore[assignment]


def _column(number: Value | float, like: Value | None) -> Value:
    """A number of each row, shape (B, 1)."""
    if isinstance(number, Value):
        return number
    assert like is not None  # noqa: S101  (asked where there is one)
    return like.slice(0, 1, -1) * 0.0 + number
