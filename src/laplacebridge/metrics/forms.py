"""What a metric carries with it for `bootstrap`, which would otherwise compute it anew
for every resample.
"""

from collections.abc import Callable
from typing import TypeVar

from torch import Tensor

Metric = TypeVar("Metric", bound=Callable[..., float])


def carries(
    *,
    per_example: Callable[..., Tensor] | None = None,
    of_rows: Callable[..., Tensor] | None = None,
    gaps: Callable[..., tuple[Tensor, Tensor]] | None = None,
    no_interval: str | None = None,
) -> Callable[[Metric], Metric]:
    """A decorator that gives a metric other forms of itself as attributes, each taking
    the same arguments.

    Args:
        per_example: If the metric is a mean, the number of each example: these are
            resampled, not predictions of B × K.
        of_rows: If the metric is of vectors, the metric of many rows of them at once.
        gaps: If the metric is a sum of absolute gaps, the gap and the bin of each
            example, because such a sum is biased and its interval is not read from
            resampled values.
        no_interval: If the metric has no valid interval, why, and what to use instead.
    """
    forms = {
        "per_example": per_example,
        "of_rows": of_rows,
        "gaps": gaps,
        "no_interval": no_interval,
    }

    def carry(metric: Metric) -> Metric:
        vars(metric).update({name: form for name, form in forms.items() if form is not None})
        return metric

    return carry
