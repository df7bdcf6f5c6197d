"""Several labels at once in graphs: `multi_label/` once more, a logit for every label."""

import math
from functools import cached_property

import numpy as np

from laplacebridge.laplace.head_posteriors.base import HeadPosterior
from laplacebridge.laplace.head_posteriors.label_blocks import LabelBlocksPosterior
from laplacebridge.laplace.posterior import FADING_VARIANCE, FARTHEST
from laplacebridge.onnx.formulas import marginals, uncertainty
from laplacebridge.onnx.formulas.covariances import LARGEST_VARIANCE
from laplacebridge.onnx.formulas.gaussians import _covariance, _numpy, _split_bias
from laplacebridge.onnx.formulas.nodes import Value, joined
from laplacebridge.onnx.formulas.precision import log_precision
from laplacebridge.onnx.formulas.special import erfc

# Nodes of both trapezoidal rules of `multi_label.logistic`, as many as float32 can tell.
_SMALL_VARIANCE = 4.0
_NORMAL_STEP, _NORMAL_END = 0.5, 10.0
_LOGISTIC_STEP, _LOGISTIC_END = 0.75, 45.0


class GraphLabels:
    """Predictions of K labels in a graph; each part is written when it is asked for.

    Args:
        posterior: Of a head with a logit for every label.
        features: Inputs of the head, shape (B, D).
        logits: What it makes of them, shape (B, K).
        beyond: How much farther than held-out data each row lies, shape (B, 1).
    """

    def __init__(
        self, posterior: HeadPosterior, features: Value, logits: Value, beyond: Value | None
    ) -> None:
        self._is_apart = posterior.is_apart
        self._num_labels = posterior.num_classes
        if beyond is not None and posterior.is_apart:
            nearer = ((FARTHEST - beyond).at_most(0.0) * 0.5).exp()
            features, logits = features * nearer, logits * nearer
        mean = logits * (1 / float(posterior.temperature))
        # bounded, because nothing times a square that left the range of float32 is no number
        fitted = _variance(posterior, features) * float(posterior.variance_scale)
        fitted = fitted.at_most(2 * LARGEST_VARIANCE)
        square = mean.square().at_most(2 * LARGEST_VARIANCE)
        wide = fitted + square * float(posterior.temperature_variance)
        # of the difference of two logits, each with that much
        wide = wide + 2 * float(posterior.extra_variance)
        narrow = wide
        if posterior.is_apart:
            share = float(posterior.mean_share)
            spread = share * float(posterior.temperature_variance)
            narrow = fitted * share + square * spread
            if beyond is not None:
                mean = mean * (beyond * -0.25).exp()
                cooling = (beyond * -0.5).exp()
                growing = (beyond.at_most(FARTHEST).exp() - 1.0) * (2 * FADING_VARIANCE)
                wide, narrow = wide * cooling + growing, narrow * cooling + growing
        self._log_odds = mean
        self.variance = wide.at_most(2 * LARGEST_VARIANCE)
        self._narrow = narrow.at_most(2 * LARGEST_VARIANCE)

    @cached_property
    def _chances(self) -> tuple[Value, Value]:
        """Of yes and of no, the smaller one with digits of its own."""
        smaller = logistic_normal_mean(-self._log_odds.abs(), self._narrow)
        larger, is_positive = 1.0 - smaller, self._log_odds > 0.0
        return is_positive.where(larger, smaller), is_positive.where(smaller, larger)

    @cached_property
    def _logs(self) -> tuple[Value, Value]:
        """Logarithms of both, down to the smallest number of their type."""
        yes, no = (chance.at_least(marginals.SMALLEST_NORMAL).log() for chance in self._chances)
        return yes, no

    @property
    def mean(self) -> Value:
        """How probable it is that each label applies, shape (B, K)."""
        return self._chances[0]

    @property
    def applies(self) -> Value:
        """Which labels are more probable than not, shape (B, K)."""
        return self._chances[0] > self._chances[1]

    @cached_property
    def spread(self) -> Value:
        """Variances of the log-odds for intervals, which widen with the log-odds where the
        width is another Gaussian's, shape (B, K).
        """
        if not self._is_apart:
            return self.variance
        yes, no = self._logs
        return marginals.grown(self.variance, yes - no)

    @cached_property
    def _both(self) -> tuple[Value, Value, Value]:
        """No and yes as two classes, the others of each, and the logarithms of both: a row
        for every label of every example, shape (B K, 2).
        """
        yes, no = self._chances
        log_yes, log_no = self._logs
        return _rows(no, yes), _rows(yes, no), _rows(log_no, log_yes)

    @cached_property
    def total(self) -> Value:
        """The entropy of the mean, shape (B, K)."""
        return uncertainty.entropy_of_mean(*self._both).reshaped(-1, self._num_labels)

    @cached_property
    def epistemic(self) -> Value:
        """The mutual information of each label and the network, shape (B, K)."""
        mean, others, log_mean = self._both
        log_total = log_precision(mean, others, log_mean.min(), _rows(self.variance, self.variance))
        information = uncertainty.mutual_information(log_mean, log_total, 2)
        return information.reshaped(-1, self._num_labels)

    @cached_property
    def aleatoric(self) -> Value:
        """The expected entropy, shape (B, K)."""
        return (self.total - self.epistemic).at_least(0.0)

    def interval(self, level: float) -> tuple[Value, Value]:
        """Bounds of the probability of every label, shape (B, K).

        Args:
            level: Of the interval.
        """
        return marginals.interval(*self._logs, self.spread, level)


def _rows(first: Value, second: Value) -> Value:
    """Two values of every label as a row of their own."""
    return joined([first.unsqueezed(-1), second.unsqueezed(-1)], -1).reshaped(-1, 2)


def joint_logit(logits: Value) -> Value:
    """Σ_k log(1 + exp z_k), shape (B, 1); see `feature_statistics.joint_logit`.

    Args:
        logits: Shape (B, K).
    """
    return logits.apply("Softplus").sum()


def logistic_normal_mean(mean: Value, variance: Value) -> Value:
    """E σ(x) for x ~ N(mean, variance) with mean ≤ 0, to the digits of float32.

    Args:
        mean: Not positive, shape (B, K).
        variance: Of the same shape.
    """
    is_small = variance < _SMALL_VARIANCE
    narrow = _over_normal(mean, variance.at_most(_SMALL_VARIANCE))
    return is_small.where(narrow, _over_logistic(mean, variance.at_least(_SMALL_VARIANCE)))


def _over_normal(mean: Value, variance: Value) -> Value:
    nodes = np.arange(-_NORMAL_END, _NORMAL_END + _NORMAL_STEP / 2, _NORMAL_STEP)
    weights = np.exp(-(nodes**2) / 2) * _NORMAL_STEP / math.sqrt(2 * math.pi)
    points = mean.unsqueezed(-1) + variance.sqrt().unsqueezed(-1) * mean.graph.constant(nodes)
    # not Sigmoid, which runtimes compute without digits in its tail
    return _summed(((-points).exp() + 1.0).reciprocal(), weights)


def _over_logistic(mean: Value, variance: Value) -> Value:
    nodes = np.arange(-_LOGISTIC_END, _LOGISTIC_END + _LOGISTIC_STEP / 2, _LOGISTIC_STEP)
    weights = np.exp(-np.abs(nodes)) / (1 + np.exp(-np.abs(nodes))) ** 2 * (_LOGISTIC_STEP / 2)
    # far in the tail, where e^{m + v/2} comes out of the integral, as in torch
    factor = variance * 0.5 + mean
    center = (factor < 0.0).where(-(mean + variance), mean).unsqueezed(-1)
    deviation = (variance * 2.0).sqrt().unsqueezed(-1)
    below = erfc((mean.graph.constant(nodes) - center) / deviation)
    return _summed(below, weights) * factor.at_most(0.0).exp()


def _summed(terms: Value, weights: np.ndarray) -> Value:
    return (terms @ terms.graph.constant(weights[:, None])).squeezed(-1)


def _variance(posterior: HeadPosterior, features: Value) -> Value:
    """Variances of the logits as they were fitted, shape (B, K)."""
    if not isinstance(posterior, LabelBlocksPosterior):
        return _covariance(posterior, features).diagonal()
    graph = features.graph
    vectors, constant = _split_bias(graph, posterior, posterior.vectors, "vectors", axis=1)
    assert vectors is not None  # noqa: S101  (weights are always there)
    along = features @ vectors  # (K, B, P)
    along = along if constant is None else along + constant
    variances = graph.array(_numpy(posterior.variances)[:, None], "variances", exact=True)
    return (along.square() * variances).sum(keepdims=False).transposed(1, 0)
