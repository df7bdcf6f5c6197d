"""The score of unusual inputs in graphs: `laplace/unusual.py` and
`laplace/feature_distance.py` once more.
"""

import math

import numpy as np
from torch import Tensor

from laplacebridge.laplace import unusual as eager
from laplacebridge.laplace.feature_distance import FAR, SMALLEST_SHARE, FeatureDistance
from laplacebridge.laplace.feature_statistics import SMALLEST_NORM
from laplacebridge.onnx.formulas.nodes import Value, joined


class GraphUnusual:
    """What a graph says of how unusual inputs are; each part is written when asked for.

    Args:
        score: Of the classifier.
        features: Inputs of the head, shape (B, D).
        logits: What it makes of them.
    """

    def __init__(self, score: eager.UnusualScore, features: Value, logits: Value) -> None:
        self._score = score
        self._features = features
        self._logits = logits
        self._distance: Value | None = None

    def log_distance(self) -> Value:
        """log d² of each row, shape (B, 1)."""
        if self._distance is None:
            self._distance = _distance(self._score.distance, self._features, "distance")
        return self._distance

    def beyond(self) -> Value | None:
        """How much farther each row lies than held-out data; None where too few of them
        tell.
        """
        if len(self._score.reference) < eager.FEWEST_FOR_DISTANCE:
            return None
        (_, _, mean), (_, _, deviation) = self._score.usual.tolist()
        ordinary = mean + eager.ORDINARY_DEVIATIONS * deviation
        return (self.log_distance() - ordinary).at_least(0.0)

    def score(self) -> Value:
        """The score, shape (B, 1)."""
        energy = -_logsumexp(self._logits)
        polar = _distance(self._score.polar_distance, _polar_form(self._features), "polar")
        parts = joined([energy, polar, self.log_distance()], -1)
        graph, (means, deviations) = parts.graph, _numpy(self._score.usual)
        standardised = (parts - graph.constant(means)) / graph.constant(deviations)
        return _surprise(standardised - graph.constant(eager.HELD_BACK)).sum()

    def quantile(self) -> Value:
        """Which share of held-out data each row is more unusual than, shape (B, 1)."""
        reference = self.score().graph.array(
            _numpy(self._score.reference), "held_out_scores", exact=True
        )
        below = (reference < self.score()).cast("float32").sum()
        return below * (1 / (len(self._score.reference) + 1))


def _numpy(tensor: Tensor) -> np.ndarray:
    array: np.ndarray = tensor.detach().cpu().double().numpy()
    return array


def _logsumexp(logits: Value) -> Value:
    largest = logits.max()
    return (logits - largest).exp().sum().log() + largest


def _polar_form(features: Value) -> Value:
    largest = features.abs().max().at_least(SMALLEST_NORM)
    scaled = features / largest
    length = scaled.square().sum().sqrt().at_least(SMALLEST_NORM)
    return joined([scaled / length, largest.log() + length.log()], -1)


def _distance(distance: FeatureDistance, features: Value, name: str) -> Value:
    graph = features.graph
    center = graph.array(_numpy(distance.center), f"{name}_center")
    apart = features - center
    far = (apart.abs().max() * (1 / FAR)).at_least(1.0)
    places = (apart / far) @ graph.array(_numpy(distance.whitening), f"{name}_whitening")
    scale = places.abs().max().at_least(1.0)
    places, scale = places / scale, scale * far
    means = graph.array(_numpy(distance.means), f"{name}_means")
    across = places.times_transposed(means) / scale
    squares = graph.constant(_numpy(distance.means.square().sum(-1))) / scale / scale
    nearest = (squares - across * 2.0).min() + places.square().sum()
    least = (SMALLEST_SHARE * distance.num_features) / scale / scale
    return nearest.at_least(least).log() + scale.log() * 2.0


def _surprise(deviations: Value) -> Value:
    size = deviations.abs().at_most(eager.LARGEST_DEVIATION)
    square = size.square()
    beyond = (square + math.log(2 * math.pi)) * 0.5
    beyond = beyond + ((size + (square + 8 / math.pi).sqrt()) * 0.5).log()
    return (deviations > 0.0).where(beyond, -(1.0 - (-beyond).exp()).log())
