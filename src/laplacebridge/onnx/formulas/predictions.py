"""From Gaussians over logits to everything that a prediction says, each part written
when it is asked for.
"""

from collections.abc import Callable, Sequence
from functools import cached_property

from laplacebridge.bridges import Bridge, name_of
from laplacebridge.errors import InputError
from laplacebridge.onnx.formulas import marginals, paper, uncertainty
from laplacebridge.onnx.formulas.gaussians import GraphGaussian
from laplacebridge.onnx.formulas.leading import race_mean
from laplacebridge.onnx.formulas.leading_odds import LeadingOdds, leading_odds
from laplacebridge.onnx.formulas.leading_odds import probabilities as led_probabilities
from laplacebridge.onnx.formulas.leading_odds import variances as led_variances
from laplacebridge.onnx.formulas.nodes import Value, joined
from laplacebridge.onnx.formulas.one_vs_rest import (
    GraphLogOdds,
    log_odds,
    one_vs_rest_probabilities,
)
from laplacebridge.onnx.formulas.precision import log_precision
from laplacebridge.onnx.formulas.special import one_minus

# Bridges that give log α; the others give a mean first.
_CONCENTRATIONS: dict[str, Callable[[GraphGaussian], Value]] = {
    "laplace": paper.laplace_bridge,
    "laplace-norm": paper.laplace_bridge_norm,
    "laplace-raw": paper.laplace_bridge_raw,
    "delta": paper.delta_bridge,
}
WRITABLE = ("race", "one-vs-rest", *_CONCENTRATIONS)


class GraphPrediction:
    """A prediction in a graph.

    Args:
        wide: The Gaussian that predictions are as wide as.
        narrow: The one whose mean probabilities they have, if that is another.
        bridge: From Gaussians to Dirichlets.

    Raises:
        InputError: If the bridge cannot be written.
    """

    def __init__(self, wide: GraphGaussian, narrow: GraphGaussian | None, bridge: Bridge) -> None:
        name = name_of(bridge) or repr(bridge)
        if name not in WRITABLE:
            raise InputError(
                f"A graph can hold the bridges {', '.join(WRITABLE)}; got {name}. Choose another:"
                " `classifier.with_bridge(lb.race_bridge)`."
            )
        self._wide = wide
        self._narrow = narrow
        self._bridge = name

    @property
    def _is_led(self) -> bool:
        """Whether the leading classes are enough for most rows."""
        return self._wide.mean.graph.num_classes is not None and self._wide.covariance.independent

    @cached_property
    def _both_odds(self) -> Sequence[GraphLogOdds | LeadingOdds]:
        """Log-odds of the wide Gaussian and of the narrow one, computed as one batch; of
        the wide one alone where the mean does not come from odds.
        """
        wide = self._wide.covariance.modulo_shift()
        by_odds = self._bridge == "one-vs-rest" or (self._bridge == "race" and not wide.independent)
        narrow = self._narrow if by_odds and self._narrow is not self._wide else None
        if self._is_led:
            wanted = [self._wide] if narrow is None else [self._wide, narrow]
            variances = [gaussian.covariance.diagonal() for gaussian in wanted]
            led = leading_odds(self._wide.mean, variances, wide.num_classes)
            return [led, led] if narrow is None else led.halves()
        if narrow is None:
            odds = log_odds(self._wide.mean, wide)
            return odds, odds
        stacked = self._wide.covariance.stacked(narrow.covariance).modulo_shift()
        both = log_odds(joined([self._wide.mean, narrow.mean], 0), stacked)
        halves = zip(both.mean.parts(2, 0), both.variance.parts(2, 0))
        return [GraphLogOdds(*half) for half in halves]

    @cached_property
    def mean(self) -> Value:
        """Class probabilities, shape (B, K)."""
        if self._bridge in _CONCENTRATIONS:
            return self._bridged.apply("Softmax", axis=-1)
        narrow = self._narrow or self._wide
        covariance = narrow.covariance.modulo_shift()
        if self._bridge == "race" and covariance.independent:  # which needs no odds
            return race_mean(narrow.mean, covariance, None)
        odds = self._both_odds[1]
        if isinstance(odds, LeadingOdds):
            return led_probabilities(odds, narrow.mean, covariance)
        if self._bridge == "one-vs-rest":
            return one_vs_rest_probabilities(odds)
        return race_mean(narrow.mean, covariance, odds)

    @cached_property
    def _bridged(self) -> Value:
        """log α of bridges that give it, before its width is another's."""
        return _CONCENTRATIONS[self._bridge](self._narrow or self._wide)

    @cached_property
    def others(self) -> Value:
        """1 − m, with digits of its own."""
        return one_minus(self.mean)

    @cached_property
    def variance(self) -> Value:
        """Variances of the log-odds of every class."""
        odds = self._both_odds[0]
        if isinstance(odds, LeadingOdds):
            return led_variances(odds, self._wide.mean, self._wide.covariance)
        return odds.variance

    @cached_property
    def spread(self) -> Value:
        """The same for intervals, which widen with the log-odds where the width is another
        Gaussian's.
        """
        return self._spread(self.log_mean, self.log_others, self.variance)

    def _spread(self, log_mean: Value, log_others: Value, variance: Value) -> Value:
        if self._narrow is None:
            return variance
        return marginals.grown(variance, log_mean - log_others)

    @cached_property
    def log_mean(self) -> Value:
        """log m, down to the smallest number of its type."""
        if self._bridge in _CONCENTRATIONS:
            log_mean = self._bridged.apply("LogSoftmax", axis=-1)
            return log_mean.at_least(marginals.LOG_SMALLEST_NORMAL)
        return self.mean.log()

    @cached_property
    def log_others(self) -> Value:
        """log(1 − m)."""
        return self._log_others(self.others)

    def _log_others(self, others: Value) -> Value:
        if self._bridge in _CONCENTRATIONS:
            return others.at_least(marginals.SMALLEST_NORMAL).log()
        return others.log()

    @cached_property
    def log_total(self) -> Value:
        """log Σ α, shape (B, 1)."""
        if self._bridge in _CONCENTRATIONS and self._narrow is None:
            return self._bridged.log_sum_exp()
        smaller = self.log_mean.at_most(self.log_others)
        return log_precision(self.mean, self.others, smaller, self.variance)

    @cached_property
    def log_concentration(self) -> Value:
        """log α."""
        if self._bridge in _CONCENTRATIONS:
            if self._narrow is None:
                return self._bridged
            return self._bridged.apply("LogSoftmax", axis=-1) + self.log_total
        return self.log_mean + self.log_total

    @cached_property
    def total(self) -> Value:
        """The entropy of the mean, shape (B, 1)."""
        return uncertainty.entropy_of_mean(self.mean, self.others, self.log_mean)

    @cached_property
    def epistemic(self) -> Value:
        """The mutual information of label and network, shape (B, 1)."""
        number = self._wide.covariance.num_classes
        return uncertainty.mutual_information(self.log_mean, self.log_total, number)

    @cached_property
    def aleatoric(self) -> Value:
        """The expected entropy, shape (B, 1)."""
        return (self.total - self.epistemic).at_least(0.0)

    @cached_property
    def msp(self) -> Value:
        """1 − max m, summed from the others, shape (B, 1)."""
        return self.others.min()

    @cached_property
    def label(self) -> Value:
        """The most probable class, shape (B, 1)."""
        return self.mean.argmax()

    def interval(self, level: float) -> tuple[Value, Value]:
        """Bounds of the probability of every class, shape (B, K).

        Args:
            level: Of the interval.
        """
        return marginals.interval(self.log_mean, self.log_others, self.spread, level)

    def top_interval(self, level: float) -> tuple[Value, Value]:
        """Bounds of the probability of the most probable class, shape (B, 1).

        Args:
            level: Of the interval.
        """
        log_mean = self.log_mean.at(self.label)
        log_others = self._log_others(self.others.at(self.label))
        spread = self._spread(log_mean, log_others, self.variance.at(self.label))
        return marginals.interval(log_mean, log_others, spread, level)
