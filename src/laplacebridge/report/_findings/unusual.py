"""Unusual inputs: which score tells them apart, and what an alarm does."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from laplacebridge import metrics, scores
from laplacebridge.metrics import Interval
from laplacebridge.prediction import Prediction
from laplacebridge.report._findings.halves import share

# Shares of ordinary inputs that may be taken for unusual.
ALARM_RATES = (0.01, 0.02, 0.05, 0.1)
NUM_RESAMPLES = 500


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
    "energy of the network": ("The network's energy", "lb.scores.energy(logits)"),
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
    unlike = {kind: scored(*given) for kind, given in ood.items()}
    rows = []
    for name in usual:
        together = torch.cat([values[name] for values in unlike.values()])
        auroc = metrics.bootstrap(
            metrics.auroc,
            usual[name],
            together,
            num_resamples=NUM_RESAMPLES,
            generator=Generator().manual_seed(seed),
            paired=False,
        )
        by_kind = {
            kind: metrics.auroc(usual[name], values[name]) for kind, values in unlike.items()
        }
        rows.append(ScoreRow(name, auroc, by_kind, usual[name], together))
    return tuple(rows)


def alarms(prediction: Prediction, ood: Mapping[str, Prediction]) -> tuple[Alarm, ...]:
    """False and true alarms at several rates; none where the classifier has seen too
    few held-out inputs to tell.
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
