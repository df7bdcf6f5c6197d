"""Widths that are tried: what predictions for held-out examples become under them."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from laplacebridge.bridges import Bridge, mean_of, predict_apart
from laplacebridge.covariance import Covariance
from laplacebridge.laplace.posterior import Posterior, Widening
from laplacebridge.laplace.revealed_error import SCALES
from laplacebridge.metrics import dirichlet_multinomial_nll
from laplacebridge.prediction import Prediction

# Of temperature scaling's NLL, how far the mean may be from it.
ALLOWED_LOSS = 0.005
SHARES = tuple(0.25**exponent for exponent in range(6))
SMALLEST_VARIANCE, LARGEST_VARIANCE = 1e-4, 300.0
EXTRA_VARIANCES = tuple(2.0 ** (exponent / 2) for exponent in range(-26, 17))


class Candidates(NamedTuple):
    """Predictions for some held-out examples, widened in any way."""

    posterior: Posterior
    bridge: Bridge
    moments: tuple[Tensor, Covariance]

    def near(self, wanted: Tensor, labels: Tensor, start: Widening) -> Widening:
        """With T, and the largest k, at which mean probabilities are near those that
        are wanted, and no worse by the labels.

        Near alone is not enough: of means that differ little from those that are
        wanted, some deny what nearly all labels confirm.
        """
        from scipy import optimize

        entropy = -float(torch.xlogy(wanted, wanted).sum(-1).mean())
        reached = _nll(wanted, labels)
        allowed = ALLOWED_LOSS * reached
        middle = math.log(start.temperature)
        for share in SHARES:

            def mean(point: float, share: float = share) -> Tensor:
                widened = self.posterior.widened(
                    start._replace(temperature=math.exp(point), mean_share=share)
                )
                return mean_of(self.bridge)(widened._narrow(*self.moments)).double()

            def divergence(point: float, mean: Callable[[float], Tensor] = mean) -> float:
                found = mean(point)
                log = found.clamp_min(torch.finfo(found.dtype).tiny).log()
                return -float((wanted * log).sum(-1).mean()) - entropy

            best = optimize.minimize_scalar(
                divergence,
                bounds=(middle - 2.5, middle + 0.3),
                method="bounded",
                options={"maxiter": 12, "xatol": 5e-3},
            )
            if best.fun <= allowed and _nll(mean(best.x), labels) <= reached + allowed:
                return start._replace(temperature=math.exp(best.x), mean_share=share)
        return start._replace(mean_share=0.0)

    def prediction(self, widening: Widening) -> Prediction:
        """The predictions, widened."""
        widened = self.posterior.widened(widening)
        return predict_apart(
            widened._wide(*self.moments), widened._narrow(*self.moments), self.bridge
        )

    def stated_error(self, widening: Widening) -> float:
        """E Σ_k Var π_k, by the predictions."""
        prediction = self.prediction(widening)
        spread = 1 - prediction.mean.double().square().sum(-1)
        return float((spread / (1 + prediction.dirichlet.total.double())).mean())

    def saying(self, wanted: float, start: Widening) -> Widening:
        """With c at which the predictions state the wanted error."""
        from scipy import optimize

        def missing(point: float) -> float:
            return self.stated_error(start._replace(extra_variance=math.exp(point))) - wanted

        low, high = math.log(SMALLEST_VARIANCE), math.log(LARGEST_VARIANCE)
        if missing(low) >= 0:
            return start
        point = high if missing(high) <= 0 else optimize.brentq(missing, low, high, xtol=0.02)
        return start._replace(extra_variance=math.exp(point))

    def likeliest(self, votes: Tensor, start: Widening) -> Widening:
        """With s, then c, of the largest Dirichlet-multinomial likelihood of the votes."""

        def surprise(widening: Widening) -> float:
            return dirichlet_multinomial_nll(self.prediction(widening), votes)

        scaled = (start._replace(variance_scale=scale) for scale in SCALES)
        best = min(scaled, key=surprise)
        return min(
            (best, *(best._replace(extra_variance=variance) for variance in EXTRA_VARIANCES)),
            key=surprise,
        )


def _nll(probabilities: Tensor, labels: Tensor) -> float:
    right = probabilities.gather(-1, labels.unsqueeze(-1))
    return -float(right.clamp_min(torch.finfo(probabilities.dtype).tiny).log().mean())
