"""Figures for Prometheus: requests and their times, batches, decisions, and scores, so
that drift is visible.
"""

import collections
from collections.abc import Callable, Mapping

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1024)
# Held-out data are spread evenly over these: what is not has drifted.
_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999)
_MODEL = ("model", "version")


class Metrics:
    """What a server counts. Labels are names of models that exist, so that no client
    can make more of them.

    Args:
        registry: Where figures are kept; by default a registry of their own.

    Example:
        >>> metrics = Metrics()
        >>> metrics.requests.labels("digits", "1", "200").inc()
        >>> b'laplacebridge_requests_total{code="200",model="digits",version="1"} 1.0' in metrics.text()
        True
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        registry = self.registry = CollectorRegistry() if registry is None else registry
        self.requests = Counter(
            "laplacebridge_requests", "Requests to infer", (*_MODEL, "code"), registry=registry
        )
        self.seconds = Histogram(
            "laplacebridge_request_seconds",
            "From the first byte of a request to infer to its answer",
            _MODEL,
            buckets=_SECONDS,
            registry=registry,
        )
        self.batch_rows = Histogram(
            "laplacebridge_batch_rows",
            "Examples in a batch",
            _MODEL,
            buckets=_ROWS,
            registry=registry,
        )
        self.batch_requests = Histogram(
            "laplacebridge_batch_requests",
            "Requests in a batch",
            _MODEL,
            buckets=_ROWS,
            registry=registry,
        )
        self.waiting = Gauge(
            "laplacebridge_waiting_requests", "Requests in the queue", _MODEL, registry=registry
        )
        self.decisions = Counter(
            "laplacebridge_decisions",
            "Examples by what was decided, and why they were not answered",
            (*_MODEL, "decision", "reason"),
            registry=registry,
        )
        self.probability = _shares(
            "laplacebridge_probability", "Probability of the predicted class", registry
        )
        self.ood_quantile = _shares(
            "laplacebridge_ood_quantile",
            "Share of held-out data that an input is more unusual than; even without drift",
            registry,
        )

        self._noted: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def note(self, model: str, version: str, status: int, seconds: float) -> None:
        """Counts a request to infer.

        Args:
            model: The model's name.
            version: Its version.
            status: Of the answer.
            seconds: How long it took.
        """
        key = model, version, status
        if key not in self._noted:  # finding a figure by its labels takes longer than counting
            count = self.requests.labels(model, version, str(status))
            self._noted[key] = count, self.seconds.labels(model, version)
        count, times = self._noted[key]
        count.inc()
        times.observe(seconds)

    def observer(self, model: str, version: str) -> Callable[[int, Mapping[str, np.ndarray]], None]:
        """What notes the batches of a model.

        Args:
            model: Its name.
            version: Its version.
        """
        rows, requests = (
            metric.labels(model, version) for metric in (self.batch_rows, self.batch_requests)
        )
        shares = {
            name: metric.labels(model, version)
            for name, metric in (
                ("probability", self.probability),
                ("ood_quantile", self.ood_quantile),
            )
        }

        def observe(num_requests: int, answers: Mapping[str, np.ndarray]) -> None:
            requests.observe(num_requests)
            rows.observe(len(next(iter(answers.values()))))
            if "decision" in answers:
                decisions = answers["decision"].tolist()
                reasons = (
                    answers["reason"].tolist() if "reason" in answers else [""] * len(decisions)
                )
                for pair, count in collections.Counter(zip(decisions, reasons)).items():
                    self.decisions.labels(model, version, *pair).inc(count)
            for name, metric in shares.items():
                for value in answers[name].tolist() if name in answers else ():
                    metric.observe(value)

        return observe

    def text(self) -> bytes:
        """As Prometheus reads it."""
        return generate_latest(self.registry)


def _shares(name: str, meaning: str, registry: CollectorRegistry) -> Histogram:
    return Histogram(name, meaning, _MODEL, buckets=_SHARES, registry=registry)
