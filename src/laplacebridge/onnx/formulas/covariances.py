"""Covariances of logits in graphs: `covariance/` once more, with what bridges ask."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np
import torch

from laplacebridge.covariance.base import EFFECTIVE_VARIANCE_FLOOR, largest_variance
from laplacebridge.onnx.formulas.nodes import Value, joined

_SMALLEST_TOTAL = 2.0**-126
LARGEST_VARIANCE = largest_variance(torch.float32)


class GraphCovariance(ABC):
    """Covariances of a batch of logits, as values of a graph; see `Covariance`."""

    independent = False
    num_classes: int

    @abstractmethod
    def scaled(self, factor: "Value | float") -> "GraphCovariance":
        """Each matrix times a number."""

    @abstractmethod
    def plus_identity(self, variance: "Value | float") -> "GraphCovariance":
        """Σ + cI."""

    @abstractmethod
    def plus_square(self, along: Value, factor: float) -> "GraphCovariance":
        """Σ + c aaᵀ, or the nearest that its structure can hold."""

    @abstractmethod
    def bounded(self) -> "GraphCovariance":
        """With variances that bridges can compute with."""

    @abstractmethod
    def centered(self) -> "GraphCovariance":
        """CΣC."""

    @abstractmethod
    def diagonal(self) -> Value:
        """Variances, shape (B, K)."""

    @abstractmethod
    def matvec(self, vector: Value) -> Value:
        """Σp."""

    @abstractmethod
    def column(self, classes: Value) -> Value:
        """Covariances with one class of each example, given as (B, 1)."""

    @abstractmethod
    def row_sums(self) -> Value:
        """Σ1."""

    @abstractmethod
    def stacked(self, other: "GraphCovariance") -> "GraphCovariance":
        """The matrices of both, one batch after the other."""

    def with_weights(self, weights: Value, top: Value) -> tuple[Value, Value, Value]:
        """Of weights w, which are zero for one class of each example: covariances of all
        logits with the sum of that class and the weighted others, those of that class
        with the weighted others alone, and the variance of these.
        """
        others = self.matvec(weights)
        squared = (weights * others).sum()
        return others + self.column(top), others.at(top), squared

    def modulo_shift(self) -> "GraphCovariance":
        """The handiest covariance that gives softmax the same law."""
        return self.centered()

    def effective_variance(self) -> Value:
        """Variances of the independent logits that come closest; see
        `Covariance.effective_variance`.
        """
        classes = self.num_classes
        centered = self.centered().diagonal().at_least(0.0)
        if classes == 2:
            return centered * 2.0
        total = centered.sum()
        solved = (centered - total * (1 / (classes * (classes - 1.0)))) * (
            classes / (classes - 2.0)
        )
        floored = solved.at_least(centered * EFFECTIVE_VARIANCE_FLOOR)
        floored_total = floored.sum()
        safe = floored_total.at_least(_SMALLEST_TOTAL)  # all are zero if it is
        return floored * (total / safe * (classes / (classes - 1.0)))


@dataclass(frozen=True)
class Independent(GraphCovariance):
    """diag(v)."""

    variance: Value
    num_classes: int
    independent = True

    def scaled(self, factor: "Value | float") -> "Independent":
        """Each matrix times a number."""
        return replace(self, variance=self.variance * factor)

    def plus_identity(self, variance: "Value | float") -> "Independent":
        """Σ + cI."""
        return replace(self, variance=self.variance + variance)

    def plus_square(self, along: Value, factor: float) -> "Independent":
        """The diagonal of Σ + c aaᵀ."""
        return replace(self, variance=self.variance + along.square() * factor)

    def bounded(self) -> "Independent":
        """With bounded variances."""
        return replace(self, variance=self.variance.at_most(LARGEST_VARIANCE))

    def centered(self) -> "Independent":
        """Not needed: softmax sees no difference."""
        raise NotImplementedError

    def modulo_shift(self) -> "Independent":
        """Itself."""
        return self

    def effective_variance(self) -> Value:
        """The variances; of two, both get half of their sum."""
        return self.variance if self.num_classes > 2 else self.variance * 0.0 + self.variance.mean()

    def diagonal(self) -> Value:
        """The variances."""
        return self.variance

    def matvec(self, vector: Value) -> Value:
        """Product, element by element."""
        return self.variance * vector

    def column(self, classes: Value) -> Value:
        """Not asked of independent logits."""
        raise NotImplementedError

    def row_sums(self) -> Value:
        """The variances."""
        return self.variance

    def stacked(self, other: "GraphCovariance") -> "Independent":
        """The variances of both."""
        return replace(self, variance=joined([self.variance, other.variance], 0))  # type: ignore[attr-defined]


@dataclass(frozen=True)
class SharedBasis(GraphCovariance):
    """Q diag(d) Qᵀ; the basis has a row for each class."""

    weights: Value
    basis: Value
    num_classes: int
    is_centered: bool = False

    def scaled(self, factor: "Value | float") -> "SharedBasis":
        """Scales the weights."""
        return replace(self, weights=self.weights * factor)

    def plus_identity(self, variance: "Value | float") -> "SharedBasis":
        """The basis is orthonormal and complete: the identity has weight one everywhere."""
        return replace(self, weights=self.weights + variance)

    def plus_square(self, along: Value, factor: float) -> "SharedBasis":
        """The diagonal of c aaᵀ in this basis."""
        return replace(self, weights=self.weights + (along @ self.basis).square() * factor)

    def bounded(self) -> "SharedBasis":
        """With bounded weights."""
        return replace(self, weights=self.weights.at_most(LARGEST_VARIANCE))

    def centered(self) -> "SharedBasis":
        """The same weights on the centred basis, which a runtime computes once."""
        if self.is_centered:
            return self
        return replace(self, basis=self.basis - self.basis.mean(0), is_centered=True)

    def diagonal(self) -> Value:
        """d (Q²)ᵀ."""
        return self.weights.times_transposed(self.basis.square())

    def matvec(self, vector: Value) -> Value:
        """(d · pQ) Qᵀ."""
        return (self.weights * (vector @ self.basis)).times_transposed(self.basis)

    def column(self, classes: Value) -> Value:
        """(d · Q_k) Qᵀ."""
        return (self.weights * self.basis.rows_at(classes)).times_transposed(self.basis)

    def with_weights(self, weights: Value, top: Value) -> tuple[Value, Value, Value]:
        """In the basis: two products with it instead of three."""
        others, own = weights @ self.basis, self.basis.rows_at(top)
        scaled = self.weights * others
        product = (scaled + self.weights * own).times_transposed(self.basis)
        return product, (scaled * own).sum(), (scaled * others).sum()

    def row_sums(self) -> Value:
        """(d · 1ᵀQ) Qᵀ."""
        return (self.weights * self.basis.sum(0)).times_transposed(self.basis)

    def stacked(self, other: "GraphCovariance") -> "SharedBasis":
        """The weights of both."""
        assert isinstance(other, SharedBasis)  # noqa: S101  (of the same posterior)
        return replace(self, weights=joined([self.weights, other.weights], 0))


@dataclass(frozen=True)
class Dense(GraphCovariance):
    """A matrix for each example, shape (B, K, K)."""

    matrix: Value
    num_classes: int

    def scaled(self, factor: "Value | float") -> "Dense":
        """Each matrix times a number."""
        return replace(self, matrix=self.matrix * _of_matrix(factor))

    def plus_identity(self, variance: "Value | float") -> "Dense":
        """Σ + cI."""
        identity = self.matrix.graph.constant(np.eye(self.num_classes))
        return replace(self, matrix=self.matrix + identity * _of_matrix(variance))

    def plus_square(self, along: Value, factor: float) -> "Dense":
        """Σ + c aaᵀ."""
        square = (along * factor).unsqueezed(-1) * along.unsqueezed(1)
        return replace(self, matrix=self.matrix + square)

    def bounded(self) -> "Dense":
        """With bounded entries."""
        return replace(self, matrix=self.matrix.between(-LARGEST_VARIANCE, LARGEST_VARIANCE))

    def centered(self) -> "Dense":
        """Subtracts the means of rows and columns."""
        rows = self.matrix - self.matrix.mean(-1)
        return replace(self, matrix=rows - rows.mean(1))

    def diagonal(self) -> Value:
        """Diagonals: every (K + 1)-th entry."""
        flat = self.matrix.reshaped(-1, self.num_classes**2)
        places = [row * (self.num_classes + 1) for row in range(self.num_classes)]
        return flat.apply("Gather", flat.graph.constant(places, "int64"), axis=1)

    def matvec(self, vector: Value) -> Value:
        """Batched product."""
        return (self.matrix @ vector.unsqueezed(-1)).squeezed(-1)

    def column(self, classes: Value) -> Value:
        """A column of each matrix, which is symmetric."""
        chosen = self.matrix.graph.constant(list(range(self.num_classes)), "int64").equals(classes)
        return self.matvec(chosen.cast("float32"))

    def row_sums(self) -> Value:
        """Sums of rows."""
        return self.matrix.sum(-1, keepdims=False)

    def stacked(self, other: "GraphCovariance") -> "Dense":
        """The matrices of both."""
        return replace(self, matrix=joined([self.matrix, other.matrix], 0))  # type: ignore[attr-defined]


def _of_matrix(factor: "Value | float") -> "Value | float":
    """A number of each row, (B, 1), as one of each matrix."""
    return factor.unsqueezed(-1) if isinstance(factor, Value) else factor
