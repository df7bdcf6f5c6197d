"""What every covariance structure can answer."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from laplacebridge._checks import rows_of

# The least share of its centred variance that a logit keeps when noise is spread over
# independent logits.
EFFECTIVE_VARIANCE_FLOOR = 5e-4
# A difference of so many rounding errors of what it was subtracted from cannot be told
# from zero.
ROUNDING_ERRORS = 8


# Beyond these variances of logits an answer no longer changes by anything that can be
# seen, while sums of their products would leave the range of the type.
_LARGEST_VARIANCES = {torch.float64: 1e100, torch.float32: 1e30}


def largest_variance(dtype: torch.dtype) -> float:
    """Up to where variances of logits are read as they are.

    Args:
        dtype: float64 or float32, which half precision is computed in.
    """
    return _LARGEST_VARIANCES.get(dtype, torch.finfo(dtype).max)


class GivenZeroSum(NamedTuple):
    """Logits conditioned on having sum zero."""

    follows: Float[Tensor, "B K"]  # how far each logit moves per unit of the sum; together one unit
    variance: Float[Tensor, "B K"]  # what is left of its variance


class Covariance(ABC):
    """B covariance matrices over K logits, known through their structure.

    A subclass is a frozen dataclass of tensors that implements the abstract methods;
    the rest follows from them and may be overridden where the structure knows better.
    Tensors that have no batch dimension are named in ``shared``.

    Example:
        >>> from laplacebridge.covariance import Diagonal
        >>> covariance = Diagonal(torch.tensor([[1.0, 2.0, 3.0]]))
        >>> isinstance(covariance, Covariance), covariance.shape, covariance.grand_sum()
        (True, (1, 3), tensor([6.]))
        >>> covariance.centered().diagonal()
        tensor([[1.0000, 1.3333, 1.6667]])
    """

    shared: ClassVar[frozenset[str]] = frozenset()
    # whether logits are independent, so that nothing off the diagonal needs to be asked for
    independent: ClassVar[bool] = False

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """(B, K)."""

    @abstractmethod
    def diagonal(self) -> Float[Tensor, "B K"]:
        """Variances, the diagonal of each matrix."""

    @abstractmethod
    def matvec(self, vector: Float[Tensor, "B K"]) -> Float[Tensor, "B K"]:
        """Product of each matrix with a vector of its own."""

    @abstractmethod
    def sample(
        self, num_samples: int, generator: Generator | None = None
    ) -> Float[Tensor, "S B K"]:
        """Draws from the zero-mean Gaussians with these covariances."""

    @abstractmethod
    def centered(self) -> "Covariance":
        """C Σ C with C = I − 11ᵀ/K: the covariance of logits from which their mean was
        subtracted.
        """

    @abstractmethod
    def scaled(self, factor: Float[Tensor, " B"]) -> "Covariance":
        """Each matrix times a non-negative number of its own."""

    def bounded(self) -> "Covariance":
        """The same, with variances that bridges can compute with: beyond
        `largest_variance`, infinity among them, they are read as that limit.

        A structure of your own may leave this as it is, and then bounds nothing.
        """
        return self

    @abstractmethod
    def to_dense(self) -> Float[Tensor, "B K K"]:
        """The matrices themselves: for tests and small K."""

    def matmat(self, vectors: Float[Tensor, "B K N"]) -> Float[Tensor, "B K N"]:
        """Products of each matrix with several vectors of its own."""
        return torch.stack([self.matvec(vector) for vector in vectors.unbind(-1)], -1)

    def centered_diagonal(self) -> Float[Tensor, "B K"]:
        """The diagonal of CΣC, the variances of logits from which their mean was
        subtracted.
        """
        return self.centered().diagonal()

    def column(self, classes: Int[Tensor, "B 1"]) -> Float[Tensor, "B K"]:
        """Covariances of all logits with that of one class, which each example has of
        its own.
        """
        anchor = self._anchor()
        axis = torch.zeros(self.shape, dtype=anchor.dtype, device=anchor.device)
        return self.matvec(axis.scatter(-1, classes, 1.0))

    def columns(self, classes: Int[Tensor, "B N"]) -> Float[Tensor, "B K N"]:
        """Covariances of all logits with those of several classes, which each example has
        of its own.
        """
        chosen = classes.unsqueeze(-1).unbind(1)
        return torch.stack([self.column(one) for one in chosen], -1)

    def row_sums(self) -> Float[Tensor, "B K"]:
        """Σ1, the sums of rows."""
        anchor = self._anchor()
        return self.matvec(torch.ones(self.shape, dtype=anchor.dtype, device=anchor.device))

    def grand_sum(self) -> Float[Tensor, " B"]:
        """1ᵀΣ1, the sum of all entries."""
        return self.row_sums().sum(-1)

    def trace(self) -> Float[Tensor, " B"]:
        """tr Σ, the sum of the variances."""
        return self.diagonal().sum(-1)

    def given_zero_sum(self) -> "GivenZeroSum":
        """What Eq. 11 needs: how the logits follow their sum, and their variances given
        that it is zero.

        With r̃ = Σ1 − mean(Σ1) and t = 1ᵀΣ1 these are 1/K + r̃/t and diag(CΣC) − r̃²/t.
        A covariance that is zero-sum already has t = 0: all logits follow alike. Where
        the sum determines a logit, so that only rounding is left of its variance, the
        variance is zero.
        """
        sums, total = self.row_sums(), self.grand_sum().unsqueeze(-1)
        rounding = ROUNDING_ERRORS * torch.finfo(self.dtype).eps
        varies = total > rounding * self.shape[1] * self.trace().unsqueeze(
            -1
        )  # of its largest possible value, K tr Σ
        follows = torch.where(
            varies, (sums - sums.mean(-1, keepdim=True)) / torch.where(varies, total, 1.0), 0.0
        )
        centered = self.centered_diagonal()
        remaining = centered - follows.square() * total
        noise = rounding * (centered + follows.abs() * sums.abs().amax(-1, keepdim=True))
        return GivenZeroSum(
            1 / self.shape[1] + follows, torch.where(remaining > noise, remaining, 0.0)
        )

    def modulo_shift(self) -> "Covariance":
        """The handiest covariance that gives softmax the same law: by default the
        centred one.
        """
        return self.centered()

    def effective_variance(self) -> Float[Tensor, "B K"]:
        """Variances of the independent logits whose centred variances come closest to
        these.

        Centring independent logits with variances D leaves d = D(1 − 2/K) + mean(D)/K;
        this solves for D. Where negative correlation would make an entry negative it is
        held at a small share of d, and the row rescaled to keep its sum. For
        independent logits it gives their variances back; of two, softmax sees the sum of
        the variances alone, and both get half of it.
        """
        return independent_variance(self.centered_diagonal().clamp_min(0))  # less is rounding

    def factored(self) -> "Covariance":
        """The same covariance in a form that can be sampled repeatedly without
        factorising again.
        """
        return self

    def problems(self) -> Iterator[tuple[str, Bool[Tensor, " B"]]]:
        """What could make this covariance invalid, each with the rows where it does;
        see `check`.
        """
        for name, tensor in self.tensors().items():
            bad = ~tensor.isfinite()
            rows = bad.any().expand(len(self)) if name in self.shared else bad.flatten(1).any(1)
            yield f"`{name}` is not finite", rows
        yield "a variance is negative", (self.diagonal() < 0).any(-1)

    def tensors(self) -> dict[str, Tensor]:
        """The stored tensors by name."""
        found = {}
        for item in fields(self):  # type: ignore[arg-type]
            value = getattr(self, item.name)
            if isinstance(value, Tensor):
                found[item.name] = value
        return found

    def to(self, target: torch.dtype | torch.device | str) -> "Covariance":
        """The same covariance with its tensors in another type or on another device."""
        return type(self)(**{name: tensor.to(target) for name, tensor in self.tensors().items()})

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient may be asked for any tensor inside."""
        return any(tensor.requires_grad for tensor in self.tensors().values())

    @property
    def dtype(self) -> torch.dtype:
        """Type of the stored tensors."""
        return self._anchor().dtype

    @property
    def device(self) -> torch.device:
        """Device of the stored tensors."""
        return self._anchor().device

    def _anchor(self) -> Tensor:
        return next(iter(self.tensors().values()))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: int | slice | Tensor | Sequence[int]) -> "Covariance":
        """The covariances of some rows; an integer keeps the batch dimension."""
        chosen: dict[str, Any] = {
            name: tensor[rows_of(rows, len(self))]
            for name, tensor in self.tensors().items()
            if name not in self.shared
        }
        return replace(self, **chosen)  # type: ignore[type-var]


def independent_variance(centered: Float[Tensor, "B K"]) -> Float[Tensor, "B K"]:
    """Variances of the independent logits whose centred variances come closest to these;
    see `Covariance.effective_variance`.

    Args:
        centered: Centred variances, not negative.
    """
    num_classes = centered.shape[-1]
    if num_classes == 2:
        return 2 * centered
    total = centered.sum(-1, keepdim=True)
    solved = (centered - total / (num_classes * (num_classes - 1))) * (
        num_classes / (num_classes - 2)
    )
    return kept_positive(solved, centered)


def kept_positive(
    solved: Float[Tensor, "B K"], centered: Float[Tensor, "B K"]
) -> Float[Tensor, "B K"]:
    """Variances of independent logits, solved for centred variances, made positive.

    A negative one becomes a small share of the centred variance, or less if it is nearly
    zero, so that the answer has no step; then the row is rescaled to keep its sum.

    Args:
        solved: Variances that may be negative.
        centered: The centred variances they were solved for.
    """
    num_classes = solved.shape[-1]
    floor = torch.minimum(EFFECTIVE_VARIANCE_FLOOR * centered, solved.abs())
    floored = torch.maximum(solved, floor)
    total, floored_total = centered.sum(-1, keepdim=True), floored.sum(-1, keepdim=True)
    safe = torch.where(floored_total > 0, floored_total, torch.ones_like(total))
    return floored * (total / safe * (num_classes / (num_classes - 1)))


def standard_deviation(variance: Tensor) -> Tensor:
    """Square root whose gradient is 0, instead of infinite, where the variance is 0."""
    smallest = torch.finfo(variance.dtype).tiny
    return torch.where(
        variance > 0, variance.clamp_min(smallest).sqrt(), torch.zeros_like(variance)
    )


def standard_normal(like: Tensor, *shape: int, generator: Generator | None) -> Tensor:
    """Independent standard normal draws of the type and on the device of another
    tensor.
    """
    return torch.randn(shape, dtype=like.dtype, device=like.device, generator=generator)
