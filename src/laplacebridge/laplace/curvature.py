"""Curvature: the sums over data that define the generalised Gauss–Newton matrix of a
softmax head.

For logits z = Wφ and p = softmax(z) one example contributes (diag(p) − ppᵀ) ⊗ φφᵀ:
outer products of features and probabilities, no backward pass. A bias is the weight of
a constant feature. Each structure keeps as much of that sum as it can afford. A
curvature is a value that adds: batches in any split and order give the same sum, and so
do shards on several processes. Sums are kept in float64, because the class factor has
an exact zero along **1** that rounding in float32 would lift above a small prior.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from laplacebridge._checks import is_half, require_tensor
from laplacebridge.errors import InputError, ShapeError
from laplacebridge.laplace.sums import BYTES_PER_NUMBER, Sums


@dataclass(frozen=True, eq=False)
class Curvature(Sums, ABC):
    """The sums of one linear layer; a subclass is a frozen dataclass of tensors and
    says how a batch adds to them.

    Example:
        >>> features, probabilities = torch.eye(4), torch.full((4, 3), 1 / 3)
        >>> whole = Diag.of_batch(features, probabilities)
        >>> halves = [
        ...     Diag.of_batch(features[rows], probabilities[rows])
        ...     for rows in (slice(2), slice(2, 4))
        ... ]
        >>> torch.equal((halves[0] + halves[1]).diagonal, whole.diagonal)
        True
    """

    @classmethod
    @abstractmethod
    def of_batch(
        cls, features: Tensor, probabilities: Tensor, weights: Tensor | None = None
    ) -> "Curvature":
        """The sums over one batch.

        Args:
            features: Features φ, with the constant one for a bias, shape (B, D).
            probabilities: softmax of the logits, shape (B, K).
            weights: What each example counts, shape (B,); None for ones.
        """

    @classmethod
    def of_labels(
        cls, features: Tensor, curvatures: Tensor, weights: Tensor | None = None
    ) -> "Curvature":
        """The sums over one batch of a head with a sigmoid for each label, if the
        structure holds labels that are independent.

        Args:
            features: As for `of_batch`.
            curvatures: Of each label's loss in its logit, p(1 − p) and its weight,
                shape (B, K).
            weights: What each example counts, which is in the curvatures already.

        Raises:
            InputError: If this structure is one of classes of which one is right.
        """
        raise InputError(
            f"`{cls.__name__}` is a curvature of classes of which one is right; several labels at"
            " once have `LabelBlocks`, `DiagKron` or `Diag`."
        )

    @staticmethod
    @abstractmethod
    def num_numbers(num_features: int, num_classes: int) -> int:
        """How many numbers the structure holds for D features and K classes."""

    @classmethod
    def num_bytes(cls, num_features: int, num_classes: int) -> int:
        """How much memory the sums take."""
        return BYTES_PER_NUMBER * cls.num_numbers(num_features, num_classes)


def _checked(
    features: Tensor, probabilities: Tensor, weights: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Checks a batch and returns what its examples count together, its probabilities
    and the roots of the weights, in float64.

    Raises:
        ShapeError: If features and probabilities are not of the same examples.
    """
    require_tensor("Curvature.of_batch(features, probabilities)", features, "B D")
    require_tensor("Curvature.of_batch(features, probabilities)", probabilities, "B K")
    if len(features) != len(probabilities):
        raise ShapeError(
            f"`of_batch` needs features and probabilities of the same examples; got {len(features)}"
            f" and {len(probabilities)} rows."
        )
    count, roots = counted(features, weights)
    # rows that sum to one only in float32 would lift the zero of the class factor along
    # 1
    exact = probabilities.double()
    return count, exact / exact.sum(-1, keepdim=True), roots


def counted(features: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """What the examples of a batch count together, and the roots of their weights as a
    column, in float64.

    Args:
        features: One row for each example.
        weights: What each counts; None for ones.
    """
    if weights is None:
        number = torch.tensor(float(len(features)), dtype=torch.float64, device=features.device)
        return number, None
    exact = weights.double()
    return exact.sum(), exact.sqrt().unsqueeze(-1)


def _times(rows: Tensor, roots: Tensor | None) -> Tensor:
    """Rows in float64 whose outer products have the weights."""
    return rows.double() if roots is None else rows.double() * roots


@dataclass(frozen=True, eq=False)
class Diag(Curvature):
    """The diagonal of the GGN: Σ p_k(1 − p_k) φ_d².

    Attributes:
        diagonal: Shape (K, D); layers of a network have a dimension of groups before
            it, and so below.

    Example:
        >>> Diag.of_batch(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5, 0.5]])).diagonal
        tensor([[0.2500, 1.0000],
                [0.2500, 1.0000]], dtype=torch.float64)
    """

    diagonal: Float[Tensor, "*groups K D"]

    @classmethod
    def of_batch(
        cls, features: Tensor, probabilities: Tensor, weights: Tensor | None = None
    ) -> "Diag":
        """One product of (K, B) by (B, D)."""
        count, probabilities, roots = _checked(features, probabilities, weights)
        spread = probabilities * (1 - probabilities)
        return cls(count, cls._diagonal(features, spread if roots is None else spread * roots**2))

    @classmethod
    def of_labels(
        cls, features: Tensor, curvatures: Tensor, weights: Tensor | None = None
    ) -> "Diag":
        """The same product."""
        return cls(counted(features, weights)[0], cls._diagonal(features, curvatures))

    @staticmethod
    def _diagonal(features: Tensor, spread: Tensor) -> Tensor:
        # Among terms that are not negative nothing cancels: a product in float32 is
        # right to 1e-6, at half the cost.
        working = features.float() if is_half(features.dtype) else features
        diagonal = spread.to(working.dtype).T @ working.square()
        if not diagonal.isfinite().all():  # squares beyond float32
            diagonal = spread.T @ features.double().square()
        return diagonal.double()

    @staticmethod
    def num_numbers(num_features: int, num_classes: int) -> int:
        """K·D."""
        return num_classes * num_features


@dataclass(frozen=True, eq=False)
class Kron(Curvature):
    """Kronecker factors: the GGN is taken as A ⊗ G/N. Exact when all examples share
    features or probabilities.

    Attributes:
        feature_factor: A = Σ φφᵀ, shape (D, D).
        class_factor: G = Σ diag(p) − ppᵀ, shape (K, K); G1 = 0.

    Example:
        >>> Kron.of_batch(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5, 0.5]])).class_factor
        tensor([[ 0.2500, -0.2500],
                [-0.2500,  0.2500]], dtype=torch.float64)
    """

    feature_factor: Float[Tensor, "*groups D D"]
    class_factor: Float[Tensor, "*groups K K"]

    @classmethod
    def of_batch(
        cls, features: Tensor, probabilities: Tensor, weights: Tensor | None = None
    ) -> "Kron":
        """Two products."""
        count, probabilities, roots = _checked(features, probabilities, weights)
        features, probabilities = _times(features, roots), _times(probabilities, roots)
        # The diagonal is minus the sum of the others, by G1 = 0. Written Σp − Σp² it
        # would keep the rounding of Σp, which for a confident network is larger than
        # everything else in G.
        class_factor = (probabilities.T @ probabilities).neg_()
        class_factor.fill_diagonal_(0)
        class_factor.diagonal().copy_(-class_factor.sum(-1))
        return cls(count, features.T @ features, class_factor)

    @staticmethod
    def num_numbers(num_features: int, num_classes: int) -> int:
        """D² + K²."""
        return num_features**2 + num_classes**2


@dataclass(frozen=True, eq=False)
class DiagKron(Curvature):
    """A dense feature factor and a diagonal class factor: A ⊗ diag(g)/N. For as many
    classes as the head can hold.

    Attributes:
        feature_factor: A = Σ φφᵀ, shape (D, D).
        class_factor: g = Σ p(1 − p), shape (K,).

    Example:
        >>> DiagKron.of_batch(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5, 0.5]])).class_factor
        tensor([0.2500, 0.2500], dtype=torch.float64)
    """

    feature_factor: Float[Tensor, "D D"]
    class_factor: Float[Tensor, " K"]

    @classmethod
    def of_batch(
        cls, features: Tensor, probabilities: Tensor, weights: Tensor | None = None
    ) -> "DiagKron":
        """One product and one sum."""
        count, probabilities, roots = _checked(features, probabilities, weights)
        spread = probabilities * (1 - probabilities)
        features = _times(features, roots)
        return cls(
            count, features.T @ features, (spread if roots is None else spread * roots**2).sum(0)
        )

    @classmethod
    def of_labels(
        cls, features: Tensor, curvatures: Tensor, weights: Tensor | None = None
    ) -> "DiagKron":
        """The same."""
        count, roots = counted(features, weights)
        features = _times(features, roots)
        return cls(count, features.T @ features, curvatures.double().sum(0))

    @staticmethod
    def num_numbers(num_features: int, num_classes: int) -> int:
        """D² + D·K: the posterior's variances per feature direction and class are what
        takes room.
        """
        return num_features**2 + num_features * num_classes


@dataclass(frozen=True, eq=False)
class Full(Curvature):
    """The whole GGN. For small heads: it has (K·D)² numbers.

    Attributes:
        matrix: Shape (K·D, K·D), weights of a class together.

    Example:
        >>> Full.of_batch(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5, 0.5]])).matrix
        tensor([[ 0.2500,  0.5000, -0.2500, -0.5000],
                [ 0.5000,  1.0000, -0.5000, -1.0000],
                [-0.2500, -0.5000,  0.2500,  0.5000],
                [-0.5000, -1.0000,  0.5000,  1.0000]], dtype=torch.float64)
    """

    matrix: Float[Tensor, "P P"]

    @classmethod
    def of_batch(
        cls, features: Tensor, probabilities: Tensor, weights: Tensor | None = None
    ) -> "Full":
        """Minus the outer products of p ⊗ φ off the diagonal blocks, which are minus
        the sum of the others.
        """
        count, probabilities, roots = _checked(features, probabilities, weights)
        features = _times(features, roots)
        weighted = (probabilities.unsqueeze(-1) * features.unsqueeze(-2)).flatten(1)  # (B, K·D)
        num_classes, num_features = probabilities.shape[1], features.shape[1]
        matrix = -(weighted.T @ weighted).view(num_classes, num_features, num_classes, num_features)
        same = torch.arange(num_classes, device=features.device)
        matrix[same, :, same] = 0
        matrix[same, :, same] = -matrix.sum(2)  # as for `Kron`
        return cls(count, matrix.reshape(weighted.shape[1], weighted.shape[1]))

    @staticmethod
    def num_numbers(num_features: int, num_classes: int) -> int:
        """(K·D)²."""
        return (num_features * num_classes) ** 2
