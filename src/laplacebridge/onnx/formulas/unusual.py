"""The score of unusual inputs in graphs: `laplace/unusual.py` and
`laplace/feature_distance.py` once more.
"""

import math
from functools import cached_property

import numpy as np
from torch import Tensor

from laplacebridge.laplace import unusual as eager
from laplacebridge.laplace.feature_distance import (
    FAR,
    SMALLEST_LENGTH,
    SMALLEST_SHARE,
    FeatureDistances,
)
from laplacebridge.laplace.whitened_distance import (
    SMALLEST_NORM,
    WhitenedDistance,
    WhitenedDistances,
)
from laplacebridge.onnx.formulas.nodes import Value, joined
from laplacebridge.unusual import require_held_out


class GraphUnusual:
    """What a graph says of how unusual inputs are; each part is written when asked for.

    Args:
        score: Of the classifier.
        features: Inputs of the head, shape (B, D).
        logits: What it makes of them.
    """

    def __init__(self, score: eager.UnusualScore, features: Value, logits: Value) -> None:
        self._score = score
        self._logits = logits
        distances = score.distances
        self._distances: GraphDistances | GraphWhitened = (
            GraphWhitened(distances, features)
            if isinstance(distances, WhitenedDistances)
            else GraphDistances(distances, features)
        )

    def beyond(self) -> Value | None:
        """How much farther each row lies than held-out data; None where too few of them
        tell.
        """
        if len(self._score.reference) < eager.FEWEST_FOR_DISTANCE:
            return None
        (_, _, mean), (_, _, deviation) = self._score.usual.tolist()
        ordinary = mean + eager.ORDINARY_DEVIATIONS * deviation
        return (self._distances.plain - ordinary).at_least(0.0)

    def score(self) -> Value:
        """The score, shape (B, 1)."""
        parts = joined(
            [-self._logits.log_sum_exp(), self._distances.polar, self._distances.plain], -1
        )
        graph, (means, deviations) = parts.graph, _numpy(self._score.usual)
        standardised = (parts - graph.constant(means)) / graph.constant(deviations)
        return _surprise(standardised - graph.constant(_numpy(self._score.held_back))).sum()

    def quantile(self) -> Value:
        """Which share of held-out data each row is more unusual than, shape (B, 1)."""
        require_held_out(self._score.reference)
        score = self.score()
        reference = score.graph.array(_numpy(self._score.reference), "held_out_scores", exact=True)
        below = (reference < score).cast("float32").sum()
        return below * (1 / (len(self._score.reference) + 1))


class GraphDistances:
    """log d² of the features and of their polar form, each of shape (B, 1).

    Args:
        distances: Of the score.
        features: Shape (B, D).
    """

    def __init__(self, distances: FeatureDistances, features: Value) -> None:
        self._of = distances
        graph = features.graph
        most = float(distances.scale.max())
        scaled = (features - graph.array(_numpy(distances.center), "center")) * graph.array(
            _numpy(distances.scale) / most, "scale"
        )
        self._far = (scaled.abs().max() * (most / FAR)).at_least(1.0)
        scaled = scaled * (most / self._far)
        self._along = scaled @ graph.array(_numpy(distances.basis), "directions")
        self._outside = (scaled.square().sum() - self._along.square().sum()).at_least(0.0)
        self._least = SMALLEST_SHARE * distances.num_features

    @cached_property
    def _log_far(self) -> Value:
        return self._far.log()

    @cached_property
    def plain(self) -> Value:
        """Of the features."""
        far, of, graph = self._far, self._of, self._along.graph
        squares = graph.constant(_numpy(of.place_squares)) / far / far
        plain = self._nearest(
            self._along * graph.constant(_numpy(of.roots)),
            of.places,
            "class_places",
            squares,
            2.0 / far,
        )
        plain = plain + self._outside * float(of.rest[0])
        return plain.at_least(self._least / far / far).log() + self._log_far * 2.0

    @cached_property
    def polar(self) -> Value:
        """Of their polar form."""
        far, of, graph = self._far, self._of, self._along.graph
        usual = float(of.length)
        whole = self._along + graph.constant(_numpy(of.offset)) / far
        length = (self._outside + whole.square().sum()).sqrt()
        length = length.at_least(SMALLEST_LENGTH * usual / far)
        longer = length.log() + self._log_far - graph.constant(_numpy(of.log_lengths))
        squares = longer.square() / graph.constant(_numpy(of.length_variances))
        squares = squares + graph.constant(_numpy(of.direction_squares))
        unit = usual / length
        rows = (whole * unit - graph.constant(_numpy(of.middle))) * graph.constant(_numpy(of.roots))
        polar = self._nearest(rows, of.directions, "class_directions", squares, 2.0)
        polar = polar + self._outside * unit * unit * float(of.rest[0])
        return polar.at_least(self._least).log()

    @staticmethod
    def _nearest(
        rows: Value, means: Tensor, name: str, squares: Value, twice: Value | float
    ) -> Value:
        across = rows.times_transposed(rows.graph.array(_numpy(means), name))
        return (squares - across * twice).min() + rows.square().sum()


class GraphWhitened:
    """The same, of classifiers whose files have a whitening for each.

    Args:
        distances: Of the score.
        features: Shape (B, D).
    """

    def __init__(self, distances: WhitenedDistances, features: Value) -> None:
        self._of = distances
        self._features = features

    @cached_property
    def plain(self) -> Value:
        """Of the features."""
        return _whitened(self._of.distance, self._features, "distance")

    @cached_property
    def polar(self) -> Value:
        """Of their polar form."""
        features = self._features
        largest = features.abs().max().at_least(SMALLEST_NORM)
        scaled = features / largest
        length = scaled.square().sum().sqrt().at_least(SMALLEST_NORM)
        form = joined([scaled / length, largest.log() + length.log()], -1)
        return _whitened(self._of.polar_distance, form, "polar")


def _numpy(tensor: Tensor) -> np.ndarray:
    array: np.ndarray = tensor.detach().cpu().double().numpy()
    return array


def _whitened(distance: WhitenedDistance, features: Value, name: str) -> Value:
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
