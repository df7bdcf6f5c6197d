"""Comparing methods on the same examples: a difference counts if it is clear and large
enough to matter.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from laplacebridge import _blocks
from laplacebridge.metrics.detection import auroc_of_rows
from laplacebridge.metrics.risk_coverage import aurc_of_rows
from laplacebridge.report.table import Evidence, Row

# Standard errors beyond which a difference is not put down to chance. A gain needs more:
# of a dozen methods and five measures one looks better by chance.
CLEAR, SURE = 1.96, 3.0
# A score whose interval of the AUROC reaches down to this is of no use for noticing
# unusual inputs; chance alone has 0.5.
NEAR_CHANCE = 0.55
NUM_RESAMPLES = 200
ECE_BINS = 15


class Measure(NamedTuple):
    """What methods are compared by.

    Attributes:
        title: What it is called in a sentence.
        worth: Smaller differences matter to nobody, however clear they are.
        is_relative: Whether that is a share of the smaller of the two numbers.
        larger_is_better: Otherwise smaller is.
    """

    title: str
    worth: float
    is_relative: bool = False
    larger_is_better: bool = False


MEASURES = {
    "nll": Measure("predicting labels", 0.03, is_relative=True),
    "ece": Measure("calibration", 0.005),
    "aurc": Measure("knowing when it is wrong", 0.002),
    "set_size": Measure("small sets", 0.03, is_relative=True),
    "auroc": Measure("noticing unusual inputs", 0.01, larger_is_better=True),
}


class Comparisons:
    """Rows of a table, compared in pairs. The same resamples serve all of them.

    Args:
        rows: With their evidence.
        seed: Of the resamples.
        gains: Measures by which a method may win; by the others it can only lose.
    """

    def __init__(
        self, rows: Sequence[Row], seed: int = 0, gains: Collection[str] = tuple(MEASURES)
    ) -> None:
        self._gains = gains
        self.rows = {row.method: row for row in rows}
        self._seed = seed
        self._resampled: dict[str, Mapping[str, Tensor]] = {}

    def clear(self, measure: str, method: str, other: str, errors: float = CLEAR) -> int:
        """1 if the first is clearly better by a measure, −1 if clearly worse, 0 if that
        may be chance or matters little.

        Args:
            measure: Key of `MEASURES`.
            method: The first.
            other: The second.
            errors: Standard errors that make a difference clear.
        """
        one, two = self.rows[method], self.rows[other]
        values = one.value(measure), two.value(measure)
        if values[0] is None or values[1] is None or one.evidence is None or two.evidence is None:
            return 0
        told = MEASURES[measure]
        gain = values[0] - values[1] if told.larger_is_better else values[1] - values[0]
        if not math.isfinite(gain):  # one of them gave a label no chance at all
            return 0 if math.isnan(gain) else int(math.copysign(1, gain))
        if measure == "auroc" and not self._is_useful(method if gain > 0 else other):
            return 0  # below chance there is nothing to choose between
        worth = told.worth * (min(map(abs, values)) if told.is_relative else 1)  # type: ignore[arg-type]
        if abs(gain) <= worth or abs(gain) <= errors * self._error(measure, method, other):
            return 0
        return 1 if gain > 0 else -1

    def better_at(self, method: str, other: str, errors: float = CLEAR) -> list[str]:
        """The measures by which the first is clearly better."""
        return [name for name in MEASURES if self.clear(name, method, other, errors) > 0]

    def beats(self, method: str, other: str) -> bool:
        """Whether the first is surely better by some measure, and clearly worse by
        none.
        """
        gains = [name for name in self.better_at(method, other, SURE) if name in self._gains]
        return bool(gains) and not self.better_at(other, method)

    def _is_useful(self, method: str) -> bool:
        auroc = self.rows[method].auroc
        return auroc is not None and auroc.low > NEAR_CHANCE

    def _error(self, measure: str, method: str, other: str) -> float:
        """Standard error of the difference."""
        one, two = (self.rows[name].evidence for name in (method, other))
        assert one is not None  # noqa: S101  (looked at before)
        assert two is not None  # noqa: S101
        paired = {"nll": (one.losses, two.losses), "set_size": (one.set_sizes, two.set_sizes)}
        if measure in paired:
            gain = paired[measure][0].double() - paired[measure][1].double()
            return float(gain.std()) / math.sqrt(len(gain)) if len(gain) > 1 else math.inf
        first, second = (self._of(name)[measure] for name in (method, other))
        return float((first - second).std())

    def _of(self, method: str) -> Mapping[str, Tensor]:
        if method not in self._resampled:
            evidence = self.rows[method].evidence
            assert evidence is not None  # noqa: S101  (looked at before)
            self._resampled[method] = _resampled(evidence, self._seed)
        return self._resampled[method]


def resampled_auroc(
    id_scores: Float[Tensor, " N"], ood_scores: Float[Tensor, " M"], seed: int
) -> Float[Tensor, " R"]:
    """The AUROC of a score on resampled examples, the same for every score."""
    generator = Generator().manual_seed(seed)
    sizes = len(id_scores), len(ood_scores)
    block = max(1, _blocks.ELEMENTS_AT_ONCE // max(sizes))
    parts = []
    for start in range(0, NUM_RESAMPLES, block):
        count = min(block, NUM_RESAMPLES - start)
        rows, drawn = (torch.randint(size, (count, size), generator=generator) for size in sizes)
        parts.append(auroc_of_rows(id_scores.double()[rows], ood_scores.double()[drawn]))
    return torch.cat(parts)


def _resampled(evidence: Evidence, seed: int) -> dict[str, Float[Tensor, " R"]]:
    """Measures that are no means, on resampled examples."""
    generator = Generator().manual_seed(seed)
    number = len(evidence.losses)
    block = max(1, _blocks.ELEMENTS_AT_ONCE // number)
    found: dict[str, list[Tensor]] = {"ece": [], "aurc": []}
    for start in range(0, NUM_RESAMPLES, block):
        size = min(block, NUM_RESAMPLES - start)
        rows = torch.randint(number, (size, number), generator=generator)
        found["ece"].append(_ece_of_rows(evidence, rows))
        found["aurc"].append(aurc_of_rows(evidence.msp[rows], evidence.right[rows]))
    together = {name: torch.cat(parts) for name, parts in found.items()}
    if evidence.ood_msp is not None:
        together["auroc"] = resampled_auroc(evidence.msp, evidence.ood_msp, seed)
    return together


def _ece_of_rows(evidence: Evidence, rows: Tensor) -> Float[Tensor, " R"]:
    """The calibration error of each resample, in bins of the same width."""
    confidence = 1 - evidence.msp
    gap = confidence - evidence.right.double()
    place = (confidence * ECE_BINS).long().clamp_max(ECE_BINS - 1)
    sums = torch.zeros(len(rows), ECE_BINS, dtype=torch.float64)
    return sums.scatter_add(1, place[rows], gap[rows]).abs().sum(-1) / rows.shape[1]
