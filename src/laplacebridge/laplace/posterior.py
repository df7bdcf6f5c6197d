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
from torch import Tensor, nn

from laplacebridge import _blocks
from laplacebridge._values import made
from laplacebridge.covariance import Covariance
from laplacebridge.errors import InputError
from laplacebridge.gaussian import LogitGaussian

# Variance of the logits at twice the squared distance up to which inputs are ordinary.
FADING_VARIANCE = 0.25
# log r beyond which inputs are brought nearer along their direction: there squares of
# features would leave the range of their type, and only the direction matters.
FARTHEST = 40.0


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
        # known without reading a tensor: no device or compiler has to wait
        self._is_widened = self._is_apart = False

    @property
    @abstractmethod
    def num_classes(self) -> int:
        """K."""

    @property
    def is_apart(self) -> bool:
        """Whether mean probabilities are those of a narrower Gaussian."""
        return self._is_apart

    @property
    def rows_per_example(self) -> int:
        """How many rows its Gaussians have for each example: one, unless there are
        several labels at once.
        """
        return 1

    def for_rows(self, of_examples: Float[Tensor, " B"]) -> Float[Tensor, " N"]:
        """What is known of each example, for every row of its Gaussians.

        Args:
            of_examples: A number for each example.
        """
        rows = self.rows_per_example
        return of_examples if rows == 1 else of_examples.repeat_interleave(rows)

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

    def require_features(self, features: Any) -> None:  # noqa: ANN401
        """Refuses what are no features of this posterior, where that can be told before
        they are used.

        Args:
            features: What was given.
        """

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
        if not self._is_apart or beyond is None:
            mean, covariance = self.moments(*passed)
            narrow = self._narrow(mean, covariance) if self._is_apart else None
            return self._wide(mean, covariance), narrow
        mean, covariance = self._moments_nearer(
            ((FARTHEST - beyond).clamp_max(0.0) / 2).exp(), *passed
        )
        beyond = self.for_rows(beyond.to(mean.dtype))
        wide, narrow = self._wide(mean, covariance), self._narrow(mean, covariance)
        return self._faded(wide, beyond), self._faded(narrow, beyond)

    def _moments_nearer(
        self,
        factors: Float[Tensor, " B"],
        *passed: Any,  # noqa: ANN401
    ) -> tuple[Tensor, Covariance]:
        """Mean and covariance of the logits at rows nearer by these factors, 1 for all
        but the farthest.
        """
        mean, covariance = self.moments(*passed)
        factors = factors.to(mean.dtype)
        return mean * factors.unsqueeze(-1), covariance.scaled(factors.square())

    def _faded(self, gaussian: LogitGaussian, beyond: Tensor) -> LogitGaussian:
        cooled = gaussian.covariance.scaled((beyond / -2).exp())
        return LogitGaussian(
            gaussian.mean * (beyond / -4).exp().unsqueeze(-1),
            self._plus_identity(cooled, FADING_VARIANCE * beyond.clamp_max(FARTHEST).expm1()),
            seek_factors=False,
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
        penalty = precision * self._squared_norm()
        return float(log_likelihood - 0.5 * (penalty + self._log_determinant(precision)))

    def _log_determinant(self, precision: Tensor | float) -> Tensor:
        """log det(H + τI) − log det(τI)."""
        return torch.log1p(self.eigenvalues() / precision).sum()

    def _squared_norm(self) -> Tensor:
        """|θ|², in float64."""
        return self.trained().square().sum()

    def _copied(self) -> "Posterior":
        other = copy.copy(self)
        other._buffers, other._modules = (
            dict(self._buffers),
            dict(self._modules),
        )  # what is in them stays shared
        return other

    def _wide(self, mean: Tensor, covariance: Any) -> LogitGaussian:  # noqa: ANN401
        if not self._is_widened:
            return made(LogitGaussian, mean=mean, covariance=covariance, seek_factors=False)
        tempered, scaled = self._scaled(mean, covariance, self.variance_scale)
        along = (tempered - tempered.mean(-1, keepdim=True)) * self.temperature_variance.sqrt().to(
            mean.dtype
        )
        wide = self._plus_identity(
            self._plus_square(scaled, along), self.extra_variance.to(mean.dtype)
        )
        return made(LogitGaussian, mean=tempered, covariance=wide, seek_factors=False)

    def _narrow(self, mean: Tensor, covariance: Any) -> LogitGaussian:  # noqa: ANN401
        tempered, scaled = self._scaled(mean, covariance, self.variance_scale * self.mean_share)
        spread = (self.temperature_variance * self.mean_share).sqrt().to(mean.dtype)
        along = (tempered - tempered.mean(-1, keepdim=True)) * spread
        narrow = self._plus_square(scaled, along)
        return made(LogitGaussian, mean=tempered, covariance=narrow, seek_factors=False)

    def _scaled(
        self, mean: Tensor, covariance: Covariance, scale: Tensor
    ) -> tuple[Tensor, Covariance]:
        tempered = mean * (1 / self.temperature).to(mean.dtype)
        return tempered, covariance.scaled(scale.to(mean.dtype).expand(mean.shape[0]))

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
        # a temperature and a scale alone change both alike
        self._is_apart = widening[2:] != AS_FITTED[2:]

    def _set_prior(self, prior_precision: float) -> None:
        if not prior_precision > 0 or not math.isfinite(prior_precision):
            raise InputError(
                f"A posterior needs a positive prior precision; got {prior_precision}. Without one"
                " the variance along directions that no example reached is infinite. 1.0 is a"
                " start."
            )
        self.prior_precision = torch.full_like(self.prior_precision, prior_precision)


def _require_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise InputError(
            f"A {name} must be positive; got {value}. 1.0 leaves the logits as they are."
        )
