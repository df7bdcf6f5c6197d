"""Whether what is said can be trusted: intervals against labels and votes, the two parts
of uncertainty, and unusual inputs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from laplacebridge import _scipy_special as special
from laplacebridge import metrics, scores
from laplacebridge._special import complement
from laplacebridge.logit_normal import LogitNormal
from laplacebridge.metrics import Interval
from laplacebridge.prediction import Prediction
from laplacebridge.report._halves import share

# Bins of the same number of examples, and the fewest that one should have.
BINS, FEWEST_IN_A_BIN = 10, 20
# The most probable classes of each example that intervals are checked for.
CHECKED_CLASSES = 2
LEVEL = 0.95
# Quantiles that a distribution over probabilities is taken apart in.
LEVELS = 99
# Shares of ordinary inputs that may be taken for unusual.
ALARM_RATES = (0.01, 0.02, 0.05, 0.1)
NUM_RESAMPLES = 500


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

    One label does not tell a probability, but the labels of many examples with about the
    same prediction tell their mean: it must lie between the mean ends of their intervals.
    Wrong intervals can agree by chance; right ones disagree only by chance.
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
    """Mean epistemic and aleatoric uncertainty, in nats, of right and wrong answers and of
    unusual inputs.
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


@dataclass(frozen=True)
class Alarm:
    """What an alarm for unusual inputs does.

    Attributes:
        stated: The share of ordinary inputs that may set it off.
        false: The share of test inputs that did.
        noticed: The share of unusual inputs that did, by their names.
    """

    stated: float
    false: Interval
    noticed: dict[str, Interval]


@dataclass(frozen=True, eq=False)
class ScoreRow:
    """How well a score tells unusual inputs from test inputs.

    Attributes:
        name: Key of `SCORES_OF_A_PAGE`.
        auroc: Over all unusual inputs together.
        by_kind: For each kind of them by itself.
        scores: Of test inputs.
        ood_scores: Of unusual ones.
    """

    name: str
    auroc: Interval
    by_kind: dict[str, float]
    scores: Float[Tensor, " N"]
    ood_scores: Float[Tensor, " M"]


# Simplest first: what each is, and how to compute it.
SCORES_OF_A_PAGE = {
    "msp of the network": (
        "1 − the network's largest probability",
        "lb.scores.msp(model(inputs).softmax(-1))",
    ),
    "energy of the network": ("The energy of the network's logits", "lb.scores.energy(logits)"),
    "msp": ("1 − the classifier's largest probability", "lb.scores.msp(prediction)"),
    "mutual_information": (
        "The classifier's epistemic uncertainty",
        "prediction.epistemic",
    ),
    "ood_score": (
        "The classifier's own score of unusual inputs",
        "prediction.ood_score",
    ),
}


def detection_scores(
    prediction: Prediction,
    logits: Float[Tensor, "N K"],
    ood: Mapping[str, tuple[Prediction, Float[Tensor, "M K"]]],
    *,
    seed: int,
) -> tuple[ScoreRow, ...]:
    """Every score on the same inputs."""

    def scored(each: Prediction, own: Tensor) -> dict[str, Tensor]:
        found = {
            "msp of the network": scores.msp(own.softmax(-1)),
            "energy of the network": scores.energy(own),
            "msp": scores.msp(each),
            "mutual_information": scores.mutual_information(each),
        }
        if each.unusual is not None:
            found["ood_score"] = each.ood_score
        return {name: values.detach().double() for name, values in found.items()}

    usual = scored(prediction, logits)
    strange = {kind: scored(*given) for kind, given in ood.items()}
    rows = []
    for name in usual:
        together = torch.cat([values[name] for values in strange.values()])
        auroc = metrics.bootstrap(
            metrics.auroc,
            usual[name],
            together,
            num_resamples=NUM_RESAMPLES,
            generator=Generator().manual_seed(seed),
            paired=False,
        )
        by_kind = {
            kind: metrics.auroc(usual[name], values[name]) for kind, values in strange.items()
        }
        rows.append(ScoreRow(name, auroc, by_kind, usual[name], together))
    return tuple(rows)


def alarms(prediction: Prediction, ood: Mapping[str, Prediction]) -> tuple[Alarm, ...]:
    """False and true alarms at several rates; none where the classifier has seen too few
    held-out inputs to tell.
    """
    if prediction.unusual is None:
        return ()
    number = len(prediction.unusual.reference)

    def above(each: Prediction, rate: float) -> Interval:
        found = share(int((each.ood_quantile > 1 - rate).sum()), len(each))
        assert found is not None  # noqa: S101  (there are examples)
        return found

    return tuple(
        Alarm(
            rate, above(prediction, rate), {kind: above(each, rate) for kind, each in ood.items()}
        )
        for rate in ALARM_RATES
        if number / (number + 1) > 1 - rate
    )


def plain_scores(rows: tuple[ScoreRow, ...]) -> list[dict[str, Any]]:
    """The numbers alone, as JSON has them."""
    return [{"name": row.name, "auroc": row.auroc, "by_kind": dict(row.by_kind)} for row in rows]
