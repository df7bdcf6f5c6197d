r"""How wide: temperature and variance of the logits, chosen so that they agree with what held-out labels reveal.

The likelihood of single labels tests the mean of a prediction alone, and cannot choose its width: where the mean is
good without any variance, it asks for none. So the temperature is chosen by the labels one at a time, and the width by
the labels *together*. The logits become N(m/T, sΣ + cI):

1.  T₀ minimises the NLL of softmax(m/T₀). It is kept if it improves the log-likelihood by more than chance would
    (twice the difference above 4), otherwise it is one.
2.  Σ is the posterior under the prior precision of the largest evidence. s maximises the joint likelihood of all
    held-out labels under weights drawn from N(w, sΣ_w), in closed form along the posterior's own axes.
3.  The error of the probabilities, E|p − p*|², that held-out labels reveal is the largest of what the posterior says,
    of what the Brier scores on training and held-out labels say together, and of what neighbouring held-out examples
    with residuals in common say.
4.  c makes the predictions say that error; T keeps the mean confidence of softmax(m/T₀) at that variance.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from laplacebridge.bridges import Bridge, mean_of, predict
from laplacebridge.gaussian import LogitGaussian
from laplacebridge.laplace.label_statistics import LabelStatistics, brier_scores
from laplacebridge.laplace.posterior import HeadPosterior, Posterior, with_constant

# A temperature is believed when twice its gain in log-likelihood exceeds this: chance exceeds it once in twenty times.
LEAST_GAIN = 4.0
# With fewer held-out labels the scale of the posterior is never raised: they cannot tell it from chance.
FEW_LABELS = 100
# Standard errors beyond which a difference of Brier scores, or residuals that neighbours share, are no chance.
CLEAR = 2.0
# Neighbours of a held-out example, by the sum of their weights, and how many examples are compared.
NEIGHBOURS, COMPARED = 4.0, 1000
# Predictions for so many held-out numbers (examples × classes) are tried while temperature and variance are searched.
TRIED_ELEMENTS, MOST_TRIED, FEWEST_TRIED = 2**18, 1000, 64
# Temperature of a network that fits its training labels far better than others.
OVERFITTED = 3.0
SCALES = tuple(2.0 ** (exponent / 2) for exponent in range(-20, 13))  # 2⁻¹⁰ … 2⁶
SMALLEST_VARIANCE, LARGEST_VARIANCE = 1e-4, 300.0


class Width(NamedTuple):
    """Temperature and variances of the logits, and the errors that they rest on.

    Errors are E|p − p*|², squared distances between predicted and true probabilities summed over classes, averaged over
    inputs like the held-out ones.

    Attributes:
        temperature: T, which divides the mean of the logits.
        variance_scale: s, which multiplies the posterior's covariance.
        extra_variance: c, added to the variance of every logit.
        error: What the predictions now say.
        posterior_error: What they say without c.
        gap_error: What training and held-out Brier scores say together.
        gap_standard_error: Its standard error.
        neighbour_error: What neighbouring examples with residuals in common say; 0 if they have none.
        network_temperature: T₀, of the network by itself; 1 if none is believed.
        training_brier: Brier score of the network on its training labels.
        held_out_brier: The same on held-out labels.
        num_labels: How many held-out labels there were.
    """

    temperature: float
    variance_scale: float
    extra_variance: float
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
        shares = "the posterior alone" if posterior == 1 else f"posterior {posterior:.0%}, {rest} {1 - posterior:.0%}"
        return (
            f"intervals: error of the probabilities {per_class:.3f} per class (root mean square), from {shares}; "
            f"{self.num_labels} held-out labels, standard error of the gap {self.gap_standard_error:.4f}"
        )

    def warnings(self) -> list[str]:
        """What a user should know before relying on the intervals."""
        found = []
        if self.gap_standard_error > self.error:
            enough = math.ceil(self.num_labels * (self.gap_standard_error / max(self.error, 1e-9)) ** 2)
            found.append(
                f"With {self.num_labels} held-out labels the width of intervals cannot be checked: it rests on the "
                f"evidence of the training data alone. About {enough} would do."
            )
        if self.training_brier - self.held_out_brier > CLEAR * 2 * self.gap_standard_error:
            found.append(
                f"The network fits the held-out labels better than its training labels (Brier score "
                f"{self.held_out_brier:.3f} against {self.training_brier:.3f}). Was it trained on them? Intervals are "
                "then too narrow: give examples that it has not seen."
            )
        if self.network_temperature > OVERFITTED:
            found.append(
                f"The network fits its training labels far better than others (Brier score {self.training_brier:.3f} "
                f"against {self.held_out_brier:.3f}, temperature {self.network_temperature:.2g}): most of the width of "
                "intervals comes from that gap, not from the posterior."
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
        temperature = network_temperature(logits, labels)
        scale = _scale(posterior, features, logits / temperature, labels)
        gap, gap_error = _gap(logits, labels, temperature, training)
        neighbours = _shared_residuals(features, logits / temperature, labels)
        search = _Search.of(posterior, bridge, features, logits, temperature, scale)
        tuned = search.temperature(0.0, temperature)
        said = search.said(0.0, tuned)
        revealed = (gap if gap > CLEAR * gap_error else 0.0) + max(0.0, 1 - 1 / scale) * said
        wanted = max(revealed, neighbours)
        extra = 0.0
        if wanted > said:
            extra, tuned = search.variance(wanted, tuned)
        return Width(
            temperature=tuned,
            variance_scale=scale,
            extra_variance=extra,
            error=search.said(extra, tuned) if extra else said,
            posterior_error=said,
            gap_error=gap,
            gap_standard_error=gap_error,
            neighbour_error=neighbours,
            network_temperature=temperature,
            training_brier=training.brier,
            held_out_brier=float(brier_scores(logits, labels).mean()),
            num_labels=len(labels),
        )


def network_temperature(logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> float:
    """T₀ of softmax(logits/T₀) by the labels, or one if they do not clearly ask for another.

    Labels that are all right would ask for T → 0, so that log T is held by a normal prior with deviation two.

    Args:
        logits: In float64.
        labels: Held-out classes.

    Example:
        >>> logits = torch.tensor([[9.0, 0.0]], dtype=torch.float64).repeat(100, 1)
        >>> round(network_temperature(logits, torch.arange(100) % 5 // 4), 1)  # 80 % right, where 99.99 % were promised
        6.4
    """
    from scipy import optimize  # here, because importing it takes long and few programs need it

    def loss(log_temperature: float) -> float:
        return float(torch.nn.functional.cross_entropy(logits / math.exp(log_temperature), labels, reduction="sum"))

    found = optimize.minimize_scalar(
        lambda point: loss(point) + 0.125 * point**2, bounds=(-3, 4), method="bounded", options={"xatol": 1e-3}
    )
    return math.exp(found.x) if 2 * (loss(0.0) - loss(found.x)) > LEAST_GAIN else 1.0


def _logits(posterior: Posterior, features: object) -> Float[Tensor, "N K"]:
    (logits,) = posterior.under_priors(features, [float(posterior.prior_precision)], lambda gaussian: gaussian.mean)
    return logits.double()


def _scale(posterior: Posterior, features: object, logits: Tensor, labels: Tensor) -> float:
    """s of the largest joint likelihood of the labels, under a log-normal prior around one.

    log ∫ p(y | w + δ) N(δ; 0, sΣ_w) dδ to second order in δ, along the posterior's axes. Posteriors over several
    layers, whose axes are not those of features, keep their scale.
    """
    if not isinstance(posterior, HeadPosterior) or not isinstance(features, Tensor):
        return 1.0
    probabilities = logits.softmax(-1)
    residuals = -probabilities.scatter_add(-1, labels.unsqueeze(-1), torch.full_like(probabilities[:, :1], -1.0))
    inputs = features.double()
    inputs = inputs if posterior.bias is None else with_constant(inputs)
    gradient, curvature = posterior.gradient_and_curvature(inputs, residuals, probabilities)
    variances = posterior.variances.double()

    def gain(scale: float) -> float:
        known = 1 + scale * variances * curvature
        explained = scale * variances * gradient.square() / known
        return 0.5 * float((explained - known.log()).sum()) - 0.5 * math.log(scale) ** 2

    best = max(SCALES, key=gain)
    if best < 1 and gain(best) - gain(1.0) < LEAST_GAIN / 2:  # less than the posterior only if the labels insist
        return 1.0
    return min(best, 1.0) if len(labels) < FEW_LABELS else best


def _gap(logits: Tensor, labels: Tensor, temperature: float, training: LabelStatistics) -> tuple[float, float]:
    """The error of softmax(m/T₀) from Brier scores, and its standard error.

    Training labels are fitted by as much as held-out ones are missed, so that the Brier score of the truth itself lies
    half-way between; what the held-out score at T₀ has above that is error.
    """
    tempered, plain = brier_scores(logits / temperature, labels), brier_scores(logits, labels)
    error = float(tempered.mean()) - 0.5 * (float(plain.mean()) + training.brier)
    variance = float((tempered - 0.5 * plain).var(correction=0)) / len(labels)
    return error, math.sqrt(variance + 0.25 * training.brier_variance / max(1, training.num_labels))


def _shared_residuals(features: object, logits: Tensor, labels: Tensor) -> float:
    """The squared error that neighbours have in common: Σ k r·r' over pairs, if it is clearly more than chance.

    Labels of neighbours are drawn independently, so that their residuals y − p agree only where p is off for both. The
    kernel is Gaussian, as wide as gives each example a few neighbours.
    """
    number = min(COMPARED, len(labels))
    if number < 2:
        return 0.0
    places = (features if isinstance(features, Tensor) else logits)[:number].double()
    probabilities = logits[:number].softmax(-1)
    residuals = -probabilities.scatter_add(
        -1, labels[:number].unsqueeze(-1), torch.full_like(probabilities[:, :1], -1.0)
    )
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
    return together / weight if together > CLEAR * chance else 0.0


def _kernel(distances: Tensor, number: int) -> Tensor:
    """exp(−d²/2h²) with h such that the weights of an example's neighbours add up to `NEIGHBOURS`, on average."""
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


class _Search(NamedTuple):
    """Predictions for some held-out examples under any temperature and variance."""

    gaussian: LogitGaussian
    widened: Callable[[float], LogitGaussian]
    bridge: Bridge
    confidence: float

    @classmethod
    def of(
        cls, posterior: Posterior, bridge: Bridge, features: object, logits: Tensor, temperature: float, scale: float
    ) -> "_Search":
        number = min(len(logits), MOST_TRIED, max(FEWEST_TRIED, TRIED_ELEMENTS // logits.shape[1]))
        gaussian = posterior(features[:number])  # type: ignore[index]
        confidence = float((logits[:number] / temperature).softmax(-1).amax(-1).mean())

        def widened(extra: float) -> LogitGaussian:
            numbers = torch.tensor([scale, extra], dtype=gaussian.dtype, device=gaussian.mean.device)
            return LogitGaussian(gaussian.mean, posterior._widened(gaussian.covariance, *numbers))

        return cls(gaussian, widened, bridge, confidence)

    def at(self, extra: float, temperature: float) -> LogitGaussian:
        wide = self.widened(extra)
        return LogitGaussian(wide.mean / temperature, wide.covariance)

    def said(self, extra: float, temperature: float) -> float:
        """E Σ_k Var π_k, by the predictions."""
        dirichlet = predict(self.at(extra, temperature), self.bridge).dirichlet
        spread = 1 - dirichlet.mean.double().square().sum(-1)
        return float((spread / (1 + dirichlet.total.double())).mean())

    def temperature(self, extra: float, start: float) -> float:
        """T at which the mean confidence is that of the tempered network: secant steps in log T."""
        wide, slope, point = self.widened(extra), -0.25, math.log(start)
        known: tuple[float, float] | None = None
        for _ in range(5):
            tried = LogitGaussian(wide.mean / math.exp(point), wide.covariance)
            error = float(mean_of(self.bridge)(tried).amax(-1).double().mean()) - self.confidence
            if known is not None and abs(point - known[0]) > 1e-6:
                slope = min(max((error - known[1]) / (point - known[0]), -0.6), -0.02)
            known = (point, error)
            if abs(error) < 2e-4:
                break
            point -= min(max(error / slope, -1.0), 1.0)
        return math.exp(point)

    def variance(self, wanted: float, start: float) -> tuple[float, float]:
        """c at which the predictions say the wanted error, with its temperature: regula falsi in log c."""
        low, high = math.log(SMALLEST_VARIANCE), math.log(1e-2)
        tuned = start

        def missing(point: float) -> float:
            nonlocal tuned
            tuned = self.temperature(math.exp(point), tuned)
            return self.said(math.exp(point), tuned) - wanted

        from scipy import optimize

        while missing(high) < 0 and high < math.log(LARGEST_VARIANCE):
            low, high = high, high + 2.0
        if missing(high) < 0:
            return math.exp(high), tuned
        if missing(low) > 0:
            return math.exp(low), tuned
        point = optimize.brentq(missing, low, high, xtol=0.03, maxiter=20, disp=False)
        missing(point)
        return math.exp(point), tuned
