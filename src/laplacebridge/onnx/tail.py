"""What a graph makes of its logits, told by numbers: the nodes behind them are run on
logits of all sizes, and what comes out is compared with softmax and its kin.

So no pattern of a softmax is needed, and a layer in between is noticed even if the
user's own batch does not reach the place where it acts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

SOFTMAX, LOG_SOFTMAX, LOGITS, SIGMOID, LABEL, TOP = (
    "softmax",
    "log-softmax",
    "logits",
    "sigmoid",
    "label",
    "top classes",
)
_KEEPING_PLACES = frozenset({
    "ArgMax", "Softmax", "LogSoftmax", "Cast", "Identity", "Squeeze", "Unsqueeze", "Reshape",
})  # fmt: skip
_SAME = 1e-4  # a fitted scale as near to one as this is one
_BASES = (1.0, float(np.log(2)), float(np.log(10)))  # of logarithms, as natural ones
_SURE = 50.0  # so far ahead, the best class has all of the probability


@dataclass(frozen=True)
class Relation:
    """What an output is: `kind` of `scale` · logits; logarithms are natural ones if they are
    multiplied with `base`; of labels, what they call the classes if not by their places.
    """

    kind: str
    scale: float = 1.0
    base: float = 1.0
    labels: tuple[Any, ...] = ()


@dataclass(frozen=True, eq=False)
class Pair:
    """Logits, one row for each prediction, and what the graph made of them."""

    logits: np.ndarray
    output: Any


def relation_of(pairs: Sequence[Pair], tolerance: float) -> Relation | None:
    """What an output is of the logits, if it is the same for all pairs.

    Args:
        pairs: The first has logits of moderate size, so that a scale can be told.
        tolerance: Largest difference of probabilities that is rounding; of logits,
            relative to their range.
    """
    is_binary = pairs[0].logits.shape[1] == 1
    for candidate in (_binary if is_binary else _of_classes)(pairs[0]):
        if candidate.kind == LABEL:
            if _are_labels(pairs):
                return candidate
        elif all(_holds(candidate, pair, tolerance) for pair in pairs):
            return candidate
    return None


def holds_far_away(relation: Relation, pairs: Sequence[Pair], tolerance: float) -> bool:
    """Whether an output is the same of very large logits, as far as it depends on them: a
    bound that no usual logit reaches is noticed there.

    Args:
        relation: What it is of usual ones.
        pairs: Very large logits and outputs.
        tolerance: As for `relation_of`.
    """
    if relation.kind == LOGITS:
        return all(_holds(relation, pair, tolerance) for pair in pairs)
    for pair in pairs:
        if relation.kind not in {SOFTMAX, LOG_SOFTMAX} or pair.logits.shape[1] == 1:
            break  # what is left of these is no more than a label
        scaled = relation.scale * pair.logits
        best = np.sort(scaled, -1)[:, -2:]
        is_sure = best[:, -1] - best[:, 0] > _SURE  # others depend on the last digits
        expected = _softmax(scaled)[is_sure]
        found = list(_as_rows(pair.output, *scaled.shape))
        if relation.kind == LOG_SOFTMAX:
            found = [np.exp(relation.base * rows) for rows in found]
        apart = [float(np.abs(rows[is_sure] - expected).max(initial=0)) for rows in found]
        if min(apart) > tolerance:
            return False
    return True


def is_finite(pair: Pair) -> bool:
    """Whether an output has no NaN and no infinities."""
    array = as_array(pair.output)
    return array is not None and array.dtype.kind in "fiu" and bool(np.isfinite(array).all())


def are_negative_logarithms(pair: Pair) -> bool:
    """Whether an output is −log of probabilities."""
    return any(
        are_probabilities(np.exp(-base * rows))
        for rows in _as_rows(pair.output, *pair.logits.shape)
        for base in _BASES
    )


def is_multilabel(pairs: Sequence[Pair], tolerance: float) -> bool:
    """Whether the output is a sigmoid of each of several logits.

    Args:
        pairs: Logits and outputs.
        tolerance: As for `relation_of`.
    """
    return all(
        any(
            np.abs(rows - _sigmoid(pair.logits)).max() <= tolerance
            for rows in _as_rows(pair.output, *pair.logits.shape)
        )
        for pair in pairs
    )


def are_probabilities(rows: np.ndarray) -> bool:
    """Whether rows are probabilities, and so no logits."""
    return (
        rows.shape[1] > 1
        and bool((rows >= -1e-6).all())
        and bool((np.abs(rows.sum(-1) - 1) < 1e-3).all())
    )


def renames(nodes: Sequence[Any]) -> bool:
    """Whether labels that nodes make may be other than the places of classes.

    Args:
        nodes: What follows the logits.
    """
    return any(node.op_type not in _KEEPING_PLACES for node in nodes)


def as_array(value: Any) -> np.ndarray | None:  # noqa: ANN401
    """An output as an array; None if it is a sequence of something."""
    return None if isinstance(value, list) else np.asarray(value)


def _of_classes(pair: Pair) -> Iterator[Relation]:
    count, classes = pair.logits.shape
    for rows in _as_rows(pair.output, count, classes):
        if are_probabilities(rows):
            with np.errstate(divide="ignore"):
                scale = _slope(pair.logits, np.log(rows))
            if scale is not None:
                yield Relation(SOFTMAX, scale)
        scale = _slope(pair.logits, rows)
        if scale is not None:
            base = _base_of(rows)
            if base is None:
                yield Relation(LOGITS, scale)
            else:
                yield Relation(LOG_SOFTMAX, _rounded(base * scale), base)
    yield Relation(SOFTMAX)  # where probabilities are so sure that they tell no scale
    yield Relation(LABEL)
    yield Relation(TOP)


def _base_of(rows: np.ndarray) -> float | None:
    """What rows are multiplied with to be natural logarithms of probabilities, or None."""
    with np.errstate(over="ignore"):
        sums = [np.exp(base * rows).sum(-1) for base in _BASES]
    apart = [float(np.abs(each - 1).max()) for each in sums]
    best = int(np.argmin(apart))
    return _BASES[best] if rows.shape[1] > 1 and apart[best] < 1e-2 else None


def _binary(pair: Pair) -> Iterator[Relation]:
    logits = pair.logits[:, 0]
    array = as_array(pair.output)
    if (
        array is not None
        and array.dtype.kind == "f"
        and array.size in {len(logits), 2 * len(logits)}
    ):
        columns = array.astype(np.float64).reshape(len(logits), -1)
        last = columns[:, -1]
        base = _base_of(columns)
        if base is not None:
            odds = base * (last - columns[:, 0])
            yield Relation(LOG_SOFTMAX, _rounded(float(odds @ logits) / _square(logits)), base)
        inside = (last > 1e-12) & (last < 1 - 1e-12)
        if inside.any() and ((last >= 0) & (last <= 1)).all():
            odds = np.log(last[inside]) - np.log1p(-last[inside])
            yield Relation(
                SIGMOID, _rounded(float(odds @ logits[inside]) / _square(logits[inside]))
            )
        yield Relation(LOGITS, _rounded(float(last @ logits) / _square(logits)))
    yield Relation(SIGMOID)
    yield Relation(LABEL)


def _holds(relation: Relation, pair: Pair, tolerance: float) -> bool:
    if not np.isfinite(relation.scale) or relation.scale == 0:
        return False
    scaled = relation.scale * pair.logits
    if scaled.shape[1] == 1:
        return _holds_binary(relation, scaled[:, 0], pair.output, tolerance)
    if relation.kind == TOP:
        return _is_top(_softmax(scaled), pair.output, tolerance)
    for rows in _as_rows(pair.output, *scaled.shape):
        if relation.kind == SOFTMAX and np.abs(rows - _softmax(scaled)).max() <= tolerance:
            return True
        apart = _centred(relation.base * rows) - _centred(scaled)
        is_linear = relation.kind in {LOGITS, LOG_SOFTMAX}
        if is_linear and np.abs(apart).max() <= tolerance * _range(scaled):
            return True
    return False


def _holds_binary(
    relation: Relation,
    logits: np.ndarray,
    output: Any,  # noqa: ANN401
    tolerance: float,
) -> bool:
    array, kind = as_array(output), relation.kind
    if array is None:
        return False
    if array.dtype.kind != "f" or array.size not in {len(logits), 2 * len(logits)}:
        return False
    columns = array.astype(np.float64).reshape(len(logits), -1)
    if kind == LOG_SOFTMAX:
        apart = relation.base * (columns[:, -1] - columns[:, 0]) - logits
        is_log = are_probabilities(np.exp(relation.base * columns))
        return is_log and bool(np.abs(apart).max() <= tolerance * _range(logits))
    expected = _sigmoid(logits) if kind == SIGMOID else logits
    room = tolerance if kind == SIGMOID else tolerance * _range(logits)
    if np.abs(columns[:, -1] - expected).max() > room:
        return False
    if columns.shape[1] == 1:
        return True
    # the other class has the opposite logit, or none
    others = [1 - expected] if kind == SIGMOID else [-expected, 0 * expected]
    return any(bool(np.abs(columns[:, 0] - other).max() <= room) for other in others)


def _are_labels(pairs: Sequence[Pair]) -> bool:
    """Whether outputs name the most probable class, each class always the same way."""
    names: dict[int, Any] = {}
    for pair in pairs:
        array, logits = as_array(pair.output), pair.logits
        if array is None or array.size != len(logits) or array.dtype.kind == "f":
            return False
        classes = logits[:, 0] > 0 if logits.shape[1] == 1 else logits.argmax(-1)
        for place, name in zip(classes.tolist(), array.reshape(-1).tolist()):
            if names.setdefault(place, name) != name:
                return False
    return len(names) > 1 and len(set(names.values())) == len(names)


def _is_top(probabilities: np.ndarray, output: Any, tolerance: float) -> bool:  # noqa: ANN401
    array = as_array(output)
    count, classes = probabilities.shape
    if array is None or array.dtype.kind not in "fiu" or array.size % count:
        return False
    columns = array.reshape(count, -1)
    if not 1 <= columns.shape[1] < classes:
        return False
    order = np.argsort(-probabilities, -1, kind="stable")[:, : columns.shape[1]]
    if array.dtype.kind in "iu":
        return bool((columns == order).all())
    best = np.take_along_axis(probabilities, order, -1)
    return bool(np.abs(columns - best).max() <= tolerance)


def rows_along(value: np.ndarray, size: int, axis: int) -> np.ndarray | None:
    """A tensor as rows of `size` numbers that lie along an axis; None if it has no such.

    Args:
        value: The tensor.
        size: Numbers in a row.
        axis: Where they lie; −1 also if several last dimensions hold them.
    """
    if value.dtype.kind not in "fiu" or size == 0 or value.size % size:
        return None
    if axis in {-1, value.ndim - 1} or size == 1:
        return value.reshape(-1, size)
    if value.ndim < 2 or not -value.ndim <= axis < value.ndim or value.shape[axis] != size:
        return None
    return np.moveaxis(value, axis, -1).reshape(-1, size)


def _as_rows(output: Any, count: int, classes: int) -> Iterator[np.ndarray]:  # noqa: ANN401
    """An output as rows of classes, for each axis where these could be."""
    array = as_array(output)
    if array is None or array.dtype.kind != "f" or array.size != count * classes:
        return
    for axis in range(array.ndim - 1, -1, -1):
        if array.shape[axis] == classes:
            rows = rows_along(array, classes, axis - array.ndim)
            if rows is not None:
                yield rows.astype(np.float64)
    if array.ndim == 1:  # all rows one after another
        yield array.reshape(count, classes).astype(np.float64)


def _slope(logits: np.ndarray, target: np.ndarray) -> float | None:
    """The number that logits are multiplied with to give a target, up to a constant in
    each row.
    """
    usable = np.isfinite(target).all(-1)
    if not usable.any():
        return None
    first, second = _centred(logits[usable]), _centred(target[usable])
    square = _square(first)
    return _rounded(float((first * second).sum()) / square) if square > 0 else None


def _rounded(scale: float) -> float:
    return 1.0 if abs(scale - 1) < _SAME else scale


def _square(values: np.ndarray) -> float:
    return float((values * values).sum()) or np.nan


def _centred(rows: np.ndarray) -> np.ndarray:
    return rows - rows.mean(-1, keepdims=True)


def _range(values: np.ndarray) -> float:
    return float(np.abs(values).max()) or 1.0


def _softmax(logits: np.ndarray) -> np.ndarray:
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0.0, -logits))
