"""Prior precision: how strongly the weights were held before any data, chosen when it
is not given.

Every way to choose it tries candidates on one decomposed posterior; nothing is fitted
or decomposed again between them.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from laplacebridge._checks import labels_of
from laplacebridge._warnings import warn
from laplacebridge.bridges.bridge import Bridge, mean_of
from laplacebridge.errors import InputError
from laplacebridge.laplace.layers.network import Linearisation
from laplacebridge.laplace.posterior import Posterior
from laplacebridge.laplace.width import Width
from laplacebridge.metrics import nll

CANDIDATES = tuple(10.0 ** (exponent / 4) for exponent in range(-16, 25))  # 1e-4 … 1e6
TEMPERATURES = tuple(2.0 ** (exponent / 4) for exponent in range(-6, 9))  # 0.35 … 4
# Share of the network's confidence on training examples that the evidence may take
# without a word: as much as the paper's rule takes. Small networks that explain all
# their labels lose a tenth to a half, and their log-likelihood of held-out labels
# becomes several times worse, or better if they were overfitted. Neither the likelihood
# of the training labels, nor weights per example, nor how many of them the data
# determine told these cases apart any better.
LEAST_CONFIDENCE_KEPT = 0.95

Metric = Callable[[Tensor, Tensor], float]
Features = Float[Tensor, "N D"] | Linearisation  # what a network makes of examples


class PriorChoice(NamedTuple):
    """A prior precision, how it was chosen, and what the other candidates gave.

    Example:
        >>> choice = PriorChoice(
        ...     10.0, "smallest error", candidates=(1.0, 10.0, 100.0), scores=(0.3, 0.1, 0.2)
        ... )
        >>> choice.at_edge
        False
    """

    prior_precision: float
    method: str
    temperature: float = 1.0
    candidates: tuple[float, ...] = ()
    scores: tuple[float, ...] = ()  # smaller is better
    width: Width | None = None  # if temperature and variance were chosen by held-out labels

    @property
    def at_edge(self) -> bool:
        """Whether the best candidate was the first or the last."""
        return bool(self.candidates) and self.prior_precision in {
            self.candidates[0],
            self.candidates[-1],
        }


def given(prior_precision: float) -> PriorChoice:
    """A prior precision that the caller knows.

    Args:
        prior_precision: τ > 0.

    Example:
        >>> given(2.0).method
        'given'
    """
    return PriorChoice(float(prior_precision), "given")


def by_evidence(
    posterior: Posterior,
    log_likelihood: float,
    *,
    candidates: Sequence[float] = CANDIDATES,
    warn_at_edge: bool = True,
) -> PriorChoice:
    """The prior precision with the largest Laplace evidence of the training data. Needs
    no validation data.

    Args:
        posterior: The posterior under any prior.
        log_likelihood: Sum of log p(y | x) over the training examples.
        candidates: Precisions to try.
        warn_at_edge: Whether to warn if the best is the first or the last of them.

    Example:
        >>> from laplacebridge.laplace import Kron, KronPosterior
        >>> features, labels, weight = (
        ...     torch.eye(3).repeat(20, 1),
        ...     torch.arange(60) % 3,
        ...     2 * torch.eye(3),
        ... )
        >>> probabilities = (features @ weight.T).softmax(-1)
        >>> posterior = KronPosterior(weight, None, Kron.of_batch(features, probabilities), 1.0)
        >>> choice = by_evidence(posterior, -60 * nll(probabilities, labels))
        >>> round(choice.prior_precision, 2)
        0.56
    """
    ordered = _ordered(candidates)
    scores = [
        -posterior.log_evidence(log_likelihood, prior_precision=candidate) for candidate in ordered
    ]
    choice = _best(scores, ordered, "largest evidence of the training data")
    return _warned(choice) if warn_at_edge else choice


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
    """The prior precision whose predictions, by the bridge that will be used, are best
    on validation data.

    A posterior over several layers goes over the examples once for each temperature,
    for all candidates together; the probabilities that each of these gives are kept
    until then, C·N·K numbers.

    Args:
        posterior: The posterior under any prior.
        bridge: The bridge that will be used to predict.
        features: Features of validation examples, which the network must not have been
            trained on.
        labels: Their labels.
        metric: From probabilities and labels to a number, smaller is better; by default
            the negative log-likelihood.
        candidates: Precisions to try.
        temperatures: Temperatures to try with each of them; `TEMPERATURES` is a range.

    Raises:
        ShapeError: If there is not one label for each example.
        InputError: If a label is not a class, or no candidate gives a finite score.

    Example:
        >>> from laplacebridge import race_bridge
        >>> from laplacebridge.laplace import Kron, KronPosterior
        >>> features, labels, weight = (
        ...     torch.eye(3).repeat(20, 1),
        ...     torch.arange(60) % 3,
        ...     5 * torch.eye(3),
        ... )
        >>> posterior = KronPosterior(
        ...     weight, None, Kron.of_batch(features, (features @ weight.T).softmax(-1)), 1.0
        ... )
        >>> # a tenth of what is held out is not as it was learnt
        >>> labels[:6] = torch.tensor([1, 2, 0, 1, 2, 0])
        >>> choice = by_validation(posterior, race_bridge, features, labels)
        >>> round(choice.prior_precision, 2)
        0.03
    """
    labels = labels_of("by_validation(labels)", labels, len(features), posterior.num_classes)
    loss_of = metric or nll
    name = (
        getattr(metric, "__name__", "metric").replace("_", " ")
        if metric
        else "negative log likelihood"
    )
    method = f"smallest {name} of {len(labels)} validation examples"
    ordered = _ordered(candidates)

    def choice_at(temperature: float) -> PriorChoice:
        with torch.no_grad():
            tempered = posterior.with_temperature(temperature)
            tried = tempered.under_priors(features, ordered, mean_of(bridge))
            scores = [
                loss_of(probabilities, labels) if probabilities.isfinite().all() else math.nan
                for probabilities in tried
            ]
        return _best(scores, ordered, method)._replace(temperature=temperature)

    choices = [choice_at(float(temperature)) for temperature in temperatures]
    return _warned(min(choices, key=lambda choice: min(choice.scores)))


def by_confidence(
    posterior: Posterior,
    bridge: Bridge,
    features: Features,
    *,
    drop: float = 0.05,
    candidates: Sequence[float] = CANDIDATES,
) -> PriorChoice:
    """The paper's rule: in-distribution mean confidence a stated share below that of
    softmax(μ).

    Args:
        posterior: The posterior under any prior.
        bridge: The bridge that will be used to predict.
        features: Features of in-distribution examples.
        drop: The share, 5 % in the paper.
        candidates: Precisions to try.

    Example:
        >>> from laplacebridge import race_bridge
        >>> from laplacebridge.laplace import Kron, KronPosterior
        >>> features, weight = torch.eye(3).repeat(20, 1), 5 * torch.eye(3)
        >>> posterior = KronPosterior(
        ...     weight, None, Kron.of_batch(features, (features @ weight.T).softmax(-1)), 1.0
        ... )
        >>> choice = by_confidence(posterior, race_bridge, features, drop=0.05)
        >>> round(choice.prior_precision, 2)
        0.18
    """
    ordered = _ordered(candidates)
    with torch.no_grad():
        now = [float(posterior.prior_precision)]
        (alone,) = posterior.under_priors(
            features, now, lambda gaussian: gaussian.mean.softmax(-1).amax(-1)
        )
        tried = posterior.under_priors(
            features, ordered, lambda gaussian: mean_of(bridge)(gaussian).amax(-1)
        )
        wanted = (1 - drop) * float(alone.double().mean())
        scores = [abs(float(confident.double().mean()) - wanted) for confident in tried]
    choice = _best(scores, ordered, f"mean confidence {drop:.0%} below that of the network")
    return _warned(choice, scored_by_data=False)


def warn_if_underconfident(posterior: Posterior, bridge: Bridge, features: Features) -> None:
    """Warns when a prior makes predictions for training examples less sure than the
    paper's rule would.

    With few examples for many weights the evidence prefers wide priors under which
    hardly anything is known.

    Args:
        posterior: The posterior under the chosen prior.
        bridge: The bridge that will be used to predict.
        features: Of some training examples.

    Example:
        >>> import warnings
        >>> from laplacebridge import race_bridge
        >>> from laplacebridge.laplace import Kron, KronPosterior
        >>> features, weight = torch.eye(3), 9 * torch.eye(3)
        >>> posterior = KronPosterior(
        ...     weight, None, Kron.of_batch(features, (features @ weight.T).softmax(-1)), 0.01
        ... )
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     warn_if_underconfident(posterior, race_bridge, features)
        >>> "falls from 1.00" in str(caught[0].message)
        True
    """
    with torch.no_grad():
        gaussian = posterior(features)
        alone = float(gaussian.mean.softmax(-1).amax(-1).double().mean())
        bridged = float(mean_of(bridge)(gaussian).amax(-1).double().mean())
    if bridged < LEAST_CONFIDENCE_KEPT * alone:
        warn(
            f"Under the prior precision {float(posterior.prior_precision):.3g} that the evidence"
            f" chose, mean confidence on training examples falls from {alone:.2f} to {bridged:.2f}."
            " Training data cannot tell whether so much uncertainty is right; choose it on validation"
            " data instead: `fit(..., val_loader=...)`, or `--validation` on the command line."
        )


def _ordered(candidates: Sequence[float]) -> tuple[float, ...]:
    ordered = tuple(sorted(float(candidate) for candidate in candidates))
    if not ordered:
        raise InputError("Choosing a prior precision needs at least one candidate; got none.")
    return ordered


def _best(scores: Sequence[float], ordered: tuple[float, ...], method: str) -> PriorChoice:
    finite = [value if math.isfinite(value) else math.inf for value in scores]
    if min(finite) == math.inf:
        raise InputError(
            f"No prior precision has a finite score; it was to be chosen by the {method}. Look for"
            " NaN among the inputs of these examples."
        )
    return PriorChoice(
        ordered[finite.index(min(finite))], method, candidates=ordered, scores=tuple(scores)
    )


def _warned(choice: PriorChoice, *, scored_by_data: bool = True) -> PriorChoice:
    """The same choice, with a warning if it lies at an edge."""
    if not choice.at_edge or len(choice.candidates) == 1:
        return choice
    lowest, highest = choice.candidates[0], choice.candidates[-1]
    if (
        scored_by_data and choice.prior_precision == highest >= CANDIDATES[-1]
    ):  # beyond, nothing would change
        warn(
            f"The best prior precision, {highest:.3g}, is the largest of the candidates: labels one"
            " at a time test the mean of predictions alone, which is best without variance here."
            " Intervals under this prior say nothing; let `fit(..., val_loader=...)` choose their"
            " width."
        )
    else:
        warn(
            f"The best prior precision, {choice.prior_precision:.3g}, lies at an edge of the"
            f" candidates {lowest:.3g} … {highest:.3g}: the range may be too narrow. Give the"
            " precision itself, or more candidates: `laplace.prior.by_validation(...,"
            " candidates=...)`."
        )
    return choice
