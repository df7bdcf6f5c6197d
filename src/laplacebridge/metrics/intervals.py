"""How far a metric may be from its true value, which more data of the same kind would
give.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from laplacebridge._arrays import to_arrays, to_tensors
from laplacebridge.errors import InputError, ShapeError
from laplacebridge.metrics.calibration_error_interval import calibration_error_interval
from laplacebridge.metrics.resampling import bca_interval, resampled_rows, rows_without_a_group

# The values of a metric on blocks of rows (R, …), one block for each argument.
Statistic = Callable[[Sequence[Tensor]], Tensor]


@dataclass(frozen=True)
class Interval:
    """An estimate and an interval that holds the true value with a stated chance.

    Attributes:
        estimate: The value on the data.
        low: Lower end.
        high: Upper end.
        level: The chance.

    Example:
        >>> print(Interval(0.9121, 0.9034, 0.9212, 0.95))
        0.912 [0.903, 0.921]
    """

    estimate: float
    low: float
    high: float
    level: float

    def __str__(self) -> str:
        return f"{self.estimate:.3f} [{self.low:.3f}, {self.high:.3f}]"


def bootstrap(
    metric: Callable[..., float],
    *arguments: Any,  # noqa: ANN401 - whatever the metric takes
    num_resamples: int = 1000,
    level: float = 0.95,
    generator: Generator | None = None,
    paired: bool = True,
) -> Interval:
    """Interval for the true value of a metric, by resampling examples (BCa).

    The truth is what the metric would give on endless data of the same kind. Over 1000
    simulated data sets of 400 examples, 95 % intervals held it 93 to 96 % of the time
    for every metric here that is a mean, an area or an FPR, and for `ece` and
    `adaptive_ece` (`tests/metrics/test_intervals.py`). `size_stratified_coverage`, a
    minimum, is biased downwards, and its interval with it.

    The truth of `ece` and `adaptive_ece` is the sum of the true gaps over the same
    bins. Their estimate is biased upwards, so the interval is made of the sums under
    which the estimate would be ordinary: it may lie below the estimate, and reaches 0
    if the model may be calibrated. If it truly is, 0 is held 97 to 98 % of the time.

    Resampling cannot show what the data does not have: with no error among B examples
    the interval of the accuracy is the point 1, although up to 3/B may be wrong.

    Args:
        metric: A metric of this package, or any function of the arguments that gives a
            number; its keywords are set with `functools.partial`. If it is a mean and
            carries the number of each example as `metric.per_example`, a function of
            the same arguments, these are resampled, which is much faster.
        arguments: What the metric takes, with a row for each example: tensors,
            `Dirichlet`, `ClassSets`.
        num_resamples: How many resamples.
        level: How often the interval is to hold the truth.
        generator: Source of randomness.
        paired: Rows of all arguments belong together and are drawn together. Give False
            for independent samples, as of `auroc(id_scores, ood_scores)`.

    Raises:
        ShapeError: If there are no two examples, or paired arguments differ in length.
        InputError: If the level or the number of resamples makes no interval, the
            metric is not finite, or is known to have no valid interval.

    Example:
        >>> from laplacebridge.metrics import accuracy
        >>> right = torch.arange(100) % 10 > 0
        >>> probabilities = torch.stack([right, ~right], -1).double()
        >>> labels = torch.zeros(100, dtype=torch.long)
        >>> print(
        ...     bootstrap(
        ...         accuracy, probabilities, labels, generator=torch.Generator().manual_seed(0)
        ...     )
        ... )
        0.900 [0.820, 0.950]
    """
    _require_resamples(level, num_resamples)
    plain = metric
    if any(isinstance(each, np.ndarray) for each in arguments):  # and so is what it takes
        metric = wraps(plain)(lambda *tensors: plain(*map(to_arrays, tensors)))
    given = [
        torch.as_tensor(each) if isinstance(each, (list, tuple)) else to_tensors(each)
        for each in arguments
    ]
    lengths = _sample_lengths(given, paired)
    estimate = float(metric(*given))
    _require_finite([estimate])
    if _form(metric, "no_interval") is not None:
        raise InputError(
            "`bootstrap(metric)` needs a metric with a valid interval;"
            f" {_form(metric, 'no_interval')}"
        )
    if (gaps := _form(metric, "gaps")) is not None:
        gap, index = (each.cpu() for each in gaps(*given))
        ends = calibration_error_interval(
            gap, index, num_resamples=num_resamples, level=level, generator=generator
        )
        return Interval(estimate, *ends, level)
    statistic = _statistic(metric, estimate, given, paired)
    resampled = torch.cat(
        [statistic(rows) for rows in resampled_rows(lengths, num_resamples, generator)]
    )
    left_out = [
        torch.cat([statistic(rows) for rows in _without_groups_of(sample, lengths)])
        for sample in range(len(lengths))
    ]
    _require_finite(torch.cat([resampled, *left_out]).tolist())
    low, high = bca_interval(estimate, resampled, left_out, level=level, num_examples=min(lengths))
    return Interval(estimate, low, high, level)


def _statistic(
    metric: Callable[..., float], estimate: float, given: Sequence[Any], paired: bool
) -> Statistic:
    """The metric as a function of rows: on many at once if it has such a form,
    otherwise one after another.

    Raises:
        InputError: If it carries numbers that it is not the mean of.
    """
    if (per_example := _form(metric, "per_example")) is not None and (paired or len(given) == 1):
        numbers = per_example(*given).detach().cpu().double()
        mean = numbers.mean().item()
        if not math.isclose(mean, estimate, rel_tol=1e-6, abs_tol=1e-9):
            raise InputError(
                "`bootstrap(metric)` needs a metric that is the mean of its own"
                f" `metric.per_example`; got {estimate:.6g} and a mean of {mean:.6g}. Give it the"
                " numbers that it averages, or take them away."
            )
        return lambda rows: numbers[rows[0]].mean(-1)
    if (of_rows := _form(metric, "of_rows")) is not None:
        vectors = [each.detach().cpu() for each in given]
        vectors = [each.double() if each.is_floating_point() else each for each in vectors]
        return lambda rows: of_rows(
            *(each[row] for each, row in zip(vectors, _for_each(vectors, rows)))
        )

    def one_by_one(rows: Sequence[Tensor]) -> Tensor:
        resamples = zip(*_for_each(given, rows))
        values = [
            float(metric(*(each[row] for each, row in zip(given, chosen)))) for chosen in resamples
        ]
        return torch.tensor(values, dtype=torch.float64)

    return one_by_one


def _for_each(arguments: Sequence[Any], rows: Sequence[Tensor]) -> Sequence[Tensor]:
    """The rows of each argument, if one sample serves them all."""
    return rows if len(rows) == len(arguments) else [rows[0]] * len(arguments)


def _without_groups_of(sample: int, lengths: Sequence[int]) -> Iterator[Sequence[Tensor]]:
    """Rows without a group of one sample and with all of the others, in blocks of
    groups.
    """
    for kept in rows_without_a_group(lengths[sample]):
        yield [
            kept if place == sample else torch.arange(length).expand(len(kept), -1)
            for place, length in enumerate(lengths)
        ]


def _form(metric: Callable[..., float], name: str) -> Any:  # noqa: ANN401
    """Another form of a metric that it carries with it, see `forms`; None if it has no
    such form.
    """
    if isinstance(metric, partial) and not metric.args:
        form = getattr(metric.func, name, None)
        return partial(form, **metric.keywords) if callable(form) else form
    return getattr(metric, name, None)


def _sample_lengths(given: Sequence[Any], paired: bool) -> list[int]:
    """How many rows there are to draw from: of all arguments together, or of each.

    Raises:
        ShapeError: If there are too few, or paired arguments differ in length.
    """
    call = "bootstrap(metric, *arguments)"
    if not given:
        raise ShapeError(
            f"`{call}` needs what the metric is to be computed from; got nothing. Give its"
            " arguments."
        )
    lengths = [len(each) for each in given]
    if paired and len(set(lengths)) > 1:
        raise ShapeError(
            f"`{call}` needs arguments of the same length to draw their rows together; got "
            f"{' and '.join(map(str, lengths))}. For independent samples give `paired=False`."
        )
    if min(lengths) < 2:
        raise ShapeError(
            f"`{call}` needs at least two examples of each kind; got {min(lengths)}. What one"
            " example shows says nothing about how much examples differ."
        )
    return lengths[:1] if paired else lengths


def _require_resamples(level: float, num_resamples: int) -> None:
    if not 0 < level < 1:
        raise InputError(
            f"`bootstrap(level)` needs a chance between 0 and 1; got {level}. 0.95 is usual."
        )
    fewest = math.ceil(2 / (1 - level))
    if num_resamples < fewest:
        raise InputError(
            f"`bootstrap(num_resamples)` needs at least {fewest} resamples for a level of"
            f" {level:g}; got {num_resamples}. 1000 is usual."
        )


def _require_finite(values: Sequence[float]) -> None:
    bad = [value for value in values if not math.isfinite(value)]
    if bad:
        raise InputError(
            "`bootstrap(metric)` needs a metric that is finite on the data and on every resample;"
            f" got {bad[0]}. The NLL is infinite where a label has probability 0."
        )
