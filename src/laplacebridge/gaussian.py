"""A Gaussian over logits: where every source of uncertainty meets every bridge."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy.typing as npt
import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from laplacebridge._arrays import to_tensors
from laplacebridge._checks import (
    is_readable,
    require_alike,
    require_finite,
    require_tensor,
    rows_of,
)
from laplacebridge._values import not_finite
from laplacebridge.covariance import Covariance, Dense, Diagonal, LowRank
from laplacebridge.errors import InputError, ShapeError

AnyArray: TypeAlias = Tensor | npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class LogitGaussian:
    """B Gaussians over K logits, whatever they come from: Laplace, variational
    inference, an ensemble.

    Attributes:
        mean: Means, shape (B, K).
        covariance: A `Covariance` of the same shape, type and device.
        seek_factors: Whether `race_bridge` looks for factors that the logits share, and
            averages over them. False in what the posterior of a fit gives: there the
            search gains nothing, and exported files could not do it.
        members: The logits that the moments were taken from, shape (S, B, K), where
            there are any: an ensemble's own answer is the average of their softmax
            (`member_mean`, `bridges.members_bridge`).

    Example:
        >>> gaussian = LogitGaussian(torch.tensor([[2.0, 0.0]]), Diagonal(torch.ones(1, 2)))
        >>> gaussian.num_classes, gaussian.variance
        (2, tensor([[1., 1.]]))
    """

    mean: Float[Tensor, "B K"]
    covariance: Covariance
    seek_factors: bool = True
    members: Float[Tensor, "S B K"] | None = None

    def __post_init__(self) -> None:
        call = "LogitGaussian(mean, covariance)"
        hint = "Logits of tokens or pixels, (B, T, K), are B·T rows: `.flatten(0, -2)`."
        require_tensor(call, self.mean, "B K", hint=hint, classes=1)
        if not isinstance(self.covariance, Covariance):
            raise ShapeError(
                f"`{call}` needs a `Covariance`; got {type(self.covariance).__name__}. Use"
                " `Diagonal(variance)`, `Dense(covariance)` or `LogitGaussian.from_moments(mean,"
                " tensor)`."
            )
        if tuple(self.mean.shape) != self.covariance.shape:
            raise ShapeError(
                f"`{call}` needs a mean and a covariance of the same (B, K); got mean"
                f" {tuple(self.mean.shape)} and covariance {self.covariance.shape}. Each row of the"
                " mean is one example."
            )
        require_alike(call, self.mean, self.covariance._anchor(), ("mean", "covariance"))
        if self.members is not None and self.members.shape[1:] != self.mean.shape:
            raise ShapeError(
                f"`{call}` needs members (S, B, K) of the mean's (B, K) = {tuple(self.mean.shape)};"
                f" got {tuple(self.members.shape)}. `LogitGaussian.from_samples` keeps them."
            )

    @classmethod
    def from_moments(cls, mean: AnyArray, covariance: AnyArray) -> "LogitGaussian":
        """Takes plain tensors or arrays: variances (B, K) become a `Diagonal`, matrices
        (B, K, K) a `Dense`.

        Args:
            mean: Means, shape (B, K).
            covariance: Variances, shape (B, K), or covariance matrices, shape (B, K,
                K).

        Raises:
            ShapeError: If the second tensor has neither shape.
            InputError: If there is a NaN, or a mean is infinite.
        """
        means: Tensor = to_tensors(mean)
        covariance = to_tensors(covariance)
        call, advice = "LogitGaussian.from_moments(mean, covariance)", "Leave such rows out."
        if isinstance(means, Tensor) and is_readable(means):
            require_finite(call, "means", means, advice)
        if isinstance(covariance, Tensor) and is_readable(covariance):
            wide = covariance.isinf()  # as good as very wide: bridges bound it
            require_finite(call, "covariances", covariance.masked_fill(wide, 0.0), advice)
        if isinstance(covariance, Tensor) and covariance.dim() == 2:
            return cls(means, Diagonal(covariance))
        if isinstance(covariance, Tensor) and covariance.dim() == 3:
            return cls(means, Dense(covariance))
        needed = (
            "`LogitGaussian.from_moments(mean, covariance)` needs variances (B, K) or matrices of"
            " shape (B, K, K)"
        )
        if not isinstance(covariance, Tensor):
            raise ShapeError(
                f"{needed}; got {type(covariance).__name__}. Convert it with `torch.as_tensor`."
            )
        advice = "One matrix for all examples: `.expand(len(mean), -1, -1)`."
        raise ShapeError(f"{needed}; got {tuple(covariance.shape)}. {advice}")

    @classmethod
    def from_samples(cls, logits: AnyArray) -> "LogitGaussian":
        """Moments of sampled logits: an ensemble's members, MC dropout's passes,
        posterior samples.

        The samples are kept as `members`. The covariance is the unbiased one. With
        fewer samples than classes it is kept as its factor (`LowRank`), and no K x K
        matrix is formed.

        Args:
            logits: Samples first, shape (S, B, K), at least two of them.

        Raises:
            ShapeError: If the shape is another one, or there is only one sample.
            InputError: If they are probabilities, or not finite.

        Example:
            >>> members = torch.tensor([[[1.0, 0.0]], [[3.0, 0.0]]])
            >>> LogitGaussian.from_samples(members).variance
            tensor([[2., 0.]])
        """
        call = "LogitGaussian.from_samples(logits)"
        samples: Tensor = to_tensors(logits)
        num_samples, _, num_classes = require_tensor(
            call, samples, "S B K", hint="Stack samples first.", classes=2
        ).shape
        if num_samples < 2:
            raise ShapeError(
                f"`{call}` needs at least S = 2 samples to see any spread; got S = {num_samples}."
                " Samples come first: (S, B, K)."
            )
        if samples.numel() and (samples >= 0).all() and ((samples.sum(-1) - 1).abs() < 1e-3).all():
            raise InputError(
                f"`{call}` needs logits; these are probabilities, which add up to 1 in every row."
                " Give what stands before the softmax."
            )
        if is_readable(samples):
            advice = "Leave out such rows, or the member that gives them."
            require_finite(call, "logits", samples.transpose(0, 1), advice)
        mean = samples.mean(0)
        factor = ((samples - mean) / (num_samples - 1) ** 0.5).permute(1, 2, 0)
        low_rank = LowRank(factor)
        covariance = low_rank if num_samples < num_classes else Dense(low_rank.to_dense())
        return cls(mean, covariance, members=samples)

    def member_mean(self) -> Float[Tensor, "B K"]:
        """The average of the members' softmax: what an ensemble answers by itself.

        Raises:
            InputError: If the Gaussian was not made of members.

        Example:
            >>> members = torch.tensor([[[1.0, 0.0]], [[3.0, 0.0]]])
            >>> LogitGaussian.from_samples(members).member_mean()
            tensor([[0.8418, 0.1582]])
        """
        if self.members is None:
            raise InputError(
                "`member_mean()` needs a Gaussian that was made of members; this one has moments"
                " alone. Make it by `LogitGaussian.from_samples` or `sources.ensemble_gaussian`, or"
                " take the mean of a bridge."
            )
        return self.members.softmax(-1).mean(0)

    @property
    def variance(self) -> Float[Tensor, "B K"]:
        """Variances of the logits, the diagonal of the covariance."""
        return self.covariance.diagonal()

    @property
    def num_classes(self) -> int:
        """K."""
        return self.mean.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """Type of mean and covariance."""
        return self.mean.dtype

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient may be asked for any tensor inside."""
        return self.mean.requires_grad or self.covariance.requires_grad

    def centered(self) -> "LogitGaussian":
        """The law of the logits minus their mean over classes, N(Cμ, CΣC). Softmax sees
        no difference.
        """
        mean = self.mean - self.mean.mean(-1, keepdim=True)
        members = (
            None if self.members is None else self.members - self.members.mean(-1, keepdim=True)
        )
        return replace(self, mean=mean, covariance=self.covariance.centered(), members=members)

    def sample(
        self, num_samples: int, generator: Generator | None = None
    ) -> Float[Tensor, "S B K"]:
        """Draws logits.

        Args:
            num_samples: How many, S.
            generator: Source of randomness.
        """
        return self.mean + self.covariance.sample(num_samples, generator)

    def to(self, target: torch.dtype | torch.device | str) -> "LogitGaussian":
        """The same Gaussian in another type or on another device."""
        mean, covariance = self.mean.to(target), self.covariance.to(target)
        members = None if self.members is None else self.members.to(target)
        return replace(self, mean=mean, covariance=covariance, members=members)

    def __len__(self) -> int:
        return self.mean.shape[0]

    def problems(self) -> Iterator[tuple[str, Bool[Tensor, " B"]]]:
        """What could make these Gaussians invalid, each with the rows where it does;
        see `check`.
        """
        yield not_finite("mean", self.mean)
        yield from self.covariance.problems()

    def __getitem__(self, rows: int | slice | Tensor | Sequence[int]) -> "LogitGaussian":
        """The Gaussians of some rows; an integer keeps the batch dimension."""
        chosen = rows_of(rows, len(self))
        members = None if self.members is None else self.members[:, chosen]
        return replace(
            self, mean=self.mean[chosen], covariance=self.covariance[rows], members=members
        )
