"""Risk against coverage: how good the answers are if only the least unusual examples
are answered.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from laplacebridge._arrays import takes_arrays
from laplacebridge._checks import values_of
from laplacebridge.errors import ShapeError
from laplacebridge.metrics.forms import carries


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """Error rate among the answered against the share that is answered, for n = 1 … B
    answers.

    Attributes:
        coverage: Share that is answered, n/B, shape (B,).
        risk: Share of wrong answers among them, shape (B,).
        threshold: The largest score that is answered, shape (B,).

    Example:
        >>> curve = risk_coverage_curve(torch.tensor([0.1, 0.9]), torch.tensor([True, False]))
        >>> curve.coverage, curve.risk
        (tensor([0.5000, 1.0000], dtype=torch.float64), tensor([0.0000, 0.5000], dtype=torch.float64))
    """

    coverage: Float[Tensor, " B"]
    risk: Float[Tensor, " B"]
    threshold: Float[Tensor, " B"]


@takes_arrays
def risk_coverage_curve(scores: Tensor, correct: Tensor) -> RiskCoverage:
    """The risk at every coverage, examples answered from the least to the most unusual.

    Examples of equal score come in no order: each step into them adds their average
    error, which is the expectation over all orders.

    Args:
        scores: Higher = more unusual, shape (B,).
        correct: Whether the answer would be right, shape (B,): `correct(prediction,
            labels)`.

    Example:
        >>> curve = risk_coverage_curve(
        ...     torch.tensor([0.1, 0.9, 0.5]), torch.tensor([True, False, True])
        ... )
        >>> curve.risk
        tensor([0.0000, 0.0000, 0.3333], dtype=torch.float64)
    """
    values, right = _checked("risk_coverage_curve(scores, correct)", scores, correct)
    answered = torch.arange(1, len(values) + 1, dtype=torch.float64, device=values.device)
    return RiskCoverage(answered / len(values), risk_of_rows(values, right), values.sort().values)


def risk_of_rows(
    scores: Float[Tensor, "*rows B"], correct: Bool[Tensor, "*rows B"]
) -> Float[Tensor, "*rows B"]:
    """The risks of every row, for n = 1 … B answers."""
    ordered, order = scores.sort(-1)
    errors = torch.nn.functional.pad((~correct).double().gather(-1, order).cumsum(-1), (1, 0))
    answered = torch.arange(1, scores.shape[-1] + 1, dtype=torch.float64, device=scores.device)
    # between the first and the last example of equal score errors grow evenly
    first, last = (torch.searchsorted(ordered, ordered, right=right) for right in (False, True))
    at_first, at_last = errors.gather(-1, first), errors.gather(-1, last)
    expected = at_first + (answered - first) / (last - first) * (at_last - at_first)
    return expected / answered


def aurc_of_rows(
    scores: Float[Tensor, "*rows B"], correct: Bool[Tensor, "*rows B"]
) -> Float[Tensor, "*rows"]:
    """`aurc` of every row."""
    return risk_of_rows(scores, correct).mean(-1)


@carries(of_rows=aurc_of_rows)
@takes_arrays
def aurc(scores: Tensor, correct: Tensor) -> float:
    r"""Area under the risk-coverage curve: the mean of its risks.

    .. math:: \frac1B \sum_{n=1}^{B} \frac{\text{expected errors among the } n \text{ least unusual}}{n}

    A score that knows nothing has the error rate; 0 is reached only without errors.

    Args:
        scores: Higher = more unusual, shape (B,).
        correct: Whether the answer would be right, shape (B,): `correct(prediction,
            labels)`.

    Example:
        >>> aurc(torch.tensor([0.1, 0.9, 0.5]), torch.tensor([True, False, True]))
        0.1111111111111111
    """
    return aurc_of_rows(*_checked("aurc(scores, correct)", scores, correct)).item()


def _checked(call: str, scores: object, correct: object) -> tuple[Tensor, Tensor]:
    values = values_of(call, scores).detach().double()
    right = torch.as_tensor(correct)
    if right.dtype != torch.bool or right.shape != values.shape:
        raise ShapeError(
            f"`{call}` needs a truth value for each of {len(values)} examples; got {right.dtype} of"
            f" shape {tuple(right.shape)}. `correct(prediction, labels)` gives them."
        )
    return values, right.to(values.device)
