"""One-vs-rest in graphs: `bridges/log_odds.py` once more, formula by formula."""

import math
from typing import NamedTuple

from laplacebridge.bridges.log_odds import FAR_BELOW, FREEZING
from laplacebridge.bridges.precision import SMALLEST_PROBABILITY
from laplacebridge.onnx.formulas.covariances import GraphCovariance
from laplacebridge.onnx.formulas.nodes import Value
from laplacebridge.onnx.formulas.special import log1p, logistic_normal_mean

# The runner-up counts as this far below the largest class if it is farther: beside that
# class nothing is left of it, while weights and their squares stay within float32.
_FARTHEST_RUNNER_UP = -30.0


class GraphLogOdds(NamedTuple):
    """Each class against all others: normal approximation of its log-odds."""

    mean: Value
    variance: Value


class Classes(NamedTuple):
    """Logits relative to the largest, of all classes or of those that lead."""

    below: Value  # y = μ − max μ ≤ 0
    others: Value  # the same, but far below for the largest class
    second: Value  # of the runner-up
    top: Value  # the largest class, (B, 1)
    zero: Value  # of every row, (B, 1)

    @classmethod
    def of(cls, below: Value, rest: "Rest | None" = None) -> "Classes":
        """From logits relative to the largest.

        Args:
            below: These.
            rest: All others, if these lead.
        """
        top = below.argmax()
        zero = below.at(top)
        others = below.with_at(top, zero + FAR_BELOW)
        second = others.max()
        second = second if rest is None else second.at_least(rest.below.max())
        return cls(below, others, second, top, zero)


class Sums(NamedTuple):
    """Sums over all classes but the largest."""

    mass: Value
    tilt: Value
    noise: Value
    squared_noise: Value

    @classmethod
    def of(cls, others: Value, tilted: Value, variance: Value) -> "Sums":
        """With these weights."""
        noisy = others * variance
        return cls(others.sum(), tilted.sum(), noisy.sum(), (noisy * others).sum())

    def plus(self, more: "Sums") -> "Sums":
        """Of more classes."""
        return Sums(*(some + other for some, other in zip(self, more)))


class Rest(NamedTuple):
    """Classes that do not lead, of which sums are enough; see `bridges.log_odds.Rest`."""

    below: Value  # relative to the largest; far below where a class leads
    variance: Value  # of all classes


def tempered(below: Value, classes: Classes, beta: Value) -> tuple[Value, Value]:
    """Weights exp(βy) relative to the largest class, and their logarithms.

    Args:
        below: Logits y relative to the largest, far below where there is no weight.
        classes: Whose runner-up they are held near.
        beta: The inverse temperature.
    """
    nearer = (classes.second * beta).at_least(_FARTHEST_RUNNER_UP)
    log_others = (below - classes.second) * beta + nearer
    return log_others.exp(), log_others


def log_odds(mean: Value, covariance: GraphCovariance) -> GraphLogOdds:
    """Mean and variance of every class's log-odds against the rest.

    Args:
        mean: Means of the logits, shape (B, K).
        covariance: Their covariance, from `modulo_shift`.
    """
    number = covariance.num_classes
    classes = Classes.of(mean - mean.max())
    beta = inverse_temperature(classes, covariance.effective_variance(), number)
    return against_rest(classes, covariance, beta)


def _grown(spread: Value, entropy: Value) -> Value:
    """1 + (Q/H)², whose root of the fourth order is the temperature."""
    return (spread / (entropy + 0.5 * SMALLEST_PROBABILITY)).at_most(1e9).square() + 1.0


def inverse_temperature(
    classes: Classes, effective: Value, number: int, rest: Rest | None = None
) -> Value:
    """The inverse temperature, by one step from that of uniform weights; see
    `bridges.log_odds.boltzmann`.

    Args:
        classes: All, or those that lead.
        effective: Their variances.
        number: K.
        rest: All others, if these lead.
    """
    every = effective if rest is None else rest.variance
    scale = (1 - 1 / number) / (math.log(number) + 0.5 * SMALLEST_PROBABILITY)
    uniformly_grown = (every.mean() * scale).at_most(1e9).square() + 1.0
    uniform = uniformly_grown.apply("Pow", -0.25)
    others = ((classes.others - classes.second) * uniform).exp()
    runner_up = (classes.second * uniform).exp()
    sums = Sums.of(others, others * classes.below, effective)
    if rest is not None:
        of_rest = ((rest.below - classes.second) * uniform).exp()
        sums = sums.plus(Sums.of(of_rest, of_rest * rest.below, rest.variance))
    mass = sums.mass * runner_up
    share = (mass + 1.0).reciprocal()
    quadratic = sums.squared_noise * runner_up * runner_up * share
    own = effective.at(classes.top)
    spread = share * (sums.noise * runner_up - quadratic + mass * share * own)
    entropy = log1p(mass) - uniform * runner_up * sums.tilt * share
    return (uniformly_grown * _grown(spread, entropy)).apply("Pow", -0.125)


def against_rest(
    classes: Classes, covariance: GraphCovariance, beta: Value, more: Sums | None = None
) -> GraphLogOdds:
    """Sums over the rest of every class, with weights exp(βy). What the largest class adds
    to the rest of the others is written as a difference that is zero for itself, so that
    its own rest keeps all digits.

    Args:
        classes: All, or those that lead.
        covariance: Theirs.
        beta: The inverse temperature.
        more: Sums over all others, if these lead; they are independent then.
    """
    variance, top = covariance.diagonal(), classes.top
    log_runner_up = classes.second * beta
    nearer = log_runner_up.at_least(_FARTHEST_RUNNER_UP)
    others, log_others = tempered(classes.others, classes, beta)
    weight = others.with_at(top, classes.zero + 1.0)
    tilted = others * log_others
    sums = Sums.of(others, tilted, variance)
    sums = sums if more is None else sums.plus(more)
    noisy, own = weight * variance, variance.at(top)
    mass = sums.mass + (1.0 - weight)
    share = mass.reciprocal()
    average = (sums.noise + (own - noisy)) * share
    if covariance.independent:
        quadratic = (sums.squared_noise + (own - weight * noisy)) * share * share
        own_variance = variance + quadratic
    else:
        product, with_top, squared = covariance.with_weights(others, top)
        # with the rest of each class, twice
        cross = (product - noisy).with_at(top, with_top)
        cross = cross + cross
        without = (with_top + with_top + own) - weight * (cross + noisy)
        without = without.with_at(top, classes.zero)
        quadratic = (squared + without) * share * share
        own_variance = (variance - cross * share + quadratic).at_least(0.0)
    log_mass = mass.log()
    entropy = (log_mass - (sums.tilt - tilted) * share).at_least(0.0)
    spread = (average - quadratic).at_least(0.0)
    shift, extra = _frozen(spread, entropy, beta)
    log_mass = log_mass.with_at(top, log_mass.at(top) - (nearer - log_runner_up))
    return GraphLogOdds(classes.below - log_mass / beta - shift, own_variance + extra)


def _frozen(spread: Value, entropy: Value, beta: Value) -> tuple[Value, Value]:
    frozen = (1.0 - beta) * (FREEZING / 1.2)
    kept = (1.0 - frozen * (1.2 / 0.4) / (entropy + 3.0)).at_least(0.0)
    return spread * kept * (beta * 0.5), spread * frozen / (entropy + 1.25)


def expected_sigmoid(odds: GraphLogOdds) -> Value:
    """E σ(x_k) for every class. Only the largest class has positive log-odds.

    Args:
        odds: From `log_odds`.
    """
    expected = logistic_normal_mean(odds.mean.abs(), odds.variance)
    smaller = expected.mixed * expected.log_factor.exp()
    return (odds.mean > 0.0).where(1.0 - smaller, smaller)


def one_vs_rest_probabilities(odds: GraphLogOdds) -> Value:
    """The same, normalised.

    Args:
        odds: From `log_odds`.
    """
    return normalised(expected_sigmoid(odds))


def normalised(expected: Value) -> Value:
    """Rows that sum to one, in which no class has lost all of its probability.

    Args:
        expected: Not negative, shape (B, K).
    """
    kept = expected + SMALLEST_PROBABILITY
    return kept / kept.sum()
