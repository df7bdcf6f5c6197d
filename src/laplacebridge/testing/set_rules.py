"""The laws of rules for class sets."""

import torch
from torch import Tensor

from laplacebridge.dirichlet import Dirichlet
from laplacebridge.errors import InputError
from laplacebridge.sets import SetRule, calibrate
from laplacebridge.testing._laws import laws_of, require, seeded

_BATCH, _CLASSES = 60, 12


def check_set_rule(rule: SetRule) -> None:
    """Tries every law of rules for class sets on one of your own.

    Args:
        rule: One that draws no random numbers, so that laws hold exactly.

    Raises:
        AssertionError: If a law does not hold; it says which, and with what input.

    Example:
        >>> from laplacebridge.sets import Mass
        >>> check_set_rule(Mass())
    """
    law = laws_of("check_set_rule", rule)
    given, labels = _predictions(0), _labels(1)
    with law("`entry` is a number for each label", f"{_BATCH} predictions"):
        entries = rule.entry(given, labels)
        require(entries.shape == (_BATCH,), f"its shape is {tuple(entries.shape)}")
        require(entries.isfinite(), "it is not finite")
    levels = _thresholds(rule, entries)
    with law("entries differ between labels", f"{_BATCH} predictions"):
        require(len(levels) > 5, f"there are {len(levels) + 1} different ones")
    some = levels[:: max(1, len(levels) // 12)]
    for threshold in some:
        with law("a label is in its set exactly from its entry on", f"threshold {threshold:.6g}"):
            reached = entries <= threshold if rule.grows_with_threshold else entries >= threshold
            wrong = (rule(given, threshold).contains(labels) != reached).nonzero().flatten()
            require(
                not len(wrong), f"row {wrong[:1].tolist()} of label {labels[wrong[:1]].tolist()}"
            )
    ranking = given.mean.argsort(dim=-1, descending=True, stable=True).tolist()
    before = torch.zeros(_BATCH, dtype=torch.long)
    for threshold in some:
        with law("sets are the most probable classes, and grow", f"threshold {threshold:.6g}"):
            sets = rule(given, threshold)
            require(sets.size >= before, "a set is smaller than at a stricter threshold")
            for row, (members, order) in enumerate(zip(sets, ranking)):
                require(members == order[: len(members)], f"row {row} has {members}")
            before = sets.size
    order = torch.arange(_CLASSES - 1, -1, -1)
    renamed = Dirichlet(given.log_concentration[:, order])
    for threshold in some[::3]:
        with law("renaming classes renames the sets", f"the order {order.tolist()}"):
            same = rule(renamed, threshold).mask() == rule(given, threshold).mask()[:, order]
            require(same, f"they differ at the threshold {threshold:.6g}")
    _calibration_covers(rule)
    with law("labels that are no classes are refused", f"labels {_CLASSES}"):
        try:
            rule.entry(given, torch.full((_BATCH,), _CLASSES))
        except InputError:
            return
        raise AssertionError("it answered")


def _calibration_covers(rule: SetRule) -> None:
    law = laws_of("check_set_rule", rule)
    given, labels = _predictions(9, 200), _labels(10, 200)
    for coverage in (0.5, 0.9):
        with law("calibrated sets cover as many labels as promised", f"coverage {coverage}"):
            calibrated = calibrate(rule, given, labels, coverage=coverage)
            covered = int(calibrated(given).contains(labels).sum())
            require(covered >= calibrated.rank, f"{covered} of 200, not {calibrated.rank}")


def _predictions(seed: int, batch: int = _BATCH) -> Dirichlet:
    log = 2 * torch.randn(batch, _CLASSES, generator=seeded(seed), dtype=torch.float64)
    return Dirichlet(log + torch.log(torch.tensor(_CLASSES / 2)))


def _labels(seed: int, batch: int = _BATCH) -> Tensor:
    return torch.randint(_CLASSES, (batch,), generator=seeded(seed))


def _thresholds(rule: SetRule, entries: Tensor) -> list[float]:
    """From strict to loose, between entries, where nothing is decided by rounding."""
    ordered = torch.unique(entries)
    between: list[float] = ((ordered[1:] + ordered[:-1]) / 2)[ordered.diff() > 1e-9].tolist()
    return between if rule.grows_with_threshold else between[::-1]
