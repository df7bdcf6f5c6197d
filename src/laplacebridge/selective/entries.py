"""Rules and calibrated sets as entries of a file: only what the library has a name for."""

import math
from typing import Any

import torch

from laplacebridge.errors import InputError
from laplacebridge.scores import DIRICHLET_SCORES, SCORES, Score
from laplacebridge.selective.selective_rule import SelectiveRule
from laplacebridge.sets import (
    APS,
    RAPS,
    CalibratedSets,
    LeastAmbiguous,
    Mass,
    Overlap,
    SetRule,
    TopK,
)

# Scores and rules for sets that files can name.
NAMED_SCORES: dict[str, Score] = {**SCORES, **DIRICHLET_SCORES}
NAMED_SETS: dict[str, type[SetRule]] = {
    kind.__name__: kind for kind in (TopK, Mass, LeastAmbiguous, RAPS, APS, Overlap)
}
_RULE_FIELDS = ("num_examples", "num_answered", "num_wrong", "risk_bound", "confidence")
_SETS_FIELDS = ("threshold", "coverage", "num_examples", "rank", "never_empty")


def rule_entry(rule: SelectiveRule) -> dict[str, Any]:
    """What a file holds of a rule.

    Args:
        rule: The rule.

    Raises:
        InputError: If its score is none of the library's.
    """
    return {
        **{name: getattr(rule, name) for name in _RULE_FIELDS},
        "score": score_name(rule),
        # JSON has no infinity, which answers everything
        "threshold": rule.threshold if math.isfinite(rule.threshold) else None,
    }


def rule_from(entry: dict[str, Any]) -> SelectiveRule:
    """The rule of such an entry.

    Args:
        entry: As `rule_entry` gives it.
    """
    threshold = math.inf if entry["threshold"] is None else entry["threshold"]
    return SelectiveRule(**entry | {"score": NAMED_SCORES[entry["score"]], "threshold": threshold})


def sets_entry(sets: CalibratedSets) -> dict[str, Any]:
    """What a file holds of calibrated sets.

    Args:
        sets: The sets.

    Raises:
        InputError: If their rule is none of the library's.
    """
    entry = {name: getattr(sets, name) for name in _SETS_FIELDS}
    entry["rule"] = set_rule_name(sets.rule)
    if isinstance(sets.rule, RAPS):
        entry["randomised"] = sets.rule.generator is not None
        if not isinstance(sets.rule, APS):
            entry |= {"penalty": sets.rule.penalty, "free_places": sets.rule.free_places}
    return entry


def sets_from(entry: dict[str, Any]) -> CalibratedSets:
    """The calibrated sets of such an entry.

    Args:
        entry: As `sets_entry` gives it.
    """
    kept = {name: entry[name] for name in _SETS_FIELDS}
    return CalibratedSets(_set_rule_from(entry), **kept)


def score_name(rule: SelectiveRule) -> str:
    """The name of a rule's score.

    Args:
        rule: The rule.

    Raises:
        InputError: If it is none of the library's scores of predictions.
    """
    for name, score in NAMED_SCORES.items():
        if score is rule.score:
            return name
    raise InputError(
        "A file can hold a rule of one of the library's scores of predictions,"
        f" {', '.join(NAMED_SCORES)}; got {getattr(rule.score, '__name__', rule.score)!r}. Leave"
        " the rule out, and keep it beside the file."
    )


def set_rule_name(rule: SetRule) -> str:
    """The name of a rule for sets.

    Args:
        rule: The rule.

    Raises:
        InputError: If it is none of the library's.
    """
    name = type(rule).__name__
    if NAMED_SETS.get(name) is not type(rule):
        raise InputError(
            f"A file can hold the library's rules for sets, {', '.join(NAMED_SETS)}; got {name}."
            " Leave the sets out, and keep them beside the file."
        )
    return name


def _set_rule_from(entry: dict[str, Any]) -> SetRule:
    kind = NAMED_SETS[entry["rule"]]
    if not issubclass(kind, RAPS):
        return kind()
    generator = torch.Generator().manual_seed(0) if entry["randomised"] else None
    if kind is APS:
        return APS(generator)
    return RAPS(entry["penalty"], entry["free_places"], generator)
