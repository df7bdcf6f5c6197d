"""One-vs-rest of many independent logits: the leading classes in full, all others to
first order in their own weight.

A class that does not lead is hardly part of what it is compared with. With ω its share of
the weights of all classes, its log-odds are those against all others and itself, plus
ω(l₀ + l₁v) for the mean and ω(d₀ + d₁v) for the variance; what that leaves out is of the
order of ω². The mean of its probability is a series, whose first three terms make a fraction:

    E σ(x) = e(1 − c + qc² − …) = e(1 + qc − c)/(1 + qc) up to e(qc)³,
    e = exp(l + V/2),   c = eq,   q = exp(V),   x ~ N(l, V).

Rows where either adds up to more than about 1e-4 are computed in full. Derivation in
docs/bridges.md.
"""

from typing import NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor

from laplacebridge.bridges.leading import Rows, where_enough
from laplacebridge.bridges.log_odds import (
    FAR_BELOW,
    FREEZING,
    LogOdds,
    Rest,
    Sums,
    boltzmann,
    expected_sigmoid,
    log_odds,
    one_vs_rest_probabilities,
    weighted_log_odds,
)
from laplacebridge.bridges.precision import SMALLEST_PROBABILITY
from laplacebridge.covariance import Diagonal

# Of so many classes the odds are computed in full: as few as torch finds without sorting
# all, which takes much longer.
NUM_LEADING, MORE_LEADING, VERY_MANY_CLASSES = 15, 32, 4000
# What the others' largest share of the weights, squared, and the last terms of their
# probabilities may add up to.
LARGEST_SHARE, LARGEST_ERROR = 1e-4, 5e-5
# Of a larger variance a class makes its row be computed in full, or has no probability to
# speak of.
LARGEST_EXPONENT = 20.0
# Below, numbers would be denormal, which are slow; and far below the smallest probability.
SMALLEST_EXPONENT = -80.0


class LeadingOdds(NamedTuple):
    """Log-odds of the classes that lead, and what those of the others follow from."""

    places: Int[Tensor, "B M"]  # of the classes that lead
    odds: LogOdds  # theirs; `top` is a place among them
    rest: Rest
    share: Float[Tensor, "B K"]  # ω, zero where a class leads
    shift: Float[Tensor, "B 1"]  # of the log-odds of the others, beside their logit
    extra: Float[Tensor, "B 1"]  # of their variances
    mean_slopes: tuple[Float[Tensor, "B 1"], Float[Tensor, "B 1"]]  # l₀, l₁
    variance_slopes: tuple[Float[Tensor, "B 1"], Float[Tensor, "B 1"]]  # d₀, d₁
    is_enough: Bool[Tensor, " B"]

    def variance(self) -> Float[Tensor, "B K"]:
        """Variances of the log-odds of every class."""
        constant, slope = self.variance_slopes
        own = self.rest.variance
        grown = own + self.extra + self.share * (constant + slope * own)
        return grown.clamp_min(0).scatter(-1, self.places, self.odds.variance)

    def chances(self) -> "Chances":
        """What E σ(x) of the other classes follows from."""
        own = self.rest.variance
        constant, slope = (
            first + second / 2 for first, second in zip(self.mean_slopes, self.variance_slopes)
        )
        exponent = self.rest.below + own / 2 + (self.shift + self.extra / 2)
        exponent = exponent + self.share * (constant + slope * own)
        log_growth = own.clamp_max(LARGEST_EXPONENT) + self.extra
        log_error = 4 * exponent.detach() + 6 * log_growth.detach()  # of e(qc)³
        error = log_error.clamp_min(SMALLEST_EXPONENT).exp().sum(-1)
        is_small = (error < LARGEST_ERROR) & (self.extra.squeeze(-1) < LARGEST_EXPONENT)
        return Chances(self, exponent, log_growth, self.is_enough & is_small)


class Chances(NamedTuple):
    """log e and log q of the classes that do not lead."""

    of: LeadingOdds
    exponent: Float[Tensor, "B K"]
    log_growth: Float[Tensor, "B K"]
    is_enough: Bool[Tensor, " B"]

    def probabilities(self) -> Float[Tensor, "B K"]:
        """E σ(x_k) for every class, normalised."""
        first = self.exponent.clamp_min(SMALLEST_EXPONENT).exp()
        growth = self.log_growth.exp()
        second = first * growth
        third = second * growth
        of_rest = first * ((1 + third - second) / (1 + third))
        expected = of_rest.scatter(-1, self.of.places, expected_sigmoid(self.of.odds))
        expected = expected + SMALLEST_PROBABILITY
        return expected / expected.sum(-1, keepdim=True)


def num_leading(num_classes: int) -> int:
    """How many classes lead.

    Args:
        num_classes: Of how many.
    """
    return NUM_LEADING if num_classes < VERY_MANY_CLASSES else MORE_LEADING


def leading_odds(mean: Float[Tensor, "B K"], variance: Float[Tensor, "B K"]) -> LeadingOdds:
    """Log-odds of independent logits by their leading classes, those of the largest means.

    Args:
        mean: Means of the logits, of more classes than lead.
        variance: Their variances.
    """
    below = mean - mean.amax(-1, keepdim=True)
    places = below.detach().topk(num_leading(mean.shape[-1]), -1)[1]
    rest = Rest(below.scatter(-1, places, FAR_BELOW), variance)
    mean, led = below.gather(-1, places), variance.gather(-1, places)
    weights = boltzmann(mean, led, rest)
    beta, top = weights.beta, weights.top
    of_rest = rest.weights(beta, weights.second)
    rest_sums = rest.sums(of_rest)
    sums = Sums.of(weights.others, weights.below, led).plus(rest_sums)
    odds = weighted_log_odds(weights, led, sums=sums)

    runner_up, own = weights.log_runner_up.exp(), led.gather(-1, top)
    mass = 1 + sums.mass * runner_up
    average = (sums.noise * runner_up + own) / mass
    quadratic = (sums.squared_noise * runner_up * runner_up + own) / mass.square()
    log_mass = mass.log()
    entropy = log_mass - beta * sums.tilt * runner_up / mass
    spread = (average - quadratic).clamp_min(0)
    frozen = FREEZING * (1 - beta)
    # what `_frozen` multiplies the spread by, and how that falls with the entropy
    falling = 0.5 * beta * frozen / 0.4 / (entropy + 3)
    shifting = (0.5 * beta - falling).clamp_min(0)
    widening = frozen / 1.2 / (entropy + 1.25)
    tilt = rest_sums.tilt / rest_sums.mass.clamp_min(SMALLEST_PROBABILITY)
    of_entropy = spread * (beta * tilt - 1 + entropy - log_mass)
    of_spread = average - 2 * quadratic
    shifted = of_entropy * falling / (entropy + 3) * (shifting > 0)
    mean_slopes = (1 / beta - of_spread * shifting - shifted, shifting)
    widened = of_spread * widening - of_entropy * widening / (entropy + 1.25)
    variance_slopes = (2 * quadratic + widened, -widening)
    share = of_rest * (runner_up / mass)
    left_out = share.amax(-1).square() * (rest_sums.mass * runner_up / mass).squeeze(-1)
    return LeadingOdds(
        places,
        odds,
        rest,
        share,
        -log_mass / beta - spread * shifting,
        quadratic + spread * widening,
        mean_slopes,
        variance_slopes,
        left_out < LARGEST_SHARE,
    )


def many_log_odds_variances(
    mean: Float[Tensor, "B K"], variance: Float[Tensor, "B K"]
) -> Float[Tensor, "B K"]:
    """Variances of the log-odds of many independent logits.

    Args:
        mean: Means of the logits.
        variance: Their variances.
    """
    return _variances(leading_odds(mean, variance), mean, variance)


def many_probabilities(
    mean: Float[Tensor, "B K"], variance: Float[Tensor, "B K"]
) -> Float[Tensor, "B K"]:
    """One-vs-rest probabilities of many independent logits.

    Args:
        mean: Means of the logits.
        variance: Their variances.
    """
    return _probabilities(leading_odds(mean, variance), mean, variance)


def many_probabilities_and_variances(
    mean: Float[Tensor, "B K"], variance: Float[Tensor, "B K"]
) -> tuple[Float[Tensor, "B K"], Float[Tensor, "B K"]]:
    """The same, and the variances of the log-odds.

    Args:
        mean: Means of the logits.
        variance: Their variances.
    """
    odds = leading_odds(mean, variance)
    return _probabilities(odds, mean, variance), _variances(odds, mean, variance)


def _probabilities(odds: LeadingOdds, mean: Tensor, variance: Tensor) -> Float[Tensor, "B K"]:
    chances = odds.chances()

    def in_full(rows: Rows) -> tuple[Tensor, ...]:
        return (one_vs_rest_probabilities(log_odds(mean[rows], Diagonal(variance[rows]))),)

    def led(rows: Rows) -> tuple[Tensor, ...]:
        return (leading_odds(mean[rows], variance[rows]).chances().probabilities(),)

    return where_enough(chances.is_enough, lambda: (chances.probabilities(),), led, in_full)[0]


def _variances(odds: LeadingOdds, mean: Tensor, variance: Tensor) -> Float[Tensor, "B K"]:
    def in_full(rows: Rows) -> tuple[Tensor, ...]:
        return (log_odds(mean[rows], Diagonal(variance[rows])).variance,)

    def led(rows: Rows) -> tuple[Tensor, ...]:
        return (leading_odds(mean[rows], variance[rows]).variance(),)

    return where_enough(odds.is_enough, lambda: (odds.variance(),), led, in_full)[0]
