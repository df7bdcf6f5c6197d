"""What the classifier may do by itself: answers, sets and deferrals at a stated risk,
and what they cost.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from laplacebridge import scores, selective
from laplacebridge.errors import InputError
from laplacebridge.metrics import Interval
from laplacebridge.report._findings.halves import FoundSets, Halves, share
from laplacebridge.selective import Action

# Error rates among answers that the page can be asked for.
RISKS = (
    0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.12, 0.15, 0.2, 0.25, 0.3,
)  # fmt: skip
# The largest set that helps a person more than no set.
MAX_SET_SIZE = 3
# Points of the curve of costs.
COST_POINTS = 100
CONFIDENCE = 0.95
# What stands in for costs that nobody stated.
EXAMPLE_COST_WRONG, EXAMPLE_COST_DEFER = 10.0, 1.0


@dataclass(frozen=True, eq=False)
class Decided:
    """What happens to the test examples at a stated risk, each half by the rule of the
    other.

    Attributes:
        risk: The error rate among answers that was allowed.
        promised: What the rules promise it to be at most, with a confidence of 95 %.
        answered: Share that is answered.
        named: Share that gets a set of a few classes.
        deferred: Share that goes to a person.
        unusual: Share that goes to a person because it is unusual.
        wrong: Share of answers that is wrong; None if there are no answers.
        held: Share of the named sets that holds the label; None if there are none.
        threshold: The largest 1 − max p that is answered: the stricter of the two
            rules; None if everything is.
        action: What is done with each example.
    """

    risk: float
    promised: float
    answered: Interval
    named: Interval
    deferred: Interval
    unusual: float
    wrong: Interval | None
    held: Interval | None
    threshold: float | None
    action: Int[Tensor, " N"]


class Costs(NamedTuple):
    """What a wrong answer and deferring cost, in one unit."""

    wrong: float
    defer: float
    is_example: bool = False  # whether nobody stated them

    @classmethod
    def stated(cls, wrong: float | None, defer: float | None) -> "Costs":
        """Those that were stated, and examples in the place of others."""
        return cls(
            EXAMPLE_COST_WRONG if wrong is None else wrong,
            EXAMPLE_COST_DEFER if defer is None else defer,
            wrong is None and defer is None,
        )


@dataclass(frozen=True)
class Cost:
    """What answering and deferring cost.

    Attributes:
        wrong: Cost of a wrong answer.
        defer: Cost of deferring.
        is_example: Whether nobody stated them.
        threshold: The largest 1 − max p to answer, where cost was least in one half.
        answered: Share that is then answered, in the other half.
        errors: Share of all examples that is answered wrongly, in the other half.
        per_case: Mean cost of an example, in the other half.
        answer_all: The same if everything were answered.
        defer_all: The same if nothing were.
        thresholds: Thresholds of the curve, over all test data.
        answered_shares: Share answered at each of them.
        wrong_shares: Share of all examples answered wrongly at each.
    """

    wrong: float
    defer: float
    is_example: bool
    threshold: float
    answered: float
    errors: float
    per_case: float
    answer_all: float
    defer_all: float
    thresholds: tuple[float, ...]
    answered_shares: tuple[float, ...]
    wrong_shares: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Decisions:
    """What happens at every risk of `RISKS`, and at the one that is stated.

    Attributes:
        stated: The risk that was asked for.
        rules: What happens at each risk that can be promised.
        impossible: Why others cannot be, by risk.
    """

    stated: float
    rules: tuple[Decided, ...]
    impossible: dict[float, str]

    @property
    def chosen(self) -> Decided | None:
        """At the stated risk, or the smallest above it that can be promised; None if
        there is none.
        """
        return next((rule for rule in self.rules if rule.risk >= self.stated), None)


def decide(
    probabilities: Float[Tensor, "N K"],
    labels: Int[Tensor, " N"],
    halves: Halves,
    found_sets: FoundSets,
    *,
    risk: float,
    unusual: Bool[Tensor, " N"] | None,
    risks: Sequence[float] = RISKS,
) -> Decisions:
    """Calibrates a rule for each risk on one half, and applies it to the other."""
    rules, impossible = [], {}
    for each in sorted({*risks, risk}):
        try:
            rules.append(_decided(probabilities, labels, halves, found_sets, each, unusual))
        except InputError as problem:  # too few examples, or too many errors, to promise it
            impossible[each] = str(problem)
            continue
        if each >= risk and rules[-1].threshold is None:
            break  # everything is answered already
    return Decisions(risk, tuple(rules), impossible)


def _decided(
    probabilities: Float[Tensor, "N K"],
    labels: Int[Tensor, " N"],
    halves: Halves,
    found_sets: FoundSets,
    risk: float,
    unusual: Bool[Tensor, " N"] | None,
) -> Decided:
    largest = min(MAX_SET_SIZE, probabilities.shape[1] - 1)
    action = torch.zeros_like(labels)
    rules = []
    for (chosen_by, decided), sets in zip(halves.crossed(), found_sets.parts):
        rule = selective.calibrate(
            scores.msp,
            probabilities[chosen_by],
            labels[chosen_by],
            risk=risk,
            confidence=CONFIDENCE,
            unusual=None if unusual is None else unusual[chosen_by],
        )
        action[decided] = rule(
            probabilities[decided],
            sets=sets if largest > 1 else None,
            max_set_size=largest if largest > 1 else None,
            unusual=None if unusual is None else unusual[decided],
        ).action
        rules.append(rule)
    return _counted(risk, rules, action, probabilities.argmax(-1) == labels, found_sets, unusual)


def _counted(
    risk: float,
    rules: Sequence[selective.SelectiveRule],
    action: Int[Tensor, " N"],
    right: Bool[Tensor, " N"],
    found_sets: FoundSets,
    unusual: Bool[Tensor, " N"] | None,
) -> Decided:
    number, threshold = len(action), min(rule.threshold for rule in rules)
    answered, named = action == Action.ANSWER, action == Action.SET

    def part(of: Tensor) -> Interval:
        found = share(int(of.sum()), number)
        assert found is not None  # noqa: S101  (there are examples)
        return found

    return Decided(
        risk=risk,
        promised=max(rule.risk_bound or 0.0 for rule in rules),
        answered=part(answered),
        named=part(named),
        deferred=part(action == Action.DEFER),
        unusual=0.0 if unusual is None else float(unusual.double().mean()),
        wrong=share(int((answered & ~right).sum()), int(answered.sum())),
        held=share(int((named & found_sets.held).sum()), int(named.sum())),
        threshold=threshold if math.isfinite(threshold) else None,
        action=action,
    )


def cheapest(
    msp: Float[Tensor, " N"],
    right: Bool[Tensor, " N"],
    halves: Halves,
    costs: Costs,
) -> Cost:
    """The threshold of 1 − max p at which answers and deferrals cost least.

    It is chosen on one half and judged on the other.

    Raises:
        InputError: If a cost is negative, or a wrong answer costs nothing.
    """
    cost_wrong, cost_defer, is_example = costs
    if not (cost_wrong > 0 and cost_defer >= 0):
        raise InputError(
            "Costs need a wrong answer that costs something, and deferring that costs nothing or"
            f" something; got {cost_wrong:g} and {cost_defer:g}."
        )

    def curve(rows: Tensor, thresholds: Tensor) -> tuple[Tensor, Tensor]:
        answered = msp[rows].unsqueeze(0) <= thresholds.unsqueeze(-1)
        wrong = answered & ~right[rows]
        return answered.double().mean(-1), wrong.double().mean(-1)

    def cost(answered: Tensor, wrong: Tensor) -> Tensor:
        return cost_wrong * wrong + cost_defer * (1 - answered)

    judged: list[tuple[float, float, float]] = []
    everyone = torch.arange(len(msp))
    for chosen_by, decided in halves.crossed():
        candidates = _thresholds(msp[chosen_by])
        best = candidates[cost(*curve(chosen_by, candidates)).argmin()]
        answered, wrong = curve(decided, best.unsqueeze(0))
        judged.append((float(best), float(answered), float(wrong)))
    threshold, answered_share, errors = (sum(each) / 2 for each in zip(*judged))
    thresholds = _thresholds(msp)
    shown = curve(everyone, thresholds)
    return Cost(
        wrong=cost_wrong,
        defer=cost_defer,
        is_example=is_example,
        threshold=threshold,
        answered=answered_share,
        errors=errors,
        per_case=cost_wrong * errors + cost_defer * (1 - answered_share),
        answer_all=cost_wrong * float((~right).double().mean()),
        defer_all=cost_defer,
        thresholds=tuple(round(each, 6) for each in thresholds.tolist()),
        answered_shares=tuple(round(each, 6) for each in shown[0].tolist()),
        wrong_shares=tuple(round(each, 6) for each in shown[1].tolist()),
    )


def _thresholds(msp: Float[Tensor, " n"]) -> Float[Tensor, " T"]:
    """Thresholds that answer nothing, everything, and even shares between."""
    levels = torch.linspace(0, 1, COST_POINTS, dtype=torch.float64)
    inner = torch.quantile(msp.double(), levels, interpolation="higher")
    return torch.cat([inner.new_tensor([-1.0]), torch.unique(inner)])


def plain(decisions: Decisions) -> dict[str, Any]:
    """The numbers alone, as JSON has them."""
    chosen = decisions.chosen
    return {
        "stated_risk": decisions.stated,
        "chosen_risk": None if chosen is None else chosen.risk,
        "confidence": CONFIDENCE,
        "rules": [
            {name: value for name, value in vars(rule).items() if name != "action"}
            for rule in decisions.rules
        ],
        "impossible": {f"{risk:g}": why for risk, why in decisions.impossible.items()},
    }
