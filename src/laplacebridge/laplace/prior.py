"""Prior precision: how strongly the weights were held before any data, chosen when it is not given.

Every way to choose it tries candidates on one decomposed posterior; nothing is fitted or decomposed again between them.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from laplacebridge.dirichlet import Dirichlet
from laplacebridge.gaussian import LogitGaussian
from laplacebridge.laplace.network import Linearisation
from laplacebridge.laplace.posterior import Posterior

CANDIDATES = tuple(10.0 ** (exponent / 4) for exponent in range(-16, 25))  # 1e-4 … 1e6
TEMPERATURES = tuple(2.0 ** (exponent / 4) for exponent in range(-6, 9))  # 0.35 … 4
# Share of the network's confidence below which a prior is taken to be too wide; the paper's rule keeps 95 %.
LEAST_CONFIDENCE_KEPT = 0.75

Bridge = Callable[[LogitGaussian], Dirichlet]
Metric = Callable[[Tensor, Tensor], float]
Features = Float[Tensor, "N D"] | Linearisation  # what a network makes of examples


class PriorChoice(NamedTuple):
    """A prior precision, how it was chosen, and what the other candidates gave."""

    prior_precision: float
    method: str
    temperature: float = 1.0
    candidates: tuple[float, ...] = ()
    scores: tuple[float, ...] = ()  # smaller is better

    @property
    def at_edge(self) -> bool:
        """Whether the best candidate was the first or the last: the range may be too narrow."""
        return bool(self.candidates) and self.prior_precision in {self.candidates[0], self.candidates[-1]}


def given(prior_precision: float) -> PriorChoice:
    """A prior precision that the caller knows."""
    return PriorChoice(float(prior_precision), "given")


def by_evidence(
    posterior: Posterior, log_likelihood: float, *, candidates: Sequence[float] = CANDIDATES
) -> PriorChoice:
    """The prior precision with the largest Laplace evidence of the training data. Needs no validation data.

    Args:
        posterior: The posterior under any prior.
        log_likelihood: Sum of log p(y | x) over the training examples.
        candidates: Precisions to try.
    """
    ordered = _ordered(candidates)
    scores = [-posterior.with_prior(candidate).log_evidence(log_likelihood) for candidate in ordered]
    return _best(scores, ordered, "largest evidence of the training data")


def by_validation(
    posterior: Posterior,
    bridge: Bridge,
    features: Features,
    labels: Int[Tensor, " N"],
    *,
    metric: Metric | None = None,
    candidates: Sequence[float] = CANDIDATES,
    temperatures: Sequence[float] = (1.0,),
) -> PriorChoice:
    """The prior precision whose predictions, by the bridge that will be used, are best on validation data.

    A posterior over several layers goes over the examples once for each temperature, for all candidates together; the
    probabilities that each of these gives are kept until then, C·N·K numbers.

    Args:
        posterior: The posterior under any prior.
        bridge: The bridge that will be used to predict.
        features: Features of validation examples, which the network must not have been trained on.
        labels: Their labels.
        metric: From probabilities and labels to a number, smaller is better; by default the negative log-likelihood.
        candidates: Precisions to try.
        temperatures: Temperatures to try with each of them; `TEMPERATURES` is a range.
    """
    judge = metric or negative_log_likelihood
    name = getattr(judge, "__name__", "metric").replace("_", " ")
    method = f"smallest {name} of {len(labels)} validation examples"
    ordered = _ordered(candidates)

    def choice_at(temperature: float) -> PriorChoice:
        with torch.no_grad():
            cooled = posterior.with_temperature(temperature)
            tried = cooled.under_priors(features, ordered, lambda gaussian: bridge(gaussian).mean)
            scores = [judge(probabilities, labels) for probabilities in tried]
        return _best(scores, ordered, method)._replace(temperature=temperature)

    return min((choice_at(float(temperature)) for temperature in temperatures), key=lambda choice: min(choice.scores))


def by_confidence(
    posterior: Posterior,
    bridge: Bridge,
    features: Features,
    *,
    drop: float = 0.05,
    candidates: Sequence[float] = CANDIDATES,
) -> PriorChoice:
    """The paper's rule: in-distribution mean confidence a stated share below that of softmax(μ).

    Args:
        posterior: The posterior under any prior.
        bridge: The bridge that will be used to predict.
        features: Features of in-distribution examples.
        drop: The share, 5 % in the paper.
        candidates: Precisions to try.
    """
    ordered = _ordered(candidates)
    with torch.no_grad():
        now = [float(posterior.prior_precision)]
        (alone,) = posterior.under_priors(features, now, lambda gaussian: gaussian.mean.softmax(-1).amax(-1))
        tried = posterior.under_priors(features, ordered, lambda gaussian: bridge(gaussian).mean.amax(-1))
        wanted = (1 - drop) * float(alone.double().mean())
        scores = [abs(float(confident.double().mean()) - wanted) for confident in tried]
    return _best(scores, ordered, f"mean confidence {drop:.0%} below that of the network")


def warn_if_hardly_sure(posterior: Posterior, bridge: Bridge, features: Features) -> None:
    """Warns when a prior makes predictions for training examples far less sure than the network is.

    With few examples for many weights the evidence prefers wide priors under which hardly anything is known.

    Args:
        posterior: The posterior under the chosen prior.
        bridge: The bridge that will be used to predict.
        features: Of some training examples.
    """
    with torch.no_grad():
        gaussian = posterior(features)
        alone = float(gaussian.mean.softmax(-1).amax(-1).double().mean())
        bridged = float(bridge(gaussian).mean.amax(-1).double().mean())
    if bridged < LEAST_CONFIDENCE_KEPT * alone:
        warnings.warn(
            f"Under the prior precision {float(posterior.prior_precision):.3g} that the evidence chose, mean "
            f"confidence on training examples falls from {alone:.2f} to {bridged:.2f}. Choose it on validation data "
            "instead: `fit(..., val_loader=...)`.",
            stacklevel=3,
        )


def negative_log_likelihood(probabilities: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> float:
    """Mean of −log p(y | x)."""
    chosen = probabilities.double().gather(-1, labels.unsqueeze(-1))
    return float(-chosen.clamp_min(torch.finfo(torch.float64).tiny).log().mean())


def _ordered(candidates: Sequence[float]) -> tuple[float, ...]:
    ordered = tuple(sorted(float(candidate) for candidate in candidates))
    if not ordered:
        raise ValueError("Choosing a prior precision needs at least one candidate; got none.")
    return ordered


def _best(scores: Sequence[float], ordered: tuple[float, ...], method: str) -> PriorChoice:
    finite = [value if math.isfinite(value) else math.inf for value in scores]
    choice = PriorChoice(ordered[finite.index(min(finite))], method, candidates=ordered, scores=tuple(scores))
    if choice.at_edge and len(ordered) > 1:
        warnings.warn(
            f"The best prior precision, {choice.prior_precision:.3g}, lies at an edge of the candidates "
            f"{ordered[0]:.3g} … {ordered[-1]:.3g}; the true optimum may lie beyond. Give the "
            "precision itself, or try a wider range with `laplace.prior.by_validation(candidates=...)`.",
            stacklevel=3,
        )
    return choice
