"""Which predictions a person should look at first, and why: for data on which no rule
can promise a risk.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from laplacebridge._arrays import takes_arrays
from laplacebridge._predictions import AnyPrediction, probabilities_of
from laplacebridge.errors import InputError, ShapeError
from laplacebridge.prediction import Prediction
from laplacebridge.selective.decisions import REASONS

# An input is called unusual if it more probably is than not.
MORE_PROBABLE_THAN_NOT = 0.5


class ReviewCase(NamedTuple):
    """One prediction to look at.

    Attributes:
        row: Which one.
        reason: "ambiguous", because the label is in doubt; "unusual", because the input
            is unlike held-out data; "both"; or nothing, where it is only the next in
            line.
        chance_wrong: How probable it is that the label is wrong, which the order is by.
        predicted: The most probable class.
        probability: Its probability.
        runner_up: The second class.
        runner_up_probability: Its probability.
        ood_quantile: Which share of held-out data the input is more unusual than; None
            if that is not known.

    Example:
        >>> print(ReviewCase(7, "ambiguous", 0.45, "cat", 0.55, "dog", 0.4).why)
        cat (0.55) or dog (0.4)
    """

    row: int
    reason: str
    chance_wrong: float
    predicted: int | str
    probability: float
    runner_up: int | str
    runner_up_probability: float
    ood_quantile: float | None = None

    @property
    def why(self) -> str:
        """The reason in words."""
        told = f"{self.predicted} ({self.probability:.2g})"
        if self.reason in {"ambiguous", "both"}:
            told += f" or {self.runner_up} ({self.runner_up_probability:.2g})"
        if self.reason in {"unusual", "both"} and self.ood_quantile is not None:
            told += f"; more unusual than {self.ood_quantile:.1%} of held-out inputs"
        return told


@takes_arrays
def review(
    prediction: AnyPrediction,
    n: int | None = None,
    *,
    class_names: Sequence[str] | None = None,
    ambiguous_above: float = 0.1,
) -> list[ReviewCase]:
    """Which predictions a person should look at first, and why.

    A rule with a bound on its risk (`lb.selective.calibrate`) takes more than a hundred
    labelled examples. This takes none, and promises nothing: it is an order, by how
    probable it is that a label is wrong,

        (1 − s)·(1 − max p) + s·(1 − 1/K).

    p are the probabilities, which are to be trusted for inputs like the held-out data.
    s is how probable it is that an input is unlike them; then its label is taken as a
    guess among K. It is 1 − the false discovery rate among all inputs that are at least
    as unusual (Benjamini and Hochberg, on the conformal p-values 1 − `ood_quantile`):
    if as many inputs are unusual as held-out data would be, s is zero and probabilities
    decide alone. So it depends on what else is in the batch: give all cases at once.

    Args:
        prediction: Predictions; of a classifier fitted with held-out data they know how
            unusual inputs are. Dirichlets and probabilities do not: doubt about the
            label decides alone.
        n: How many cases; by default all.
        class_names: Names of the classes; by default their numbers.
        ambiguous_above: From which 1 − max p on a label is called ambiguous. It changes
            no order.

    Raises:
        InputError: If `n` is not positive, or `ambiguous_above` is no probability.
        ShapeError: If there are fewer or more names than classes.

    Example:
        >>> probabilities = torch.tensor([[0.9, 0.1, 0.0], [0.5, 0.4, 0.1], [0.4, 0.3, 0.3]])
        >>> for case in review(probabilities, n=2, class_names=["cat", "dog", "fox"]):
        ...     print(case.row, case.reason, case.why)
        2 ambiguous cat (0.4) or dog (0.3)
        1 ambiguous cat (0.5) or dog (0.4)
    """
    probabilities = probabilities_of("review(prediction)", prediction)
    known = prediction.unusual if isinstance(prediction, Prediction) else None
    if known is None or not len(known.reference):
        return ranked(probabilities, n, class_names, ambiguous_above)
    return ranked(
        probabilities, n, class_names, ambiguous_above, known.quantile(), known.score.detach()
    )


def ranked(
    probabilities: Float[Tensor, "B K"],
    n: int | None,
    class_names: Sequence[str] | None,
    ambiguous_above: float,
    ood_quantile: Float[Tensor, " B"] | None = None,
    ood_score: Float[Tensor, " B"] | None = None,
) -> list[ReviewCase]:
    """The cases in order, from what is known of them.

    Args:
        probabilities: Of the classes.
        n: As for `review`.
        class_names: The same.
        ambiguous_above: The same.
        ood_quantile: Which share of held-out data each input is more unusual than.
        ood_score: How unusual each is, which orders equal quantiles.
    """
    probabilities = probabilities.detach().double().cpu()
    num_rows, num_classes = probabilities.shape
    _require_arguments(n, class_names, ambiguous_above, num_classes)
    top = probabilities.topk(2, -1)
    msp, unlike = 1 - top.values[:, 0], torch.zeros(num_rows, dtype=torch.float64)
    quantiles, order = [None] * num_rows, torch.arange(num_rows)
    if ood_quantile is not None:
        quantiles, unlike = ood_quantile.tolist(), _unlike(1 - ood_quantile.double().cpu())
    if ood_score is not None:
        order = (-ood_score.cpu()).argsort(stable=True)
    chance_wrong = (1 - unlike) * msp + unlike * (1 - 1 / num_classes)
    ambiguous, unusual = msp > ambiguous_above, unlike > MORE_PROBABLE_THAN_NOT
    reasons = (ambiguous.long() + 2 * unusual.long()).tolist()
    names = list(range(num_classes)) if class_names is None else list(class_names)
    order = order[(-chance_wrong[order]).argsort(stable=True)]
    return [
        ReviewCase(
            row,
            REASONS[reasons[row]],
            chance_wrong[row].item(),
            names[int(top.indices[row, 0])],
            top.values[row, 0].item(),
            names[int(top.indices[row, 1])],
            top.values[row, 1].item(),
            quantiles[row],
        )
        for row in order[:n].tolist()
    ]


def _unlike(p_values: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    """1 − the Benjamini–Hochberg adjusted p-value of each input."""
    ascending, order = p_values.sort()
    number = len(p_values)
    rates = ascending * number / torch.arange(1, number + 1, dtype=ascending.dtype)
    adjusted = rates.flip(0).cummin(0).values.flip(0)
    return 1 - torch.empty_like(adjusted).index_copy_(0, order, adjusted)


def _require_arguments(
    n: int | None,
    class_names: Sequence[str] | None,
    ambiguous_above: float,
    num_classes: int,
) -> None:
    if n is not None and (not isinstance(n, (int, np.integer)) or n < 1):
        raise InputError(f"`review(n)` needs a positive whole number of cases; got {n!r}.")
    if class_names is not None and len(class_names) != num_classes:
        raise ShapeError(
            f"`review(class_names)` needs a name for each of {num_classes} classes; got"
            f" {len(class_names)}."
        )
    if not 0 <= ambiguous_above <= 1:
        raise InputError(
            f"`review(ambiguous_above)` needs a probability from 0 to 1; got {ambiguous_above}."
        )
