"""Uncertainty-aware top-k (Algorithm 1): classes stay in the set while their marginals
overlap the best one's.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from laplacebridge._blocks import ELEMENTS_IN_CACHE
from laplacebridge._checks import Labels, is_half, labels_of
from laplacebridge._predictions import AnyPrediction, dirichlet_of
from laplacebridge._warnings import warn
from laplacebridge.beta import Beta
from laplacebridge.dirichlet import Dirichlet
from laplacebridge.errors import InputError
from laplacebridge.prediction import Prediction
from laplacebridge.sets.class_sets import ClassSets
from laplacebridge.sets.ranking import ranked_prefixes
from laplacebridge.sets.rules import SetRule

# Below this total, a Dirichlet is one of its vertices to all digits, and which one
# depends on ratios alone: rows are scaled up to it together, so that logarithms of
# quantiles stay within the type.
_LOG_SMALLEST_TOTAL = -28 * math.log(10)
# Above this concentration per class a probability of one half is known to about 0.001,
# and marginals of two classes overlap only where their means are as close.
_LOG_NO_WIDTH = math.log(1e5)
# More than the rounding of a divergence between two probabilities.
_KL_ROUNDING = 1e-12
# A density with a concave logarithm has at least 1/e of its mass above its mean.
_ABOVE_MEAN = 0.367
# Marginals of at least this α have their normal scores from an expansion, whose error is
# below a third of _SCORE_ERROR/α; and what rounding adds where divergences are this large.
_SMALLEST_EXPANDED, _SCORE_ERROR, _SCORE_ROUNDING = 0.3, 0.1, 0.01
_SMALLEST_DIVERGENCE, _SMALLEST_ROOT = 1e-9, 0.3
# Halvings of the interval in which two marginals cross: from a million to the rounding
# of float64.
_HALVINGS = 70
_NEEDS_MARGINALS = (
    "Only a Dirichlet has marginals that can overlap: give what a bridge or a classifier returned;"
    " for probabilities alone use `Mass` or `APS`."
)


def overlap_sets(
    dirichlet: Dirichlet | Prediction, threshold: float = 0.05, max_size: int | None = None
) -> ClassSets:
    r"""The classes whose probability cannot be told from the most probable one's
    (Algorithm 1).

    With the marginals F₁, F₂, … in order of falling α, class i is in the set if its
    upper T/2 quantile exceeds the lower T/2 quantile of the first; the set ends at the
    first class that fails. The first class is always in.

    .. math:: F_i^{-1}(1 - T/2) > F_1^{-1}(T/2) \iff 1 - F_i\bigl(F_1^{-1}(T/2)\bigr) > T/2

    The right-hand side grows with α_i, so the set is a prefix of the ranking: one
    quantile for each example and a few distribution functions find its end. The result
    is that of the algorithm as printed.

    A set has no promised coverage; `calibrate` chooses the threshold for one.

    Note:
        The authors' code counts the overlap on one side and stops at ten classes: its
        overlap o is ``overlap_sets(dirichlet, threshold=2 * o, max_size=10)``.

    Args:
        dirichlet: Dirichlets, or predictions that hold them.
        threshold: T, from 0 (all classes) to 1 (the first alone). A smaller one gives
            larger sets.
        max_size: Where to cut sets off.

    Raises:
        InputError: If the threshold is not from 0 to 1 or the size not positive.

    Example:
        >>> alpha = torch.tensor([[60.0, 50.0, 4.0], [900.0, 20.0, 5.0]])
        >>> overlap_sets(Dirichlet.from_concentration(alpha)).to_lists()
        [[0, 1], [0]]
    """
    if not 0 <= threshold <= 1:
        raise InputError(
            f"`overlap_sets(threshold)` needs a number from 0 to 1; got {threshold}. The paper's is"
            " 0.05; smaller thresholds give larger sets."
        )
    if max_size is not None and max_size < 1:
        raise InputError(
            f"`overlap_sets(max_size)` needs at least 1, for the best class; got {max_size}."
        )
    batch = _Batch.of("overlap_sets(dirichlet)", dirichlet)
    log_mean_concentration = batch.log_total - math.log(batch.log_concentration.shape[1])
    if len(batch) and float(log_mean_concentration.median()) > _LOG_NO_WIDTH:
        warn(
            "These predictions have next to no width (half of them have concentrations above"
            f" {math.exp(_LOG_NO_WIDTH):.0e} per class), so that overlap sets rank by rounding:"
            " they hold one class, or when calibrated nearly all. Use `LeastAmbiguous`, or a fit"
            " that keeps the width of its posterior (`val_loader=` without `tune_temperature`)."
        )
    lower = batch.first.log_quantile(threshold / 2)
    return ranked_prefixes(
        batch.log_concentration,
        lambda rows, ranked: batch.count_above(rows, ranked, lower, threshold / 2),
        max_size=max_size,
    )


@dataclass(frozen=True)
class Overlap(SetRule):
    """`overlap_sets` as a rule to calibrate: lower thresholds give larger sets.

    Example:
        >>> dirichlet = Dirichlet.from_concentration(torch.tensor([[9.0, 5.0, 1.0]]))
        >>> Overlap()(dirichlet, 0.05).to_lists()
        [[0, 1]]
    """

    grows_with_threshold: ClassVar[bool] = False

    def __call__(self, prediction: AnyPrediction, threshold: float) -> ClassSets:
        """The sets at a threshold.

        Args:
            prediction: Dirichlets.
            threshold: T of Algorithm 1.
        """
        return overlap_sets(
            dirichlet_of("Overlap()(prediction)", prediction, _NEEDS_MARGINALS), threshold
        )

    def entry(self, prediction: AnyPrediction, labels: Labels) -> Float[Tensor, " B"]:
        """The largest threshold at which the label is in its set: 1 for the first
        class.

        Two marginals cross where F₁(x) = 1 − F_i(x); there both are T/2.

        Args:
            prediction: Dirichlets.
            labels: One class for each example.
        """
        batch = _Batch.of("Overlap().entry(prediction)", prediction)
        log = batch.log_concentration
        wanted = labels_of("Overlap().entry(labels)", labels, *log.shape).to(log.device)
        others = (wanted != batch.best).nonzero().squeeze(-1)
        first = Beta(batch.first.log_alpha[others], batch.first.log_beta[others])
        own = batch.marginal(others, log[others, wanted[others]])
        low, high = own.log_quantile(0.5), first.log_quantile(0.5)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            crossed = first.log_cdf(middle) > own.survival(middle).log()
            low, high = torch.where(crossed, low, middle), torch.where(crossed, middle, high)
        return torch.ones_like(batch.lift).index_copy(0, others, 2 * own.survival(high))


@dataclass(frozen=True, eq=False)
class _Batch:
    """Dirichlets with what all their marginals share, computed once and in float64."""

    log_concentration: Float[Tensor, "B K"]
    best: Int[Tensor, " B"]
    first: Beta
    log_total: Float[Tensor, " B"]
    lift: Float[Tensor, " B"]

    @classmethod
    def of(cls, call: str, prediction: AnyPrediction) -> "_Batch":
        log = dirichlet_of(call, prediction, _NEEDS_MARGINALS).log_concentration.detach()
        log = log.float() if is_half(log.dtype) else log
        top, best = log.max(-1)
        others = torch.cat([_sum_relative(*block) for block in _blocks(log, top, best)])
        top = top.double()
        bad = ~(others.isfinite() & top.isfinite())
        if bad.any():
            raise InputError(
                f"`{call}` needs finite concentrations; row {int(bad.nonzero()[0])} has NaN or"
                " infinity. Find the input that made it: `lb.check(dirichlet)`."
            )
        lift = (_LOG_SMALLEST_TOTAL - top).clamp_min(0)
        first = Beta(top + lift, top + lift + others.log())
        return cls(log, best, first, torch.logaddexp(first.log_alpha, first.log_beta), lift)

    def __len__(self) -> int:
        return len(self.best)

    def count_above(
        self,
        rows: Int[Tensor, " b"],
        ranked: Float[Tensor, "b m"],
        log_x: Float[Tensor, " B"],
        tail: float,
    ) -> Int[Tensor, " b"]:
        """How many of the first classes have more than this mass above x; the first
        counts in any case.

        Args:
            rows: Which of the batch.
            ranked: Concentrations in falling order, in logarithms.
            log_x: Logarithms of x, for the whole batch.
            tail: The mass.
        """
        # the last column that is known to count, the first known not to, and an estimate
        inside, outside, end = self._bounded(rows, ranked, log_x, tail)
        while (searched := (outside - inside > 1).nonzero().squeeze(-1)).numel():
            low, high = inside[searched], outside[searched]
            last = torch.minimum(torch.maximum(end[searched] - 1, low), high - 1)
            both = torch.stack([last, last + 1], -1)
            counts = both == low.unsqueeze(-1)
            place, side = (~counts & (both < high.unsqueeze(-1))).nonzero(as_tuple=True)
            asked = searched[place]
            marginal = self.marginal(rows[asked], ranked[asked, both[place, side]])
            counts[place, side] = marginal.survival(log_x[rows[asked]]) > tail
            last_counts, next_counts = counts[:, 0], counts.all(-1)
            inside[searched] = torch.where(last_counts, last + next_counts, low)
            outside[searched] = torch.where(next_counts, high, last + last_counts)
            end = (inside + outside + 1) // 2
        return outside

    def _bounded(
        self,
        rows: Int[Tensor, " b"],
        ranked: Float[Tensor, "b m"],
        log_x: Float[Tensor, " B"],
        tail: float,
    ) -> tuple[Int[Tensor, " b"], Int[Tensor, " b"], Int[Tensor, " b"]]:
        """Of the places after the first the last whose class surely has more than this
        mass above x, the first whose class surely does not, and an estimate of the
        first that does not: without the mass itself, which costs far more.

        With α ≥ 1 more than 1/e of the mass is above the mean m. For x above m and a
        total of α₀, 1 − F(x) ≤ exp(−α₀ KL(m ‖ x)), which is Chernoff's bound, and 1 −
        F(x) ≤ m/x, which is Markov's. Normal scores follow from Temme's expansion: w +
        log(u/w)/w with w² = 2α₀ KL(m ‖ x) and u the distance from m in standard
        deviations.
        """
        log_total, log_point = self.log_total[rows].unsqueeze(-1), log_x[rows].unsqueeze(-1)
        log_mean = ranked.double() + self.lift[rows].unsqueeze(-1) - log_total
        mean, total, point = log_mean.exp(), log_total.exp(), log_point.exp()
        rest, distance, alpha = 1 - mean, log_point - log_mean, total * mean
        divergence = rest * (torch.log1p(-mean) - torch.log1p(-point)) - mean * distance
        root = (2 * total * divergence).sqrt()
        deviations = (point - mean) * (total / (mean * rest)).sqrt()
        score = root + (deviations / root).log() / root
        error = _SCORE_ERROR / alpha + _SCORE_ROUNDING
        known = (alpha > _SMALLEST_EXPANDED) & (root > _SMALLEST_ROOT)
        known &= divergence > _SMALLEST_DIVERGENCE

        limit = -NormalDist().inv_cdf(tail) if tail > 0 else math.inf
        log_tail = math.log(tail) if tail > 0 else -math.inf
        is_above, places = distance > 0, torch.arange(ranked.shape[1], device=ranked.device)
        most = torch.minimum(total * (_KL_ROUNDING - divergence), _KL_ROUNDING - distance)
        below = (most < log_tail) | (known & (score - error > limit))
        above = known & (score + error < limit) & is_above
        if tail < _ABOVE_MEAN:
            above |= (alpha >= 1) & ~is_above
        likely = ~is_above | ((score < limit) & (distance < -log_tail))
        outside = torch.where(below & is_above & (places > 0), places, len(places)).amin(-1)
        inside = torch.where(above, places, 0).amax(-1)
        return inside, outside, likely.sum(-1)

    def marginal(self, rows: Int[Tensor, " c"], log_concentration: Float[Tensor, " c"]) -> Beta:
        """Marginals of classes other than the first of their row, so that α is at most
        half of the total.
        """
        log_total = self.log_total[rows]
        log_alpha = log_concentration.double() + self.lift[rows]
        return Beta(log_alpha, log_total + torch.log1p(-torch.exp(log_alpha - log_total)))


def _blocks(log: Tensor, *others: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Rows, a few at a time, so that temporaries stay in the cache."""
    rows = max(1, ELEMENTS_IN_CACHE // log.shape[1])
    return zip(*(torch.split(tensor, rows) for tensor in (log, *others)))


def _sum_relative(
    log: Float[Tensor, "b K"], top: Float[Tensor, " b"], best: Int[Tensor, " b"]
) -> Float[Tensor, " b"]:
    """Σ α_k/α₁ over all classes but the first, as accurate as the given α."""
    shifted = log - top.unsqueeze(-1)
    return shifted.scatter_(-1, best.unsqueeze(-1), -torch.inf).exp_().sum(-1, dtype=torch.float64)
