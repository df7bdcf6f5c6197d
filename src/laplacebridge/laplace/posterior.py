"""Posterior: a Gaussian over weights, of the head or of more layers, and through it
over the logits (Eq. 8).
"""

import copy
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from laplacebridge import _blocks
from laplacebridge._blocks import without_autocast
from laplacebridge._checks import is_half, require_tensor
from laplacebridge.covariance import Covariance
from laplacebridge.errors import InputError, ShapeError
from laplacebridge.gaussian import LogitGaussian

# Variance of the logits at twice the squared distance up to which inputs are ordinary.
FADING_VARIANCE = 0.25


class Widening(NamedTuple):
    """How Gaussians over logits N(m, Σ) are widened, for what held-out labels reveal:
    N(m/T, sΣ + σ² mmᵀ/T² + cI).

    The mean probabilities are those of N(m/T, k(sΣ + σ² mmᵀ/T²)), which is narrower.

    Attributes:
        temperature: T > 0.
        variance_scale: s > 0.
        temperature_variance: σ², the variance of log T.
        extra_variance: c, the same for every logit and example.
        mean_share: k, the share of the variance that enters the mean.
    """

    temperature: float = 1.0
    variance_scale: float = 1.0
    temperature_variance: float = 0.0
    extra_variance: float = 0.0
    mean_share: float = 1.0


AS_FITTED = Widening()


class Posterior(nn.Module):
    """N(θ, (H + τI)⁻¹) over weights θ, H the curvature and τ the prior precision.

    Args:
        device: Where it is kept.
    """

    prior_precision: Tensor
    # how its Gaussians over logits are widened: see `Widening`
    temperature: Tensor
    variance_scale: Tensor
    temperature_variance: Tensor
    extra_variance: Tensor
    mean_share: Tensor

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.register_buffer("prior_precision", torch.ones((), dtype=torch.float64, device=device))
        for name, value in AS_FITTED._asdict().items():
            self.register_buffer(name, torch.full((), value, dtype=torch.float64, device=device))
        self._is_widened = (
            False  # known without reading a tensor: no device or compiler has to wait
        )

    @property
    @abstractmethod
    def num_classes(self) -> int:
        """K."""

    @abstractmethod
    def eigenvalues(self) -> Float[Tensor, "..."]:
        """Eigenvalues of the curvature H in float64, one for every weight, in any
        shape.
        """

    @abstractmethod
    def trained(self) -> Float[Tensor, "..."]:
        """The trained weights in float64, biases among them."""

    @abstractmethod
    def moments(self, *passed: Any) -> tuple[Tensor, Covariance]:  # noqa: ANN401
        """Mean and covariance of the logits, as they were fitted, at what the network
        makes of inputs.
        """

    def forward(self, *passed: Any) -> LogitGaussian:  # noqa: ANN401
        """The Gaussian over logits at what the network makes of inputs."""
        return self._wide(*self.moments(*passed))

    def wide_and_narrow(
        self,
        *passed: Any,  # noqa: ANN401
        beyond: Float[Tensor, " B"] | None = None,
    ) -> tuple[LogitGaussian, LogitGaussian | None]:
        """The Gaussian over logits, and the one for mean probabilities if that is
        another; see `Widening`.

        Args:
            passed: As for `forward`.
            beyond: How much farther than held-out data each input lies, log r ≥ 0. Both
                Gaussians fade with it: logits as r^−¼, while a variance that is the
                same for all classes grows with r. So far away nothing is known,
                whatever the network says.
        """
        mean, covariance = self.moments(*passed)
        if not self._is_widened:
            return self._wide(mean, covariance), None
        wide, narrow = self._wide(mean, covariance), self._narrow(mean, covariance)
        if beyond is None:
            return wide, narrow
        beyond = beyond.to(mean.dtype)
        return self._faded(wide, beyond), self._faded(narrow, beyond)

    def _faded(self, gaussian: LogitGaussian, beyond: Tensor) -> LogitGaussian:
        cooled = gaussian.covariance.scaled((beyond / -2).exp())
        return LogitGaussian(
            gaussian.mean * (beyond / -4).exp().unsqueeze(-1),
            self._plus_identity(cooled, FADING_VARIANCE * beyond.expm1()),
        )

    def under_priors(
        self,
        features: Any,  # noqa: ANN401
        priors: Sequence[float],
        function: Callable[[LogitGaussian], Tensor],
    ) -> Iterator[Tensor]:
        """A function of the Gaussian over logits, under one prior precision after
        another.

        Args:
            features: As for `forward`, as many rows as there are.
            priors: Prior precisions to try.
            function: Of a block of rows; what it gives is joined along rows.
        """
        for prior_precision in priors:
            moved = self.with_prior(prior_precision)
            size = _blocks.ROWS_AT_ONCE
            starts = range(0, len(features), size)
            yield torch.cat([function(moved(features[start : start + size])) for start in starts])

    def with_prior(self, prior_precision: float) -> "Posterior":
        """The same curvature under another prior; nothing is fitted or decomposed
        again.

        Args:
            prior_precision: The new τ > 0.
        """
        other = self._copied()
        other._set_prior(prior_precision)
        return other

    def with_temperature(self, temperature: float) -> "Posterior":
        """The same posterior with logits divided by a temperature, mean and deviations
        alike.

        Args:
            temperature: T > 0; above one makes predictions less sure.
        """
        _require_positive("temperature", temperature)
        return self.widened(Widening(temperature, temperature**-2))

    def widened(self, widening: "Widening") -> "Posterior":
        """The same posterior with wider, or narrower, Gaussians over logits.

        Args:
            widening: How.

        Raises:
            InputError: If one of its numbers is not in its range.
        """
        _require_positive("temperature", widening.temperature)
        _require_positive("variance scale", widening.variance_scale)
        for name, value in widening._asdict().items():
            if not 0 <= value < math.inf:
                raise InputError(
                    f"The {name.replace('_', ' ')} of a posterior must not be negative; got"
                    f" {value}."
                )
        other = self._copied()
        other._set_widening(widening)
        return other

    def log_evidence(self, log_likelihood: float, *, prior_precision: float | None = None) -> float:
        """Laplace's approximation of the log marginal likelihood.

        log p(y | θ) − ½ τ|θ|² − ½ [log det(H + τI) − log det(τI)], whose last term is
        what the data made certain.

        Args:
            log_likelihood: Sum of log p(y | x) over the examples of the curvature.
            prior_precision: Another τ than this posterior's.
        """
        precision = self.prior_precision if prior_precision is None else prior_precision
        determinant = torch.log1p(self.eigenvalues() / precision).sum()
        penalty = precision * self.trained().square().sum()
        return float(log_likelihood - 0.5 * (penalty + determinant))

    def _copied(self) -> "Posterior":
        other = copy.copy(self)
        other._buffers, other._modules = (
            dict(self._buffers),
            dict(self._modules),
        )  # what is in them stays shared
        return other

    def _wide(self, mean: Tensor, covariance: Any) -> LogitGaussian:  # noqa: ANN401
        if not self._is_widened:
            return LogitGaussian(mean, covariance)
        tempered, scaled = self._scaled(mean, covariance, self.variance_scale)
        along = (tempered - tempered.mean(-1, keepdim=True)) * self.temperature_variance.sqrt().to(
            mean.dtype
        )
        wide = self._plus_identity(
            self._plus_square(scaled, along), self.extra_variance.to(mean.dtype)
        )
        return LogitGaussian(tempered, wide)

    def _narrow(self, mean: Tensor, covariance: Any) -> LogitGaussian:  # noqa: ANN401
        tempered, scaled = self._scaled(mean, covariance, self.variance_scale * self.mean_share)
        spread = (self.temperature_variance * self.mean_share).sqrt().to(mean.dtype)
        along = (tempered - tempered.mean(-1, keepdim=True)) * spread
        return LogitGaussian(tempered, self._plus_square(scaled, along))

    def _scaled(
        self, mean: Tensor, covariance: Covariance, scale: Tensor
    ) -> tuple[Tensor, Covariance]:
        tempered = mean * (1 / self.temperature).to(mean.dtype)
        return tempered, covariance.scaled(scale.to(mean.dtype).expand(len(mean)))

    def _plus_identity(self, covariance: Any, variance: Tensor) -> Any:  # noqa: ANN401
        """Σ + cI, for the structure that this posterior gives."""
        return covariance.plus_identity(variance)

    def _plus_square(self, covariance: Any, along: Float[Tensor, "B K"]) -> Any:  # noqa: ANN401
        """Σ + aaᵀ, or the nearest that its structure can hold."""
        return covariance.plus_square(along)

    def _load_from_state_dict(self, *arguments: Any, **keywords: Any) -> None:  # noqa: ANN401
        super()._load_from_state_dict(*arguments, **keywords)
        self._set_widening(Widening(*(float(getattr(self, name)) for name in Widening._fields)))
        self._set_prior(float(self.prior_precision))  # what follows from it is not part of a state

    def _set_widening(self, widening: "Widening") -> None:
        for name, value in widening._asdict().items():
            setattr(self, name, torch.full_like(getattr(self, name), value))
        self._is_widened = widening != AS_FITTED

    def _set_prior(self, prior_precision: float) -> None:
        if not prior_precision > 0 or not math.isfinite(prior_precision):
            raise InputError(
                f"A posterior needs a positive prior precision; got {prior_precision}. Without one"
                " the variance along directions that no example reached is infinite. 1.0 is a"
                " start."
            )
        self.prior_precision = torch.full_like(self.prior_precision, prior_precision)


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

    def moments(
        self, features: Float[Tensor, "B D"], logits: Float[Tensor, "B K"] | None = None
    ) -> tuple[Tensor, Covariance]:
        """Mean and covariance of the logits, as they were fitted, at some features.

        Args:
            features: Features φ as the network computes them, shape (B, D).
            logits: What the trained head makes of them, if the network has computed it
                already.
        """
        self.require_features(features)
        features = features.to(self.weight.dtype)
        with without_autocast(features.device):
            mean = (
                nn.functional.linear(features, self.weight, self.bias) if logits is None else logits
            )
            covariance = self.covariance(features if self.bias is None else with_constant(features))
        return mean.to(self.weight.dtype), covariance

    def require_features(self, features: Float[Tensor, "B D"]) -> None:
        """Refuses what are no features of this head.

        Args:
            features: What was given.

        Raises:
            ShapeError: If they are not of this head.
        """
        require_tensor("posterior(features)", features, "B D")
        if features.shape[1] != self.num_features:
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

    def _variances(self, dtype: torch.dtype = torch.float64) -> Tensor:
        """Posterior variances along the eigenvectors."""
        return (self.eigenvalues() + self.prior_precision).reciprocal_().to(dtype)


def _require_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise InputError(
            f"A {name} must be positive; got {value}. 1.0 leaves the logits as they are."
        )


def with_constant(features: Float[Tensor, "B D"]) -> Float[Tensor, "B E"]:
    """Appends the constant one, whose weight is the bias."""
    return torch.cat([features, features.new_ones(len(features), 1)], -1)
