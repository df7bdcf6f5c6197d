"""The race of many classes: the leading ones in full, all others by a series.

The hazard of runner k at the time x is φ_k = −log E exp(−s X), the cumulant function of
the log-normal variable X = exp(z_k) at s = e^(−x). Of a class that hardly ever wins it
is a short series,

    φ_k = κ₁s − κ₂s²/2 + κ₃s³/6 − …,
    κ₁ = exp(μ + v/2),   κ₂ = κ₁²g,   κ₃ = κ₁³g²(g + 3),   g = eᵛ − 1,

so that three sums over these classes stand for all of them at every node of the race,
and three sums over the nodes give back the mean of each. The true hazard lies between
any two successive sums of the series, so that its last term bounds the error; rows where
these terms add up to more than 5e-5 are raced in full. Derivation in docs/bridges.md.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from laplacebridge.bridges.gumbel import Runners
from laplacebridge.bridges.precision import SMALLEST_PROBABILITY
from laplacebridge.bridges.race import (
    largest_variance,
    level_weights,
    node_times,
    race_probabilities,
    require_nodes,
)

Rows: TypeAlias = Tensor | slice

NUM_LEADING = 48
# Where so many classes share what is left, more of them lead: too many rows would
# otherwise be raced in full.
VERY_MANY_CLASSES, MORE_LEADING = 4000, 96
# Classes lead by μ + 3v/2, a third of the logarithm of the last term of their series.
LEADING_BY = 1.5
# What the last terms of a row may add up to, in units of its probability, and which share
# of the first terms must be left by the others at the earliest node.
LARGEST_ERROR, SMALLEST_LEFT = 5e-5, 0.5
# Of wider runners the twelve nodes tell too little for two ways of placing them to agree.
LARGEST_VARIANCE = 100.0
# Beyond these a class that does not lead adds nothing, or its row is raced in full.
LARGEST_EXPONENT, LARGEST_HAZARD, SMALLEST_FACTOR = 20.0, 50.0, 0.1
FAR_BELOW = -1e30


class _Tail(NamedTuple):
    """The classes that do not lead, in units of their sum Σκ₁; zero for those that do."""

    first: Float[Tensor, "B K"]  # κ₁
    ratio: Float[Tensor, "B K"]  # κ₂/κ₁
    growth: Float[Tensor, "B K"]  # κ₃/κ₂
    log_unit: Float[Tensor, "B 1"]
    second: Float[Tensor, " B"]  # Σκ₂
    third: Float[Tensor, " B"]  # Σκ₃

    @classmethod
    def of(cls, mean: Tensor, variance: Tensor, leading: Tensor) -> "_Tail":
        exponent = torch.add(mean, variance, alpha=0.5).scatter(-1, leading, FAR_BELOW)
        log_unit = exponent.logsumexp(-1, keepdim=True)
        first = (exponent - log_unit).exp()
        growth = variance.clamp_max(LARGEST_EXPONENT).expm1()
        ratio = first * growth
        second = first * ratio
        growth = ratio * (growth + 3)
        return cls(first, ratio, growth, log_unit, second.sum(-1), (second * growth).sum(-1))

    def hazard(self, times: Float[Tensor, "J B"]) -> tuple[Tensor, Tensor]:
        """Σκ₁s, and what the sum of all these hazards is in units of it, at some times."""
        unit = (self.log_unit.squeeze(-1) - times).exp().clamp_max(LARGEST_HAZARD)
        factor = 1 - unit * (self.second / 2 - unit * (self.third / 6))
        return unit, factor.clamp(SMALLEST_FACTOR, 1)

    def expected(self, units: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Σ_j of the weights of the nodes times each hazard, and what of it is due to the
        last terms.
        """
        weighted = weights * units
        once = weighted.sum(0).unsqueeze(-1)
        twice = (weighted * units).sum(0).unsqueeze(-1)
        thrice = (weighted * units * units).sum(0).unsqueeze(-1)
        correction = self.ratio * (self.growth * (thrice / 6) - twice / 2)
        return self.first * (once + correction), self.third.unsqueeze(-1) * (thrice / 6)


def expected_softmax(
    mean: Float[Tensor, "B K"], variance: Float[Tensor, "B K"], *, num_nodes: int
) -> Float[Tensor, "B K"]:
    """E softmax(z) for independent logits z_k ~ N(mean, variance) of many classes: by the
    race of the leading ones where that is enough.

    Args:
        mean: Means of the logits.
        variance: Their variances.
        num_nodes: See `race_probabilities`.
    """
    expected, is_enough = leading_race(mean, variance, num_nodes=num_nodes)
    (answer,) = where_enough(
        is_enough,
        lambda: (expected,),
        lambda rows: (leading_race(mean[rows], variance[rows], num_nodes=num_nodes)[0],),
        lambda rows: (race_probabilities(mean[rows], variance[rows], num_nodes=num_nodes),),
    )
    return answer


def where_enough(
    is_enough: Bool[Tensor, " B"],
    answers: Callable[[], tuple[Tensor, ...]],
    led: Callable[[Rows], tuple[Tensor, ...]],
    in_full: Callable[[Rows], tuple[Tensor, ...]],
) -> tuple[Tensor, ...]:
    """Answers by the leading classes where these are enough, in full elsewhere.

    Code that is being compiled or exported cannot decide by the numbers: it computes both,
    and chooses.

    Args:
        is_enough: For which rows they are.
        answers: Gives those by the leading classes, of all rows.
        led: Computes these for some rows, where gradients are wanted.
        in_full: Computes the others.
    """
    if torch.compiler.is_compiling():
        whole = in_full(slice(None))
        # a gradient would go through both, and be NaN where the one that is not chosen is
        if whole[0].requires_grad:
            return whole
        return tuple(torch.where(is_enough[:, None], *both) for both in zip(answers(), whole))
    if is_enough.all():
        return answers()
    if not is_enough.any():
        return in_full(slice(None))
    enough, others = is_enough.nonzero().squeeze(-1), (~is_enough).nonzero().squeeze(-1)
    # rows that are not used must not be in the graph: 0 · ∞
    found = answers()
    kept = led(enough) if found[0].requires_grad else tuple(answer[enough] for answer in found)
    order = torch.cat([enough, others]).argsort()
    return tuple(torch.cat(both)[order] for both in zip(kept, in_full(others)))


def num_leading(num_classes: int) -> int:
    """How many classes lead.

    Args:
        num_classes: Of how many.
    """
    return NUM_LEADING if num_classes < VERY_MANY_CLASSES else MORE_LEADING


def leading_race(
    mean: Float[Tensor, "B K"], variance: Float[Tensor, "B K"], *, num_nodes: int
) -> tuple[Float[Tensor, "B K"], Bool[Tensor, " B"]]:
    """E softmax(z) with the leading classes in full and the others by their series; and
    for which rows that is about as near to the truth as the race of all.

    Args:
        mean: Means of the logits, of more classes than lead.
        variance: Their variances.
        num_nodes: See `race_probabilities`.
    """
    require_nodes(num_nodes)
    num_classes = mean.shape[-1]
    mean = mean - mean.amax(-1, keepdim=True).detach()
    number = num_leading(num_classes)
    leading = torch.add(mean, variance, alpha=LEADING_BY).detach().topk(number, -1)[1]
    tail = _Tail.of(mean, variance, leading)
    mean, variance = mean.gather(-1, leading), variance.gather(-1, leading)
    variance = torch.minimum(variance, largest_variance(mean.detach(), variance.detach()))
    runners = Runners.of(mean, variance)

    def others(times: Tensor) -> Tensor:
        unit, factor = tail.hazard(times)
        return unit * factor

    with torch.no_grad():
        times = node_times(runners, variance, num_nodes, others=others, num_classes=num_classes)
    hazards = runners.hazards(times)
    units, factors = tail.hazard(times)
    weights = level_weights(-torch.addcmul(hazards.sum(-1), units, factors).log())
    expected, last = tail.expected(units, weights)
    expected = expected.scatter(-1, leading, torch.einsum("jbk,jb->bk", hazards, weights))
    total = expected.sum(-1, keepdim=True)
    is_enough = (
        (last < LARGEST_ERROR * total).squeeze(-1)
        & (units[0] < LARGEST_HAZARD)
        & (factors[0] > SMALLEST_LEFT)
        & (variance.amax(-1) < LARGEST_VARIANCE)
    )
    expected = expected / total + SMALLEST_PROBABILITY
    return expected / expected.sum(-1, keepdim=True), is_enough
