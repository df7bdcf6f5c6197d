"""The race in graphs: `bridges/race.py` and `bridges/gumbel.py` once more."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from laplacebridge.bridges import gumbel, race
from laplacebridge.onnx.formulas.nodes import Value, joined
from laplacebridge.onnx.formulas.one_vs_rest import normalised


class Runners(NamedTuple):
    """The polynomials of a batch of runners."""

    mean: Value
    scale: Value
    offset: Value
    coefficients: list[Value]
    tangent: Value

    @classmethod
    def of(cls, mean: Value, variance: Value) -> "Runners":
        """Evaluates the table once for every class.

        Args:
            mean: Means of the logits.
            variance: Their variances.
        """
        low = 0.577 - (variance * 39.0 + 11.56).sqrt()
        high = (variance * 30.0 + 225.0).sqrt()
        half_width, middle = (high - low) * 0.5, (high + low) * 0.5
        table = gumbel._TABLE._values
        # ν = 2s/(s + 4) − 1 is the cosine of 2 arctan(2/√s), and its Chebyshev polynomials
        # are cosines of multiples of that angle
        angle = (2.0 / variance.sqrt().sqrt()).apply("Atan") * 2.0
        degrees = mean.graph.constant(np.arange(table.shape[1])[:, None, None])
        basis = (angle * degrees).apply("Cos")
        flat = mean.graph.constant(table) @ basis.reshaped(table.shape[1], -1)
        shape = joined(
            [mean.graph.constant([len(table)], "int64"), mean.apply("Shape", dtype="int64")], 0
        )
        polynomial = flat.apply("Reshape", shape) * (variance / (variance + 1.0))
        slope = (variance + 1.0).sqrt().reciprocal()
        first, second, *rest = polynomial.parts(len(table), 0)
        coefficients = [first + slope * middle, second + slope * half_width, *rest]
        powers = mean.graph.constant(np.arange(len(table))[:, None, None])
        tangent = (polynomial * powers).sum(0) + slope * half_width
        inverse = half_width.reciprocal()
        return cls(mean, inverse, -(middle * inverse), coefficients, tangent)

    def hazards(self, times: Value) -> Value:
        """φ of every runner at some times: shape (J, B, K).

        Args:
            times: Shape (J, B).
        """
        tau = (times.unsqueezed(-1) - self.mean) * self.scale + self.offset
        inside = tau.at_most(1.0)
        value = inside * self.coefficients[-1] + self.coefficients[-2]
        for coefficient in reversed(self.coefficients[:-2]):
            value = value * inside + coefficient
        return (-(value + self.tangent * (tau - inside))).exp()


def race_probabilities(mean: Value, variance: Value, num_classes: int) -> Value:
    """E softmax(z) for independent logits.

    Args:
        mean: Means of the logits, shape (B, K).
        variance: Their variances.
        num_classes: K.
    """
    mean = mean - mean.max()
    variance = variance.at_most(largest_variance(mean, variance))
    runners = Runners.of(mean, variance)

    def levels_at(times: Value) -> Value:
        return -runners.hazards(times).sum(-1, keepdims=False).log()

    start, end = start_and_end(mean, variance, num_classes)
    hazards = runners.hazards(times_between(start, end, levels_at))
    weights = level_weights(-hazards.sum(-1, keepdims=False).log())
    expected = (hazards * weights.unsqueezed(-1)).sum(0, keepdims=False)
    return normalised(expected / expected.sum())


def level_weights(levels: Value) -> Value:
    """What hazards at the nodes are multiplied by; see `bridges.race.level_weights`.

    Args:
        levels: Of the nodes, shape (J, B).
    """
    differences = levels.graph.constant(race._DIFFERENCES[race.NUM_NODES]._values)
    spacings = (differences @ levels).at_least(0.0)
    return (-levels - (-levels).exp()).exp() * spacings


def largest_variance(mean: Value, variance: Value) -> Value:
    """What bounds the widest runner; see `bridges.race.largest_variance`.

    Args:
        mean: Means of the logits, at most zero.
        variance: Their variances.
    """
    number = mean.graph.constant([2], "int64")

    def two_largest(value: Value) -> tuple[Value, Value]:
        names = mean.graph.call("TopK", value, number, gives=2, axis=-1, largest=1, sorted=1)
        return value.like(names[0]), value.like(names[1], "int64")

    largest, places = two_largest(variance)
    second, _ = two_largest(mean)
    distance = second.slice(1, 2, -1).at_most(mean.at(places.slice(0, 1, -1)))
    return (distance.square() + largest.slice(1, 2, -1) + 1.0) * race.WIDEST


def start_and_end(mean: Value, variance: Value, num_classes: int) -> tuple[Value, Value]:
    """Times between which nodes are searched, shape (B,).

    Args:
        mean: Means of the logits.
        variance: Their variances.
        num_classes: How many share the highest level.
    """
    reach = race.HIGHEST_LEVEL + math.log(num_classes)
    low = 0.577 - (variance * 39.0 + 11.56).sqrt()
    high = (variance * (2 * reach) + reach * reach).sqrt()
    return (mean + low).max(keepdims=False), (mean + high).max(keepdims=False)


def times_between(start: Value, end: Value, levels_at: Callable[[Value], Value]) -> Value:
    """Times of the nodes, shape (J, B).

    Args:
        start: Before the lowest level.
        end: After the highest.
        levels_at: Levels at some times.
    """
    graph, searched = start.graph, race.NUM_SEARCH_NODES

    def times(grades: Value) -> Value:
        return start + (grades.exp() - 1.0) * race.GRADE_UNIT

    steps = graph.constant(np.linspace(0, 1, searched)[:, None])
    grades = steps * ((end - start) * (1 / race.GRADE_UNIT) + 1.0).log()
    levels = levels_at(times(grades))
    refined = _place(searched, levels, grades, searched)
    both = joined([grades, refined], 0)
    number = graph.constant([2 * searched], "int64")
    names = graph.call("TopK", both, number, gives=2, axis=0, largest=0, sorted=1)
    grades, order = both.like(names[0]), both.like(names[1], "int64")
    levels = joined([levels, levels_at(times(refined))], 0).at(order, axis=0)
    return times(_place(race.NUM_NODES, levels, grades, 2 * searched))


def _place(num_nodes: int, levels: Value, grades: Value, number: int) -> Value:
    """Grades of nodes, from levels and grades of a number of places."""
    graph = levels.graph
    lowest, highest = race.LOWEST_LEVEL, race.HIGHEST_LEVEL
    ends = _interpolate(graph.constant([[lowest], [highest]]), levels, grades, number)
    first, last = ends.parts(2, 0)
    by_grade = (grades - first) / (last - first).at_least(1e-6)
    by_level = (levels - lowest) * (1 / (highest - lowest))
    wanted = np.linspace(0, 1 + race.GRADE_SHARE, num_nodes)[:, None]
    places = by_level + by_grade * race.GRADE_SHARE
    return _interpolate(graph.constant(wanted), places, grades, number)


def _interpolate(wanted: Value, places: Value, values: Value, number: int) -> Value:
    """Monotone cubic interpolation of values (N, B) as a function of places, at the same
    points of every column.
    """
    many = 2**31

    def ahead(value: Value) -> tuple[Value, Value]:
        return value.slice(0, -1, 0), value.slice(1, many, 0)

    (here, there), (low, high) = ahead(places), ahead(values)
    width = (there - here).at_least(1e-6)
    rises = high - low
    secant = rises / width
    (left, right), (before_width, after_width) = ahead(secant), ahead(width)
    before, after = after_width * 2.0 + before_width, after_width + before_width * 2.0
    both = left * right
    harmonic = (before + after) * both / (before * right + after * left)
    middle = (both > 0.0).where(harmonic, 0.0)
    slope = joined([secant.slice(0, 1, 0), middle, secant.slice(-1, many, 0)], 0)
    leave_all, arrive_all = ahead(slope)
    # how many places lie below each wanted point: comparisons instead of a search
    below = (places.unsqueezed(1) < wanted).cast("float32").sum(0, keepdims=False)
    index = (below - 1.0).between(0.0, number - 2.0).cast("int64")
    step = width.at(index, 0)
    t = ((wanted - here.at(index, 0)) / step).between(0.0, 1.0)
    start, rise = low.at(index, 0), rises.at(index, 0)
    leave, arrive = leave_all.at(index, 0) * step, arrive_all.at(index, 0) * step
    inner = t * (leave + arrive - rise * 2.0) + (rise * 3.0 - leave * 2.0 - arrive)
    return start + t * (leave + t * inner)
