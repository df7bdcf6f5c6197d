r"""How wide: temperature and variance of the logits, chosen so that they agree with
what held-out labels reveal.

The likelihood of single labels tests the mean of a prediction alone, and cannot choose
its width: where the mean is good without any variance, it asks for none. So the mean is
chosen by the labels one at a time, and the width by the labels *together*.
Probabilities are as wide as N(m/T, sΣ + σ² mmᵀ/T² + cI) makes them, around a mean of
their own:

1.  T₀ minimises the NLL of softmax(m/T₀) on held-out labels, and σ² is the variance of
    log T₀.
2.  Σ is the posterior under the prior precision of the largest evidence. s maximises
    the joint likelihood of all held-out labels under weights drawn from N(w, sΣ_w), in
    closed form along the posterior's own axes.
3.  T, and the share k of the variance that enters the mean, keep the mean as close to
    softmax(m/T₀) as variance allows: where the evidence doubts what labels bear out, k
    is small.
4.  The error of the probabilities, E|p − p*|², that held-out labels reveal is the
    largest of what the posterior says, of what the Brier scores on training and
    held-out labels say together, and of what neighbouring held-out examples with
    residuals in common say. c makes the predictions say that error.

`benchmarks/bench_intervals.py` leaves out each step in turn. The share k changes nothing
there: it is for networks trained on few rows, where the evidence can be ruinous.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from laplacebridge.bridges import Bridge, mean_of, predict_apart
from laplacebridge.covariance import Covariance
from laplacebridge.laplace.label_statistics import LabelStatistics, brier_scores
from laplacebridge.laplace.posterior import HeadPosterior, Posterior, Widening, with_constant

# Standard errors below which an estimate of an error counts as none, and beyond which a
# difference is no chance (as a likelihood ratio, 2 log L > 4).
EARNED, CLEAR = 1.0, 2.0
# Of temperature scaling's NLL, how far the mean may be from it.
ALLOWED_LOSS = 0.005
# Neighbours of a held-out example, by the sum of their weights, and how many examples
# are compared.
NEIGHBOURS, COMPARED = 4.0, 1000
# Predictions for so many held-out numbers (examples × classes) are tried while
# temperature and variance are searched.
TRIED_ELEMENTS, FEWEST_TRIED = 2**17, 64
# Temperature of a network that fits its training labels far better than others.
OVERFITTED = 3.0
SCALES = tuple(2.0 ** (exponent / 2) for exponent in range(-20, 13))  # 2⁻¹⁰ … 2⁶
SHARES = tuple(0.25**exponent for exponent in range(6))
SMALLEST_VARIANCE, LARGEST_VARIANCE = 1e-4, 300.0


class Width(NamedTuple):
    """Temperature and variances of the logits, and the errors that they rest on.

    Errors are E|p − p*|², squared distances between predicted and true probabilities
    summed over classes, averaged over inputs like the held-out ones.

    Attributes:
        widening: What is done to the posterior.
        error: What the predictions now say.
        posterior_error: What they say without c.
        gap_error: What training and held-out Brier scores say together.
        gap_standard_error: Its standard error.
        neighbour_error: What neighbouring examples with residuals in common say; 0 if
            they have none.
        network_temperature: T₀, of the network by itself.
        training_brier: Brier score of the network on its training labels.
        held_out_brier: The same on held-out labels.
        num_labels: How many held-out labels there were.
    """

    widening: Widening
    error: float
    posterior_error: float
    gap_error: float
    gap_standard_error: float
    neighbour_error: float
    network_temperature: float
    training_brier: float
    held_out_brier: float
    num_labels: int

    def described(self, num_classes: int) -> str:
        """What the intervals rest on, in a sentence.

        Args:
            num_classes: K, over which the error is spread.
        """
        per_class = math.sqrt(self.error / num_classes)
        posterior = min(1.0, self.posterior_error / self.error) if self.error else 1.0
        rest = "neighbours" if self.neighbour_error > self.gap_error else "gap"
        shares = (
            "the posterior alone"
            if posterior == 1
            else f"posterior {posterior:.0%}, {rest} {1 - posterior:.0%}"
        )
        return (
            f"intervals: error of the probabilities {per_class:.3f} per class (root mean square),"
            f" from {shares}; {self.num_labels} held-out labels, standard error of the gap"
            f" {self.gap_standard_error:.4f}"
        )

    def warnings(self) -> list[str]:
        """What a user should know before relying on the intervals."""
        found = []
        if self.gap_standard_error > self.error:
            enough = math.ceil(
                self.num_labels * (self.gap_standard_error / max(self.error, 1e-9)) ** 2
            )
            found.append(
                f"With {self.num_labels} held-out labels the width of intervals cannot be checked:"
                f" it rests on the evidence of the training data alone. About {enough} would do."
            )
        if self.training_brier - self.held_out_brier > CLEAR * 2 * self.gap_standard_error:
            found.append(
                "The network fits the held-out labels better than its training labels (Brier score"
                f" {self.held_out_brier:.3f} against {self.training_brier:.3f}). Was it trained on"
                " them? Intervals are then too narrow: give examples that it has not seen."
            )
        if self.network_temperature > OVERFITTED:
            found.append(
                "The network fits its training labels far better than others (Brier score"
                f" {self.training_brier:.3f} against {self.held_out_brier:.3f}, temperature"
                f" {self.network_temperature:.2g}): most of the width of intervals comes from that"
                " gap, not from the posterior."
            )
        return found


def by_held_out_labels(
    posterior: Posterior,
    bridge: Bridge,
    features: object,
    labels: Int[Tensor, " N"],
    training: LabelStatistics,
) -> Width:
    """Temperature and width by held-out labels.

    Args:
        posterior: Under the prior of the largest evidence, as it was fitted.
        bridge: The bridge that will be used to predict.
        features: What the network makes of held-out examples.
        labels: Their labels.
        training: What the labels of the fit said.

    Example:
        >>> from laplacebridge import race_bridge
        >>> from laplacebridge.laplace import Kron, KronPosterior
        >>> features, weight = torch.eye(3).repeat(40, 1), 4 * torch.eye(3)
        >>> logits, labels = (features @ weight.T).double(), torch.arange(120) % 3
        >>> posterior = KronPosterior(weight, None, Kron.of_batch(features, logits.softmax(-1)), 1.0)
        >>> held_out = torch.where(torch.arange(120) < 24, (labels + 1) % 3, labels)  # a fifth is not as it was learnt
        >>> width = by_held_out_labels(
        ...     posterior, race_bridge, features, held_out, LabelStatistics.of_batch(logits, labels)
        ... )
        >>> width.network_temperature > 1, width.error > width.posterior_error
        (True, True)
    """
    with torch.no_grad():
        logits = _logits(posterior, features)
        start, start_variance = network_temperature(logits, labels)
        scale = _scale(posterior, features, logits / start, labels)
        number = min(len(labels), max(FEWEST_TRIED, TRIED_ELEMENTS // logits.shape[1]))
        tried = _Tried(posterior, bridge, posterior.moments(features[:number]))  # type: ignore[index]
        scaled = (logits[:number] / start).softmax(-1)
        widening = tried.near(scaled, labels[:number], Widening(start, scale, start_variance))
        said = tried.stated_error(widening)
        gap, gap_error = _gap(logits, labels, start, training)
        neighbours = _shared_residuals(features, logits / start, labels)
        beyond = (
            max(0.0, 1 - 1 / scale) * said
        )  # what held-out labels together add to the posterior
        revealed = max((gap if gap > EARNED * gap_error else 0.0) + beyond, neighbours)
        revealed = min(revealed, 0.5 * float(brier_scores(logits / start, labels).mean()))
        if revealed > said:
            widening = tried.saying(revealed, widening)
        return Width(
            widening=widening,
            error=tried.stated_error(widening),
            posterior_error=said,
            gap_error=gap,
            gap_standard_error=gap_error,
            neighbour_error=neighbours,
            network_temperature=start,
            training_brier=training.brier,
            held_out_brier=float(brier_scores(logits, labels).mean()),
            num_labels=len(labels),
        )


def network_temperature(
    logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]
) -> tuple[float, float]:
    """T₀ of softmax(logits/T₀) by the labels, and the variance of its logarithm.

    Labels that are all right would ask for T → 0, so that log T has a standard normal
    prior.

    Args:
        logits: In float64.
        labels: Held-out classes.

    Example:
        >>> logits = torch.tensor([[9.0, 0.0]], dtype=torch.float64).repeat(100, 1)
        >>> temperature, _ = network_temperature(logits, torch.arange(100) % 5 // 4)
        >>> round(temperature, 1)  # 80 % right, where 99.99 % were promised
        6.1
    """
    from scipy import optimize  # here, because importing it takes long and few programs need it

    def loss(log_temperature: float) -> float:
        scaled = logits / math.exp(log_temperature)
        return (
            float(torch.nn.functional.cross_entropy(scaled, labels, reduction="sum"))
            + log_temperature**2 / 2
        )

    found = optimize.minimize_scalar(
        loss, bounds=(-3, 4), method="bounded", options={"xatol": 1e-3}
    )
    scaled = logits / math.exp(found.x)
    probabilities = scaled.softmax(-1)
    slope = (probabilities * scaled).sum(-1)
    information = float(((probabilities * scaled.square()).sum(-1) - slope.square()).sum())
    return math.exp(found.x), 1 / (information + 1)


def _logits(posterior: Posterior, features: object) -> Float[Tensor, "N K"]:
    (logits,) = posterior.under_priors(
        features, [float(posterior.prior_precision)], lambda gaussian: gaussian.mean
    )
    return logits.double()


def _scale(posterior: Posterior, features: object, logits: Tensor, labels: Tensor) -> float:
    """s of the largest joint likelihood of the labels, under a log-normal prior around
    one.

    log ∫ p(y | w + δ) N(δ; 0, sΣ_w) dδ to second order in δ, along the posterior's
    axes. Posteriors over several layers, whose axes are not those of features, keep
    their scale.
    """
    if not isinstance(posterior, HeadPosterior) or not isinstance(features, Tensor):
        return 1.0
    probabilities = logits.softmax(-1)
    residuals = _residuals(probabilities, labels)
    inputs = features.double()
    inputs = inputs if posterior.bias is None else with_constant(inputs)
    gradient, curvature = posterior.gradient_and_curvature(inputs, residuals, probabilities)
    variances = posterior.variances.double()

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


def _gap(
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


def _shared_residuals(features: object, logits: Tensor, labels: Tensor) -> float:
    """The squared error that neighbours have in common: Σ k r·r' over pairs, if it is
    clearly more than chance.

    Labels of neighbours are drawn independently, so that their residuals y − p agree
    only where p is off for both. The kernel is Gaussian, as wide as gives each example
    a few neighbours.
    """
    number = min(COMPARED, len(labels))
    if number < 2:
        return 0.0
    places = (features if isinstance(features, Tensor) else logits)[:number].double()
    probabilities = logits[:number].softmax(-1)
    residuals = _residuals(probabilities, labels[:number])
    squares = places.square().sum(-1)
    distances = (squares.unsqueeze(-1) + squares - 2 * places @ places.T).clamp_min(0)
    distances.fill_diagonal_(math.inf)
    kernel = _kernel(distances, number)
    weight = float(kernel.square().sum())
    if weight == 0:
        return 0.0
    together = float((kernel * (residuals @ residuals.T)).sum())
    # tr J J' of two examples, J = diag(p) − ppᵀ
    products = probabilities @ probabilities.T
    mixed = probabilities.square() @ probabilities.T
    traces = products - mixed - mixed.T + products.square()
    chance = math.sqrt(2 * float((kernel.square() * traces).sum()))
    return together / weight if together > EARNED * chance else 0.0


def _kernel(distances: Tensor, number: int) -> Tensor:
    """exp(−d²/2h²) with h such that the weights of an example's neighbours add up to
    `NEIGHBOURS`, on average.
    """
    median = float(distances[distances.isfinite()].median())
    if median == 0:
        return torch.zeros_like(distances)
    low, high = math.log(1e-4), math.log(10.0)
    kernel = torch.zeros_like(distances)
    for _ in range(16):
        middle = (low + high) / 2
        kernel = (distances / (-2 * math.exp(middle) * median)).exp()
        low, high = (middle, high) if float(kernel.sum()) < NEIGHBOURS * number else (low, middle)
    return kernel


class _Tried(NamedTuple):
    """Predictions for some held-out examples, widened in any way."""

    posterior: Posterior
    bridge: Bridge
    moments: tuple[Tensor, Covariance]

    def near(self, wanted: Tensor, labels: Tensor, start: Widening) -> Widening:
        """With T, and the largest k, at which mean probabilities are near those that
        are wanted.
        """
        from scipy import optimize

        entropy = -float(torch.xlogy(wanted, wanted).sum(-1).mean())
        right = wanted.gather(-1, labels.unsqueeze(-1)).clamp_min(torch.finfo(wanted.dtype).tiny)
        allowed = ALLOWED_LOSS * -float(right.log().mean())
        middle = math.log(start.temperature)
        for share in SHARES:

            def divergence(point: float, share: float = share) -> float:
                widened = self.posterior.widened(
                    start._replace(temperature=math.exp(point), mean_share=share)
                )
                mean = mean_of(self.bridge)(widened._narrow(*self.moments)).double()
                return (
                    -float(
                        (wanted * mean.clamp_min(torch.finfo(mean.dtype).tiny).log()).sum(-1).mean()
                    )
                    - entropy
                )

            best = optimize.minimize_scalar(
                divergence,
                bounds=(middle - 2.5, middle + 0.3),
                method="bounded",
                options={"maxiter": 12, "xatol": 5e-3},
            )
            if best.fun <= allowed:
                return start._replace(temperature=math.exp(best.x), mean_share=share)
        return start._replace(mean_share=0.0)

    def stated_error(self, widening: Widening) -> float:
        """E Σ_k Var π_k, by the predictions."""
        widened = self.posterior.widened(widening)
        prediction = predict_apart(
            widened._wide(*self.moments), widened._narrow(*self.moments), self.bridge
        )
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
