"""Temperature scaling: one number that makes a network's probabilities as sure as they
deserve to be.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from laplacebridge import _blocks, _checks, _predictions, _special
from laplacebridge._arrays import takes_arrays
from laplacebridge._checks import Labels
from laplacebridge.errors import InputError
from laplacebridge.gaussian import LogitGaussian

# For logits scaled to at most one: 1/T = e^-this is as good as 0, e^this as good as ∞.
_LOG_END = 700.0
# A slope at 1/T = 0 that is closer to zero than this, for logits scaled to at most one,
# is rounding.
_ROUNDING = 1e-14


@dataclass(frozen=True)
class TemperatureScaling:
    """A temperature T that logits are divided by, fitted with `temperature_scaling`.

    Attributes:
        temperature: T; above 1 for a network that is too sure.
        nll_before: Mean negative log-likelihood of the validation labels as the network
            was, in nats.
        nll_after: The same with the temperature.

    Example:
        >>> scaling = TemperatureScaling(temperature=2.0, nll_before=0.9, nll_after=0.7)
        >>> scaling.logits(torch.tensor([[4.0, 0.0]])), scaling(torch.tensor([[4.0, 0.0]]))
        (tensor([[2., 0.]]), tensor([[0.8808, 0.1192]]))
    """

    temperature: float
    nll_before: float
    nll_after: float

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise InputError(
                "`TemperatureScaling(temperature)` needs a positive, finite number; got"
                f" {self.temperature}. Fit it with `temperature_scaling(logits, labels)`."
            )

    @takes_arrays
    def __call__(self, logits: Tensor) -> Float[Tensor, "B K"]:
        """Probabilities softmax(z/T), valid for all finite logits; the most probable
        class stays the same.

        Args:
            logits: What goes into softmax, shape (B, K).
        """
        checked = _checks.require_logits("TemperatureScaling(logits)", logits)
        wide = checked.float() if _checks.is_half(checked.dtype) else checked
        # the largest is subtracted first, because z/T may leave the range of the type
        return _special.softmax((wide - wide.amax(-1, keepdim=True)) / self.temperature).to(
            logits.dtype
        )

    @takes_arrays
    def logits(self, logits: Tensor) -> Float[Tensor, "B K"]:
        """z/T.

        Args:
            logits: What goes into softmax, shape (B, K).
        """
        return (
            _checks.require_logits("TemperatureScaling.logits(logits)", logits) / self.temperature
        )

    def gaussian(self, gaussian: LogitGaussian) -> LogitGaussian:
        """The law of z/T for Gaussian logits z, N(μ/T, Σ/T²), to be given to any bridge
        or link.

        A bridge softens probabilities by itself. So a temperature above 1 that was
        fitted to plain logits may be more than the Gaussian needs: compare with the
        bridge alone on validation data.

        Args:
            gaussian: The Gaussian over logits.
        """
        # 1/T² may leave a half type
        working = gaussian.to(torch.float32) if _checks.is_half(gaussian.dtype) else gaussian
        factor = torch.full_like(working.mean[:, 0], self.temperature**-2)
        mean, covariance = working.mean / self.temperature, working.covariance.scaled(factor)
        members = None if working.members is None else working.members / self.temperature
        tempered = replace(working, mean=mean, covariance=covariance, members=members)
        return tempered.to(gaussian.dtype)


@takes_arrays
def temperature_scaling(logits: Tensor, labels: Labels) -> TemperatureScaling:
    r"""Finds the temperature with the highest likelihood on validation data.

    .. math:: \min_{T > 0} \; -\frac1N \sum_n \log \mathrm{softmax}(z_n / T)_{y_n}

    Convex in 1/T, and solved to twelve digits in float64. A minimum exists if and only
    if some label does not have the largest logit of its row, and the logits of labels
    are larger than those of other classes on average; without one there is an error
    rather than a bound.

    The examples must not have been used to train the network: on training data it is
    surer than it deserves.

    Args:
        logits: What goes into softmax, shape (B, K).
        labels: One class for each example.

    Raises:
        InputError: If logits are not finite or already probabilities, all labels have
            the largest logit (T → 0 fits best), or labels are no better than chance (T
            → ∞ does).

    Example:
        >>> logits = torch.tensor([[9.0, 0.0], [9.0, 0.0], [9.0, 0.0], [9.0, 0.0]])
        >>> # says 0.9999, is right three times of four
        >>> scaling = temperature_scaling(logits, [0, 0, 0, 1])
        >>> scaling(logits)[0]
        tensor([0.7500, 0.2500])
    """
    call = "temperature_scaling(logits, labels)"
    given = _checks.require_logits(call, logits).detach().cpu()
    _checks.require_rows(call, len(given))
    wanted = _checks.labels_of(call, labels, *given.shape).cpu()
    _require_logits(call, given)
    scale = float(given.abs().max()) or 1.0
    if _slope(given, wanted, scale, -_LOG_END) > -_ROUNDING:
        raise InputError(
            f"`{call}` needs labels that have larger logits than other classes on average; these do"
            " not, and the likelihood only grows as T → ∞. Are labels and logits in the same"
            " order, and classes numbered alike?"
        )
    if _slope(given, wanted, scale, _LOG_END) <= 0:
        raise InputError(
            f"`{call}` needs at least one label that does not have the largest logit; all"
            f" {len(wanted)} have it, and the likelihood only grows as T → 0. Give more validation"
            " data, none of which the network was trained on, or go on without a temperature."
        )
    from scipy import optimize  # here, because importing it takes long and few programs need it

    low, high = _bracket(given, wanted, scale)
    log_inverse = optimize.brentq(
        lambda point: _slope(given, wanted, scale, point), low, high, xtol=1e-12
    )
    inverse = math.exp(log_inverse) / scale
    return TemperatureScaling(1 / inverse, _nll(given, wanted, 1.0), _nll(given, wanted, inverse))


def _bracket(logits: Tensor, labels: Int[Tensor, " B"], scale: float) -> tuple[float, float]:
    """Two values of log(scale/T) with the minimum between them, found in growing steps
    from 0.
    """
    direction = 1.0 if _slope(logits, labels, scale, 0.0) < 0 else -1.0
    near, far, step = 0.0, direction, 2.0
    while direction * _slope(logits, labels, scale, far) < 0:
        near, far, step = far, direction * min(abs(far) + step, _LOG_END), 2 * step
    return min(near, far), max(near, far)


def _slope(logits: Tensor, labels: Int[Tensor, " B"], scale: float, log_inverse: float) -> float:
    """Derivative of the mean NLL by 1/T, Σ_k p_k z_k − z_y averaged, at T =
    scale/e^log_inverse and over the scale.
    """
    total = 0.0
    for gaps in _gaps(logits, labels, scale):
        total += float(((gaps * math.exp(log_inverse)).softmax(-1) * gaps).sum())
    return total / len(logits)


def _nll(logits: Tensor, labels: Int[Tensor, " B"], inverse: float) -> float:
    """Mean negative log-likelihood of the labels with this 1/T."""
    total = 0.0
    for gaps in _gaps(logits, labels, 1.0):
        total += float((gaps * inverse).logsumexp(-1).sum())
    return total / len(logits)


def _gaps(
    logits: Tensor, labels: Int[Tensor, " B"], scale: float
) -> Iterator[Float[Tensor, "b K"]]:
    """Logits minus that of the label, over the scale, block by block in float64."""
    num_rows = max(1, _blocks.ELEMENTS_AT_ONCE // logits.shape[1])
    for rows, wanted in zip(torch.split(logits, num_rows), torch.split(labels, num_rows)):
        scaled = rows.double() / scale
        yield scaled - scaled.gather(-1, wanted.unsqueeze(-1))


def _require_logits(call: str, logits: Float[Tensor, "B K"]) -> None:
    """Requires finite logits, and not what comes out of softmax.

    Raises:
        InputError: If they are not finite, or probabilities.
    """
    _checks.require_finite(call, "logits", logits, "Look at the input that produced that row.")
    wide = logits.float() if _checks.is_half(logits.dtype) else logits
    tolerance = (
        _predictions.HALF_SUM_TOLERANCE
        if _checks.is_half(logits.dtype)
        else _predictions.SUM_TOLERANCE
    )
    if (wide >= 0).all() and ((wide.sum(-1) - 1).abs() <= tolerance).all():
        raise InputError(
            f"`{call}` needs logits; got rows of probabilities, none negative and each with sum 1."
            " Give what goes into softmax; if it is lost, `probabilities.log()` serves as well."
        )
