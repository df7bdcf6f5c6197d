"""Whether intervals can be trusted: against labels and votes; and the two parts of
uncertainty.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from laplacebridge import _scipy_special as special
from laplacebridge._special import complement
from laplacebridge.logit_normal import LogitNormal
from laplacebridge.metrics import Interval
from laplacebridge.prediction import Prediction
from laplacebridge.report._findings.halves import share

# Bins of the same number of examples, and the fewest that one should have.
BINS, FEWEST_IN_A_BIN = 10, 20
# The most probable classes of each example that intervals are checked for.
CHECKED_CLASSES = 2
LEVEL = 0.95
# Quantiles that a distribution over probabilities is taken apart in.
LEVELS = 99


@dataclass(frozen=True)
class IntervalBin:
    """Predicted probabilities of about the same size, and how often they came true.

    Attributes:
        predicted: Their mean.
        low: Mean lower end of their 95 % intervals.
        high: Mean upper end.
        seen: How often the class was the label, with its interval.
        count: How many there are.
        agrees: Whether what was seen may lie between the ends.
    """

    predicted: float
    low: float
    high: float
    seen: Interval
    count: int
    agrees: bool


@dataclass(frozen=True)
class IntervalCheck:
    """Intervals against labels.

    Attributes:
        bins: Of predicted probabilities.
        width: Mean width of the 95 % interval of the most probable class.
        votes: Share of examples whose votes lie in the 95 % interval for votes; None
            where each example has one label.
        num_votes: How many votes.
    """

    bins: tuple[IntervalBin, ...]
    width: float
    votes: Interval | None = None
    num_votes: int = 0

    @property
    def num_agreeing(self) -> int:
        """In how many bins intervals and labels agree."""
        return sum(each.agrees for each in self.bins)


def check_intervals(
    prediction: Prediction,
    labels: Int[Tensor, " N"],
    votes: Int[Tensor, "N K"] | None = None,
) -> IntervalCheck:
    """Compares intervals with labels, in bins, and with votes where there are some.

    One label does not tell a probability, but the labels of many examples with about
    the same prediction tell their mean: it must lie between the mean ends of their
    intervals. Wrong intervals can agree by chance; right ones disagree only by chance.
    """
    low, high, mean, classes = _checked_classes(prediction)
    came_true = classes == labels.unsqueeze(-1)
    number = max(1, min(BINS, mean.numel() // FEWEST_IN_A_BIN))
    order = mean.flatten().argsort()
    bins = []
    for rows in order.tensor_split(number):
        middle, bottom, top = (
            float(each.flatten()[rows].double().mean()) for each in (mean, low, high)
        )
        seen = share(int(came_true.flatten()[rows].sum()), len(rows))
        assert seen is not None  # noqa: S101  (no bin is empty)
        agrees = seen.high >= bottom and seen.low <= top
        bins.append(IntervalBin(middle, bottom, top, seen, len(rows), agrees))
    width = float((high - low)[:, 0].mean())
    if votes is None:
        return IntervalCheck(tuple(bins), width)
    inside = _votes_inside(prediction, classes[:, 0], votes)
    return IntervalCheck(
        tuple(bins), width, share(int(inside.sum()), len(inside)), int(votes.sum())
    )


def _checked_classes(prediction: Prediction) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Ends, means and numbers of the most probable classes of each example."""
    count = min(CHECKED_CLASSES, prediction.num_classes)
    top = prediction.mean.topk(count)
    low, high = _marginals(prediction, top.indices).interval(LEVEL)
    return low, high, top.values, top.indices


def _marginals(prediction: Prediction, classes: Int[Tensor, "N C"]) -> LogitNormal:
    """The marginals of some classes alone: those of all take long where there are many."""
    mean = prediction.mean
    return LogitNormal.with_mean(
        *(
            each.gather(-1, classes).double()
            for each in (mean, complement(mean), prediction.log_odds_variance)
        )
    )


def _votes_inside(
    prediction: Prediction, best: Int[Tensor, " N"], votes: Int[Tensor, "N K"]
) -> Bool[Tensor, " N"]:
    """Whether the votes for the most probable class are among the 95 % of numbers that
    its distribution expects, half of the probability of that number counted.
    """
    column = best.unsqueeze(-1)
    marginals = _marginals(prediction, column)
    levels = ((place + 0.5) / LEVELS for place in range(LEVELS))
    points = torch.stack([marginals.quantile(level).squeeze(-1) for level in levels]).numpy()
    number = votes.sum(-1).numpy()  # whole numbers, as SciPy wants them
    count = votes.gather(-1, column).squeeze(-1).double().numpy()
    up_to = special.bdtr(count, number, points).mean(0)
    # no number is below 0, where SciPy has none to give
    below = np.where(count > 0, special.bdtr(np.maximum(count - 1, 0), number, points), 0).mean(0)
    middle = torch.as_tensor((up_to + below) / 2)
    tail = (1 - LEVEL) / 2
    return (middle >= tail) & (middle <= 1 - tail)


def parts_of_uncertainty(
    prediction: Prediction, right: Bool[Tensor, " N"], ood: Mapping[str, Prediction]
) -> dict[str, dict[str, float | int]]:
    """Mean epistemic and aleatoric uncertainty, in nats, of right and wrong answers and
    of unusual inputs.
    """
    groups = {"right answers": prediction[right.nonzero().flatten()]} if right.any() else {}
    if not right.all():
        groups["wrong answers"] = prediction[(~right).nonzero().flatten()]
    return {
        name: {
            "count": len(each),
            "aleatoric": float(each.aleatoric.mean()),
            "epistemic": float(each.epistemic.mean()),
        }
        for name, each in (groups | dict(ood)).items()
    }
