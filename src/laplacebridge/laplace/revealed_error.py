"""What held-out labels reveal: the temperature of the network, the scale of its
posterior, and how far its probabilities are off.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from laplacebridge.laplace.head_posteriors.base import HeadPosterior, with_constant
from laplacebridge.laplace.label_statistics import LabelStatistics, brier_scores
from laplacebridge.laplace.posterior import Posterior

# Standard errors below which an estimate of an error counts as none, and beyond which a
# difference is no chance (as a likelihood ratio, 2 log L > 4).
EARNED, CLEAR = 1.0, 2.0
# Errors that a network, taken at its word, is allowed to have had in addition, before it
# is made surer than it is.
ADDED_ERRORS = 2.0
# Neighbours of a held-out example, by the sums of their weights: few, some and many, but
# no more than a third of all; which of its neighbours says what is near there; and how
# many examples are compared.
NEIGHBOURHOODS, LARGEST_SHARE, REACH, COMPARED = (2.0, 8.0, 32.0), 1 / 3, 10, 1000
# Weights of a head beyond which the scale of its posterior is not asked for: sums of K × D
# numbers in float64, several of them, would take gigabytes.
LARGEST_OF_JOINT_SCALE = 2**24
SCALES = tuple(2.0 ** (exponent / 2) for exponent in range(-20, 13))  # 2⁻¹⁰ … 2⁶


def network_temperature(
    logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"] | Int[Tensor, "N K"]
) -> tuple[float, float]:
    """T₀ of softmax(logits/T₀) by labels or votes, and the variance of its logarithm.

    Labels that are all right would ask for T → 0, and a few errors less than expected,
    which is chance, for much of that. So below 1 the labels are joined by examples that
    the network at T = 1 would draw, as many as have `ADDED_ERRORS`; and it stays 1
    unless the labels insist, by a likelihood ratio that is clearly no chance. Above 1
    log T has a standard normal prior.

    Args:
        logits: In float64.
        labels: Held-out classes; or votes, how many for each class.

    Example:
        >>> logits = torch.tensor([[9.0, 0.0]], dtype=torch.float64).repeat(100, 1)
        >>> temperature, _ = network_temperature(logits, torch.arange(100) % 5 // 4)
        >>> round(temperature, 1)  # 80 % right, where 99.99 % were promised
        6.1
    """
    from scipy import optimize  # here, because importing it takes long and few programs need it

    voted = labels.dim() > 1
    targets = labels.to(logits) if voted else labels

    alone = logits.softmax(-1)
    entropy = float(-torch.xlogy(alone, alone).sum(-1).mean())
    expected_errors = max(float((1 - alone.amax(-1)).mean()), torch.finfo(torch.float64).tiny)

    def given(log_temperature: float) -> float:
        log = (logits / math.exp(log_temperature)).log_softmax(-1)
        return float(torch.nn.functional.cross_entropy(log, targets, reduction="sum"))

    def loss(log_temperature: float) -> float:
        if log_temperature > 0:
            return given(log_temperature) + log_temperature**2 / 2
        log = (logits / math.exp(log_temperature)).log_softmax(-1)
        drawn = -float((alone * log).sum(-1).mean()) - entropy
        return given(log_temperature) + ADDED_ERRORS / expected_errors * drawn

    bounds = {"bounds": (-3, 4), "method": "bounded", "options": {"xatol": 1e-3}}
    best = float(optimize.minimize_scalar(loss, **bounds).x)
    if best < 0 and 2 * (given(0.0) - given(best)) < CLEAR**2:
        best = 0.0
    scaled = logits / math.exp(best)
    probabilities = scaled.softmax(-1)
    slope = (probabilities * scaled).sum(-1)
    spread = (probabilities * scaled.square()).sum(-1) - slope.square()
    information = float((spread * targets.sum(-1) if voted else spread).sum())
    return math.exp(best), 1 / (information + 1)


def joint_scale(posterior: Posterior, features: object, logits: Tensor, labels: Tensor) -> float:
    """s of the largest joint likelihood of the labels, under a log-normal prior around
    one.

    log ∫ p(y | w + δ) N(δ; 0, sΣ_w) dδ to second order in δ, along the posterior's
    axes. Posteriors over several layers, whose axes are not those of features, keep
    their scale.
    """
    if not isinstance(posterior, HeadPosterior) or not isinstance(features, Tensor):
        return 1.0
    if posterior.weight.numel() > LARGEST_OF_JOINT_SCALE:
        return 1.0
    probabilities = logits.softmax(-1)
    residuals = _residuals(probabilities, labels)
    if posterior.rows_per_example > 1:  # each label by itself: of two classes, that of yes
        probabilities, residuals = (
            part[:, 1].view(len(features), -1) for part in (probabilities, residuals)
        )
    inputs = features.double()
    inputs = inputs if posterior.bias is None else with_constant(inputs)
    gradient, curvature = posterior.gradient_and_curvature(inputs, residuals, probabilities)
    variances = posterior.all_variances()

    def gain(scale: float) -> float:
        known = 1 + scale * variances * curvature
        explained = scale * variances * gradient.square() / known
        return 0.5 * float((explained - known.log()).sum()) - 0.5 * math.log(scale) ** 2

    best = max(SCALES, key=gain)
    # less than the posterior only if the labels insist
    return 1.0 if best < 1 and 2 * (gain(best) - gain(1.0)) < CLEAR**2 else best


def _residuals(probabilities: Tensor, labels: Tensor) -> Tensor:
    """y − p."""
    return torch.nn.functional.one_hot(labels, probabilities.shape[-1]) - probabilities


def brier_gap(
    logits: Tensor, labels: Tensor, temperature: float, training: LabelStatistics
) -> tuple[float, float]:
    """The error of softmax(m/T₀) from Brier scores, and its standard error.

    Training labels are fitted by as much as held-out ones are missed, so that the Brier
    score of the truth itself lies half-way between; what the held-out score at T₀ has
    above that is error.
    """
    tempered, plain = brier_scores(logits / temperature, labels), brier_scores(logits, labels)
    error = float(tempered.mean()) - 0.5 * (float(plain.mean()) + training.brier)
    variance = float((tempered - 0.5 * plain).var(correction=0)) / len(labels)
    return error, math.sqrt(variance + 0.25 * training.brier_variance / max(1, training.num_labels))


def shared_residuals(features: object, logits: Tensor, labels: Tensor) -> float:
    """The squared error that neighbours have in common: what products of their
    residuals tend to as neighbours come together.

    Labels of neighbours are drawn independently, so that their residuals y − p agree
    only where p is off for both. How far apart they still agree differs: near errors of
    a wrong model look smooth, those of a network do not. So r·r' of all pairs is
    regressed on Gaussian kernels of several widths, with coefficients that are not
    negative; at no distance all kernels are one, and their coefficients add up to the
    error.
    """
    from scipy import optimize  # as above

    places = features if isinstance(features, Tensor) else logits
    rows = len(labels) // max(1, len(places))  # more than one with several labels at once
    number = min(COMPARED, len(places))
    sizes = [size for size in NEIGHBOURHOODS if size <= LARGEST_SHARE * number]
    if not sizes:
        return 0.0
    places = places[:number].double()
    residuals = _residuals(logits[: number * rows].softmax(-1), labels[: number * rows])
    residuals = residuals.reshape(number, -1)
    squares = places.square().sum(-1)
    distances = (squares.unsqueeze(-1) + squares - 2 * places @ places.T).clamp_min(0)
    distances.fill_diagonal_(math.inf)
    kernels = torch.stack([_kernel(distances, size).flatten() for size in sizes], -1)
    products = (residuals @ residuals.T).flatten()
    shares, _ = optimize.nnls(kernels.cpu().numpy(), products.cpu().numpy())
    return float(shares.sum()) / rows


def _kernel(distances: Tensor, neighbours: float) -> Tensor:
    """exp(−d²/2hh') with h in proportion to how far the tenth neighbour of an example
    is, such that the weights of neighbours add up to so many on average.

    One h for all would leave out examples in the tails, where errors are often largest,
    and ask the densest places alone.
    """
    number = len(distances)
    reach = distances.kthvalue(min(REACH, number - 1), -1).values
    reach = reach.clamp_min(torch.finfo(reach.dtype).tiny).sqrt()
    relative = distances / reach / reach.unsqueeze(-1)
    low, high = math.log(1e-3), math.log(1e3)
    kernel = torch.zeros_like(distances)
    for _ in range(16):
        middle = (low + high) / 2
        kernel = (relative / (-2 * math.exp(middle))).exp()
        low, high = (middle, high) if float(kernel.sum()) < neighbours * number else (low, middle)
    return kernel
