"""Posterior: a Gaussian over the weights of the head, and through it over the logits of any features (Eq. 8)."""

import copy
import math
from abc import abstractmethod

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from laplacebridge.checks import is_half, require_tensor
from laplacebridge.covariance import Covariance
from laplacebridge.errors import ShapeError
from laplacebridge.gaussian import LogitGaussian


class Posterior(nn.Module):
    """N(θ, (H + τI)⁻¹) over the weights θ of a linear head, H the curvature and τ the prior precision.

    A subclass registers what its curvature decomposes into, then calls `_set_prior`.

    Args:
        weight: The head's trained weights, shape (K, D).
        bias: The head's trained bias, shape (K,), or None.
    """

    weight: Tensor
    bias: Tensor | None
    prior_precision: Tensor
    temperature: Tensor  # logits are divided by it
    variances: Tensor  # along the eigenvectors, in the type of the head

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        dtype = torch.float32 if is_half(weight.dtype) else weight.dtype
        self.register_buffer("weight", weight.detach().to(dtype, copy=True))
        self.register_buffer("bias", None if bias is None else bias.detach().to(dtype, copy=True))
        self.register_buffer("prior_precision", torch.ones((), dtype=torch.float64, device=weight.device))
        self.register_buffer("temperature", torch.ones((), dtype=torch.float64, device=weight.device))
        self.register_buffer("variances", None, persistent=False)

    @abstractmethod
    def eigenvalues(self) -> Float[Tensor, "..."]:
        """Eigenvalues of the curvature H in float64, one for every weight, in any shape."""

    @abstractmethod
    def covariance(self, features: Float[Tensor, "B D"]) -> Covariance:
        """Covariance of the logits at features that have the constant one for the bias."""

    @abstractmethod
    def sample_weights(self, num_samples: int, generator: Generator | None = None) -> Float[Tensor, "S K D"]:
        """Draws weights, the bias as last column if the head has one."""

    def forward(self, features: Float[Tensor, "B D"]) -> LogitGaussian:
        """The Gaussian over logits at some features.

        Args:
            features: Features φ as the network computes them, shape (B, D).

        Raises:
            ShapeError: If they are not of this head.
        """
        require_tensor("posterior(features)", features, "B D")
        if features.shape[1] != self.num_features:
            raise ShapeError(
                f"`posterior(features)` needs {self.num_features} features per example; got {tuple(features.shape)}. "
                "Give the input of the head that was fitted."
            )
        features = features.to(self.weight.dtype)
        mean = nn.functional.linear(features, self.weight, self.bias)
        covariance = self.covariance(features if self.bias is None else with_constant(features))
        if self.temperature == 1:
            return LogitGaussian(mean, covariance)
        cooling = (1 / self.temperature).to(mean.dtype)
        return LogitGaussian(mean * cooling, covariance.scaled(cooling.square().expand(len(mean))))

    def with_prior(self, prior_precision: float) -> "Posterior":
        """The same curvature under another prior; nothing is fitted or decomposed again.

        Args:
            prior_precision: The new τ > 0.
        """
        other = copy.copy(self)
        other._buffers = dict(self._buffers)  # the large ones stay shared
        other._set_prior(prior_precision)
        return other

    def with_temperature(self, temperature: float) -> "Posterior":
        """The same posterior with logits divided by a temperature, mean and deviations alike.

        Args:
            temperature: T > 0; above one makes predictions less sure.

        Raises:
            ValueError: If it is not positive.
        """
        if not temperature > 0 or not math.isfinite(temperature):
            raise ValueError(f"A temperature must be positive; got {temperature}. 1.0 leaves the logits as they are.")
        other = copy.copy(self)
        other._buffers = dict(self._buffers)
        other.temperature = torch.full_like(self.temperature, temperature)
        return other

    @classmethod
    def from_buffers(cls, buffers: dict[str, Tensor]) -> "Posterior":
        """A posterior from its state, as `state_dict` gives it, without the curvature it was made of.

        Args:
            buffers: Tensors by name.
        """
        other = cls.__new__(cls)
        Posterior.__init__(other, buffers["weight"], buffers.get("bias"))
        for name, buffer in buffers.items():
            if name not in {"weight", "bias", "prior_precision", "temperature"}:
                other.register_buffer(name, buffer)
        other.temperature = buffers["temperature"]
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

    def log_evidence(self, log_likelihood: float) -> float:
        """Laplace's approximation of the log marginal likelihood.

        log p(y | θ) − ½ τ|θ|² − ½ [log det(H + τI) − log det(τI)], whose last term is what the data made certain.

        Args:
            log_likelihood: Sum of log p(y | x) over the examples of the curvature.
        """
        determinant = torch.log1p(self.eigenvalues() / self.prior_precision).sum()
        penalty = self.prior_precision * self._trained().square().sum()
        return float(log_likelihood - 0.5 * (penalty + determinant))

    def _set_prior(self, prior_precision: float) -> None:
        if not prior_precision > 0 or not math.isfinite(prior_precision):
            raise ValueError(
                f"A posterior needs a positive prior precision; got {prior_precision}. Without one the variance along "
                "directions that no example reached is infinite. 1.0 is a start."
            )
        self.prior_precision = torch.full_like(self.prior_precision, prior_precision)
        self.variances = self._variances().to(self.weight.dtype)

    def _variances(self) -> Tensor:
        """Posterior variances along the eigenvectors, in float64."""
        return 1 / (self.eigenvalues() + self.prior_precision)

    def _trained(self) -> Tensor:
        weight = self.weight.double()
        return weight if self.bias is None else torch.cat([weight, self.bias.double().unsqueeze(-1)], -1)


def with_constant(features: Float[Tensor, "B D"]) -> Float[Tensor, "B E"]:
    """Appends the constant one, whose weight is the bias."""
    return torch.cat([features, features.new_ones(len(features), 1)], -1)
