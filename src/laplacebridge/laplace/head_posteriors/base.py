"""The posterior of a linear head, whatever its curvature."""

import math
from abc import abstractmethod
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from laplacebridge._blocks import without_autocast
from laplacebridge._checks import is_half, require_tensor
from laplacebridge.covariance import Covariance, Diagonal
from laplacebridge.errors import InputError, ShapeError
from laplacebridge.gaussian import LogitGaussian
from laplacebridge.laplace.posterior import Posterior, Widening


class HeadPosterior(Posterior):
    """The posterior of a linear head. A subclass registers what its curvature
    decomposes into, then sets the prior.

    Args:
        weight: The head's trained weights, shape (K, D).
        bias: The head's trained bias, shape (K,), or None.
    """

    weight: Tensor
    bias: Tensor | None
    variances: Tensor  # along the eigenvectors, in the type of the head
    # Whether each logit is a label's own, yes or no: a row of two classes. See `of_labels`.
    is_multi_label = False

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight.device)
        dtype = torch.float32 if is_half(weight.dtype) else weight.dtype
        self.register_buffer("weight", weight.detach().to(dtype, copy=True))
        self.register_buffer("bias", None if bias is None else bias.detach().to(dtype, copy=True))
        self.register_buffer("variances", None, persistent=False)

    @abstractmethod
    def covariance(self, features: Float[Tensor, "B D"]) -> Covariance:
        """Covariance of the logits at features that have the constant one for the bias."""

    @abstractmethod
    def gradient_and_curvature(
        self,
        features: Float[Tensor, "N D"],
        residuals: Float[Tensor, "N K"],
        probabilities: Float[Tensor, "N K"],
    ) -> tuple[Tensor, Tensor]:
        """Gradient of the log-likelihood of some labels, and its curvature, along the
        axes of `variances`.

        Args:
            features: With the constant one for the bias, in float64.
            residuals: y − p, one-hot labels minus probabilities.
            probabilities: p.
        """

    @abstractmethod
    def sample_weights(
        self, num_samples: int, generator: Generator | None = None
    ) -> Float[Tensor, "S *groups K D"]:
        """Draws weights, the bias as last column if the head has one."""

    def forward(
        self, features: Float[Tensor, "B D"], logits: Float[Tensor, "B K"] | None = None
    ) -> LogitGaussian:
        """The Gaussian over logits at some features.

        Args:
            features: As for `moments`.
            logits: The same.
        """
        self.require_features(features)
        return super().forward(features, logits)

    def moments(
        self, features: Float[Tensor, "B D"], logits: Float[Tensor, "B K"] | None = None
    ) -> tuple[Tensor, Covariance]:
        """Mean and covariance of the logits, as they were fitted, at some features.

        Args:
            features: Features φ as the network computes them, shape (B, D).
            logits: What the trained head makes of them, if the network has computed it
                already; then the features are not checked either.
        """
        if logits is None:
            features, logits = self.with_logits(features)
        features = features.to(self.weight.dtype)
        with without_autocast(features.device):
            covariance = self.covariance(features if self.bias is None else with_constant(features))
        mean = logits.to(self.weight.dtype)
        if not self.is_multi_label:
            return mean, covariance
        # z as (−z/2, z/2), whose difference has all the variance
        halves = mean.reshape(-1, 1) / 2
        variance = covariance.bounded().diagonal().reshape(-1, 1) / 2
        return torch.cat([-halves, halves], -1), Diagonal(variance.expand(-1, 2).contiguous())

    def with_logits(self, features: Float[Tensor, "B D"]) -> tuple[Tensor, Tensor]:
        """Features in the type of the head, and what it makes of them.

        Args:
            features: As the network computes them.
        """
        self.require_features(features)
        features = features.to(self.weight.dtype)
        with without_autocast(features.device):
            return features, nn.functional.linear(features, self.weight, self.bias)

    def _moments_nearer(
        self,
        factors: Float[Tensor, " B"],
        features: Float[Tensor, "B D"],
        logits: Float[Tensor, "B K"] | None = None,
    ) -> tuple[Tensor, Covariance]:
        """Features themselves are brought nearer, before their squares are taken."""
        factors = factors.unsqueeze(-1)
        nearer = features.to(self.weight.dtype) * factors
        return self.moments(nearer, None if logits is None else logits * factors)

    def of_labels(self) -> "HeadPosterior":
        """The same posterior, of logits that are each a label's own: its Gaussians have
        a row of two logits, no and yes, for every label of every example.
        """
        other = self._copied()
        assert isinstance(other, HeadPosterior)  # noqa: S101
        other.is_multi_label = True
        return other

    @property
    def rows_per_example(self) -> int:
        """How many rows its Gaussians have for each row of features."""
        return self.num_classes if self.is_multi_label else 1

    def _plus_square(self, covariance: Any, along: Float[Tensor, "B K"]) -> Any:  # noqa: ANN401
        # two opposite logits kept apart have half the variance of their difference
        return super()._plus_square(
            covariance, along * math.sqrt(2) if self.is_multi_label else along
        )

    def require_features(self, features: Float[Tensor, "B D"]) -> None:
        """Refuses what are no features of this head.

        Args:
            features: What was given.

        Raises:
            ShapeError: If they are not of this head.
        """
        require_tensor("posterior(features)", features, "B D")
        if features.shape[1] != self.weight.shape[1]:
            raise ShapeError(
                f"`posterior(features)` needs {self.num_features} features per example; got"
                f" {tuple(features.shape)}. Give the input of the head that was fitted."
            )

    @classmethod
    def from_buffers(cls, buffers: dict[str, Tensor]) -> "HeadPosterior":
        """A posterior from its state, as `state_dict` gives it, without the curvature
        it was made of.

        Args:
            buffers: Tensors by name.
        """
        other = cls.__new__(cls)
        Posterior.__init__(other, buffers["weight"].device)
        for name in (
            "bias",
            "variances",
        ):  # the one may be missing, the other follows from the prior
            other.register_buffer(name, None, persistent=name == "bias")
        for name, buffer in buffers.items():
            if name != "prior_precision" and name not in Widening._fields:
                other.register_buffer(name, buffer)
        other._set_widening(Widening(*(float(buffers[name]) for name in Widening._fields)))
        other._set_prior(float(buffers["prior_precision"]))
        return other

    @property
    def num_classes(self) -> int:
        """K."""
        return self.weight.shape[0]

    @property
    def num_features(self) -> int:
        """D, without the constant one for the bias."""
        return self.weight.shape[1]

    def trained(self) -> Float[Tensor, "*groups K D"]:
        """Weights in float64, the bias as last column if there is one."""
        weight = self.weight.double()
        return (
            weight
            if self.bias is None
            else torch.cat([weight, self.bias.double().unsqueeze(-1)], -1)
        )

    def _set_prior(self, prior_precision: float) -> None:
        super()._set_prior(prior_precision)
        self.variances = self._variances(self.weight.dtype)

    def all_variances(self, dtype: torch.dtype = torch.float64) -> Tensor:
        """Posterior variances along the eigenvectors, whether they are kept or not.

        Args:
            dtype: Their type.
        """
        return self.variances.to(dtype)

    def _variances(self, dtype: torch.dtype = torch.float64) -> Tensor:
        """Posterior variances along the eigenvectors."""
        return (self.eigenvalues() + self.prior_precision).reciprocal_().to(dtype)


def with_constant(features: Float[Tensor, "B D"]) -> Float[Tensor, "B E"]:
    """Appends the constant one, whose weight is the bias."""
    return torch.cat([features, features.new_ones(features.shape[0], 1)], -1)


# Eigenvalues of a sum of squares may come out below zero by so many roundings of the
# largest.
_ROUNDING_ERRORS = 100


def eigenvectors_of(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, not negative, and vectors of a sum of outer products.

    Raises:
        InputError: If it is not one.
    """
    values, vectors = torch.linalg.eigh(matrix)
    lowest, highest = values[..., 0], values[..., -1]
    if (lowest < -_ROUNDING_ERRORS * torch.finfo(values.dtype).eps * highest.abs()).any():
        raise InputError(
            "A curvature is a sum of squares, but this one has the eigenvalue"
            f" {lowest.min().item():.3g}. Was it read from a damaged file?"
        )
    # laid out as in a file: products round by the layout of their factors
    return values.clamp_min(0), vectors.contiguous()
